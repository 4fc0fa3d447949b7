"""UEFI variables of a domain that others made: changed as its BMC is asked, and given back.

They lie in a file of their owner's, which is read and written over libvirt by a pool of its
directory: the owner's, or one that is there for the while. Before secure boot's variables are
changed, what they were is written into the domain's metadata, and what they are to be: those that
are still so at release get back what they were. What else is in the file is never changed, but for
the bit that leads into setup, which the firmware itself takes back.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePosixPath
from threading import Lock
from uuid import UUID
from xml.etree import ElementTree as ET

import libvirt

from nospoon.errors import ProviderError
from nospoon.providers.libvirt.elements import element, leaf, parsed, written
from nospoon.providers.libvirt.faults import NO_DOMAIN_METADATA, NO_STORAGE_POOL
from nospoon.providers.libvirt.flash import Edit, download, edited, upload
from nospoon.providers.libvirt.hypervisor import Connect, ignoring
from nospoon.providers.libvirt.key_databases import DATABASES, with_keys_of
from nospoon.providers.libvirt.monitor import Domain
from nospoon.providers.libvirt.owner import VARIABLES
from nospoon.providers.libvirt.pools import VirPool, VirVolume, refreshed
from nospoon.providers.libvirt.varstore import (
    SECURE_BOOT_ENABLE,
    BadVariables,
    packed,
    unpacked,
    variables,
    with_variable,
    without_variable,
)
from nospoon.providers.libvirt.volumes import file_named

CONFIG, ELEMENT = libvirt.VIR_DOMAIN_AFFECT_CONFIG, libvirt.VIR_DOMAIN_METADATA_ELEMENT
POOL = "nospoon-variables"
"""Of a directory, while a file in it is used; what a daemon that ended left is used and removed."""
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

    host: str
    _turn: Lock = field(default_factory=Lock)

    def read(self, connect: Connect, domain: Domain) -> bytes | None:
        """None where there are none yet, or libvirt does not say where they lie."""
        noted = _noted(domain)
        file = _places(domain).file or (noted.file if noted is not None else "")
        if not file:
            return None
        with self._file(connect, file) as volume:
            return download(connect, volume) if volume is not None else None

    def edit(
        self, connect: Connect, domain: Domain, edits: Sequence[Edit], *, resets: bool = False
    ) -> None:
        """Change them, of a domain that is off. `resets`: secure boot's databases get what the
        template has. Raises `ProviderError`.
        """
        places = _places(domain)
        if not places.file or (resets and not places.template):
            places = self._places_by_a_start(domain)
        if resets:
            edits = (partial(with_keys_of, template=self._template(connect, places)), *edits)
        with self._file(connect, places.file) as volume:
            if volume is None:
                _start_and_end(domain)
        with self._file(connect, places.file) as volume:
            if volume is None:
                raise ProviderError(
                    f"host {self.host}: libvirt made no {places.file} for the domain "
                    f"{domain.name()}",
                    hint="See `virsh dumpxml`: where does its <nvram> lie?",
                )
            before = download(connect, volume)
            after = edited(f"host {self.host}: {places.file}", before, edits)
            if after != before:
                _note(domain, places.file, before, after)
                upload(connect, volume, before, after)

    def give_back(self, connect: Connect, domain: Domain) -> bool:
        """Secure boot's variables are as they were, but for those that others changed meanwhile,
        and a file that is no store of variables any more. Returns false, and changes nothing, while
        the domain runs with them.
        """
        noted = _noted(domain)
        if noted is None:
            return True
        if domain.isActive():
            return False
        with self._file(connect, noted.file) as volume:
            if volume is not None:
                before = download(connect, volume)
                with suppress(BadVariables):
                    upload(connect, volume, before, _as_before(before, noted.changed))
        return True

    def _template(self, connect: Connect, places: Places) -> bytes:
        if places.template:
            with self._file(connect, places.template) as volume:
                if volume is not None:
                    return download(connect, volume)
        raise ProviderError(
            f"host {self.host}: what the keys in {places.file} were at first is not known: libvirt "
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
                f"host {self.host}: UEFI variables of the domain {domain.name()} are in no file",
                hint="Secure boot and setup need them in one: see its <nvram> in `virsh dumpxml`.",
            )
        return places

    @contextmanager
    def _file(self, connect: Connect, path: str) -> Iterator[VirVolume | None]:
        """The file at an absolute path of the host, None where there is none."""
        place = PurePosixPath(path)
        with self._turn:
            pool = _pool_of(connect, str(place.parent))
            try:
                yield file_named(pool, place.name)
            finally:
                if pool.name() == POOL:
                    pool.destroy()


def _pool_of(connect: Connect, directory: str) -> VirPool:
    found = None
    with ignoring(NO_STORAGE_POOL):
        found = connect.storagePoolLookupByTargetPath(directory)
    if found is not None:
        return refreshed(found)
    with ignoring(NO_STORAGE_POOL):
        connect.storagePoolLookupByName(POOL).destroy()
    target = element("target", leaf("path", directory))
    pool = element("pool", leaf("name", POOL), target, type="dir")
    return connect.storagePoolCreateXML(written(pool), 0)


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


def _start_and_end(domain: Domain) -> None:
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
