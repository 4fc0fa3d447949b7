"""Shapes that earlier versions wrote beside their things, and in the store, are read as today's."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.connections import (
    CLOUD,
    CONTAINERS,
    ENGINE,
    IN_MEMORY,
    SESSION,
    SYSTEM,
)
from nospoon.model.declared import Declared
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources import earlier
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.networks import Link
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.identity import node_uuid
from nospoon.providers.containers.records import parse, record
from nospoon.providers.openstack import roster
from nospoon.providers.openstack.tags import in_pieces
from nospoon.providers.simulated.world import Made, World
from nospoon.services.netboot.tree import Saved, decoded

CLUSTER = UUID("ece4302e-5ad4-492d-ae12-b8ecf0b22988")
OWNER = OwnerTag("d", CLUSTER, 1, "token", "c", 0)
MACHINE = Machine(
    uuid=node_uuid(CLUSTER, "a"),
    cpus=1,
    memory=1 << 30,
    arch=Arch.X86_64,
    firmware=Firmware.UEFI,
    tpm=False,
    disks=(MachineDisk("a-0", "virtio", "NS0b9f36d455ba-0"),),
    nics=(MachineNic("02:6b:55:11:7a:0b", "ns4c737d-provis", "virtio", "ns0b9f36d455-0"),),
    boot_order=(BootDevice.DISK, BootDevice.NETWORK),
    boot=BootMethod.NATIVE,
)


LINK = Link("ns4c737d-provis", "172.30.136.1/24")


def earlier_record(machine: Machine) -> dict[str, object]:
    """As the version before ADR 33 wrote it."""
    found: dict[str, object] = msgspec.to_builtins(machine)
    found["boot_iso"] = found.pop("boot") == "script"
    for nic in found["nics"]:  # type: ignore[attr-defined]
        nic["bridge"] = nic.pop("network")
    gone = {
        "pool": "nospoon-c-ece4302e",
        "ends": {"poweroff": "destroy"},
        "autostart": False,
        "unlinked": [],
    }
    return found | gone  # the latter three by versions before that one


def earlier_text(machine: Machine) -> str:
    return json.dumps(earlier_record(machine))


@pytest.mark.parametrize("declares", [SYSTEM, SESSION, CONTAINERS, ENGINE, IN_MEMORY, CLOUD])
@pytest.mark.parametrize("asks", [True, False])
def test_who_makes_a_machine_boot_is_what_it_was(declares: Declared, *, asks: bool) -> None:
    boot = BootMethod.SCRIPT if asks else declares.boot_of(asks=False)
    machine = replace(MACHINE, boot=boot)
    assert earlier.machine(earlier_text(machine), declares) == machine
    assert earlier.of_record(earlier_record(machine), declares) == machine


@pytest.mark.parametrize("boot", BootMethod)
def test_todays_notation_is_read_as_it_is(boot: BootMethod) -> None:
    machine = replace(MACHINE, boot=boot)
    text = msgspec.json.encode(machine).decode()
    assert earlier.machine(text, CLOUD) == machine
    assert earlier.of_record(json.loads(text), CLOUD) == machine


@given(
    record=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from([*earlier_record(MACHINE)]), inner)
        ),
    )
)
def test_what_no_version_wrote_is_refused(record: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        earlier.of_record(record, SYSTEM)
    with pytest.raises(msgspec.DecodeError):
        earlier.machine(json.dumps(record), SYSTEM)


def test_a_simulated_host_has_the_machines_and_networks_of_an_earlier_version() -> None:
    world, key = World(), Key(Kind.MACHINE, "s", "a")
    world.put(Made(key, MACHINE, OWNER))
    link = Made(Key(Kind.NETWORK, "s", "provision"), LINK, OWNER)
    world.put(link)
    runs_with = replace(MACHINE, cpus=2)
    world.running[MACHINE.uuid].live = runs_with
    dumped = json.loads(world.dump())
    earlier_shapes = {
        "machine": earlier_record(MACHINE),
        "network": {"bridge": LINK.name, "address": LINK.address},
    }
    for each in dumped["made"]:
        each["shape"] = earlier_shapes[each["key"]["kind"]]
    for _, state in dumped["running"]:
        state["live"] = earlier_record(runs_with)
    loaded = World.load(json.dumps(dumped).encode())
    assert loaded.named(Kind.MACHINE, str(MACHINE.uuid)) == Made(key, MACHINE, OWNER)
    assert loaded.named(Kind.NETWORK, LINK.name) == link
    assert loaded.running == world.running


@pytest.mark.parametrize("name", ["machine.json", "live.json"])
def test_a_container_has_the_record_of_an_earlier_version(name: str) -> None:
    machine = replace(MACHINE, kind=NodeKind.CONTAINER, boot=BootMethod.NONE)
    written = json.loads(record("a", OWNER, machine))
    written["machine"] = earlier_record(machine)
    seen = parse(f"record p/a/{name} {json.dumps(written)}\n")
    assert seen.records[f"p/a/{name}"].machine == machine


@pytest.mark.parametrize("kind", [NodeKind.BAREMETAL, NodeKind.VM])
def test_a_server_of_an_earlier_version_has_no_drift(kind: NodeKind) -> None:
    boot = CLOUD.boot_of(asks=kind is NodeKind.BAREMETAL)
    machine = replace(MACHINE, kind=kind, boot=boot, flavor="m1")
    tagged = roster.metadata("a", machine, OWNER)
    kept = {key: each for key, each in tagged.items() if f"_{roster.SHAPE}_" not in key}
    shown: dict[str, object] = {
        "id": str(uuid4()),
        "name": "a",
        "status": "ACTIVE",
        "metadata": kept | in_pieces(roster.SHAPE, earlier_text(machine)),
        "flavor": {"original_name": "m1", "vcpus": 1, "ram": 1024},
    }
    server = roster.read(shown, lambda id_: id_)  # type: ignore[arg-type]
    assert server is not None
    assert server.shape == machine


def test_a_network_boot_that_an_earlier_version_serves_is_known() -> None:
    """Else its dnsmasq would go on unknown. Its key had a host where today's has a place."""
    shape = NetbootService("ns4c737d-provis", "172.30.136.1/24", ("", ""), ())
    saved = Saved(Key(Kind.NETBOOT, "here", "provision"), shape, OWNER, pid=7, started=9)
    record = msgspec.to_builtins(saved)
    assert decoded(msgspec.json.encode(record)) == saved
    record["key"]["host"] = record["key"].pop("place")
    assert decoded(msgspec.json.encode(record)) == saved
    for wrong in (b"{", b"[]", b'{"key": 1}', b'{"key": {"host": 1}}'):
        with pytest.raises(msgspec.DecodeError):
            decoded(wrong)
