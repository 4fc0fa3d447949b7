"""What somebody edits of a machine shows in its shape, running or not, and a change mends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import libvirt
import pytest

from nospoon.model.machine import PowerCommand
from nospoon.model.resources.machines import Machine
from nospoon.plan.diff.diff import diff
from nospoon.plan.order.steps import Plan
from nospoon.plan.text import plan_text
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.providers.libvirt.ends import Ends
from nospoon.testing.racks import PLAN, Bench, Rack, found

pytestmark = pytest.mark.libvirt
Domain = Any


def domain_of(bench: Bench, rack: Rack) -> Domain:
    assert isinstance(bench.connection, LibvirtConnection)
    return libvirt.open(bench.connection.host.where).lookupByUUID(rack.uuid.bytes)


async def planned(bench: Bench, rack: Rack) -> Plan:
    can = await bench.connection.capabilities()
    return diff(
        cluster="kit",
        cluster_id=bench.cluster,
        desired={rack.machine.key: rack.machine},
        observed=[await found(bench, rack.machine)],
        rules={"here": can.rules},
    )


async def mended(bench: Bench, rack: Rack) -> None:
    seen = await found(bench, rack.machine)
    await bench.connection.machine_driver.change(seen, rack.machine, bench.tag)


def link_of(domain: Domain, flags: int = 0) -> str:
    link = ET.fromstring(domain.XMLDesc(flags)).find("devices/interface/link")
    return link.get("state", "up") if link is not None else "up"


def set_link(domain: Domain, state: str, flags: int) -> None:
    nic = ET.fromstring(domain.XMLDesc(0)).find("devices/interface")
    assert nic is not None
    link = nic.find("link")
    link = link if link is not None else ET.SubElement(nic, "link")
    link.set("state", state)
    domain.updateDeviceFlags(ET.tostring(nic, encoding="unicode"), flags)


Edit = Callable[[ET.Element], None]


def end_of(element: str, what: str) -> Edit:
    def edit(root: ET.Element) -> None:
        found = root.find(element)
        assert found is not None
        found.text = what

    return edit


def driver_of(attribute: str, value: str) -> Edit:
    def edit(root: ET.Element) -> None:
        found = root.find("devices/disk/driver")
        assert found is not None
        found.set(attribute, value)

    return edit


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (end_of("on_reboot", "destroy"), "ends"),
        (end_of("on_crash", "preserve"), "ends"),
        (end_of("on_poweroff", "restart"), "ends"),
        (driver_of("cache", "none"), "disks"),
        (driver_of("discard", "ignore"), "disks"),
    ],
)
async def test_an_edited_definition_is_drift_and_mended(
    bench: Bench, rack: Rack, edit: Edit, field: str
) -> None:
    domain = domain_of(bench, rack)
    root = ET.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    edit(root)
    domain.connect().defineXML(ET.tostring(root, encoding="unicode"))
    (step,) = (await planned(bench, rack)).steps
    assert [change.field for change in step.changes] == [field]
    await mended(bench, rack)
    assert (await planned(bench, rack)).steps == ()


@pytest.mark.parametrize("before", [True, False], ids=["before its start", "after it"])
async def test_what_a_guest_was_started_with_waits_for_its_power_off(
    bench: Bench, rack: Rack, *, before: bool
) -> None:
    domain, power = domain_of(bench, rack), bench.connection.machine_driver.power

    def edit() -> None:
        root = ET.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
        end_of("on_crash", "preserve")(root)
        domain.connect().defineXML(ET.tostring(root, encoding="unicode"))

    if before:
        edit()
    await power(rack.uuid, PowerCommand.ON, PLAN)
    if not before:
        edit()
    plan = await planned(bench, rack)
    assert [change.field for change in plan.steps[0].changes] == ["ends"]
    await mended(bench, rack)
    plan = await planned(bench, rack)
    assert plan.steps == ()
    waits = [each for each in plan.notes if "has to be powered off for ends" in each]
    assert len(waits) == before, "it runs with what it was started with"
    await power(rack.uuid, PowerCommand.OFF, PLAN)
    assert not (await planned(bench, rack)).notes


async def test_a_machine_that_starts_with_its_host_is_drift_and_mended(
    bench: Bench, rack: Rack
) -> None:
    domain = domain_of(bench, rack)
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    domain.setAutostart(1)
    plan = await planned(bench, rack)
    assert "autostart: yes -> no" in plan_text(plan)
    assert not plan.steps[0].at_power_off, "at once"
    assert not plan.notes, "nothing waits for a power-off"
    await mended(bench, rack)
    assert not domain.autostart()
    assert (await planned(bench, rack)).steps == ()
    assert domain.isActive()


@pytest.mark.parametrize(
    "flags", [libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG]
)
async def test_a_link_that_somebody_took_down_is_drift_and_mended_while_the_guest_runs(
    bench: Bench, rack: Rack, flags: int
) -> None:
    domain = domain_of(bench, rack)
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    set_link(domain, "down", flags)
    plan = await planned(bench, rack)
    (step,) = plan.steps
    shape = rack.machine.shape
    assert isinstance(shape, Machine)
    assert [(each.field, each.observed) for each in step.changes] == [
        ("unlinked", f"[{shape.nics[0].mac}]")
    ]
    assert not step.at_power_off
    assert not plan.notes
    run = domain.ID()
    await mended(bench, rack)
    assert link_of(domain) == link_of(domain, libvirt.VIR_DOMAIN_XML_INACTIVE) == "up"
    assert domain.ID() == run, "it runs on"
    assert (await planned(bench, rack)).steps == ()


def test_what_ends_a_guest_is_told_in_words() -> None:
    assert str(Ends(crash="preserve")) == "power-off: destroy, reboot: restart, crash: preserve"
