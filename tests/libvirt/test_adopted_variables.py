"""UEFI variables of domains that others made: changed as BMCs are asked, and given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import libvirt
import pytest

from nospoon.errors import ProviderError
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.providers.libvirt.flash import Flash
from nospoon.providers.libvirt.key_databases import IMAGE_SECURITY
from nospoon.providers.libvirt.varstore import (
    GLOBAL,
    SECURE_BOOT_ENABLE,
    TO_FIRMWARE_UI,
    Variable,
    entering_setup,
    variables,
    with_variable,
    without_variable,
)
from nospoon.runtime.runner import Runner
from nospoon.runtime.telling import listen
from nospoon.testing.libvirtd import OwnLibvirt

pytestmark = pytest.mark.libvirt
ORDER = (BootDevice.DISK,)
PLAIN = BootPlan(ORDER, ORDER)
TAG = OwnerTag("kit", UUID(int=1), token="t")
Define = Callable[..., Any]
INACTIVE = libvirt.VIR_DOMAIN_XML_INACTIVE


@pytest.fixture
def define(own_libvirt: OwnLibvirt) -> Iterator[Define]:
    """Defines a domain with keys enrolled; `nvram`: element of its variables, "" for libvirt's."""
    connect = libvirt.open(own_libvirt.uri)
    made: list[Any] = []

    def defined(nvram: str = "", feature: str = "yes") -> Any:
        xml = (
            f"<domain type='qemu'><name>theirs-{len(made)}</name><uuid>{uuid4()}</uuid>"
            "<memory unit='MiB'>256</memory><os firmware='efi'>"
            "<type arch='x86_64' machine='q35'>hvm</type><firmware>"
            f"<feature enabled='{feature}' name='secure-boot'/>"
            f"<feature enabled='{feature}' name='enrolled-keys'/></firmware>{nvram}</os>"
            f"<features><acpi/><smm state='{'on' if feature == 'yes' else 'off'}'/></features>"
            "</domain>"
        )
        made.append(connect.defineXML(xml))
        return made[-1]

    yield defined
    for each in made:
        if each.isActive():
            each.destroy()
        each.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)
    connect.close()


async def claimed(connection: LibvirtConnection, domain: Any) -> Machine:
    machine = next(
        each.machine for each in await connection.adoptable() if each.name == domain.name()
    )
    await connection.machine_driver.claim(Resource(key(domain), machine), TAG)
    return machine


def key(domain: Any) -> Key:
    return Key(Kind.MACHINE, "here", domain.name())


async def release(connection: LibvirtConnection, domain: Any, machine: Machine) -> None:
    await connection.machine_driver.release(Observed(key(domain), machine, TAG))


def stored(file: Path) -> dict[tuple[str, UUID], bytes]:
    return {(each.name, each.vendor): each.data for each in variables(file.read_bytes())}


