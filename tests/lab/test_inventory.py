"""Inventories of registered machines: what the probe finds on one is what filters match."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.test_installers import MAC, left, metal, until

from nospoon.control.labs.inventory import inventory_of
from nospoon.errors import ProviderError
from nospoon.model.lab import Inventory, Registered
from nospoon.probe.record import Record, decode
from nospoon.testing.bench import free_port
from nospoon.testing.probed import body
from nospoon.testing.rack import Rack, private_rack

BMC = "ipmi 192.0.2.1:623"
MACHINE = Registered("m", address="192.0.2.1", arch="")


def record(**changes: object) -> Record:
    found = decode(body(**changes))
    assert found is not None
    return found


def test_a_record_is_what_filters_compare() -> None:
    found = inventory_of(record(), bmc=BMC, at=7)
    assert found == Inventory(
        7, BMC, "x86_64", 256, 2, (1 << 30,), ("02:00:00:00:00:01",),
        {
            "system/vendor": ("QEMU",), "system/model": ("Standard PC (Q35 + ICH9, 2009)",),
            "system/serial": ("NS111111112222",),
        },
        {
            "MACADDRESS": ("02:00:00:00:00:01",), "MODULE": ("virtio_net",), "NR_ETH": ("1",),
            "FIRMWARE": ("bios",), "NR_DISKS": ("1",),
        },
    )  # fmt: skip


def test_memory_is_that_of_the_firmwares_map_where_smbios_has_none() -> None:
    assert inventory_of(record(memory=0), bmc=BMC, at=0).memory == 255


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpus": 0},
        {"cpus": 1 << 40},
        {"memory": 0, "memory_mapped": 0},
        {"memory": 1 << 90},
        {"disks": [{"name": "a", "size": -1, "serial": "", "bus": ""}]},
        {"disks": [{"name": "a", "size": 1, "serial": "", "bus": ""}] * 65},
        {"nics": [{"name": "a", "mac": "no MAC", "driver": "", "link": True}]},
    ],
)
def test_what_no_machine_has_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ProviderError, match="not one of a machine"):
        inventory_of(record(**wrong), bmc=BMC, at=0)


@given(st.text(), st.text(max_size=9))
def test_texts_of_a_machine_are_short_and_printable(vendor: str, driver: str) -> None:
    nic = {"name": "a", "mac": "02:00:00:00:00:01", "driver": driver, "link": True}
    found = inventory_of(record(manufacturer=vendor, nics=[nic]), bmc=BMC, at=0)
    texts = [each for all_of in found.values.values() for each in all_of]
    texts += [each for all_of in found.key_values.values() for each in all_of]
    assert all(each.isprintable() and len(each) <= 255 for each in texts)


def test_what_the_file_says_goes_before_what_was_found() -> None:
    found = inventory_of(record(), bmc=BMC, at=0)
    filed = replace(MACHINE, memory=100, values={"system/vendor": ("Acme",)})
    merged = filed.with_inventory(found)
    assert (merged.memory, merged.cpus, merged.arch) == (100, 2, "x86_64")
    assert merged.values["system/vendor"] == ("Acme",)
    assert merged.values["system/serial"] == ("NS111111112222",)
    assert merged.macs == ("02:00:00:00:00:01",)


def test_what_was_found_by_another_bmc_does_not_count() -> None:
    found = inventory_of(record(), bmc="ipmi 192.0.2.2:623", at=0)
    assert MACHINE.with_inventory(found) == replace(MACHINE, arch="x86_64", cpus=1)


@pytest.fixture
def rack() -> Any:
    near = "127.0.0.0/8, ::1, 172.31.0.0/16"
    with private_rack(
        NOSPOON_BOOT_PORT=str(free_port(socket.SOCK_STREAM)), NOSPOON_MEDIA_NETWORKS=near
    ) as made:
        yield made


@pytest.mark.libvirt
@pytest.mark.boots
@pytest.mark.timeout(1200)
def test_a_machine_that_is_known_by_its_bmc_alone_is_found_by_what_it_has(rack: Rack) -> None:
    other, bmc = metal(rack)
    name = rack.name()
    text = f"""
cluster: {name}
labs: {{dev: {{dynamic: false, machines: {{m1: {{bmc: {bmc}}}}}}}}}
nodes: []
"""
    rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
    wanted = (
        "<hostRequires><and><memory op='&gt;=' value='200'/><cpu_count value='1'/>"
        "<disk><size value='64' units='MiB'/></disk><system><vendor value='nospoon'/></system>"
        f"<key_value key='MACADDRESS' op='==' value='{MAC}'/></and></hostRequires>"
    )
    check = ("request", "check", rack.file(wanted, "wanted.xml"), "--lab", f"{name}/dev")
    (row,) = json.loads(rack.run(*check, "-f", "json", status=1).stdout)
    assert row["machines"] == []
    done = rack.run("lab", "inventory", f"{name}/dev", "m1", "--timeout", "300", "-f", "json")
    shown = json.loads(done.stdout)
    assert (shown["memory_mib"], shown["cpus"], shown["macs"]) == (256, 1, [MAC])
    until(lambda: rack.json("node", "show", f"{other}/m"), lambda node: node["power"] == "off")
    (row,) = rack.json(*check)
    assert row["machines"] == ["m1"]
    rack.run("down", "--yes", "--purge", name)
    rack.run("down", "--yes", "--purge", other)
    assert left(rack, name) == []
