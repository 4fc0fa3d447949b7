"""How far nodes are: brought from state to state, one verb after the other, until they are there.

https://docs.openstack.org/ironic/latest/user/states.html. The conductor works by itself between
two verbs; all who wait share one bulk look a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from uuid import UUID

from nospoon.errors import Conflict, Gone, NospoonError, ProviderError
from nospoon.model.ironic import BLANK, ORPHANED, IronicStanding, Settings, Standing
from nospoon.model.resources import Key, Kind, Observed, OwnerTag, Resource, Shape
from nospoon.plan.enrollment.enrol import PLACE, settings, values
from nospoon.providers.answers import text_of
from nospoon.providers.ironic import records
from nospoon.providers.ironic.api import Api
from nospoon.providers.ironic.drivers import (
    FAILED,
    GOES,
    Around,
    fault_of,
    left_in_maintenance,
)
from nospoon.providers.ironic.errors import Crowded
from nospoon.providers.ironic.records import Operation, Record
from nospoon.providers.looking import LEAST, rest_after
from nospoon.providers.understood import ODD, odd, understood
from nospoon.runtime import clock
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.paced import paced
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.telling import tell

log = RateLimitedLog()
LONGEST = 3600.0
"""Seconds after which nobody waits for a node any more; conductors give up earlier themselves."""
CROWDED = 3.0
"""Seconds until a conductor that took on no more is asked again."""
RECALLED = 64
"""Nodes whose histories are looked at, at a time."""
FIELDS = (
    "uuid,provision_state,last_error,maintenance,maintenance_reason,inspection_finished_at,fault"
)
READ = (
    *FIELDS.split(","),
    "allocation_uuid", "instance_uuid", "protected", "protected_reason",
)  # fmt: skip
"""What is read of a node beside what nospoon noted and deploys."""
LONGEST_NAME = 255
"""Characters of the name of what is deployed."""
OTHER = {"": "something else"}
"""Stands for a value that is not the wanted one."""
LONGEST_FIELD = 2000
"""Characters of one of `FIELDS`: the last error is the longest."""
STALE = f"/extra/{records.TAG}/stale"
_FAILURES = ("clean failed", "inspect failed", "adopt failed")
VERBS: Mapping[tuple[str, Standing], str] = {
    **{("enroll", to): "manage" for to in Standing if to is not Standing.ENROLL},
    **{(state, to): "manage" for state in _FAILURES for to in Standing},
    ("inspect failed", Standing.INSPECTED): "inspect",
    ("manageable", Standing.INSPECTED): "inspect",
    ("manageable", Standing.AVAILABLE): "provide",
    ("manageable", Standing.ACTIVE): "provide",
    ("available", Standing.MANAGEABLE): "manage",
    ("available", Standing.INSPECTED): "manage",
    ("available", Standing.ACTIVE): "active",
    ("deploy failed", Standing.ACTIVE): "active",
    ("error", Standing.ACTIVE): "deleted",
}
"""(state, where to) -> the verb that brings it nearer. Nobody moves a node that is in use."""
MOVING = frozenset(
    {
        "verifying", "inspecting", "inspect wait", "cleaning", "clean wait", "adopting",
        "deploying", "wait call-back", "deleting", "rescuing", "rescue wait", "unrescuing",
        "servicing", "service wait",
    }
)  # fmt: skip
_ABORTABLE = frozenset({"clean wait", "inspect wait"})
_UNDEPLOYABLE = frozenset({"wait call-back"})
"""What waits for an agent, and may be undeployed at once."""
IN_USE = frozenset(
    {
        "active", "deploying", "wait call-back", "deploy failed", "error", "rescue", "rescuing",
        "rescue wait", "rescue failed", "unrescuing", "unrescue failed", "deploy hold",
        "servicing", "service wait", "service failed",
    }
)  # fmt: skip
"""States in which somebody's instance is on the node, or comes to it."""
_NOT_THERE = frozenset({"deploying", "wait call-back", "deploy failed", "error", "deploy hold"})
_MENDABLE = frozenset({"clean failure", "rescue abort failure", "power failure"})
"""Faults for which Ironic itself puts a node in maintenance; who tries again takes it out."""


