"""DMTF's rf_event_service.py and sushy subscribe, are told, and end their subscriptions."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from nospoon.model.machine import PowerCommand
from nospoon.runtime import process
from nospoon.testing import dmtf_tools
from nospoon.testing.bench import bench
from nospoon.testing.redfish import client
from nospoon.testing.validated import environment

from .test_events import SUBSCRIPTIONS, sink

pytestmark = [pytest.mark.tools]

SUSHY = """
import sys
from functools import partial
import sushy
from sushy import auth
url, user, password, to = sys.argv[1:]
root = sushy.Sushy(url, auth=auth.BasicAuth(user, password))
service = root.get_event_service()
assert "Alert" in service.event_types_for_subscription, service.event_types_for_subscription
body = {"Destination": to, "Protocol": "Redfish", "Context": "sushy"}
body["EventTypes"] = ["StatusChange"]
made = service.subscriptions.create(body)
assert made.context == "sushy" and made.destination == to and made.http_headers == []
print(made.identity)
"""


async def test_dmtfs_tool_subscribes_and_is_told() -> None:
    async with bench(1) as b, sink() as to:
        run = partial(dmtf_tools.run, b, "rf_event_service.py")
        told = await run("subscribe", "-dest", to.uri, "-c", "tool", "-rt", "ComputerSystem")
        assert "Created" in told
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        await to.until(lambda: "ResourcePoweredOn" in to.keys)
        assert set(to.keys) == {"ResourcePoweredOn"}
        listed = await run("info")
        assert to.uri in listed
        (member,) = (await client(b.first).get(SUBSCRIPTIONS)).json["Members"]
        await run("unsubscribe", "--id", member["@odata.id"].rpartition("/")[2])
        assert (await client(b.first).get(SUBSCRIPTIONS)).json["Members"] == []


async def test_sushy_subscribes_by_type_of_event_and_is_told(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(SUSHY)
    async with bench(1) as b, sink() as to:
        bmc = b.first.bmc
        url = f"http://{bmc.address}:{bmc.redfish_port}"
        argv = [sys.executable, str(script), url, "admin", b.first.password, to.uri]
        made = (await process.run(argv, env=environment())).stdout
        await b.service.power(bmc.uuid, PowerCommand.ON)
        await to.until(lambda: "ResourcePoweredOn" in to.keys)
        assert {each["EventType"] for each in to.records} == {"StatusChange"}
        place = f"{SUBSCRIPTIONS}/{made.strip()}"
        assert (await client(b.first).get(place)).json["EventTypes"] == ["StatusChange"]
