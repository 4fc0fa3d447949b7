"""UEFI variables of a domain that others made: changed as its BMC is asked, and given back.

They lie in a file of their owner's, which is read and written as those of nospoon's own machines
are (`flash`). Before secure boot's variables are changed, what they were is written into the
domain's metadata, and what they are to be: those that are still so at release get back what they
were. What else is in the file is never changed, but for the bit that leads into setup, which the
firmware itself takes back.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import UUID
from xml.etree import ElementTree as ET

import libvirt

from nospoon.errors import ProviderError
from nospoon.providers.libvirt.bindings import Domain
from nospoon.providers.libvirt.elements import element, parsed, written
from nospoon.providers.libvirt.faults import NO_DOMAIN_METADATA
from nospoon.providers.libvirt.flash import Edit, Flash, NotRegular, edited
from nospoon.providers.libvirt.hypervisor import Hypervisor
from nospoon.providers.libvirt.key_databases import DATABASES, with_keys_of
from nospoon.providers.libvirt.owner import VARIABLES
from nospoon.providers.libvirt.roster import Roster
from nospoon.providers.libvirt.varstore import (
    SECURE_BOOT_ENABLE,
    BadVariables,
    packed,
    unpacked,
    variables,
    with_variable,
    without_variable,
)

CONFIG, ELEMENT = libvirt.VIR_DOMAIN_AFFECT_CONFIG, libvirt.VIR_DOMAIN_METADATA_ELEMENT
T = TypeVar("T")
SECURE_BOOT: Sequence[tuple[str, UUID]] = (
    *DATABASES.items(),
    ("SecureBootEnable", SECURE_BOOT_ENABLE),
)
"""Name and vendor of each variable that is given back."""


@dataclass(frozen=True, slots=True)
class Places:
    """Paths on the host: of the domain's variables, and of the template that its firmware was made
    with; "" where libvirt says neither before it has started the domain.
    """

    file: str
    template: str


@dataclass(frozen=True, slots=True)
class _Changed:
    """A variable as it was before, b"" if it was not there, and the digest of what replaces it."""

    original: bytes
    digest: str


@dataclass(frozen=True, slots=True)
class _Noted:
    """What was changed, and in which file, which the domain's definition may leave open."""

    file: str
    changed: Mapping[tuple[str, UUID], _Changed]


@dataclass(frozen=True, slots=True)
class AdoptedVariables:
    """Of the domains of one host."""

    hypervisor: Hypervisor
    roster: Roster
    flash: Flash

    async def read(self, machine: UUID) -> bytes | None:
        """None where there are none yet, or libvirt does not say where they lie."""

        def place(domain: Domain) -> str:
            noted = _noted(domain)
            return _places(domain).file or (noted.file if noted is not None else "")

        file = await self._ask(machine, place, "look at")
        return await self.flash.read(file) if file else None

    async def edit(self, machine: UUID, edits: Sequence[Edit], *, resets: bool = False) -> None:
        """Change them, of a domain that is off. `resets`: secure boot's databases get what the
        template has. Raises `ProviderError`.
        """
        places = await self._ask(machine, _places, "look at")
        if not places.file or (resets and not places.template):
            places = await self._ask(machine, self._places_by_a_start, "find")
        if resets:
            template = await self._template(places)
            edits = (partial(with_keys_of, template=template), *edits)
        before = await self.flash.read(places.file)
        if before is None:
            await self._ask(machine, start_and_end, "make")
            before = await self.flash.read(places.file)
        if before is None:
            name = await self._ask(machine, lambda domain: domain.name(), "look at")
            raise ProviderError(
                f"{self._host}: libvirt made no {places.file} for the domain {name}",
                hint="See `virsh dumpxml`: where does its <nvram> lie?",
            )
        await self._change(machine, places.file, before, edits)

    async def _change(self, machine: UUID, file: str, before: bytes, edits: Sequence[Edit]) -> None:
        after = await asyncio.to_thread(edited, f"{self._host}: {file}", before, edits)
        if after != before:
            await self._ask(machine, lambda domain: _note(domain, file, before, after), "note")
            await self.flash.write(file, before, after)

    async def give_back(self, machine: UUID) -> bool:
        """Secure boot's variables are as they were, but for those that others changed meanwhile,
        and a file that is no store of variables any more. Returns false, and changes nothing, while
        the domain runs with them.
        """
        noted, active = await self._ask(
            machine, lambda domain: (_noted(domain), bool(domain.isActive())), "look at"
        )
        if noted is None:
            return True
        if active:
            return False
        with suppress(BadVariables, NotRegular):
            before = await self.flash.read(noted.file)
            if before is not None:
                after = await asyncio.to_thread(_as_before, before, noted.changed)
                await self.flash.write(noted.file, before, after)
        return True

    async def _ask(self, machine: UUID, act: Callable[[Domain], T], verb: str) -> T:
        return await self.hypervisor.work(
            lambda connect: act(self.roster.find(connect, machine)),
            f"{verb} the UEFI variables of {machine}",
        )

    @property
    def _host(self) -> str:
        return f"host {self.hypervisor.host}"

    async def _template(self, places: Places) -> bytes:
        found = await self.flash.read(places.template) if places.template else None
        if found is not None:
            return found
        raise ProviderError(
            f"{self._host}: what the keys in {places.file} were at first is not known: libvirt "
            "names no template of its firmware that is there",
            hint="Name one in the domain: `<nvram template='…'>`.",
        )

    def _places_by_a_start(self, domain: Domain) -> Places:
        """libvirt chooses both when it starts a domain whose definition leaves them open."""
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
        try:
            places = _places(domain)
        finally:
            domain.destroy()
        if not places.file:
            raise ProviderError(
                f"{self._host}: UEFI variables of the domain {domain.name()} are in no file",
                hint="Secure boot and setup need them in one: see its <nvram> in `virsh dumpxml`.",
            )
        return places


