"""Events of labs whose webhooks do not answer while a daemon ends."""

from __future__ import annotations

from contextlib import closing

from tests.control.test_lab_board import Place, place, wanted

from nospoon.store import lab_notices
from nospoon.store.database import Database
from nospoon.store.lab_notices import Notice

__all__ = ["place"]  # a fixture


async def test_the_next_daemon_sends_what_waits_and_first(place: Place) -> None:
    place.deaf = True
    place.machines.hold.clear()
    async with place.daemon() as board:
        (found,) = await board.submit([wanted(board)], "")
    assert place.heard == []
    place.deaf = False
    async with place.daemon() as board:
        await board.do(lambda: board.scheduler.cancel(found.id, "", 2.0))
        await board.do(list)
    heard = [event for _, event in place.heard]
    assert heard[:3] == ["queued", "starting", "cancelled"]


async def test_what_waits_for_a_lab_that_is_gone_is_forgotten_in_time(place: Place) -> None:
    old, new = (Notice(f"{at}", "7:c/gone", at, "x y") for at in (1.0, 1e9))
    async with place.daemon():
        pass
    with closing(Database.open(f"sqlite:///{place.directory}/store.db")) as database:
        await database.call(lab_notices.put, [old, new])
        await database.call(lab_notices.put, [new])
    place.now = 1e9
    async with place.daemon() as board:
        assert board._unsent == [new], "its file may be read later"
    assert place.heard == []
