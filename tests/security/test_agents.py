"""Simulated agents: where an ISO of a BMC client may lead them, and what they are sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.agents.test_service import TOKEN, Machine, agents, guest, ironic
from tests.security.asked import OWNER, a_daemon
from tests.security.test_agent_floods import born

from nospoon.model.agent import Agents
from nospoon.model.ironic import IronicPlace
from nospoon.protocols.agent.agent import Ask
from nospoon.protocols.agent.parameters import of_menu, per_mac, target
from nospoon.providers.simulated.media import LARGEST_MENU
from nospoon.runtime.json_depth import DEEPEST
from nospoon.runtime.log_rate import LINES
from nospoon.runtime.reach import Reach
from nospoon.services.agents.listeners import (
    MAX_BODY,
    MAX_VALUES,
    Commanded,
    _commanded,
)
from nospoon.services.agents.service import MOST_SCRIPT, Running, origin
from nospoon.store import clusters
from nospoon.testing.downloads import LOOPBACK

NOWHERE = Reach()
"""No media networks: what a daemon has by default."""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_an_iso_leads_no_agent_to_loopback(host: str) -> None:
    machine = Machine()
    async with ironic() as api, agents(reach=NOWHERE) as service:
        url = api.url.replace("127.0.0.1", host)
        service.booted(guest(machine, Agents(), cmdline=f"ipa-api-url={url}"))
        await machine.until(lambda: bool(machine.done))
    (told,) = machine.done
    assert told.startswith("say simulated agent: did not start: ")
    assert "where a BMC may not reach" in told
    assert "NOSPOON_MEDIA_NETWORKS" in told


@pytest.mark.parametrize("named", ["api", "boot_script", "endpoint", "networks", "nothing but it"])
async def test_an_iso_leads_where_the_file_or_the_daemons_networks_do(named: str) -> None:
    async with ironic() as api:
        behaviour = Agents(
            api=api.url if named == "api" else "",
            boot_script=f"{api.url}/boot.ipxe" if named == "boot_script" else "",
        )
        iso: str | None = f"ipa-api-url={api.url}"
        if named == "nothing but it":  # no ISO: the API that the file names
            behaviour, iso = Agents(api=api.url), None
        reach = LOOPBACK if named == "networks" else NOWHERE
        endpoint = f"{api.url}/" if named == "endpoint" else ""
        async with agents(reach=reach, endpoint=endpoint) as service:
            service.booted(guest(Machine(), behaviour, cmdline=iso))
            assert (await api.beats.get())["agent_token"] == TOKEN


async def test_a_boot_script_of_the_file_leads_anywhere() -> None:
    async with ironic() as api, ironic() as other, agents(reach=NOWHERE) as service:
        api.script = f"kernel http://h/k ipa-api-url={other.url}"
        service.booted(guest(Machine(), Agents(boot_script=f"{api.url}/boot.ipxe")))
        assert (await other.beats.get())["agent_token"] == TOKEN


async def test_an_iso_that_is_booted_by_http_is_checked_too() -> None:
    machine = Machine()
    async with ironic() as api, agents(reach=NOWHERE, http=f"ipa-api-url={api.url}") as service:
        service.booted(guest(machine, Agents()))
        await machine.until(lambda: bool(machine.done))
    assert "where a BMC may not reach" in machine.done[0]


async def test_the_callback_of_inspection_is_checked_like_the_api() -> None:
    machine = Machine()
    async with (
        ironic() as api,
        ironic() as other,
        agents(reach=NOWHERE, endpoint=api.url) as service,
    ):
        line = f"ipa-api-url={api.url} ipa-inspection-callback-url={other.url}/there"
        service.booted(guest(machine, Agents(), cmdline=line))
        await machine.until(lambda: bool(machine.done))
    assert "did not start" in machine.done[0]
    assert "where a BMC may not reach" in machine.done[0]


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("http://ironic.example", True),
        ("http://IRONIC.example.:80/v1", True),
        ("https://ironic.example", False),
        ("http://ironic.example:6385", False),
        ("http://user@ironic.example/", True),
        ("http://ironic.example@evil.example/", False),
        ("ftp://ironic.example", False),
        ("http://ironic.example:x", False),
        ("http://[ironic.example", False),
        ("", False),
    ],
)
def test_one_place_is_one_scheme_host_and_port(url: str, *, same: bool) -> None:
    assert (origin(url) == origin("http://ironic.example")) is same


async def test_the_daemon_knows_the_ironic_that_a_cluster_names(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        daemon = asked.daemon
        await asked.up(OWNER, "cluster: c\nhosts: {h: {simulated: true}}\nnodes: [{name: n}]\n")
        (member,) = daemon.parts.fleet.of(OWNER)
        assert await daemon.parts.enrolment.endpoint_of(member) == ""
        row = await daemon.parts.database.call(partial(clusters.get, id=member.cluster_id))
        assert row is not None
        sealed = daemon.parts.enrolment.sealed(IronicPlace("http://127.0.0.1:6385"))
        await daemon.parts.database.call(partial(clusters.save, row=replace(row, enrolled=sealed)))
        assert await daemon.parts.enrolment.endpoint_of(member) == "http://127.0.0.1:6385"
        assert await daemon.parts.enrolment.endpoint_of(None) == ""


async def sent(beat: dict[str, Any], token: str, head: str, body: bytes) -> int:
    """The status that a command is answered with, whatever of it is sent."""
    url = beat["callback_url"].removeprefix("https://")
    place, _, path = url.partition("/")
    host, _, port = place.partition(":")
    context = ssl.create_default_context(cadata=beat["agent_verify_ca"])
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    target = f"/{path}/v1/commands/?agent_token={token}"
    writer.write(f"POST {target} HTTP/1.1\r\nHost: h\r\n{head}\r\n\r\n".encode() + body)
    async with asyncio.timeout(20):
        status = int((await reader.readline()).split()[1])
    writer.close()
    return status


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


@pytest.mark.parametrize(
    "many",
    [b'""' * (2 * MAX_VALUES + 2), b"]" * (MAX_VALUES + 1), b"}" * (MAX_VALUES + 1)],
)
def test_texts_and_ends_are_counted_before_a_command_is_looked_at(many: bytes) -> None:
    """8 MiB of quotes, in no list, stopped all BMCs for two seconds."""
    agents = cast("Commanded", None)  # which is told nothing
    refused = _commanded(agents, UUID(int=7), b"[" * (DEEPEST + 1) + many, token=TOKEN)
    assert refused.status == 400
    assert "values" in json.dumps(refused.body)


async def test_commands_are_bounded_and_strangers_have_none_read() -> None:
    command = {"name": "standby.sync", "params": {}}
    plain = json.dumps(command).encode()
    long = json.dumps({**command, "params": {"x": "x" * MAX_BODY}}).encode()
    deep = b'{"name": "standby.sync", "params": {"x": %s%s}}' % (b"[" * DEEPEST, b"]" * DEEPEST)
    wide = b'{"name": "standby.sync", "params": {"x": [0%s]}}' % (b",0" * MAX_VALUES)
    async with ironic() as api, agents() as service:
        service.booted(guest(Machine(), Agents(api=api.url)))
        beat = await api.beats.get()
        for token, head, body, status in (
            (TOKEN, f"Content-Length: {len(plain)}", plain, 200),
            (TOKEN, f"Content-Length: {MAX_BODY + 1}", b"", 413),
            (TOKEN, "Transfer-Encoding: chunked", chunked(long), 413),
            (TOKEN, f"Content-Length: {len(deep)}", deep, 400),
            (TOKEN, f"Content-Length: {len(wide)}", wide, 400),
            ("x", f"Content-Length: {MAX_BODY}", b"", 401),
            ("x", f"Content-Length: {len(deep)}", deep, 401),
        ):
            assert await sent(beat, token, head, body) == status


@pytest.mark.parametrize(
    "text",
    [
        "\n",
        "\t\n",
        " ",
        "--chain ",
        "chain ",
        "chain --a ",
        "chain\n",
        "chain x${",
        "linux\n",
        "${mac:",
    ],
)
def test_no_menu_or_script_takes_long_to_look_through(text: str) -> None:
    """A menu of 64 KiB of empty lines stopped everything for half a minute, and a script for as
    long as it was long. CPU time, in which other processes do not count.
    """
    began = time.process_time()
    for head in ("", "chain ", "kernel "):
        whole = head + text * (LARGEST_MENU // len(text))
        assert of_menu(whole) == ""
        assert per_mac(whole, "02:00:00:00:00:01") is None
        target(whole, "02:00:00:00:00:01")
    assert time.process_time() - began < 5


async def test_a_boot_script_that_is_too_long_is_not_read() -> None:
    async def long(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        size = MOST_SCRIPT + 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"\n" * size)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(long, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    machine = Machine()
    async with server, agents() as service:
        script = f"http://127.0.0.1:{port}/boot.ipxe"
        service.booted(guest(machine, Agents(boot_script=script)))
        await machine.until(lambda: bool(machine.done))
    (told,) = machine.done
    assert "boot.ipxe does not answer" in told


async def test_an_api_that_does_not_answer_fills_no_log() -> None:
    """20,000 agents asked it again and again, and each wrote a line of the log."""
    ask = Ask("GET", "http://127.0.0.1:1/v1/lookup")
    async with agents(reach=LOOPBACK) as service:
        with capture_logs() as lines:
            for owner in (7, 8):
                running = Running(guest(Machine(), Agents()), born(), None, owner)
                for _ in range(3 * LINES):
                    assert (await service._answer(ask, running)).status == 0
    assert [each["uid"] for each in lines] == ["7"] * LINES + ["8"] * LINES
