"""The BMCs that are served, and all by which they are found: UUID, name, endpoint, users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from uuid import UUID

from nospoon.model.resources.bmcs import Bmc
from nospoon.services.bmcs.directory import Account, Directory, Place
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.served import Served


class Registry:
    """Everything happens on the loop's thread."""

    def __init__(self) -> None:
        self._served: dict[UUID, Served] = {}
        self._by_endpoint: dict[Place, Served] = {}
        self._redfish_at: dict[Place, set[UUID]] = {}
        self._directory = Directory()
        self._named: dict[str, set[UUID]] = {}
        self.changes = 0
        """How often BMCs came to an address of Redfish, or went from it."""

    def put(self, served: Served) -> None:
        """From now on it is found where its shape says."""
        bmc = served.bmc
        self._served[bmc.uuid] = served
        if bmc.ipmi_port:
            self._by_endpoint[bmc.address, bmc.ipmi_port] = served
        self.show_redfish(served)

    def pop(self, uuid: UUID) -> Served | None:
        """What was served under this UUID, which is no more; `hide` it as well."""
        served = self._served.pop(uuid, None)
        if served is not None:
            guest = set() if served.smbios is None else {str(served.smbios)}
            self._rename(uuid, _names(served.config) | guest, set())
        return served

    def hide(self, bmc: Bmc) -> None:
        """It is not found any more where it was."""
        self._by_endpoint.pop((bmc.address, bmc.ipmi_port), None)
        self.hide_redfish(bmc)
        self._directory.remove(bmc.uuid)

    def name(self, uuid: UUID, before: BmcConfig, after: BmcConfig) -> None:
        """Its names were those, and are these."""
        self._rename(uuid, _names(before), _names(after))

    def guest_sees(self, served: Served, smbios: UUID) -> None:
        """It is found by the UUID that its guest sees, too: sushy-emulator's clients have that."""
        before = set() if served.smbios is None else {str(served.smbios)}
        self._rename(served.bmc.uuid, before, {str(smbios)})
        served.smbios = smbios

    def _rename(self, uuid: UUID, before: AbstractSet[str], after: AbstractSet[str]) -> None:
        for name in before:
            known = self._named.get(name, set())
            known.discard(uuid)
            if not known:
                self._named.pop(name, None)
        for name in after:
            self._named.setdefault(name, set()).add(uuid)

    def show_redfish(self, served: Served) -> None:
        """Without AC power it answers nothing."""
        self.list_users(served)
        self.changes += 1
        if served.aggregate.has_power:
            self._redfish_at.setdefault(_redfish(served.bmc), set()).add(served.bmc.uuid)

    def hide_redfish(self, bmc: Bmc) -> None:
        self.changes += 1
        here = self._redfish_at.get(_redfish(bmc), set())
        here.discard(bmc.uuid)
        if not here:
            self._redfish_at.pop(_redfish(bmc), None)

    def list_users(self, served: Served) -> None:
        """Its users are others now."""
        bmc, users = served.bmc, served.aggregate.runtime.settings.users
        self._directory.put(bmc.uuid, _redfish(bmc), bmc.username, users)

    def status(self, uuid: UUID) -> Served | None:
        return self._served.get(uuid)

    def all(self) -> Iterable[Served]:
        return self._served.values()

    def named(self, name: str) -> Iterable[UUID]:
        """BMCs of nodes that are called so, or whose adopted machine is, or whose guest sees this
        UUID.
        """
        return self._named.get(name, ())

    def at(self, place: Place) -> Served | None:
        """The BMC that answers IPMI at this address and port, while it can."""
        address, port = place
        served = self._by_endpoint.get(place) or self._by_endpoint.get((_any(address), port))
        return served if served is not None and served.aggregate.answers else None

    def redfish_at(self, place: Place) -> AbstractSet[UUID]:
        """BMCs that answer Redfish at this address and port; to be looked at, not kept."""
        address, port = place
        here: AbstractSet[UUID] = self._redfish_at.get(place, frozenset())
        return here or self._redfish_at.get((_any(address), port), frozenset())

    def redfish_is_at(self, uuid: UUID, place: Place) -> bool:
        """Whether this one answers Redfish there, with AC power."""
        served = self._served.get(uuid)
        return served is not None and is_at(served.bmc, place)

    def endpoint(self, place: Place) -> Place:
        """The address and port of BMCs that answer here, perhaps those of all addresses."""
        return place if place in self._redfish_at else (_any(place[0]), place[1])

    def users_at(self, place: Place) -> Mapping[Account, AbstractSet[UUID]]:
        """Numbers and names of the users of BMCs that answer Redfish there, or would if they had
        power, and the BMCs that have each; to be looked at, not kept.
        """
        address, port = place
        return self._directory.at(*{(address, port), (_any(address), port)})

    def having(self, name: str, endpoint: Place) -> int:
        """How many of the BMCs there have a user of this name, as `users_at`."""
        return self._directory.having(name, endpoint)


def places_at(place: Place) -> tuple[Place, Place]:
    """Where BMCs are served that answer there: at this address, or at all of its family."""
    return place, (_any(place[0]), place[1])


def is_at(bmc: Bmc, place: Place) -> bool:
    """Whether it answers Redfish there, with AC power."""
    address, port = place
    return bmc.redfish_port == port and bmc.address in {address, _any(address)}


def _any(address: str) -> str:
    """The address by which all of its family are listened on."""
    return "::" if ":" in address else "0.0.0.0"  # noqa: S104  (someone chose it)


def _redfish(bmc: Bmc) -> Place:
    return bmc.address, bmc.redfish_port


def _names(config: BmcConfig) -> set[str]:
    return {config.node, config.machine.adopted} - {""}
