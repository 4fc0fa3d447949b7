"""Accounts in URLs that users and clients write stay out of errors and of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from nospoon.bmc.events import EventSettings, Subscription
from nospoon.control.labs.webhooks import Webhooks
from nospoon.errors import ProviderError
from nospoon.model.lab import Webhook
from nospoon.runtime.http import request, without_account
from nospoon.runtime.reach import ANYWHERE
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.redfish.events.delivery import Deliveries
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.store.lab_notices import Notice
from nospoon.testing.bench import bench
from nospoon.testing.redfish_app import Redfish

PATIENCE = 20.0
URL = "http://me:s3cret@127.0.0.1:{}/hook?of=me@example.com"


def test_an_account_is_left_out_of_what_is_shown() -> None:
    assert without_account(URL.format(1)) == "http://127.0.0.1:1/hook?of=me@example.com"
    assert without_account("http://192.0.2.1/me@example.com") == "http://192.0.2.1/me@example.com"


@pytest.mark.parametrize("port", ["1", "x"])
async def test_an_error_has_no_account(port: str) -> None:
    with pytest.raises(ProviderError, match=r"127\.0\.0\.1") as failed:
        await request("POST", URL.format(port), verify=True, patience=PATIENCE)
    assert "s3cret" not in str(failed.value)


async def test_the_log_has_no_account_of_a_webhook() -> None:
    over = asyncio.Event()

    async def forget(_: Sequence[str]) -> None:
        over.set()

    with capture_logs() as logs:
        async with asyncio.timeout(PATIENCE), Tasks("webhooks") as tasks:
            hooks = Webhooks(tasks, ANYWHERE, forget, pauses=())
            hooks.send((Webhook(URL.format(1), "s" * 16),), Notice("1", "815:c/dev", 0, "{}"))
            await over.wait()
    (line,) = logs
    assert line["url"].startswith("http://127.0.0.1:1/")
    assert "s3cret" not in str(line)


async def test_the_log_has_no_account_of_a_destination() -> None:
    over = asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def give_up(_: str) -> None:
        over.set()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    wanted = Subscription("1", URL.format(server.sockets[0].getsockname()[1]))
    settings = EventSettings("here 1", "00", attempts=0, subscriptions=(wanted,))
    with capture_logs() as logs:
        async with server, asyncio.timeout(PATIENCE), Tasks("deliveries") as tasks:
            deliveries = Deliveries(
                tasks, lambda _: (settings, wanted), give_up,
                lambda _, records: {"Events": records}, overrun=dict[str, Any],
            )  # fmt: skip
            deliveries.put("1", {"n": 1})
            await over.wait()
            deliveries.close()
    (line,) = logs
    assert "answered 500" in line["why"]
    assert "s3cret" not in str(line)


async def test_users_of_a_bmc_see_no_account_of_what_it_boots_by_http() -> None:
    async with bench(1) as b:
        redfish, path = Redfish.of(b), f"{ROOT}/Systems/{b.first.bmc.uuid}"
        served = b.service.status(b.first.bmc.uuid)
        assert served is not None
        for uri in (URL.format(8080), without_account(URL.format(8080))):  # and as it is shown
            changed = await redfish.ask("PATCH", path, {"Boot": {"HttpBootUri": uri}})
            assert changed.status == 200
            shown = (await redfish.ask("GET", path)).json["Boot"]["HttpBootUri"]
            assert shown == without_account(URL.format(8080))
            assert served.aggregate.runtime.http_boot_uri == URL.format(8080)
        assert (await redfish.ask("PATCH", path, {"Boot": {"HttpBootUri": None}})).status == 200
        assert served.aggregate.runtime.http_boot_uri == ""