@understood
class StandingDriver:
    """The driver of Kind.IRONIC_STANDING. Removing a standing asks whether its node is in use."""

    kind = Kind.IRONIC_STANDING

    def __init__(self, around: Around, tasks: Tasks) -> None:
        self._around, self._api = around, around.api
        self._states = _States(around.api, tasks)

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
        return seen, _said_of(record) if _is_silent(record) else {}

    async def _recalled(self, record: Record) -> Record:
        """A node that failed, with the reason: once Ironic has seen its power again, only the
        node's history has that.
        """
        if not _is_silent(record):
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
        key = Key(self.kind, PLACE, text_of(records.noted(record, "key")))
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
            raise _in_use(name, why, "It is left unchanged. Undeploy it, or restore its `state`.")
        if own and (target is not Standing.ACTIVE or _differs(record, shape)):
            _refuse_protected(record, name)
        if left_in_maintenance(record):
            await self._api.delete(f"/nodes/{shape.node}/maintenance")
        if own and target is not Standing.ACTIVE:
            await self._undeploy(shape.node, name=name)
            record = await self._node(shape.node, shape.settings)
        there = own and target is Standing.ACTIVE and reached(record, target)
        stale = there and _differs(record, shape)
        if stale:
            _refuse_rescued(record, name)
        if there and not stale:
            shape = replace(shape, roots=roots(record))
        await self._api.patch(f"/nodes/{shape.node}", notes(record, shape, stale=stale))
        if stale:
            await self._mend(record)
            await self._put(shape.node, "rebuild")
        await self._bring(shape.node, target, name=name)
        if stale:
            fresh = {"op": "add", "path": STALE, "value": False}
            await self._api.patch(f"/nodes/{shape.node}", [fresh])

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        """What we deployed is undeployed. Raises `Conflict` for a node that somebody else uses, so
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
            raise _in_use(name, why, "Undeploy it, or remove it with `nospoon down --force`.")
        _refuse_protected(record, name)  # before it is put in maintenance in vain
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
            raise _in_use(
                name, why, "A disk of it would be removed or recreated. Undeploy it first."
            )
        if is_ours(record) and reached(record, Standing.ACTIVE):
            _refuse_protected(record, name)
            _refuse_rescued(record, name)
            _refuse_maintained(record, name)
            await self._api.patch(f"/nodes/{node}", [{"op": "add", "path": STALE, "value": True}])

    async def _mend(self, record: Record) -> None:
        """Take a node out of the maintenance in which Ironic itself has put it."""
        if record.get("maintenance") and record.get("fault") in _MENDABLE:
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
        return await self._api.get(f"/nodes/{node}", read=partial(_kept, wanted))

    async def _undeploy(self, node: UUID, *, name: str) -> Record:
        end = clock.monotonic() + LONGEST
        while True:
            record = await self._settled(node, name=name, until=end, moving=MOVING - _UNDEPLOYABLE)
            if record["provision_state"] not in IN_USE:
                return record
            whole = await self._node(node)
            if not is_ours(whole):  # who claims a node is quick
                raise _in_use(name, use_of(whole), "It is left unchanged.")
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
            await self._mend(record)
            await self._put(node, verb)

    async def _settled(
        self, node: UUID, *, name: str, until: float, moving: Collection[str] = MOVING
    ) -> Record:
        record = await self._states.settled(node, until=until, moving=moving)
        if record is None:
            raise Gone(f"node {name} is no longer in Ironic")
        return await self._recalled(record)


def _in_use(name: str, why: str, hint: str) -> Conflict:
    return Conflict(f"node {name} is in use in Ironic: {why}", hint=hint)


def _standing(shape: Shape) -> IronicStanding:
    assert isinstance(shape, IronicStanding), "keys of this kind have shapes of it"
    return shape


def is_ours(record: Record) -> bool:
    """Whether what is on the node, or comes to it, was deployed by us."""
    ours = records.noted(record, "state") == Standing.ACTIVE
    others = record.get("instance_uuid") or record.get("allocation_uuid")
    return ours and not others and record["provision_state"] in IN_USE | MOVING


def is_stale(record: Record) -> bool:
    """Whether what is told to be on a node is not on it."""
    return bool(records.noted(record, "stale"))


def deployed(record: Record) -> Settings:
    """What we told to deploy, of what is still told; nothing while that is not there yet."""
    return () if is_stale(record) else _told(record)


def roots(record: Record) -> tuple[str, ...] | None:
    """The volumes on one of which we had the node deployed; None where that is not known."""
    noted = records.noted_texts(record, "roots")
    return tuple(noted) if noted is not None else None


def _differs(record: Record, shape: IronicStanding) -> bool:
    """Whether something else is to be deployed than what is on the node."""
    return is_stale(record) or deployed(record) != shape.settings


def _refuse_protected(record: Record, name: str) -> None:
    """Ironic refuses to undeploy, rebuild or delete it, in maintenance too."""
    if record.get("protected"):
        why = f": {text_of(record['protected_reason'])}" if record.get("protected_reason") else ""
        raise Conflict(
            f"node {name} is protected in Ironic{why}. It is left unchanged",
            hint="`openstack baremetal node unset --protected "
            f"{text_of(record['uuid'])}` ends that.",
        )


def _refuse_rescued(record: Record, name: str) -> None:
    if record["provision_state"] != "active":
        raise Conflict(
            f"node {name} is {text_of(record['provision_state'])}: it cannot be deployed again now",
            hint="Bring it back to `active` first.",
        )


def _refuse_maintained(record: Record, name: str) -> None:
    """In somebody's maintenance; one that Ironic or we put it in is ended when it is deployed."""
    if not record.get("maintenance") or left_in_maintenance(record):
        return
    if record.get("fault") not in _MENDABLE:
        why = text_of(record.get("maintenance_reason") or "without a reason")
        raise Conflict(
            f"node {name} is in maintenance: {why}. It could not be deployed again",
            hint="End the maintenance first.",
        )


