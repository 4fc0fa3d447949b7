"""Which domains are ours, remembered, so that foreign ones cost one look and no more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

import libvirt

from nospoon.errors import Gone
from nospoon.model.boot import BootDevice
from nospoon.model.cluster import Firmware
from nospoon.providers.libvirt.bindings import Connect, Domain
from nospoon.providers.libvirt.definitions import definition
from nospoon.providers.libvirt.domain_parse import boot_order, has_boot_iso, parse_firmware
from nospoon.providers.libvirt.elements import text_of
from nospoon.providers.libvirt.faults import NO_DOMAIN
from nospoon.providers.libvirt.hypervisor import ignoring
from nospoon.providers.libvirt.owner import Owner, owner_in


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of a domain of ours. `order`: its persistent boot order.

    `script`: it boots our ISO first, always, so that its order is never told to QEMU. `variables`:
    the path of its UEFI variables, "" where its definition has none. `transient`: it runs, and has
    no definition any more.
    """

    owner: Owner
    firmware: Firmware
    order: tuple[BootDevice, ...]
    script: bool
    variables: str = ""
    transient: bool = False


class Roster:
    """Domain UUID -> what is known; None for someone else's. Used from libvirt's threads too."""

    def __init__(self, deployment: str, host: str) -> None:
        self._deployment, self._host = deployment, host
        self._known: dict[UUID, Known | None] = {}

    def look(self, domain: Domain) -> Known | None:
        """What this domain is, from memory when it was seen before."""
        uuid = UUID(bytes=domain.UUID())
        if uuid not in self._known:
            with ignoring(NO_DOMAIN):  # it went while we looked
                self._known[uuid] = self._read(domain)
        return self._known.get(uuid)

    def _read(self, domain: Domain) -> Known | None:
        root = definition(domain)
        owner = owner_in(root) if root is not None else None
        if root is None or owner is None or owner.tag.deployment != self._deployment:
            return None
        order, script = boot_order(root, owner), has_boot_iso(root)
        variables = text_of(root, "os/nvram")
        transient = owner.adopted and not domain.isPersistent()
        return Known(owner, parse_firmware(root), order, script, variables, transient)

    def ours(self) -> list[UUID]:
        return [uuid for uuid, known in list(self._known.items()) if known is not None]

    def known(self, uuid: UUID) -> Known | None:
        return self._known.get(uuid)

    def named(self, machine: UUID) -> str:
        """What messages call a machine: its node's name, where that is known."""
        known = self._known.get(machine)
        return known.owner.name if known is not None else str(machine)

    def forget(self, uuid: UUID) -> Known | None:
        return self._known.pop(uuid, None)

    def lost_definition(self, uuid: UUID) -> None:
        """It is known as long as it runs."""
        known = self._known.get(uuid)
        if known is not None:
            self._known[uuid] = replace(known, transient=True)

    def clear(self) -> None:
        self._known.clear()

    def find(self, connect: Connect, machine: UUID) -> Domain:
        """The domain of a machine of ours. Raises `Gone` when there is none."""
        try:
            domain = connect.lookupByUUID(machine.bytes)
        except libvirt.libvirtError as error:
            if error.get_error_code() != NO_DOMAIN:
                raise
            self.forget(machine)
            raise self._gone(machine) from error
        if self.look(domain) is None:
            raise self._gone(machine)
        return domain

    def _gone(self, machine: UUID) -> Gone:
        return Gone(
            f"host {self._host}: there is no machine {machine} with nospoon's tag",
            hint="It was removed or redefined by other means: `nospoon up` repairs that.",
        )
