"""Inventories of registered machines, while others act and files change."""

from __future__ import annotations

from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

import pytest
from tests.control.test_lab_board import Place, until

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.inventory import Inventories
from nospoon.control.labs.racks import Racks
from nospoon.control.operations.operations import Running
from nospoon.errors import Conflict, NotFound
from nospoon.model.cluster import Arch
from nospoon.model.lab import Lab, Registered
from nospoon.probe.build import Probe
from nospoon.probe.record import decode
from nospoon.runtime.tasks import Tasks
from nospoon.store.crypt import Cipher
from nospoon.testing.probed import body

UUID_OF_MACHINE = UUID("12345678-1234-1234-1234-123456789abc")
OTHER = 1002


class Bmcs:
    """In place of `Racks`: every BMC shows one UUID."""

    def __init__(self) -> None:
        self.off_again: list[str] = []

    async def uuids(self, known: KnownLab, machine: Registered) -> frozenset[UUID]:
        del known, machine
        return frozenset({UUID_OF_MACHINE})

    async def probe(self, known: KnownLab, machine: Registered) -> None:
        del known, machine

    async def off(self, known: KnownLab, machine: Registered) -> None:
        self.off_again.append(f"{known.cluster} {machine.name}")


class Quiet:
    def note(self, text: str) -> None:
        del text


async def build(arch: Arch) -> Probe:
    return Probe(arch, Path("/kernel"), Path("/initrd"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path, Cipher.from_file(tmp_path / "key"))
    made.lab = Lab("dev", machines=(Registered("m", address="192.0.2.1"),))
    return made


async def test_a_machine_has_one_inventory_at_a_time_whichever_lab_shows_its_uuid(
    place: Place,
) -> None:
    """A BMC that is another user's own could show the UUID of any machine, and get its report."""
    async with place.daemon() as board, Tasks("test") as tasks:
        (key,) = board.known
        bmcs = Bmcs()
        taken = Inventories(board, cast("Racks", bmcs), build, lambda: place.now)
        running = cast("Running", Quiet())
        first = tasks.start(taken.take(running, key, "m", limit=60), name="first")
        await until(lambda: taken.seeks or first.done())
        board.labs.put(uuid4(), OTHER, "thief", [place.lab])
        thiefs = next(each for each in board.known if each != key)
        with pytest.raises(Conflict, match="another inventory"):
            await taken.take(running, thiefs, "m", limit=0.1)
        found = taken.of_uuid(str(UUID_OF_MACHINE))
        assert found is not None
        assert found[1].key == key
        record = decode(body(uuid=str(UUID_OF_MACHINE)))
        assert record is not None
        assert taken.report(found[0], record)
        await first


async def test_an_inventory_whose_lab_goes_meanwhile_reports_that(place: Place) -> None:
    async with place.daemon() as board, Tasks("test") as tasks:
        (key,) = board.known
        bmcs = Bmcs()
        taken = Inventories(board, cast("Racks", bmcs), build, lambda: place.now)
        running = cast("Running", Quiet())
        first = tasks.start(taken.take(running, key, "m", limit=60), name="first")
        await until(lambda: taken.seeks or first.done())
        found = taken.of_uuid(str(UUID_OF_MACHINE))
        record = decode(body(uuid=str(UUID_OF_MACHINE)))
        assert found is not None
        assert record is not None
        board.labs.put(place.cluster, 7, "c", [])
        assert taken.report(found[0], record)
        with pytest.raises(NotFound, match="no machine m any more"):
            await first
        assert bmcs.off_again == ["c m"], "it was started"
