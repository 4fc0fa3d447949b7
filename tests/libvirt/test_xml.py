"""Shape to XML and back: what is rendered parses to what it was; what is edited shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Interface
from uuid import UUID
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware, Switch
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.model.resources.networks import Link
from nospoon.model.resources.storage import Image, Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.libvirt.domain_parse import parse_domain
from nospoon.providers.libvirt.domain_xml import SEED_PLACE, Stage, render_domain
from nospoon.providers.libvirt.network_xml import parse_network, render_network
from nospoon.providers.libvirt.owner import Owner, owner_in
from nospoon.providers.libvirt.storage_xml import (
    FoundVolume,
    as_disk,
    as_image,
    disk_file,
    image_file,
    is_ours,
    nvram_file,
    parse_volume,
    render_volume,
)

POOL, PATH = "nospoon-dev-0a1b2c3d", "/pools/nospoon-dev-0a1b2c3d"
ISO = f"{PATH}/boot-0123456789ab.iso"

names = st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True)
serials = st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True)
tags = st.builds(
    OwnerTag,
    deployment=names,
    cluster=st.uuids(),
    generation=st.integers(0, 10**6),
    token=serials,
)
macs = st.from_regex(r"02(:[0-9a-f]{2}){5}", fullmatch=True)
disks = st.builds(
    MachineDisk,
    volume=st.one_of(names, st.tuples(names, names).map("/".join)),
    format=st.sampled_from(["qcow2", "raw"]),
    bus=st.sampled_from(["virtio", "sata", "scsi"]),
    serial=serials,
    cache=st.sampled_from(["none", "writeback", "writethrough", "directsync", "unsafe"]),
    discard=st.sampled_from(["unmap", "ignore"]),
    rotation_rate=st.sampled_from([0, 1, 7200]),
)
nics = st.builds(
    MachineNic,
    mac=macs,
    network=st.one_of(st.just(""), st.from_regex(r"[a-z][a-z0-9-]{0,14}", fullmatch=True)),
    model=st.sampled_from(["virtio", "e1000", "e1000e"]),
    port=st.sampled_from(["", "ns0123456789-0", "ns0123456789-15"]),
    switch=st.sampled_from(Switch),
    vlan=st.one_of(st.none(), st.integers(1, 100)),
    trunk=st.sets(st.integers(101, 4094), max_size=3).map(lambda ids: tuple(sorted(ids))),
    sends_from=st.sampled_from((None, "")),
) | st.builds(
    MachineNic,
    mac=macs,
    network=st.just("br0"),
    model=st.just("virtio"),
    sends_from=st.ip_addresses(v=4).map(str),
    virtual_ips=st.lists(st.ip_addresses(v=4).map(str), max_size=3).map(tuple),
)
orders = st.permutations(list(BootDevice)).flatmap(
    lambda order: st.integers(0, len(order)).map(lambda count: tuple(order[:count]))
)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    arch = draw(st.sampled_from(Arch))
    firmwares = [Firmware.UEFI, Firmware.UEFI_SECURE]
    firmwares += [Firmware.BIOS] if arch is Arch.X86_64 else []
    return Machine(
        uuid=draw(st.uuids()),
        cpus=draw(st.integers(1, 64)),
        memory=draw(st.integers(1, 1 << 30)) << 10,
        arch=arch,
        firmware=draw(st.sampled_from(firmwares)),
        tpm=draw(st.booleans()),
        disks=tuple(draw(st.lists(disks, max_size=6))),
        nics=tuple(draw(st.lists(nics, max_size=4))),
        boot_order=draw(orders),
        boot=draw(st.sampled_from([BootMethod.NATIVE, BootMethod.SCRIPT])),
        kind=draw(st.sampled_from([NodeKind.BAREMETAL, NodeKind.VM])),
        seed=draw(st.sampled_from(["", "ab" * 32])),
    )


def rendered(machine: Machine, tag: OwnerTag, *, name: str = "m0") -> ET.Element:
    stage = Stage(PATH, "/records/m0.log", boot_iso=ISO if machine.asks else "")
    owner = Owner(tag, name, POOL, machine.boot_order, kind=machine.kind)
    return ET.fromstring(render_domain(machine, owner, stage))


def parsed(root: ET.Element) -> Machine:
    owner = owner_in(root)
    assert owner is not None
    return parse_domain(root, owner, pool_path=PATH, boot_iso=ISO)


@given(machines(), tags, names)
def test_a_machine_survives_the_way_to_xml_and_back(
    machine: Machine, tag: OwnerTag, name: str
) -> None:
    root = rendered(machine, tag, name=name)
    assert parsed(root) == machine
    owner = owner_in(root)
    assert owner is not None
    assert (owner.tag, owner.name, owner.pool) == (tag, name, POOL)


@given(machines(), tags)
def test_a_machine_has_no_two_disks_of_one_name_and_no_two_devices_of_one_place(
    machine: Machine, tag: OwnerTag
) -> None:
    root = rendered(machine, tag)
    targets = [each.get("dev") for each in root.iterfind("devices/disk/target")]
    places = sorted(int(each.get("order", 0)) for each in root.iter("boot"))
    assert len(targets) == len(set(targets))
    if machine.seed and machine.firmware is not Firmware.BIOS:
        assert places.pop() == SEED_PLACE, "behind all that boots"
    assert places == list(range(1, len(places) + 1))


MACHINE = Machine(
    uuid=UUID("6f7a2f5e-8c0e-4a52-9a9c-0f1f3b1c2d3e"),
    cpus=2,
    memory=1 << 30,
    arch=Arch.X86_64,
    firmware=Firmware.UEFI,
    tpm=False,
    disks=(MachineDisk("m0-0", "virtio", "S0"), MachineDisk("m0-1", "sata", "S1")),
    nics=(MachineNic("02:00:00:00:00:01", "br0", "virtio"),),
    boot_order=(BootDevice.DISK, BootDevice.NETWORK),
    boot=BootMethod.NATIVE,
)
TAG = OwnerTag("here", UUID(int=1))


Edit = Callable[[ET.Element], None]


def set_text(path: str, text: str) -> Edit:
    def edit(root: ET.Element) -> None:
        found = root.find(path)
        assert found is not None
        found.text = text

    return edit


def set_attribute(path: str, name: str, value: str) -> Edit:
    def edit(root: ET.Element) -> None:
        found = root.find(path)
        assert found is not None
        found.set(name, value)

    return edit


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (set_text("vcpu", "3"), "cpus"),
        (set_text("memory", "4096"), "memory"),
        (set_attribute("memory", "unit", "MiB"), "memory"),
        (set_attribute("os", "firmware", ""), "firmware"),
        (set_attribute("os/firmware/feature", "enabled", "yes"), "firmware"),
        (set_attribute("devices/disk/source", "file", "/etc/other.qcow2"), "disks"),
        (set_text("devices/disk/serial", "other"), "disks"),
        (set_attribute("devices/disk/driver", "cache", "none"), "disks"),
        (set_attribute("devices/disk/driver", "discard", "ignore"), "disks"),
        (set_attribute("devices/disk/target", "rotation_rate", "5400"), "disks"),
        (set_attribute("devices/interface/mac", "address", "02:00:00:00:00:02"), "nics"),
        (set_attribute("devices/interface/source", "bridge", "br1"), "nics"),
        (set_attribute("devices/interface/boot", "order", "0"), "boot_order"),
    ],
)
def test_what_somebody_edited_shows_in_its_field_and_no_other(edit: Edit, field: str) -> None:
    root = rendered(MACHINE, TAG)
    edit(root)
    found = parsed(root)
    assert getattr(found, field) != getattr(MACHINE, field)
    assert replace(found, **{field: getattr(MACHINE, field)}) == MACHINE


def test_an_older_boot_iso_shows_as_none() -> None:
    machine = replace(MACHINE, boot=BootMethod.SCRIPT)
    root = rendered(machine, TAG)
    set_iso = set_attribute("devices/disk[@device='cdrom']/source", "file", f"{PATH}/boot-ff.iso")
    set_iso(root)
    assert parsed(root) == MACHINE


def test_a_domain_without_our_tag_has_no_owner() -> None:
    root = rendered(MACHINE, TAG)
    metadata = root.find("metadata")
    assert metadata is not None
    metadata.clear()
    assert owner_in(root) is None


@pytest.mark.parametrize(
    ("name", "value"), [("cluster", "not a uuid"), ("generation", "x"), ("boot-order", "floppy")]
)
def test_a_tag_that_is_garbled_is_no_tag(name: str, value: str) -> None:
    root = rendered(MACHINE, TAG)
    root.find("metadata")[0].set(name, value)  # type: ignore[index]  # it is there
    assert owner_in(root) is None


links = st.builds(
    Link,
    name=st.from_regex(r"[a-z][a-z0-9-]{0,14}", fullmatch=True),
    address=st.one_of(
        st.just(""),
        st.tuples(st.ip_addresses(v=4), st.integers(8, 30)).map(
            lambda pair: str(IPv4Interface((int(pair[0]), pair[1])))
        ),
    ),
    mtu=st.integers(576, 9000),
    nat=st.booleans(),
)


@given(links, tags, names)
def test_a_link_survives_the_way_to_xml_and_back(link: Link, tag: OwnerTag, name: str) -> None:
    root = ET.fromstring(render_network(link, Owner(tag, name)))
    assert parse_network(root) == link
    owner = owner_in(root)
    assert owner is not None
    assert (owner.tag, owner.name) == (tag, name)


@pytest.mark.parametrize(
    "added",
    [
        "<forward mode='route'/>",
        "<forward mode='nat' dev='eth0'/>",
        "<ip address='10.0.0.1'><dhcp/></ip>",
    ],
)
def test_a_network_that_somebody_opened_shows_as_edited(added: str) -> None:
    root = ET.fromstring(render_network(Link("br0"), Owner(TAG, "n")))
    root.append(ET.fromstring(added))
    assert "edited" in parse_network(root).name


def test_addresses_of_both_kinds_and_their_nat_survive_the_way_to_xml_and_back() -> None:
    for link in (
        Link("br0", "10.0.0.1/24", nat=True, address6="fd00::1/64"),
        Link("br0", address6="fd00::1/64"),
    ):
        root = ET.fromstring(render_network(link, Owner(TAG, "n")))
        assert parse_network(root) == link
        assert (root.find("forward/nat[@ipv6='yes']") is not None) is link.nat


def test_nat_that_somebody_added_shows_as_what_the_file_did_not_say() -> None:
    root = ET.fromstring(render_network(Link("br0"), Owner(TAG, "n")))
    root.append(ET.fromstring("<forward mode='nat'/>"))
    assert parse_network(root) == Link("br0", nat=True)


@given(names, st.integers(0, 1 << 50))
def test_a_volume_survives_the_way_to_xml_and_back(name: str, size: int) -> None:
    sha256 = "ab" * 32
    below = f"{PATH}/image-abab--{sha256}.raw"
    xml = render_volume(
        disk_file(POOL, name), capacity=size, file_format="qcow2", backing=(below, "raw")
    )
    found = parse_volume(ET.fromstring(xml))
    assert as_disk(found, POOL) == (name, Volume(POOL, size, "image-abab"))
    assert as_image(found, POOL) is None


def test_an_image_says_what_it_is_by_its_name() -> None:
    image = Image(POOL, "cd" * 32, "qcow2", 1 << 20)
    file = FoundVolume(image_file("image-cdcd", image), 1 << 20, "qcow2", "")
    assert as_image(file, POOL) == ("image-cdcd", image)
    assert as_disk(file, POOL) is None


@pytest.mark.parametrize("kind", ["vmdk", "vdi", "vhdx", "vpc", "qed", "parallels", "qcow"])
def test_an_image_of_a_format_that_was_once_taken_is_ours_to_remove(kind: str) -> None:
    image = Image(POOL, "cd" * 32, kind, 1 << 20)
    file = image_file("image-cdcd", image)
    assert is_ours(file, POOL)
    assert as_image(FoundVolume(file, 1 << 20, kind, ""), POOL) == ("image-cdcd", image)


@pytest.mark.parametrize(
    "file",
    [
        "notes.txt",
        "backup.img",
        "boot.iso",
        "x.raw",
        "qcow2",
        "i--" + "a" * 64 + ".txt",
        "m0-0.qcow2",
        "m0-0.0123abcd.qcow2",
        disk_file("another-pool", "m0-0"),
        disk_file(POOL, "m0-0") + ".bak",
        "my.nvram",
        "my.volume",
        "my.complete",
        "my.snapshot",
        "my.seed",
    ],
)
def test_files_of_others_are_not_taken_for_ours(file: str) -> None:
    assert not is_ours(file, POOL)


@pytest.mark.parametrize(
    "file",
    [
        disk_file(POOL, "m0-0"),
        nvram_file("m0", "uefi"),
        nvram_file("m0", "uefi-secure") + ".before.snapshot",
        "m0.0123abcd.volume",
        "m0." + "a" * 64 + ".seed",
        "boot-0123abcd.iso",
        "i--" + "a" * 64 + ".raw",
        "i--" + "a" * 64 + ".raw.reference",
    ],
)
def test_files_of_ours_are_known(file: str) -> None:
    assert is_ours(file, POOL)
