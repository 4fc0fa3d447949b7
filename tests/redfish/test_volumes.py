"""Volumes that clients make and remove, by hand and as Ironic's RAID interface does it."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nospoon.model.machine import PowerCommand
from nospoon.model.node_kind import NodeKind
from nospoon.model.volumes import AddedVolume
from nospoon.runtime import process
from nospoon.testing.bench import Bench, bench, with_disk
from nospoon.testing.redfish import Answer, client, system_of

GIB = 1 << 30


@asynccontextmanager
async def rack() -> AsyncIterator[Bench]:
    """One node with one disk."""
    async with bench(1) as b:
        await b.service.put(with_disk(b.first))
        yield b


def volumes_of(b: Bench) -> str:
    return f"{system_of(b.first)}/Storage/0/Volumes"


async def post(b: Bench, body: Any) -> Answer:
    return await client(b.first).ask("POST", volumes_of(b), body)


async def test_a_volume_is_made_and_the_machine_is_told_of_it() -> None:
    async with rack() as b:
        made = await post(b, {"CapacityBytes": GIB - 5, "RAIDType": "RAID1", "Name": "data"})
        assert made.status == 201
        volume = (await client(b.first).get(made.headers["location"])).json
        assert (volume["CapacityBytes"], volume["RAIDType"]) == (GIB, "RAID1")
        listed = (await client(b.first).get(volumes_of(b))).json["Members"]
        assert listed[-1] == {"@odata.id": made.headers["location"]}
        wanted = (AddedVolume(volume["Id"], GIB, "data", "RAID1"),)
        assert b.store.saved[-1][1].volumes == wanted
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        assert b.machines.told[-1][2].volumes == wanted


async def test_a_volume_is_removed_and_the_machine_is_told() -> None:
    async with rack() as b:
        place = (await post(b, {"CapacityBytes": GIB})).headers["location"]
        assert (await client(b.first).ask("DELETE", place)).status == 204
        assert (await client(b.first).get(place)).status == 404
        assert (await client(b.first).ask("DELETE", place)).status == 404
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        assert b.machines.told[-1][2].volumes == ()


async def test_a_disk_of_the_cluster_file_cannot_be_deleted() -> None:
    async with rack() as b:
        refused = await client(b.first).ask("DELETE", f"{volumes_of(b)}/0")
        assert (refused.status, refused.message) == (403, "ResourceCannotBeDeleted")
        assert (await client(b.first).get(f"{volumes_of(b)}/0")).status == 200


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "PropertyMissing"),
        ({"CapacityBytes": "1"}, 400, "PropertyValueTypeError"),
        ({"CapacityBytes": True}, 400, "PropertyValueTypeError"),
        ({"CapacityBytes": 0}, 400, "PropertyValueOutOfRange"),
        ({"CapacityBytes": 1 << 60}, 400, "PropertyValueOutOfRange"),
        ({"CapacityBytes": GIB, "RAIDType": "RAID9"}, 400, "PropertyValueNotInList"),
        ({"CapacityBytes": GIB, "VolumeType": ["Mirrored"]}, 400, "PropertyValueNotInList"),
        ({"CapacityBytes": GIB, "Encrypted": True}, 400, "PropertyValueNotInList"),
        ({"CapacityBytes": GIB, "Encrypted": []}, 400, "PropertyValueTypeError"),
        ({"CapacityBytes": GIB, "Encrypted": {}}, 400, "PropertyValueTypeError"),
        ({"CapacityBytes": GIB, "Encrypted": [None]}, 400, "PropertyValueTypeError"),
        ({"CapacityBytes": GIB, "Encrypted": 0}, 400, "PropertyValueTypeError"),
        ({"CapacityBytes": GIB, "Name": "x" * 65}, 400, "StringValueTooLong"),
        ({"CapacityBytes": GIB, "Colour": "red"}, 400, "PropertyUnknown"),
        ({"CapacityBytes": GIB, "Links": {"Drives": "all"}}, 400, "PropertyValueTypeError"),
        (
            {"CapacityBytes": GIB, "Links": {"Drives": [{"@odata.id": "/x"}]}},
            400,
            "PropertyValueNotInList",
        ),
        (
            {"CapacityBytes": GIB, "@Redfish.OperationApplyTime": "Immediate"},
            400,
            "PropertyValueNotInList",
        ),
    ],
)
async def test_a_volume_that_makes_no_sense_is_refused(
    body: Any, status: int, message: str
) -> None:
    async with rack() as b:
        answer = await post(b, body)
        assert (answer.status, answer.message) == (status, message)
        assert b.store.saved == []


async def test_there_is_room_for_sixteen() -> None:
    async with rack() as b:
        for _ in range(16):
            assert (await post(b, {"CapacityBytes": GIB // 2})).status == 201
        assert (await post(b, {"CapacityBytes": GIB // 2})).status == 409


async def test_volumes_have_no_more_than_the_drives() -> None:
    """Of 16 volumes of 64 TiB, a guest whose BMC's client made them filled the disk of its host."""
    async with rack() as b:
        first = await post(b, {"CapacityBytes": 6 * GIB})
        assert first.status == 201
        refused = await post(b, {"CapacityBytes": 4 * GIB + 1})
        assert (refused.status, b.store.saved[-1][1].volumes[-1].size) == (409, 6 * GIB)
        assert f"have {10 * GIB} bytes, of which other volumes take {6 * GIB}" in str(refused.json)
        assert (await post(b, {"CapacityBytes": 4 * GIB})).status == 201
        assert (await client(b.first).ask("DELETE", first.headers["location"])).status == 204
        assert (await post(b, {"CapacityBytes": 6 * GIB})).status == 201