def by_start(domain: Any) -> None:
    """libvirt makes the file, as at any start of its owner's."""
    domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    domain.destroy()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where an owner keeps variables, which QEMU opens."""
    tmp_path.chmod(0o755)
    return tmp_path / "theirs_VARS.fd"


async def test_secure_boot_and_its_keys_are_switched_reset_and_given_back(
    connection: LibvirtConnection, define: Define, place: Path
) -> None:
    domain = define(f"<nvram>{place}</nvram>")
    by_start(domain)
    made = place.read_bytes()
    changed = without_variable(made, "dbx", IMAGE_SECURITY)  # as its owner has it
    place.write_bytes(with_variable(changed, Variable("Owners", GLOBAL, b"stays")))
    before, xml = stored(place), domain.XMLDesc(INACTIVE)

    machine = await claimed(connection, domain)
    machines = connection.machine_driver
    assert (await machines.firmware_keys.key_databases(machine.uuid))[3].signatures == ()
    await machines.power(machine.uuid, PowerCommand.ON, BootPlan(ORDER, ORDER, secure_boot=False))
    await machines.power(machine.uuid, PowerCommand.OFF, PLAIN)
    assert stored(place)["SecureBootEnable", SECURE_BOOT_ENABLE] == b"\0"
    await machines.power(
        machine.uuid, PowerCommand.ON, BootPlan(ORDER, ORDER, secure_boot=True, reset_keys=True)
    )
    await machines.power(machine.uuid, PowerCommand.OFF, PLAIN)
    now = stored(place)
    assert now["SecureBootEnable", SECURE_BOOT_ENABLE] == b"\1"
    assert now["dbx", IMAGE_SECURITY] == stored_in(made)["dbx", IMAGE_SECURITY]
    assert now["Owners", GLOBAL] == b"stays"

    await release(connection, domain, machine)
    kept = {name: data for name, data in stored(place).items() if name in before}
    assert kept == before
    switch = ("SecureBootEnable", SECURE_BOOT_ENABLE)
    assert (switch in stored(place)) == (switch in before)
    assert domain.XMLDesc(INACTIVE) == xml
    assert domain.connect().listAllStoragePools() == []


def stored_in(flash: bytes) -> dict[tuple[str, UUID], bytes]:
    return {(each.name, each.vendor): each.data for each in variables(flash)}


async def test_what_somebody_else_changed_meanwhile_stays(
    connection: LibvirtConnection, define: Define, place: Path
) -> None:
    domain = define(f"<nvram>{place}</nvram>")
    by_start(domain)
    machine = await claimed(connection, domain)
    machines = connection.machine_driver
    off = BootPlan(ORDER, ORDER, secure_boot=False)
    await machines.power(machine.uuid, PowerCommand.ON, off)
    await machines.power(machine.uuid, PowerCommand.OFF, PLAIN)
    flash = place.read_bytes()
    mine = Variable("SecureBootEnable", SECURE_BOOT_ENABLE, b"\2", 3)
    place.write_bytes(with_variable(flash, mine))
    await release(connection, domain, machine)
    assert stored(place)["SecureBootEnable", SECURE_BOOT_ENABLE] == b"\2"


async def test_variables_that_libvirt_places_by_itself_are_found_and_given_back(
    connection: LibvirtConnection, define: Define, runner: Runner
) -> None:
    domain = define()
    xml = domain.XMLDesc(INACTIVE)
    machine = await claimed(connection, domain)
    machines = connection.machine_driver
    assert list(await machines.firmware_keys.key_databases(machine.uuid)) == [], "never started"
    off, files = BootPlan(ORDER, ORDER, secure_boot=False), Flash("here", runner)

    async def found() -> dict[str, bytes]:
        flash = await files.read(f"/var/lib/libvirt/qemu/nvram/{domain.name()}_VARS.fd")
        assert flash is not None
        return {each.name: each.data for each in variables(flash)}

    await machines.power(machine.uuid, PowerCommand.ON, off)
    await machines.power(machine.uuid, PowerCommand.OFF, PLAIN)
    assert (await found())["SecureBootEnable"] == b"\0"
    await release(connection, domain, machine)
    assert domain.XMLDesc(INACTIVE) == xml
    domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    assert (await found()).get("SecureBootEnable") != b"\0"


async def test_setup_is_entered_by_the_variable_that_says_so(
    connection: LibvirtConnection, define: Define, place: Path
) -> None:
    domain = define(f"<nvram>{place}</nvram>", feature="no")
    xml = domain.XMLDesc(INACTIVE)
    machine = await claimed(connection, domain)
    machines = connection.machine_driver
    await machines._nvram.edit(machine.uuid, [entering_setup])
    assert stored(place)["OsIndications", GLOBAL][0] & TO_FIRMWARE_UI
    setup = BootPlan((BootDevice.SETUP, *ORDER), ORDER)
    await machines.power(machine.uuid, PowerCommand.ON, setup)
    await machines.power(machine.uuid, PowerCommand.OFF, PLAIN)
    await release(connection, domain, machine)
    assert domain.XMLDesc(INACTIVE) == xml


async def test_what_is_no_store_of_variables_is_refused_and_left_as_it_is(
    connection: LibvirtConnection, define: Define, place: Path
) -> None:
    domain = define(f"<nvram>{place}</nvram>")
    by_start(domain)
    place.write_bytes(b"\xee" * place.stat().st_size)
    machine = await claimed(connection, domain)
    off = BootPlan(ORDER, ORDER, secure_boot=False)
    with pytest.raises(ProviderError, match="not a firmware volume"):
        await connection.machine_driver.power(machine.uuid, PowerCommand.ON, off)
    assert set(place.read_bytes()) == {0xEE}
    assert not domain.isActive()
    await release(connection, domain, machine)


async def test_a_machine_that_runs_keeps_its_variables_when_it_is_released(
    connection: LibvirtConnection, define: Define, place: Path
) -> None:
    domain = define(f"<nvram>{place}</nvram>")
    xml = domain.XMLDesc(INACTIVE)
    machine = await claimed(connection, domain)
    off = BootPlan(ORDER, ORDER, secure_boot=False)
    await connection.machine_driver.power(machine.uuid, PowerCommand.ON, off)
    heard = list[str]()
    listen(heard.append)
    await release(connection, domain, machine)
    assert [each.partition(",")[0] for each in heard] == [
        f"machine {domain.name()} runs with the secure boot settings that its BMC set"
    ]
    assert domain.isActive()
    assert stored(place)["SecureBootEnable", SECURE_BOOT_ENABLE] == b"\0"
    assert domain.XMLDesc(INACTIVE) == xml, "no note is left"


@pytest.mark.parametrize("by", ["content", "link"])
async def test_a_file_that_its_owner_replaced_by_another_keeps_no_machine_from_its_release(
    connection: LibvirtConnection, define: Define, place: Path, by: str
) -> None:
    domain = define(f"<nvram>{place}</nvram>")
    xml = domain.XMLDesc(INACTIVE)
    machine = await claimed(connection, domain)
    off = BootPlan(ORDER, ORDER, secure_boot=False)
    await connection.machine_driver.power(machine.uuid, PowerCommand.ON, off)
    await connection.machine_driver.power(machine.uuid, PowerCommand.OFF, PLAIN)
    if by == "link":
        place.unlink()
        place.symlink_to("/dev/null")
    else:
        place.write_bytes(b"\xee" * place.stat().st_size)
    await release(connection, domain, machine)
    assert by == "link" or set(place.read_bytes()) == {0xEE}
    assert domain.XMLDesc(INACTIVE) == xml


async def test_a_daemon_that_ends_between_its_note_and_the_change_has_changed_nothing(
    connection: LibvirtConnection, define: Define, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ends(Exception):
        pass

    def ends(*_: object) -> None:
        raise Ends

    domain = define(f"<nvram>{place}</nvram>")
    by_start(domain)
    flash, xml = place.read_bytes(), domain.XMLDesc(INACTIVE)
    machine = await claimed(connection, domain)
    off = BootPlan(ORDER, ORDER, secure_boot=False)
    with monkeypatch.context() as patch:
        patch.setattr(Flash, "write", ends)
        with pytest.raises(Ends):
            await connection.machine_driver.power(machine.uuid, PowerCommand.ON, off)
    assert "nospoon.dev/variables" in domain.XMLDesc(INACTIVE), "noted first"
    await release(connection, domain, machine)
    assert place.read_bytes() == flash
    assert domain.XMLDesc(INACTIVE) == xml