def _told(record: Record) -> Settings:
    told = record.get("instance_info") or {}
    names = records.noted_texts(record, "instance") or ()
    return settings({name: told[name] for name in names if name in told})


def notes(record: Record, shape: IronicStanding, *, stale: bool) -> list[Operation]:
    """JSON Patch that notes how far the node is to be, and tells what to deploy. `stale`: it has
    something else now, which is to be known also if we end before it is deployed again.
    """
    wanted, there = values(shape.settings), record.get("instance_info") or {}
    tag = f"/extra/{records.TAG}"
    gone = [each.name for each in _told(record) if each.name not in wanted]
    return [
        {"op": "add", "path": f"{tag}/state", "value": shape.state},
        {"op": "add", "path": f"{tag}/instance", "value": sorted(wanted)},
        {"op": "add", "path": f"{tag}/roots", "value": shape.roots},
        {"op": "add", "path": STALE, "value": stale},
        *({"op": "remove", "path": f"/instance_info/{name}"} for name in gone),
        *(
            {"op": "add", "path": f"/instance_info/{name}", "value": value}
            for name, value in wanted.items()
            if there.get(name) != value
        ),
    ]


def reached(record: Record, wanted: str) -> bool:
    """Whether a node is as far as wanted, or on its way back to somebody's instance."""
    state = text_of(record["provision_state"])
    in_use = state in IN_USE or state == "deleting"
    match wanted:
        case Standing.ENROLL:
            return True
        case Standing.MANAGEABLE:
            return state == "manageable" or in_use
        case Standing.ACTIVE:
            return in_use and state not in _NOT_THERE and state != "deleting"
        case Standing.INSPECTED:
            inspected = bool(record.get("inspection_finished_at"))
            return (state == "manageable" and inspected) or in_use
        case _:
            return state == "available" or in_use


def use_of(record: Record) -> str:
    """Who uses a node, "" where nobody does."""
    if record.get("allocation_uuid"):  # whose UUID Ironic gives the instance, too
        return f"it has the allocation {text_of(record['allocation_uuid'])}"
    if record.get("instance_uuid"):
        return f"it has the instance {text_of(record['instance_uuid'])}"
    if record["provision_state"] in IN_USE:
        return f"it is {text_of(record['provision_state'])}"
    return ""


def why_of(record: Record) -> str:
    """Why a node is not where it is to be."""
    return text_of(record.get("last_error") or fault_of(record) or "Ironic gives no reason")