def _places(domain: Domain) -> Places:
    """As its definition says, or the domain that runs."""
    defined = _named(parsed(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)))
    if (defined.file and defined.template) or not domain.isActive():
        return defined
    now = _named(parsed(domain.XMLDesc(0)))
    return Places(defined.file or now.file, defined.template or now.template)


def _named(root: ET.Element) -> Places:
    """formatdomain.html, "BIOS bootloader": the path is the element's text, or its source's."""
    found = root.find("os/nvram")
    if found is None:
        return Places("", "")
    source = found.find("source")
    path = (found.text or "").strip() if source is None else source.get("file", "")
    return Places(path if path.startswith("/") else "", found.get("template", ""))


def start_and_end(domain: Domain) -> None:
    """The file is made by that, from the template."""
    domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    domain.destroy()


def _secure_boot(flash: bytes) -> Mapping[tuple[str, UUID], bytes]:
    """What the store has of it, each as it is packed; b"" for none."""
    found = {(each.name, each.vendor): each for each in variables(flash)}
    return {key: packed(found[key]) if key in found else b"" for key in SECURE_BOOT}


def _changes(
    noted: Mapping[tuple[str, UUID], _Changed], before: bytes, after: bytes
) -> dict[tuple[str, UUID], _Changed]:
    """Of all changes, those of before included: what was there first."""
    then, now = _secure_boot(before), _secure_boot(after)
    changed = dict(noted)
    for key in SECURE_BOOT:
        if then[key] == now[key]:
            continue
        known = noted.get(key)
        own = known is not None and known.digest == _digest(then[key])
        original = known.original if known is not None and own else then[key]
        changed[key] = _Changed(original, _digest(now[key]))
    return changed


def _as_before(flash: bytes, noted: Mapping[tuple[str, UUID], _Changed]) -> bytes:
    """Raises `BadVariables`."""
    now = _secure_boot(flash)
    for (name, vendor), change in noted.items():
        if _digest(now.get((name, vendor), b"")) != change.digest:
            continue
        if change.original:
            flash = with_variable(flash, unpacked(change.original))
        else:
            flash = without_variable(flash, name, vendor)
    return flash


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _note(domain: Domain, file: str, before: bytes, after: bytes) -> None:
    """Nothing for what is not given back."""
    noted = _noted(domain)
    known = noted.changed if noted is not None and noted.file == file else {}
    changed = _changes(known, before, after)
    if not changed:
        return
    each_of_them = (
        element(
            "variable",
            name=name,
            vendor=str(vendor),
            original=base64.b64encode(each.original).decode(),
            digest=each.digest,
        )
        for (name, vendor), each in changed.items()
    )
    xml = written(element("variables", *each_of_them, file=file))
    domain.setMetadata(ELEMENT, xml, "nospoon-variables", VARIABLES, CONFIG)


def _noted(domain: Domain) -> _Noted | None:
    try:
        root = parsed(domain.metadata(ELEMENT, VARIABLES, CONFIG))
    except libvirt.libvirtError as error:
        if error.get_error_code() == NO_DOMAIN_METADATA:
            return None
        raise
    changed = {
        (each.get("name", ""), UUID(each.get("vendor"))): _Changed(
            base64.b64decode(each.get("original", "")), each.get("digest", "")
        )
        for each in root.iterfind("variable")
    }
    return _Noted(root.get("file", ""), changed)
