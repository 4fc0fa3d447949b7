"""Lists of recipe sets, and the places of those that wait: each is made in slices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nospoon.control.labs.records import Records
from nospoon.lab.scheduler import Scheduler
from nospoon.lab.work import RecipeSet, SetState
from nospoon.model.principal import OwnerId
from nospoon.runtime.slices import Slices
from nospoon.runtime.turns import Turns
from nospoon.runtime.workers import Workers
from nospoon.store import labs as stored
from nospoon.store.database import Database


@dataclass(frozen=True, slots=True)
class Lists:
    """`requests`: id of each set that has not ended -> the number of its request."""

    scheduler: Scheduler
    slices: Slices
    database: Database
    workers: Workers
    records: Records
    requests: Mapping[str, int]
    _placing: Turns = field(default_factory=Turns)

    async def rows(
        self,
        most: int,
        sees: Callable[[RecipeSet], bool],
        *,
        submitter: OwnerId | None = None,
        owner: str = "",
    ) -> list[tuple[RecipeSet, int]]:
        """The sets that were submitted last, oldest first, as they are now; of those that ended,
        `submitter`: a user's, `owner`: those for a user. Records of those that have not ended are
        not read: they have kickstarts.
        """
        turn, found = self.slices.begin("rows"), list[tuple[RecipeSet, int]]()
        over = await self.database.read(
            stored.newest_ended, most=most, submitter=submitter, owner=owner
        )
        opened = await self.workers.run(
            0, lambda: [(self.records.opened(r), r.request) for r in over]
        )
        active = [(each, self.requests.get(each.id, 0)) for each in self.scheduler.sets.values()]
        ids = {each.id for each, _ in active}
        for rows in (active, [each for each in opened if each[0].id not in ids]):
            for each in reversed(rows):
                await turn.rest()
                if sees(each[0]):
                    found.append(each)
                    if len(found) % most == 0:
                        break
        return sorted(found, key=lambda each: each[0].number)[-most:]

    async def places(self) -> dict[str, int]:
        """Id of each set that waits -> its place, from 1 on, among those that wait for the same
        lab; of several labs, the best.
        """
        turn, found, before = self.slices.begin("places"), dict[str, int](), Counter[str]()
        await turn.rest()
        for number, set_id in enumerate(self.scheduler.in_order(), 1):
            waiting = self.scheduler.sets.get(set_id)
            if waiting is not None:  # it may have ended meanwhile
                found[set_id] = 1 + min(before[key] for key in waiting.labs)
                before.update(waiting.labs)
            if not set_id or not number % 64:
                await turn.rest()
        return found

    async def place(self, set_id: str) -> int | None:
        """That of one set, None for one that does not wait. It costs the same whatever waits."""
        known = self.scheduler.sets.get(set_id)
        if known is None:
            return None
        async with self._placing.of(str(known.submitter)):  # each has a list of all queues
            turn, place = self.slices.begin("places"), 0
            await turn.rest()
            waiting = self.scheduler.sets.get(set_id)
            if waiting is None or waiting.state is not SetState.QUEUED:
                return None
            for each in self.scheduler.place(waiting):
                place = each
                await turn.rest()
            return place
