"""The labs that files of clusters have: they come and go with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from nospoon.control.labs.access import KnownLab
from nospoon.errors import Conflict
from nospoon.lab.scheduler import Scheduler
from nospoon.lab.work import RecipeSet, SetState
from nospoon.model.lab import Inventory, Lab, Registered, Webhook
from nospoon.model.principal import OwnerId
from nospoon.plan.addresses.networks import PRIVATE, SECOND_PRIVATE, chosen_among
from nospoon.plan.words import counted

K = TypeVar("K")
MOST_LABS, MOST_REGISTERED = 200, 20_000
"""Labs and registered machines of one member."""
MOST_RANGES = 64
"""Of the 512 networks that plans choose from, in which one member's labs call BMCs: this machine
gets none of these for other users.
"""


class KnownLabs:
    """`known`: by key; `clusters`: key -> the cluster whose file has the lab. `changed`: called
    whenever one came, went or is another.
    """

    def __init__(self, scheduler: Scheduler, changed: Callable[[], None]) -> None:
        self._scheduler, self._changed = scheduler, changed
        self.known: dict[str, KnownLab] = {}
        self.clusters: dict[str, UUID] = {}
        self._filed: dict[str, Lab] = {}
        self._of_mac: dict[str, dict[str, str]] = {}
        self._coming: dict[str, UUID] = {}
        """MAC addresses of labs that clusters are about to have."""
        self._of_bmc: dict[tuple[OwnerId, tuple[str, int, str]], dict[str, str]] = {}

    def put(self, cluster_id: UUID, owner: OwnerId, cluster: str, labs: Sequence[Lab]) -> None:
        """The labs that a cluster's file has now. Call it before `start` for those of the store."""
        keys = {key_of(owner, cluster, lab.name): lab for lab in labs}
        for key in [key for key, id_ in self.clusters.items() if id_ == cluster_id]:
            if key not in keys:
                self._drop(key)
        for key, lab in keys.items():
            self._filed[key] = lab
            self.clusters[key] = cluster_id
            self._put(KnownLab(key, owner, cluster, self._with_inventories(key, lab)))
        if keys:  # machines of each recipe set are a cluster without labs
            self._changed()

    def restored(self, key: str) -> None:
        """Inventories of machines of a lab are there: those of the store."""
        known = self.known[key]
        lab = self._with_inventories(key, self._filed[key])
        self._put(KnownLab(key, known.owner, known.cluster, lab))
        self._changed()

    def inventoried(self, key: str, machine: str) -> None:
        """The inventory of a machine is another; of one that its file has no more, nothing."""
        if (known := self.known.get(key)) is None or machine not in known.machines:
            return
        filed = next(each for each in self._filed[key].machines if each.name == machine)
        self._forget(key, [known.machines[machine]])
        now = filed.with_inventory(self._found(key, filed))
        self._know(KnownLab(key, known.owner, known.cluster, self.with_machine(key, now)), [now])
        self._changed()

    def with_machine(self, key: str, machine: Registered) -> Lab:
        """A lab with one of its machines as it will be."""
        lab = self.known[key].lab
        machines = (machine if each.name == machine.name else each for each in lab.machines)
        return replace(lab, machines=tuple(machines))

    def _with_inventories(self, key: str, lab: Lab) -> Lab:
        machines = (each.with_inventory(self._found(key, each)) for each in lab.machines)
        return replace(lab, machines=tuple(machines))

    def _found(self, key: str, machine: Registered) -> Inventory | None:
        """What a machine's inventory gives it: no MAC that another cluster's lab has by now."""
        found = self._scheduler.state_of(key, machine.name).found
        if found is None or machine.macs or not any(self._has_other(key, m) for m in found.macs):
            return found
        return replace(found, macs=())

    def _has_other(self, key: str, mac: str) -> bool:
        """Whether a lab of another cluster than this lab's has a MAC."""
        own = self.clusters[key]
        return any(self.clusters[other] != own for other in self._of_mac.get(mac, ()))

    def _put(self, known: KnownLab) -> None:
        self._forget_all(known.key)
        self._know(known, known.lab.machines)

    def _know(self, known: KnownLab, changed: Iterable[Registered]) -> None:
        """`changed`: machines whose MACs and BMC are not those of a lab yet."""
        self.known[known.key] = known
        self._scheduler.put_lab(known.key, known.lab)
        for machine in changed:
            for mac in machine.macs:
                self._of_mac.setdefault(mac, {})[known.key] = machine.name
            self._of_bmc.setdefault((known.owner, machine.place), {})[known.key] = machine.name

    def drop(self, cluster_id: UUID) -> None:
        """A cluster is gone, and its labs are."""
        for key in [key for key, id_ in self.clusters.items() if id_ == cluster_id]:
            self._drop(key)

    def _drop(self, key: str) -> None:
        self._forget_all(key)
        del self.clusters[key], self.known[key], self._filed[key]
        self._scheduler.drop_lab(key)
        self._changed()

    def _forget_all(self, key: str) -> None:
        known = self.known.get(key)
        self._forget(key, known.lab.machines if known is not None else ())

    def _forget(self, key: str, machines: Iterable[Registered]) -> None:
        for machine in machines:
            for mac in machine.macs:
                _take_out(self._of_mac, mac, key)
            _take_out(self._of_bmc, (self.known[key].owner, machine.place), key)

    def registered(self, mac: str) -> tuple[KnownLab, str] | None:
        """The lab and the name of the machine that has a MAC address: of several labs, the one that
        was there first.
        """
        for key, machine in self._of_mac.get(mac, {}).items():
            return self.known[key], machine
        return None

    def has_webhook(self, key: str, hook: Webhook) -> bool:
        """Whether a lab has it now; one that is gone has its last ones."""
        known = self.known.get(key)
        return known is None or hook in known.lab.webhooks

    @contextmanager
    def coming(self, cluster_id: UUID, labs: Iterable[Lab]) -> Iterator[None]:
        """While it is stored that a cluster has these labs, others get none of their MACs. Call it
        where `require_own_macs` finds nothing.
        """
        macs = {mac for lab in labs for machine in lab.machines for mac in machine.macs}
        self._coming |= dict.fromkeys(macs, cluster_id)
        try:
            yield
        finally:
            for mac in macs:
                del self._coming[mac]

    def require_own_macs(self, cluster_id: UUID, labs: Iterable[Lab]) -> None:
        """Raises `Conflict` for a MAC of a registered machine that another cluster's lab has, or is
        about to have: its scripts would go to the machines of that one.
        """
        for lab in labs:
            for machine in lab.machines:
                for mac in machine.macs:
                    has = any(self.clusters[key] != cluster_id for key in self._of_mac.get(mac, ()))
                    if has or self._coming.get(mac, cluster_id) != cluster_id:
                        raise Conflict(
                            f"machine {machine.name} of lab {lab.name}: another cluster's lab "
                            f"has a machine with the MAC address {mac}",
                            hint="A machine is registered in the labs of one cluster.",
                        )

    def require_own_bmcs(self, owner: OwnerId, cluster_id: UUID, labs: Iterable[Lab]) -> None:
        """Raises `Conflict` for a machine whose BMC a lab of another cluster of its owner has: each
        could loan it to a recipe set. Those of others say nothing, for anyone may write an address.
        """
        for lab in labs:
            for machine in lab.machines:
                for key in self._of_bmc.get((owner, machine.place), ()):
                    if self.clusters[key] != cluster_id:
                        other = self.known[key]
                        raise Conflict(
                            f"machine {machine.name} of lab {lab.name}: lab {other.lab.name} of "
                            f"cluster {other.cluster} has the machine with this BMC",
                            hint="A machine is registered in the labs of one cluster.",
                        )

    def require_few(self, owner: OwnerId, cluster_id: UUID, labs: Sequence[Lab]) -> None:
        """Raises `Conflict` where a member would have more labs, or registered machines, than one
        may: all callers go through them. So where their BMCs would leave others few networks.
        """
        others = [
            each.lab
            for key, each in self.known.items()
            if each.owner == owner and self.clusters[key] != cluster_id
        ]
        machines = [machine for each in (*others, *labs) for machine in each.machines]
        ranges = {chosen_among(each.address) for each in machines} - {""}
        for count, most, what in (
            (len(others) + len(labs), MOST_LABS, "labs"),
            (len(machines), MOST_REGISTERED, "registered machines"),
            (len(ranges), MOST_RANGES, f"/24 networks with BMCs in {PRIVATE} and {SECOND_PRIVATE}"),
        ):
            if count > most:
                raise Conflict(f"you would have {count} {what}: a user has {most} at most")

    def known_of(self, found: RecipeSet) -> KnownLab:
        """Where a set has its machines; the file of that lab may be gone."""
        if found.lab in self.known:
            return self.known[found.lab]
        owner, _, rest = found.lab.partition(":")
        cluster, _, lab = rest.partition("/")
        return KnownLab(found.lab, int(owner), cluster, Lab(lab))

    def require_unused(self, cluster_id: UUID, staying: Iterable[str] = ()) -> None:
        """Raises `Conflict` for labs of a cluster, but those that stay, that have sets."""
        names = set(staying)
        gone = [
            key
            for key, id_ in self.clusters.items()
            if id_ == cluster_id and self.known[key].lab.name not in names
        ]
        if not gone:
            return
        of_labs: dict[str, list[str]] = {}
        for each in self._scheduler.sets.values():  # of which there may be tens of thousands
            if each.state is not SetState.ENDED:  # it is forgotten a turn after its end is shown
                of_labs.setdefault(only_lab(each), []).append(each.id)
        for key in gone:
            if sets := of_labs.get(key):
                raise Conflict(
                    f"lab {self.known[key].lab.name} has {counted(len(sets), 'recipe set')} that "
                    f"did not end: {', '.join(sets[:5])}",
                    hint="`nospoon lab drain` it and wait, or `nospoon request cancel` them.",
                )


def _take_out(index: dict[K, dict[str, str]], name: K, key: str) -> None:
    labs = index.get(name, {})
    labs.pop(key, None)
    if not labs:
        index.pop(name, None)


def only_lab(found: RecipeSet) -> str:
    """The key of the lab that has it, or is the only one that may; "" for none."""
    return found.lab or (found.labs[0] if len(found.labs) == 1 else "")


def key_of(owner: OwnerId, cluster: str, lab: str) -> str:
    return f"{owner}:{cluster}/{lab}"
