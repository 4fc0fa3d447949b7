"""How far nodes are: brought from state to state, one verb after the other, until they are there.

https://docs.openstack.org/ironic/latest/user/states.html. The conductor works by itself between
two verbs; all who wait share one bulk look a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

from nospoon.errors import Conflict, Gone, NospoonError, ProviderError
from nospoon.model.ironic import IronicStanding, Standing
from nospoon.model.resources import Key, Kind, Observed, OwnerTag, Resource
from nospoon.plan.enrol import PLACE
from nospoon.providers.ironic import records
from nospoon.providers.ironic.api import Api
from nospoon.providers.ironic.drivers import Around, fault_of
from nospoon.providers.ironic.records import Record
from nospoon.runtime import clock
from nospoon.runtime.tasks import Tasks

LOOK_SECONDS = 1.0
LONGEST = 3600.0
"""Seconds after which nobody waits for a node any more; conductors give up earlier themselves."""
FIELDS = "uuid,provision_state,last_error,maintenance,maintenance_reason,inspection_finished_at"
VERBS: Mapping[tuple[str, Standing], str] = {
    ("enroll", Standing.MANAGEABLE): "manage",
    ("enroll", Standing.INSPECTED): "manage",
    ("enroll", Standing.AVAILABLE): "manage",
    ("manageable", Standing.INSPECTED): "inspect",
    ("manageable", Standing.AVAILABLE): "provide",
    ("available", Standing.MANAGEABLE): "manage",
    ("available", Standing.INSPECTED): "manage",
    ("clean failed", Standing.MANAGEABLE): "manage",
    ("clean failed", Standing.INSPECTED): "manage",
    ("clean failed", Standing.AVAILABLE): "manage",
    ("inspect failed", Standing.MANAGEABLE): "manage",
    ("inspect failed", Standing.INSPECTED): "inspect",
    ("inspect failed", Standing.AVAILABLE): "manage",
}
"""(state, where to) -> the verb that brings it nearer. Nobody moves a node that is in use."""
MOVING = frozenset(
    {
        "verifying", "inspecting", "inspect wait", "cleaning", "clean wait", "adopting",
        "deploying", "wait call-back", "deleting", "rescuing", "rescue wait", "unrescuing",
        "servicing", "service wait",
    }
)  # fmt: skip
IN_USE = frozenset(
    {
        "active", "deploying", "wait call-back", "deploy failed", "error", "rescue", "rescuing",
        "rescue wait", "rescue failed", "unrescuing", "unrescue failed", "deploy hold",
        "servicing", "service wait", "service failed",
    }
)  # fmt: skip
"""States in which somebody's instance is on the node, or comes to it."""


