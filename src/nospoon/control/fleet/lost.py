"""Machines of a cluster that the database does not know: it was lost, or is another one.

A plan that did not look would make every node a second time, with other UUIDs, BMCs and passwords,
beside those that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from uuid import UUID

from nospoon.engine.observe import Drivers, observe_reachable
from nospoon.errors import PlanRefused
from nospoon.model.principal import OwnerId
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed
from nospoon.plan.words import counted
from nospoon.store import clusters as stored
from nospoon.store.database import Database

LOOKS = 3
"""How often a host is asked that fails: libvirt's list of all machines fails where one of them, of
any cluster, ends in that moment.
"""


async def refuse_lost(
    database: Database, drivers: Drivers, *, name: str, cluster: UUID, owner: OwnerId
) -> Mapping[str, str]:
    """Raises `PlanRefused` where a new cluster has the name of one whose machines are there.

    `cluster`: the id that the new one would have. Other users' clusters may have its name. Returns
    the hosts that did not tell, with the reason: there may be lost machines on them.
    """
    machines = {key: driver for key, driver in drivers.items() if key[1] is Kind.MACHINE}
    found, away = await observe_reachable(machines, None)
    for _ in range(LOOKS - 1):
        again = {key: driver for key, driver in machines.items() if key[0] in away}
        if not again:
            break
        more, away = await observe_reachable(again, None)
        found += more
    reasons = []
    for id_, members in _by_cluster(found, name=name, owner=owner).items():
        row = await database.read(partial(stored.get, id=id_))
        is_anothers = row is not None and (row.owner, row.name) != (owner, name)
        if id_ != cluster and not is_anothers:
            reasons.append(_reason(name, id_, members))
    if reasons:
        raise PlanRefused(reasons)
    return away


def _by_cluster(
    found: Iterable[Observed], *, name: str, owner: OwnerId
) -> Mapping[UUID, list[Observed]]:
    """Machines of this user's clusters of that name; earlier versions noted no user."""
    result: dict[UUID, list[Observed]] = {}
    for each in found:
        if each.tag.name == name and each.tag.uid in (None, owner):
            result.setdefault(each.tag.cluster, []).append(each)
    return result


def _reason(name: str, cluster: UUID, members: Iterable[Observed]) -> str:
    keys = sorted(each.key for each in members)
    hosts = ", ".join(sorted({key.place for key in keys}))
    return (
        f"cluster {name} has {counted(len(keys), 'machine')} on {hosts} (id {cluster}), which the "
        "daemon's database does not know. Run `nospoon recover` with the cluster's file to have "
        "them back, or `nospoon orphans --reap` to remove them."
    )
