"""Two who claim one machine, each by its own connection, and what a lost claim means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import libvirt
import pytest

from nospoon.errors import Gone, NotOurs
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.machine import MachineChange, Outcome, PowerCommand, PowerState
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.providers.libvirt.adopted import claim, confirm
from nospoon.providers.libvirt.owner import NAMESPACE
from nospoon.testing.libvirtd import OwnLibvirt
from nospoon.testing.racks import PLAN

pytestmark = pytest.mark.libvirt
CONFIG, ELEMENT = libvirt.VIR_DOMAIN_AFFECT_CONFIG, libvirt.VIR_DOMAIN_METADATA_ELEMENT
ONE, OTHER = (OwnerTag("kit", UUID(int=number), token="t") for number in (1, 2))


@pytest.fixture
def domain(own_libvirt: OwnLibvirt) -> Iterator[Any]:
    """One that nospoon did not make."""
    xml = (
        f"<domain type='qemu'><name>claimed</name><uuid>{uuid4()}</uuid>"
        "<memory unit='MiB'>64</memory>"
        "<os><type arch='x86_64' machine='pc'>hvm</type></os></domain>"
    )
    made = libvirt.open(own_libvirt.uri).defineXML(xml)
    yield made
    if made.isActive():
        made.destroy()
    if any(each.name() == "claimed" for each in made.connect().listAllDomains(0)):
        made.undefine()


async def seen(connection: LibvirtConnection) -> Machine:
    found = await connection.adoptable()
    assert found is not None
    return next(each.machine for each in found if each.name == "claimed")


def node(machine: Machine) -> Resource:
    return Resource(Key(Kind.MACHINE, "here", "node"), machine)


async def test_of_two_who_claim_at_once_one_has_the_machine(
    connect: Callable[[str], LibvirtConnection], domain: Any
) -> None:
    first, second = connect("here"), connect("there")
    machine = await seen(first)
    for _ in range(5):
        done = await asyncio.gather(
            first.machine_driver.claim(node(machine), ONE),
            second.machine_driver.claim(node(machine), OTHER),
            return_exceptions=True,
        )
        (lost,) = [each for each in done if each is not None]
        assert isinstance(lost, NotOurs)
        winner = ONE if done[0] is None else OTHER
        assert str(winner.cluster) in domain.metadata(ELEMENT, NAMESPACE, CONFIG)
        domain.setMetadata(ELEMENT, None, "nospoon", NAMESPACE, CONFIG)


async def test_a_claim_that_another_overwrote_is_lost(
    connection: LibvirtConnection, domain: Any
) -> None:
    machine, connect = await seen(connection), domain.connect()
    assert claim(connect, machine, "node", ONE)
    confirm(connect, machine, ONE)
    assert not claim(connect, machine, "node", ONE), "it has it already"
    domain.setMetadata(ELEMENT, None, "nospoon", NAMESPACE, CONFIG)
    with pytest.raises(Gone, match="was removed while it was claimed"):
        confirm(connect, machine, ONE)
    claim(connect, machine, "node", OTHER)
    with pytest.raises(NotOurs, match="a node of another cluster"):
        confirm(connect, machine, ONE)


async def test_a_machine_whose_tag_another_process_removes_is_not_powered(
    connection: LibvirtConnection, domain: Any
) -> None:
    driver = connection.machine_driver
    machine = await seen(connection)
    await driver.claim(node(machine), ONE)
    await driver.power(machine.uuid, PowerCommand.OFF, PLAN)
    domain.setMetadata(ELEMENT, None, "nospoon", NAMESPACE, CONFIG)

    async def powered() -> None:
        while True:  # until the event of it arrived
            await driver.power(machine.uuid, PowerCommand.OFF, PLAN)

    async with asyncio.timeout(60):
        with pytest.raises(Gone):
            await powered()


async def test_on_lets_a_machine_go_on_that_its_owner_paused_or_saved_and_boots_nothing(
    connection: LibvirtConnection, domain: Any
) -> None:
    """It keeps its memory, even where the next boot shall be another."""
    driver, machine = connection.machine_driver, await seen(connection)
    await driver.claim(node(machine), ONE)
    once = BootPlan((BootDevice.NETWORK,), (BootDevice.DISK,))
    assert await driver.power(machine.uuid, PowerCommand.ON, PLAN) is Outcome.CHANGED
    process = domain.ID()
    domain.suspend()
    assert await driver.power(machine.uuid, PowerCommand.ON, once) is Outcome.CONTINUED
    assert (domain.state()[0], domain.ID()) == (libvirt.VIR_DOMAIN_RUNNING, process)
    events = driver.watch()
    async with asyncio.timeout(60):
        assert (await anext(events)).change is MachineChange.OBSERVED
        domain.managedSave(0)
        while (await anext(events)).power is not PowerState.OFF:
            pass
        assert await driver.power(machine.uuid, PowerCommand.ON, once) is Outcome.CONTINUED
        while (event := await anext(events)).power is not PowerState.ON:
            pass
    assert event.change is MachineChange.OBSERVED
    state, why = domain.state()
    assert (state, why) == (
        libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_RESTORED,
    )  # fmt: skip
    assert not domain.hasManagedSaveImage()


async def test_what_a_machine_does_whose_owner_defined_it_without_the_tag_is_not_guessed(
    connection: LibvirtConnection, domain: Any
) -> None:
    driver, before = connection.machine_driver, domain.XMLDesc(0)
    machine = await seen(connection)
    await driver.claim(node(machine), ONE)
    events = driver.watch()
    async with asyncio.timeout(60):
        assert (await anext(events)).power is PowerState.OFF
        domain.connect().defineXML(before)
        while (event := await anext(events)).change is not MachineChange.UNREACHABLE:
            pass
    assert event.power is PowerState.UNKNOWN
    assert event.reason.startswith("it was defined without nospoon's tag")


async def test_a_machine_that_runs_on_without_a_definition_is_released(
    connection: LibvirtConnection, domain: Any
) -> None:
    driver, machine = connection.machine_driver, await seen(connection)
    await driver.claim(node(machine), ONE)
    domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    domain.undefine()
    resource = node(machine)
    await driver.release(Observed(resource.key, machine, ONE, running=True))
    assert domain.isActive()
    assert "nospoon" not in domain.XMLDesc(0)


@pytest.mark.parametrize("name", ["../../x", "a&#10;b", "", "..", "x" * 100_000])
async def test_a_tag_with_a_name_that_no_node_has_is_none(
    connect: Callable[[str], LibvirtConnection], domain: Any, name: str
) -> None:
    connection = connect("here")
    await connection.machine_driver.claim(node(await seen(connection)), ONE)
    written = domain.metadata(ELEMENT, NAMESPACE, CONFIG).replace('name="node"', f'name="{name}"')
    domain.setMetadata(ELEMENT, written, "nospoon", NAMESPACE, CONFIG)
    assert await connection.machine_driver.observe(ONE.cluster) == []
    (found,) = [each for each in await connection.adoptable() if each.name == "claimed"]
    assert (found.tag, found.node) == (None, "")


async def test_metadata_of_its_owner_that_is_called_metadata_stays(
    connect: Callable[[str], LibvirtConnection], domain: Any
) -> None:
    theirs = "<metadata><a:app xmlns:a='urn:a'><metadata/></a:app></metadata><memory"
    domain.connect().defineXML(domain.XMLDesc(0).replace("<memory", theirs, 1))
    before = domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    connection = connect("here")
    machine = await seen(connection)
    await connection.machine_driver.claim(node(machine), ONE)
    (claimed,) = await connection.machine_driver.observe(ONE.cluster)
    await connection.machine_driver.delete(claimed)
    assert domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE) == before
