"""Recipe sets and registered machines as the store has them; records of sets are encrypted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import msgspec
from sqlalchemy import Connection

from nospoon.lab.holdings import MachineState
from nospoon.lab.work import RecipeSet, SetState
from nospoon.store import lab_notices
from nospoon.store import labs as stored
from nospoon.store.crypt import Cipher
from nospoon.store.lab_notices import Notice
from nospoon.store.labs import Noted, SetRow

MOST_HISTORY = 2000
"""Events of one set that are kept: the last ones."""


@dataclass(frozen=True, slots=True)
class Records:
    """Run both in a thread: kickstarts are long."""

    cipher: Cipher

    def rows(self, sets: Sequence[tuple[RecipeSet, int, Sequence[Noted]]]) -> list[SetRow]:
        """Of sets, with their requests and histories."""
        return [self._row(*each) for each in sets]

    def _row(self, found: RecipeSet, request: int, history: Sequence[Noted]) -> SetRow:
        kept = _without_texts(found) if found.state is SetState.ENDED else found
        return SetRow(
            id=found.id,
            request=request,
            number=found.number,
            submitter=found.submitter,
            owner=found.owner,
            lab=found.lab,
            state=found.state,
            created=found.submitted,
            record=self.cipher.encrypt(msgspec.json.encode(kept).decode()),
            key=found.key,
            history=history[-MOST_HISTORY:],
        )

    def opened(self, row: SetRow) -> RecipeSet:
        return _SET.decode(self.cipher.decrypt(row.record))


_SET = msgspec.json.Decoder(RecipeSet)


def save(
    connection: Connection,
    rows: Sequence[SetRow],
    states: Sequence[tuple[UUID, str, str, MachineState]],
    notices: Sequence[Notice] = (),
) -> None:
    """In one transaction."""
    stored.put(connection, rows)
    lab_notices.put(connection, notices)
    for cluster_id, lab, machine, state in states:
        stored.put_state(connection, cluster_id, lab, machine, msgspec.to_builtins(state))


def _without_texts(found: RecipeSet) -> RecipeSet:
    """What is shown of one that ended: its kickstarts, with passwords, are not kept."""
    runs = (
        replace(run, options={}, secret="", asked=replace(run.asked, kickstart="", cmdline=""))
        for run in found.runs
    )
    return replace(found, runs=tuple(runs))
