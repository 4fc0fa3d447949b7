"""How far nodes are: brought from state to state, one verb after the other, until they are there.

https://docs.openstack.org/ironic/latest/user/states.html. The conductor works by itself between
two verbs; all who wait share one bulk look a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from nospoon.errors import Conflict, Gone, ProviderError
from nospoon.model.ironic import BLANK, ORPHANED, IronicStanding, Settings, Standing
from nospoon.model.resources.keys import IRONIC, Key, Kind
from nospoon.model.resources.resource import Observed, Resource, Shape
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.answers import text_of
from nospoon.providers.ironic import records
from nospoon.providers.ironic.drivers import FAILED, GOES, Around, fault_of, left_in_maintenance
from nospoon.providers.ironic.errors import Crowded
from nospoon.providers.ironic.progress import (
    IN_USE,
    MOVING,
    STALE,
    VERBS,
    deployed,
    differs,
    is_ours,
    is_silent,
    kept,
    last_failure,
    notes,
    reached,
    roots,
    said_of,
    use_of,
    why_of,
)
from nospoon.providers.ironic.records import Record
from nospoon.providers.ironic.refusals import (
    MENDABLE,
    in_use,
    refuse_maintained,
    refuse_protected,
    refuse_rescued,
)
from nospoon.providers.ironic.states import States
from nospoon.providers.understood import understood
from nospoon.runtime import clock
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.paced import paced
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.telling import tell

log = RateLimitedLog()
LONGEST = 3600.0
"""Seconds after which no one waits for a node any more; conductors give up earlier themselves."""
CROWDED = 3.0
"""Seconds until a conductor that took on no more is asked again."""
RECALLED = 64
"""Nodes whose histories are looked at, at a time."""
_ABORTABLE = frozenset({"clean wait", "inspect wait"})
_UNDEPLOYABLE = frozenset({"wait call-back"})
"""What waits for an agent, and may be undeployed at once."""


@understood
class StandingDriver:
    """The driver of Kind.IRONIC_STANDING. Removing a standing asks whether its node is in use."""

    kind = Kind.IRONIC_STANDING

    def __init__(self, around: Around, tasks: Tasks) -> None:
        self._around, self._api = around, around.api
        self._states = States(around.api, tasks)

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        read = partial(self._read, cluster)
        found = await self._api.listed("nodes", read=read, query="&detail=true", parts=_parts)
        silent = [at for at, (_, record) in enumerate(found) if record]
        for first in range(0, len(silent), RECALLED):
            some = silent[first : first + RECALLED]
            recalled = await asyncio.gather(*(self._recalled(found[at][1]) for at in some))
            for at, record in zip(some, recalled, strict=True):
                found[at] = replace(found[at][0], fault=fault_of(record)), {}
        return [seen async for seen, _ in paced(found)]

    def _read(self, cluster: UUID | None, record: Record) -> tuple[Observed, Record] | None:
        """What is seen of a node; and, where it failed and does not say why, who it is."""
        tag = records.tag_of(record)
        wanted = records.noted(record, "state")
        if tag is None or wanted is None or tag.deployment != self._around.deployment:
            return None
        if cluster not in (None, tag.cluster):
            return None
        seen = self._observed(record, tag, text_of(wanted))
        return seen, said_of(record) if is_silent(record) else {}

    async def _recalled(self, record: Record) -> Record:
        """A node that failed, with the reason: once Ironic has seen its power again, only the
        node's history has that.
        """
        if not is_silent(record):
            return record
        try:
            path = f"/nodes/{text_of(record['uuid'])}/history?detail=true"
            said = await self._api.get(path, read=_why)
        except Gone:  # the node meanwhile, or there was no history yet: it came with 1.78
            return record
        except ProviderError as error:  # that it failed is known, and to be told
            log.warning("no history", node=record["uuid"], why=str(error))
            return record
        return {**record, **said}

    def _observed(self, record: Record, tag: OwnerTag, wanted: str) -> Observed:
        key = Key(self.kind, IRONIC, text_of(records.noted(record, "key")))
        state = wanted if reached(record, wanted) else text_of(record["provision_state"])
        if left_in_maintenance(record):
            state = f"{state}, left in maintenance"
        shape = IronicStanding(
            UUID(record["uuid"]), state, deployed(record), roots(record),
            protected=bool(record.get("protected")),
        )  # fmt: skip
        others = bool(use_of(record)) and not is_ours(record)
        return Observed(key, shape, tag, others, fault_of(record))

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """Bring the node there, and return when it is."""
        del tag
        shape, name = _standing(resource.shape), resource.key.name
        record = await self._at_rest(shape.node, shape.settings, name=name)
        target, own = Standing(shape.state), is_ours(record)
        why = "" if own else use_of(record)
        if why and (target is Standing.ACTIVE or not reached(record, target)):
            raise in_use(name, why, "It is left unchanged. Undeploy it, or restore its `state`.")
        if own and (target is not Standing.ACTIVE or differs(record, shape)):
            refuse_protected(record, name)
        if left_in_maintenance(record):
            await self._api.delete(f"/nodes/{shape.node}/maintenance")
        if own and target is not Standing.ACTIVE:
            await self._undeploy(shape.node, name=name)
            record = await self._node(shape.node, shape.settings)
        there = own and target is Standing.ACTIVE and reached(record, target)
        stale = there and differs(record, shape)
        if stale:
            refuse_rescued(record, name)
        if there and not stale:
            shape = replace(shape, roots=roots(record))
        await self._api.patch(f"/nodes/{shape.node}", notes(record, shape, stale=stale))
        if stale:
            await self._repair(record)
            await self._put(shape.node, "rebuild")
        await self._bring(shape.node, target, name=name)
        if stale:
            fresh = {"op": "add", "path": STALE, "value": False}
            await self._api.patch(f"/nodes/{shape.node}", [fresh])

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        """What we deployed is undeployed. Raises `Conflict` for a node that someone else uses, so
        that nothing of it is removed. One that is to be BLANK is noted to be so, and no more.
        """
        node, name = _standing(observed.shape).node, observed.key.name
        try:
            record = await self._node(node)
        except Gone:
            return
        if _standing(observed.shape).state == BLANK:
            await self._forsake(node, name=name)
            return
        ours, why, force = is_ours(record), use_of(record), self._around.force
        force = force or (ours and _standing(observed.shape).state == ORPHANED)
        if why and not (ours or force):
            raise in_use(name, why, "Undeploy it, or remove it with `nospoon down --force`.")
        refuse_protected(record, name)  # before it is put in maintenance in vain
        if not force:
            record = await self._ended(node, name=name)
            if ours:
                record = await self._undeploy(node, name=name)
        state = text_of(record["provision_state"])
        if (why and force) or state in MOVING or state.endswith(FAILED):
            # in maintenance Ironic lets go of a node in any state
            await self._api.put(f"/nodes/{node}/maintenance", {"reason": GOES})

    async def _forsake(self, node: UUID, *, name: str) -> None:
        """Note that what is deployed is there no more, before its disks go: who ends in between
        leaves a node that the next one deploys again.
        """
        record = await self._at_rest(node, name=name)
        if (why := use_of(record)) and not is_ours(record):
            raise in_use(
                name, why, "A disk of it would be removed or recreated. Undeploy it first."
            )
        if is_ours(record) and reached(record, Standing.ACTIVE):
            refuse_protected(record, name)
            refuse_rescued(record, name)
            refuse_maintained(record, name)
            await self._api.patch(f"/nodes/{node}", [{"op": "add", "path": STALE, "value": True}])

    async def _repair(self, record: Record) -> None:
        """Take a node out of the maintenance in which Ironic itself has put it."""
        if record.get("maintenance") and record.get("fault") in MENDABLE:
            await self._api.delete(f"/nodes/{text_of(record['uuid'])}/maintenance")

    async def _ended(self, node: UUID, *, name: str) -> Record:
        """A node once the conductor is done with it; what can be is broken off."""
        end, asked = clock.monotonic() + LONGEST, False
        while True:
            waiting = (MOVING if asked else MOVING - _ABORTABLE) - _UNDEPLOYABLE
            record = await self._settled(node, name=name, until=end, moving=waiting)
            if record["provision_state"] not in _ABORTABLE:
                return record
            try:
                await self._put(node, "abort")
                asked = True  # a step that cannot be broken off is heard out
            except (Conflict, ProviderError):
                now = await self._node(node)
                if now["provision_state"] in _ABORTABLE:  # it did not go on by itself meanwhile
                    raise

    async def _at_rest(self, node: UUID, wanted: Settings = (), *, name: str) -> Record:
        """What is kept of the node; one that the conductor works on may not be changed."""
        record = await self._node(node, wanted)
        if record["provision_state"] in MOVING:
            await self._settled(node, name=name, until=clock.monotonic() + LONGEST)
            record = await self._node(node, wanted)
        return record

    async def _node(self, node: UUID, wanted: Settings = ()) -> Record:
        return await self._api.get(f"/nodes/{node}", read=partial(kept, wanted))

    async def _undeploy(self, node: UUID, *, name: str) -> Record:
        end = clock.monotonic() + LONGEST
        while True:
            record = await self._settled(node, name=name, until=end, moving=MOVING - _UNDEPLOYABLE)
            if record["provision_state"] not in IN_USE:
                return record
            whole = await self._node(node)
            if not is_ours(whole):  # who claims a node is quick
                raise in_use(name, use_of(whole), "It is left unchanged.")
            try:
                await self._put(node, "deleted")
                break
            except (Conflict, ProviderError):
                now = await self._node(node)
                if now["provision_state"] == whole["provision_state"]:
                    raise  # it did not go on by itself meanwhile
        record = await self._settled(node, name=name, until=end)
        state = text_of(record["provision_state"])
        if state in IN_USE:
            raise ProviderError(
                f"node {name} is {state}, not undeployed: {why_of(record)}",
                hint="`nospoon down --force` takes it out of Ironic as it is.",
            )
        return record

    async def _put(self, node: UUID, verb: str) -> None:
        """Begin what leads elsewhere, as soon as the conductor takes on more."""
        end, said = clock.monotonic() + LONGEST, False
        while True:
            try:
                return await self._api.put(f"/nodes/{node}/states/provision", {"target": verb})
            except Crowded:
                if clock.monotonic() > end:
                    raise
                if not said:
                    tell("waits for Ironic to take on more")
                said = True
                await asyncio.sleep(CROWDED)

    async def _bring(self, node: UUID, target: Standing, *, name: str) -> None:
        end, tried = clock.monotonic() + LONGEST, set()
        while True:
            record = await self._settled(node, name=name, until=end)
            if reached(record, target):
                return
            state = text_of(record["provision_state"])
            verb = VERBS.get((state, target))
            if verb is None or (state, verb) in tried:
                raise ProviderError(f"node {name} is {state}, not {target}: {why_of(record)}")
            tried.add((state, verb))
            await self._repair(record)
            await self._put(node, verb)

    async def _settled(
        self, node: UUID, *, name: str, until: float, moving: Collection[str] = MOVING
    ) -> Record:
        record = await self._states.settled(node, until=until, moving=moving)
        if record is None:
            raise Gone(f"node {name} is no longer in Ironic")
        return await self._recalled(record)


def _standing(shape: Shape) -> IronicStanding:
    assert isinstance(shape, IronicStanding), "keys of this kind have shapes of it"
    return shape


def _parts(read: tuple[Observed, Record]) -> int:
    """Settings and volumes that are kept of it."""
    shape = read[0].shape
    assert isinstance(shape, IronicStanding), "keys of this kind have shapes of it"
    return len(shape.settings) + len(shape.roots or ())


def _why(answer: Record) -> Record:
    return {"last_error": last_failure(answer["history"])}
