"""A cloud or an Ironic of a member's choice says a list of numbers where its API has a text.

What Python writes of 650,000 floats holds the interpreter's lock for more than a second: BMCs of
all users stood still for as long, with each list of servers, flavors, ports or nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from nospoon.errors import ProviderError
from nospoon.model.cluster import Firmware
from nospoon.model.host_facts import QuotaName
from nospoon.providers.answers import LARGEST_NUMBER, text_of
from nospoon.providers.ironic import drivers, progress, records, states
from nospoon.providers.openstack import (
    adopted,
    api,
    connection,
    console_records,
    images,
    quotas,
    relays,
    root_volumes,
    roster,
    servers,
)
from nospoon.providers.openstack.around import port
from nospoon.testing.cloud_connection import connected, fake_cloud
from nospoon.testing.fake_cloud import FakeCloud

ID = "11111111-2222-3333-4444-555555555555"
Call = Callable[[Any], object]


class Costly(list[float]):
    """What takes long to write."""

    def __repr__(self) -> str:
        raise AssertionError("it is written")

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        raise AssertionError("it is written")


def tagged(value: object) -> dict[str, object]:
    """A node of Ironic with a tag that says this."""
    said = {"deployment": value, "cluster": ID, "generation": 1, "token": value, "name": value}
    return {"uuid": ID, "extra": {records.TAG: {**said, "uid": 1, "key": value}}}


def in_state(**more: object) -> dict[str, object]:
    return {"uuid": ID, "provision_state": "available", **more}


def same(_: UUID) -> UUID:
    return UUID(ID)


def shown(**what: object) -> Any:
    """An answer, whatever its API says."""
    return what


def server(**more: object) -> Any:
    return {"id": ID, "name": "n", "status": "ACTIVE", "flavor": {}, **more}


WAYS: dict[str, Call] = {
    "status of a server": lambda value: roster.read(server(status=value), same),
    "name of a server": lambda value: roster.owners_machine(
        server(name=value),
        Firmware.BIOS,
        same,
    ),
    "volumes of a server": lambda value: roster.owners_machine(
        server(**{"os-extended-volumes:volumes_attached": [{"id": value}]}),
        Firmware.BIOS,
        same,
    ),
    "id of a server": lambda value: servers._id({"server": {"id": value}}),
    "console": lambda value: console_records._said({"output": value}),
    "status of a relay": lambda value: relays._read(server(status=value)),
    "flavor": lambda value: connection._size(
        {"name": value, "id": value, "vcpus": 1, "ram": 1, "disk": 1}
    ),
    "volume type": lambda value: connection._volume_types(shown(volume_types=[{"name": value}])),
    "usual volume type": lambda value: quotas._usual_type({"volume_type": {"name": value}}),
    "type of a volume": lambda value: quotas._attached("", shown(volume_type=value)),
    "server of a volume": lambda value: quotas._attached(
        "t", shown(volume_type="t", size=1, attachments=[{"server_id": value}])
    ),
    "device of a volume": lambda value: root_volumes._plugged(
        shown(volumeAttachments=[{"device": value, "volumeId": value}])
    ),
    "metadata of a copy": lambda value: root_volumes._copied(
        {"a": "b"}, shown(id=value, metadata={"a": value})
    ),
    "id of a copy": lambda value: root_volumes._copied({}, shown(id=value)),
    "new copy": lambda value: root_volumes._id_in("volume")({"volume": {"id": value}}),
    "status of a copy": lambda value: root_volumes._status_in(
        "volume", shown(volume={"status": value})
    ),
    "MAC of a port": lambda value: port({"id": ID, "network_id": ID, "mac_address": value}),
    "pair of a port": lambda value: port(
        {
            "id": ID, "network_id": ID, "mac_address": "m",
            "allowed_address_pairs": [{"ip_address": value, "mac_address": value}],
        }
    ),
    "formats of images": lambda value: images._formats(
        shown(properties={"disk_format": {"enum": [value]}})
    ),
    "id of an image": lambda value: adopted._image({"id": value, adopted.FIRMWARE: value}),
    "marker of a page": lambda value: api._page(
        "things", lambda _: None, lambda _: 0, {"things": [{"id": value}], "next": 1}
    ),
    "tag of a node": lambda value: records.tag_of(tagged(value)),
    "notes of a node": lambda value: records.noted_texts(
        {"extra": {records.TAG: {"ours": [value]}}}, "ours"
    ),
    "traits of a node": lambda value: "".join(records.own_traits({"traits": [value]})),
    "state of a node": lambda value: drivers.fault_of(in_state(provision_state=value)),
    "maintenance of a node": lambda value: drivers.fault_of(
        in_state(maintenance=True, maintenance_reason=value)
    ),
    "instance of a node": lambda value: progress.use_of(in_state(instance_uuid=value)),
    "allocation of a node": lambda value: progress.use_of(in_state(allocation_uuid=value)),
    "last error of a node": lambda value: progress.why_of(in_state(last_error=value)),
    "history of a node": lambda value: progress.last_failure(
        [{"severity": "ERROR", "event_type": "", "event": value}]
    ),
    "states of a node": lambda value: states._brief(in_state(last_error=value)),
}  # fmt: skip


@pytest.mark.parametrize("what", WAYS)
def test_a_list_in_place_of_a_text_is_not_written(what: str) -> None:
    WAYS[what](Costly([1.5]))


def test_texts_and_numbers_are_texts() -> None:
    assert [*map(text_of, ("a", 1, 1.5, None, True))] == ["a", "1", "1.5", "None", "True"]
    assert [text_of(each) for each in ([], {}, [1], {"a": 1})] == ["False", "False", "True", "True"]


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
async def test_numbers_beyond_all_floats_are_cut(tmp_path: Any) -> None:
    """A quota of 400 digits was an internal error of `host check`, with a traceback each time."""
    cloud: FakeCloud
    async with fake_cloud() as cloud, connected(cloud, tmp_path) as there:
        cloud.limits = dict.fromkeys(("maxTotalCores", "maxTotalRAMSize"), 10**399)
        cloud.quotas = {"port": 10**399, "network": -(10**398)}
        facts = await there.survey("", ())
        assert facts.memory == LARGEST_NUMBER << 20
        assert facts.quota.shares[QuotaName.NETWORKS].most == -LARGEST_NUMBER
        cloud.limits = {}
        for flavor in cloud.flavors.values():
            flavor["ram"] = 10**399
        sizes = (await there.survey("", ())).sizes
        assert sizes is not None
        assert {each.memory for each in sizes} == {LARGEST_NUMBER << 20}
        cloud.limits = {"maxTotalCores": [1.5]}
        with pytest.raises(ProviderError, match="something else than its API says"):
            await there.survey("", ())
