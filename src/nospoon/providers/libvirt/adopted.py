"""Domains that someone else made, as machines with a BMC: found, claimed, and given back.

A claimed one carries our tag in its metadata, and nothing else of it is changed but its CD drive
when a medium is inserted (`media`), and its UEFI variables for secure boot and setup
(`adopted_variables`). What a boot follows is said to QEMU, not written into the
definition. Giving it back takes out what is ours and leaves what its owner changed meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import UUID
from xml.etree import ElementTree as ET

import libvirt

from nospoon.errors import Gone, NotOurs, ProviderError
from nospoon.model.cluster import Arch
from nospoon.model.host_facts import Adoptable
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.libvirt.bindings import Connect, Domain
from nospoon.providers.libvirt.definitions import defined
from nospoon.providers.libvirt.domain_parse import parse_domain
from nospoon.providers.libvirt.elements import attribute_of, parsed, written
from nospoon.providers.libvirt.faults import NO_DOMAIN, NO_DOMAIN_METADATA, OPERATION_INVALID
from nospoon.providers.libvirt.hypervisor import ignoring
from nospoon.providers.libvirt.owner import (
    BOOT,
    CDROM,
    NAMESPACE,
    VARIABLES,
    Owner,
    owner_element,
    owner_in,
)
from nospoon.providers.libvirt.pools import pool_of

EMPTY = re.compile(r"(?<!\s)\s*(?:<metadata\s*/>|<metadata>\s*</metadata>)")
QEMU = frozenset({"qemu", "kvm"})
_NOBODY = Owner(OwnerTag("", UUID(int=0)), "", adopted=True)
SETTLE_SECONDS = 0.2
"""Longer than a claim takes from reading that there is no tag to writing its own: milliseconds."""
CONFIG, LIVE = libvirt.VIR_DOMAIN_AFFECT_CONFIG, libvirt.VIR_DOMAIN_AFFECT_LIVE
ELEMENT = libvirt.VIR_DOMAIN_METADATA_ELEMENT


def of_its_owner(node: str, what: str) -> ProviderError:
    """What is refused of a machine that someone else made."""
    return ProviderError(f"node {node} is an adopted machine: {what}")


def adoptable(connect: Connect, deployment: str) -> tuple[Adoptable, ...]:
    """Every domain as a machine, those that nospoon made too, by name."""
    return tuple(sorted(_adoptable(connect, deployment), key=lambda each: each.name))


def _adoptable(connect: Connect, deployment: str) -> Iterator[Adoptable]:
    for domain, root in defined(connect):
        with ignoring(NO_DOMAIN):  # it went while we looked
            owner = owner_in(root)
            kind = root.get("type", ""), attribute_of(root, "os/type", "arch", Arch.X86_64)
            yield Adoptable(
                machine=_machine(root, owner),
                sizes=tuple(_sizes(domain, root)),
                tag=owner.tag if owner is not None else None,
                hindrance=_hindrance(domain, kind, owner, deployment),
                made=owner is not None and not owner.adopted,
                node=owner.name if owner is not None else "",
            )


def _machine(root: ET.Element, owner: Owner | None) -> Machine:
    known = owner if owner is not None and owner.adopted else _NOBODY
    kind = root.find("os/type")
    if kind is not None and kind.get("arch") not in set(Arch):
        kind.set("arch", Arch.X86_64)  # `_hindrance` refuses it, by its name
    return parse_domain(root, known, pool_path="", boot_iso="")


def _sizes(domain: Domain, root: ET.Element) -> Iterator[int]:
    """Of its disks, in their order; 0 where libvirt cannot tell."""
    for disk in root.iterfind("devices/disk"):
        if disk.get("device", "disk") == "disk":
            try:
                yield int(domain.blockInfo(attribute_of(disk, "target", "dev"))[0])
            except libvirt.libvirtError:
                yield 0


def _hindrance(domain: Domain, kind: tuple[str, str], owner: Owner | None, deployment: str) -> str:
    """Why it cannot be a node. `kind`: its type of hypervisor and its architecture."""
    hypervisor, arch = kind
    if owner is not None and owner.tag.deployment != deployment:
        return "another nospoon has it. Release it there first."
    if not domain.isPersistent():
        return "it is transient: libvirt keeps no definition of it. Define it (`virsh define`)."
    if arch not in set(Arch):
        return f"its architecture is {arch}, and nodes are of {' or '.join(Arch)}."
    return "" if hypervisor in QEMU else f"it is of type {hypervisor}; nodes are QEMU's machines."


def claim(connect: Connect, machine: Machine, node: str, tag: OwnerTag) -> bool:
    """Tag it as that node; whether it had no tag before. Raises `Gone`, `NotOurs`, `ProviderError`.

    One that runs is tagged as it runs, too: it is known by that where its owner removes its
    definition. Not one without metadata, of which libvirt would leave an empty element.
    """
    domain, known = _tagged(connect, machine)
    _check_claimed(domain, known, tag)
    pool = pool_of(connect, tag, known.pool if known is not None else "")
    owner = Owner(tag, node, pool, machine.boot_order, adopted=True)
    text = written(owner_element(owner, "owner"))
    domain.setMetadata(ELEMENT, text, "nospoon", NAMESPACE, CONFIG)
    if domain.isActive() and parsed(domain.XMLDesc(0)).find("metadata") is not None:
        with ignoring(OPERATION_INVALID):  # it went off
            domain.setMetadata(ELEMENT, text, "nospoon", NAMESPACE, LIVE)
    return known is None


def confirm(connect: Connect, machine: Machine, tag: OwnerTag) -> None:
    """Read a new tag back, `SETTLE_SECONDS` after it was written: libvirt has no call that writes
    only where nothing is, so of two who claim at once, the last to write has it (M. Fischer's
    mutual exclusion by a delay: L. Lamport, A Fast Mutual Exclusion Algorithm, 1987, section 2).
    """
    domain, known = _tagged(connect, machine)
    if known is None:
        raise Gone(f"the tag of the domain {domain.name()} was removed while it was claimed")
    _check_claimed(domain, known, tag)


def _tagged(connect: Connect, machine: Machine) -> tuple[Domain, Owner | None]:
    try:
        domain = connect.lookupByUUID(machine.uuid.bytes)
    except libvirt.libvirtError as error:
        if error.get_error_code() != NO_DOMAIN:
            raise
        raise Gone(f"there is no machine {machine.adopted} any more") from error
    return domain, owner_in(parsed(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)))


def _check_claimed(domain: Domain, known: Owner | None, tag: OwnerTag) -> None:
    if known is not None and not (known.adopted and _same(known.tag, tag)):
        raise NotOurs(
            f"the domain {domain.name()} is a node of another cluster",
            hint="Release it there first.",
        )


def _same(one: OwnerTag, other: OwnerTag) -> bool:
    return (one.deployment, one.cluster) == (other.deployment, other.cluster)


def release(connect: Connect, machine: Machine, deployment: str) -> None:
    """Take out of its definition what is ours, or of the machine that runs where its owner removed
    that. One that is not tagged any more is left as it is.
    """
    domain = connect.lookupByUUID(machine.uuid.bytes)
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    root = parsed(domain.XMLDesc(flags))
    owner = owner_in(root)
    if owner is None:
        return
    if not owner.adopted or owner.tag.deployment != deployment:
        raise NotOurs(f"the domain {domain.name()} is not adopted any more: it is not changed")
    persistent = domain.isPersistent()
    for where in (LIVE, CONFIG) if persistent else (LIVE,):
        for namespace in (NAMESPACE, BOOT, CDROM, VARIABLES):
            with ignoring(NO_DOMAIN_METADATA, OPERATION_INVALID):  # of none that is off
                domain.setMetadata(ELEMENT, None, "nospoon", namespace, where)
    if not persistent:
        return
    left = domain.XMLDesc(flags)
    metadata = parsed(left).find("metadata")
    if metadata is not None and not len(metadata):  # libvirt leaves it where nothing else was
        connect.defineXMLFlags(EMPTY.sub("", left, count=1), 0)
