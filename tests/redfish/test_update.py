"""UpdateService: images are fetched as a Task, and their versions recorded."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nospoon.bmc.faults import Fault, Kind
from nospoon.errors import ProviderError
from nospoon.model.machine import PowerCommand
from nospoon.runtime import process
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import Answer, Client, client, system_of

SERVICE = "/redfish/v1/UpdateService"
BIOS_IMAGE, BMC_IMAGE = "http://h/bios-2.10.3.bin", "https://h/fw/bmc_4.1.0-rc2.tar"


async def update(b: Bench, by: Client | None = None, **body: Any) -> Answer:
    path = f"{SERVICE}/Actions/UpdateService.SimpleUpdate"
    body = {name.replace("OperationApplyTime", "@Redfish.OperationApplyTime"): value
            for name, value in body.items()}  # fmt: skip
    return await (by or client(b.first)).ask("POST", path, body)


async def ended(b: Bench, begun: Answer) -> dict[str, Any]:
    """The Task, once its monitor says that it has ended."""
    assert begun.status == 202
    ask, monitor = client(b.first).get, begun.headers["location"]
    async with asyncio.timeout(20):
        while (answer := await ask(monitor)).status == 202:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert isinstance(answer.json, dict)
    return answer.json


async def version(b: Bench, component: str) -> str:
    path = f"{SERVICE}/FirmwareInventory/{b.first.bmc.uuid}-{component}"
    return str((await client(b.first).get(path)).json["Version"])


async def test_an_update_is_a_task_after_which_the_version_is_another() -> None:
    async with bench(1) as b:
        b.media.gate = asyncio.Event()
        begun = await update(b, ImageURI=BIOS_IMAGE, Username="u", Password="p")
        assert (begun.status, begun.json["TaskState"]) == (202, "Running")
        before = await version(b, "BIOS")
        b.media.gate.set()
        assert (await ended(b, begun))["TaskState"] == "Completed"
        assert (before, await version(b, "BIOS")) == ("SeaBIOS", "2.10.3")
        assert b.media.fetched == [(BIOS_IMAGE, "u", "p", False)]
        assert (await client(b.first).get(system_of(b.first))).json["BiosVersion"] == "2.10.3"
        assert dict(b.store.saved[-1][1].software.versions) == {"BIOS": "2.10.3"}


@pytest.mark.parametrize(
    ("image", "protocol", "fetched"),
    [
        ("h/bios-2.10.3.bin", {"TransferProtocol": "HTTPS"}, "https://h/bios-2.10.3.bin"),
        ("h:8080/bios-2.10.3.bin", {"TransferProtocol": "HTTP"}, "http://h:8080/bios-2.10.3.bin"),
        ("[fd00::1]/bios-2.10.3.bin", {}, "http://[fd00::1]/bios-2.10.3.bin"),
        (BMC_IMAGE, {"TransferProtocol": "HTTP"}, BMC_IMAGE),
    ],
)
async def test_of_an_image_without_a_scheme_the_transfer_protocol_is_its(
    image: str, protocol: dict[str, Any], fetched: str
) -> None:
    async with bench(1) as b:
        await ended(b, await update(b, ImageURI=image, **protocol))
        assert [each[0] for each in b.media.fetched] == [fetched]


async def test_targets_say_what_is_updated_and_an_image_without_version_has_its_digest() -> None:
    async with bench(1) as b:
        target = f"/redfish/v1/Managers/{b.first.bmc.uuid}"
        await ended(b, await update(b, ImageURI="http://h/bios", Targets=[target]))
        assert len(await version(b, "BMC")) == 12
        assert (await client(b.first).get(target)).json["FirmwareVersion"] == await version(
            b, "BMC"
        )
        assert await version(b, "BIOS") == "SeaBIOS"


async def test_without_targets_all_machines_are_updated_with_one_transfer() -> None:
    async with bench(2) as b:
        await b.service.put(replace(b.configs[1], password=b.first.password))
        task = await ended(b, await update(b, ImageURI=BIOS_IMAGE))
        assert task["TaskState"] == "Completed"
        items = (await client(b.first).get(f"{SERVICE}/FirmwareInventory")).json["Members"]
        found = [(await client(b.first).get(each["@odata.id"])).json for each in items]
        bios = [each["Version"] for each in found if each["Id"].endswith("-BIOS")]
        assert bios == ["2.10.3", "2.10.3"]
        assert [each[0] for each in b.media.fetched] == [BIOS_IMAGE]


async def test_an_update_at_reset_waits_for_the_next_boot() -> None:
    async with bench(1) as b:
        begun = await update(b, ImageURI=BIOS_IMAGE, OperationApplyTime="OnReset")
        await ended(b, begun)
        assert await version(b, "BIOS") == "SeaBIOS"
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        assert await version(b, "BIOS") == "2.10.3"


async def test_an_update_of_the_bmc_at_reset_waits_for_its_own_restart() -> None:
    async with bench(1, restart_seconds=0) as b:
        await ended(b, await update(b, ImageURI=BMC_IMAGE, OperationApplyTime="OnReset"))
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        before = await version(b, "BMC")
        path = f"/redfish/v1/Managers/{b.first.bmc.uuid}/Actions/Manager.Reset"
        assert (await client(b.first).ask("POST", path, {})).status == 204
        served = b.service.status(b.first.bmc.uuid)
        async with asyncio.timeout(20):
            while served is None or not served.aggregate.answers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert before != await version(b, "BMC") == "4.1.0-rc2"


@pytest.mark.parametrize("how", ["fault", "error"])
async def test_an_image_that_cannot_be_fetched_changes_nothing(how: str) -> None:
    async with bench(1) as b:
        if how == "fault":
            b.service.set_fault(b.first.bmc.uuid, Fault(Kind.MEDIA_FAILS, count=1))
        else:
            b.media.error = ProviderError("404")
        task = await ended(b, await update(b, ImageURI=BIOS_IMAGE))
        assert (task["TaskState"], task["TaskStatus"]) == ("Exception", "Critical")
        assert await version(b, "BIOS") == "SeaBIOS"


async def test_what_the_caller_may_not_use_is_not_updated() -> None:
    async with bench(1) as b:
        other = "/redfish/v1/Systems/5d0f2f0e-0000-4000-8000-00000000beef"
        refused = await update(b, ImageURI=BIOS_IMAGE, Targets=[other])
        assert (refused.status, refused.message) == (404, "ResourceMissingAtURI")
        (info,) = refused.json["error"]["@Message.ExtendedInfo"]
        assert info["MessageArgs"] == [other]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "ActionParameterMissing"),
        ({"ImageURI": "ftp://h/x"}, "ActionParameterValueFormatError"),
        ({"ImageURI": "file:/etc/passwd"}, "ActionParameterValueFormatError"),
        ({"ImageURI": "/bios.bin"}, "ActionParameterValueFormatError"),
        ({"ImageURI": ""}, "ActionParameterValueFormatError"),
        ({"ImageURI": 1}, "ActionParameterValueTypeError"),
        ({"ImageURI": BIOS_IMAGE, "TransferProtocol": "NFS"}, "ActionParameterValueNotInList"),
        (
            {"ImageURI": BIOS_IMAGE, "Targets": ["/redfish/v1/Chassis/1"]},
            "ActionParameterValueNotInList",
        ),
        ({"ImageURI": BIOS_IMAGE, "ForceUpdate": True}, "ActionParameterNotSupported"),
        ({"ImageURI": BIOS_IMAGE, "OperationApplyTime": "Later"}, "ActionParameterValueNotInList"),
    ],
)
async def test_other_updates_are_refused(body: dict[str, Any], message: str) -> None:
    async with bench(1) as b:
        answer = await update(b, **body)
        assert (answer.status, answer.message) == (400, message)
        assert b.media.fetched == []


SUSHY = """
import json, sys
import sushy
url, user, password, image = sys.argv[1:]
root = sushy.Sushy(url, username=user, password=password)
[system] = root.get_system_collection().get_members()
service = root.get_update_service()
told = {"before": system.bios_version}
monitor = service.simple_update(image, transfer_protocol=sushy.UPDATE_PROTOCOL_HTTP)
monitor.wait(20)
task = root.get_task_monitor(monitor.task_monitor_uri).get_task()
task.parse_messages()
told["task"] = [task.task_state.value, task.task_status.value]
system.refresh()
told["after"] = system.bios_version
told["inventory"] = {each.name: each.version for each in service.firmware_inventory.get_members()}
print(json.dumps(told))
"""


@pytest.mark.tools
async def test_sushy_updates_firmware_as_ironic_does(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(SUSHY)
    async with bench(1) as b:
        bmc = b.first.bmc
        url = f"http://{bmc.address}:{bmc.redfish_port}"
        argv = [sys.executable, str(script), url, bmc.username, b.first.password, BIOS_IMAGE]
        told = json.loads((await process.run(argv)).stdout)
    assert told.pop("inventory")["BIOS"] == "2.10.3"
    assert told == {"before": "SeaBIOS", "task": ["Completed", "OK"], "after": "2.10.3"}