class StandingDriver:
    """The driver of Kind.IRONIC_STANDING. Removing a standing asks whether its node is in use."""

    kind = Kind.IRONIC_STANDING

    def __init__(self, around: Around, tasks: Tasks) -> None:
        self._around, self._api = around, around.api
        self._states = _States(around.api, tasks)

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        found = []
        for record in await self._api.listed("nodes", query="&detail=true"):
            tag = records.tag_of(record)
            wanted = records.noted(record, "state")
            if tag is None or wanted is None or tag.deployment != self._around.deployment:
                continue
            if cluster is None or tag.cluster == cluster:
                found.append(self._observed(record, tag, str(wanted)))
        return found

    def _observed(self, record: Record, tag: OwnerTag, wanted: str) -> Observed:
        key = Key(self.kind, PLACE, str(records.noted(record, "key")))
        state = wanted if reached(record, wanted) else str(record["provision_state"])
        shape = IronicStanding(UUID(record["uuid"]), state)
        return Observed(key, shape, tag, self._around.clock(), fault=fault_of(record))

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """Bring the node there, and return when it is."""
        del tag
        shape = resource.shape
        assert isinstance(shape, IronicStanding), "standing keys have standing shapes"
        note = {"op": "add", "path": f"/extra/{records.TAG}/state", "value": shape.state}
        await self._api.patch(f"/nodes/{shape.node}", [note])
        await self._bring(shape.node, Standing(shape.state), name=resource.key.name)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        """Raises `Conflict` for a node in use, so that nothing of it is removed."""
        shape = observed.shape
        assert isinstance(shape, IronicStanding), "standing keys have standing shapes"
        try:
            record = await self._api.get(f"/nodes/{shape.node}")
        except Gone:
            return
        why = use_of(record)
        if why and not self._around.force:
            raise Conflict(
                f"node {observed.key.name} is in use in Ironic: {why}",
                hint="Undeploy it, or take it down with `--force`.",
            )
        if why:
            # in maintenance Ironic lets go of a node in any state
            reason = {"reason": "nospoon removes it by force"}
            await self._api.put(f"/nodes/{shape.node}/maintenance", reason)

    async def _bring(self, node: UUID, target: Standing, *, name: str) -> None:
        end, tried = clock.monotonic() + LONGEST, set()
        while True:
            record = await self._states.settled(node, until=end)
            if record is None:
                raise Gone(f"node {name} is in Ironic no more")
            if reached(record, target):
                return
            state = str(record["provision_state"])
            verb = VERBS.get((state, target))
            if verb is None or (state, verb) in tried:
                raise ProviderError(f"node {name} is {state}, not {target}: {_why(record)}")
            tried.add((state, verb))
            await self._api.put(f"/nodes/{node}/states/provision", {"target": verb})


def reached(record: Record, wanted: str) -> bool:
    """Whether a node is as far as wanted, or on its way back to somebody's instance."""
    state = str(record["provision_state"])
    in_use = state in IN_USE or state == "deleting"
    match wanted:
        case Standing.ENROLL:
            return True
        case Standing.MANAGEABLE:
            return state == "manageable" or in_use
        case Standing.INSPECTED:
            inspected = bool(record.get("inspection_finished_at"))
            return (state == "manageable" and inspected) or in_use
        case _:
            return state == "available" or in_use


def use_of(record: Record) -> str:
    """Who uses a node, "" where nobody does."""
    if record.get("instance_uuid"):
        return f"it has the instance {record['instance_uuid']}"
    if record.get("allocation_uuid"):
        return f"it has the allocation {record['allocation_uuid']}"
    if record["provision_state"] in IN_USE:
        return f"it is {record['provision_state']}"
    return ""


def _why(record: Record) -> str:
    return str(record.get("last_error") or fault_of(record) or "Ironic gives no reason")


class _States:
    """One look at all nodes a second, for all who wait; none when nobody does."""

    def __init__(self, api: Api, tasks: Tasks) -> None:
        self._api, self._tasks = api, tasks
        self._next: asyncio.Future[Mapping[UUID, Record]] | None = None

    async def settled(self, node: UUID, *, until: float) -> Record | None:
        """The node once the conductor works on it no more; None where there is none."""
        while True:
            record = (await self._look()).get(node)
            if record is None or record["provision_state"] not in MOVING:
                return record
            if clock.monotonic() > until:
                raise TimeoutError(f"node {node} is still {record['provision_state']}")

    async def _look(self) -> Mapping[UUID, Record]:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._tasks.start(self._tell(self._next), name="look at Ironic's nodes")
        return await asyncio.shield(self._next)

    async def _tell(self, told: asyncio.Future[Mapping[UUID, Record]]) -> None:
        await asyncio.sleep(LOOK_SECONDS)  # Ironic tells nobody of its states: it is asked
        self._next = None
        try:
            listed = await self._api.listed("nodes", query=f"&fields={FIELDS}")
            told.set_result({UUID(each["uuid"]): each for each in listed})
        except NospoonError as error:
            told.set_exception(error)
        finally:
            told.cancel()  # nobody waits for a look that was cancelled