def last_failure(history: Sequence[Record]) -> str:
    """What failed last in a node's history (oldest first, as Ironic lists it), "" for nothing.
    What watches the power fails by itself, and does not bring a node into a state.
    """
    for event in reversed(history):
        if event["severity"] == "ERROR" and event["event_type"] != "monitoring":
            return text_of(event["event"])[:LONGEST_FIELD]
    return ""


def _parts(read: tuple[Observed, Record]) -> int:
    """Settings and volumes that are kept of it."""
    shape = read[0].shape
    assert isinstance(shape, IronicStanding), "keys of this kind have shapes of it"
    return len(shape.settings) + len(shape.roots or ())


def _why(answer: Record) -> Record:
    return {"last_error": last_failure(answer["history"])}


def _kept(wanted: Settings, record: Record) -> Record:
    """What is read of a node that is brought somewhere: hundreds are, each for an hour. Of what is
    deployed there, nothing is kept that differs from what is wanted, but that it does.
    """
    noted, deploys = partial(records.noted, record), record.get("instance_info") or {}
    known, roots = (
        [each[:LONGEST_NAME] for each in records.noted_texts(record, what) or ()]
        for what in ("instance", "roots")
    )
    own = values(wanted)
    names = {*own, *known}
    there = settings({name: deploys[name] for name in names if name in deploys})
    return {
        **_said_of(record, READ),
        "extra": {
            records.TAG: {
                "state": text_of(noted("state") or ""),
                "stale": bool(noted("stale")),
                "instance": known,
                "roots": roots if noted("roots") is not None else None,
            }
        },
        "instance_info": {each.name: own[each.name] if each in wanted else OTHER for each in there},
    }


def _is_silent(record: Record) -> bool:
    """Whether it failed, and does not say why."""
    failed = text_of(record["provision_state"]).endswith(FAILED)
    return failed and not record.get("last_error")


def _brief(record: Record) -> tuple[UUID, Record]:
    """A node's id, and what `FIELDS` say of it."""
    return UUID(record["uuid"]), _said_of(record)


def _said_of(record: Record, names: Sequence[str] = FIELDS.split(",")) -> Record:
    said = {name: record.get(name) for name in names}
    return {
        name: value if value is None or isinstance(value, bool) else text_of(value)[:LONGEST_FIELD]
        for name, value in said.items()
    }


class _States:
    """One look at all nodes a second, for all who wait; none when nobody does."""

    def __init__(self, api: Api, tasks: Tasks) -> None:
        self._api, self._tasks = api, tasks
        self._pause = LEAST
        self._next: asyncio.Future[Mapping[UUID, Record]] | None = None

    async def settled(self, node: UUID, *, until: float, moving: Collection[str]) -> Record | None:
        """The node once it is in none of these states; None where there is none.

        Raises `ProviderError` when nobody answers, or with errors, for longer than a restart takes.
        """
        said, heard = "", clock.monotonic()
        while True:
            try:
                record = (await self._look()).get(node)
            except ProviderError:  # away, or out of order for a moment
                if clock.monotonic() > heard + self._api.patience:
                    raise
                continue
            heard = clock.monotonic()
            if record is None or record["provision_state"] not in moving:
                return record
            if record["provision_state"] != said:
                said = record["provision_state"]
                tell(text_of(said))
            if clock.monotonic() > until:
                raise TimeoutError(f"node {node} is still {text_of(record['provision_state'])}")

    async def _look(self) -> Mapping[UUID, Record]:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._tasks.start(self._tell(self._next), name="look at Ironic's nodes")
        return await asyncio.shield(self._next)

    async def _tell(self, told: asyncio.Future[Mapping[UUID, Record]]) -> None:
        await asyncio.sleep(self._pause)  # Ironic tells nobody of its states: it is asked
        self._next, began = None, clock.monotonic()
        try:
            listed = await self._api.listed("nodes", read=_brief, query=f"&fields={FIELDS}")
            told.set_result({node: each async for node, each in paced(listed)})
        except NospoonError as error:
            told.set_exception(error)
        except ODD as error:
            told.set_exception(odd(error))
        finally:
            self._pause = rest_after(clock.monotonic() - began)
            told.cancel()  # nobody waits for a look that was cancelled