SUSHY = """
import json, sys
import sushy
from sushy import auth
url, user, password = sys.argv[1:]
root = sushy.Sushy(url, auth=auth.BasicAuth(user, password))
[system] = root.get_system_collection().get_members()
[storage] = system.storage.get_members()
volumes = storage.volumes
support = volumes.operation_apply_time_support
told = {"times": [each.value for each in support.mapped_supported_values]}
before = volumes.get_members()
told["raw"] = [[v.volume_type.value, v.raid_type] for v in before]
made = volumes.create({
    "RAIDType": "RAID1", "CapacityBytes": 2 << 30, "Encrypted": False, "Name": "root",
    "Links": {"Drives": [{"@odata.id": d.path} for d in storage.drives]},
}, apply_time=sushy.ApplyTime.ON_RESET)
told["made"] = [made.raid_type.value, made.capacity_bytes, made.name]
volumes.refresh(force=True)
told["count"] = len(volumes.members_identities)
made.delete(apply_time=sushy.ApplyTime.ON_RESET)
volumes.refresh(force=True)
told["left"] = len(volumes.members_identities)
print(json.dumps(told))
"""


@pytest.mark.tools
async def test_sushy_makes_and_deletes_a_volume(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(SUSHY)
    async with rack() as b:
        bmc = b.first.bmc
        url = f"http://{bmc.address}:{bmc.redfish_port}"
        argv = [sys.executable, str(script), url, "admin", b.first.password]
        told = json.loads((await process.run(argv)).stdout)
    assert told == {
        "times": ["OnReset"],
        "raw": [["RawDevice", None]],
        "made": ["RAID1", 2 << 30, "root"],
        "count": 2,
        "left": 1,
    }


@pytest.mark.parametrize("values", [{"kind": NodeKind.CONTAINER}, {"flavor": "m1.small"}])
async def test_a_machine_that_would_never_have_a_volume_is_given_none(
    values: dict[str, Any],
) -> None:
    """A container, and a server of a cloud: their hosts make no disk but those of their shape."""
    async with rack() as b:
        b.service.reshape(replace(with_disk(b.first).machine, **values))
        refused = await post(b, {"CapacityBytes": GIB})
        assert refused.status == 409
        assert "gives it no volumes" in str(refused.json)
        controller = f"{system_of(b.first)}/Storage/0/Controllers/0"
        assert "SupportedRAIDTypes" not in (await client(b.first).get(controller)).json
        assert not b.store.saved
