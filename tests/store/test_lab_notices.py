"""Events on their way to webhooks: in their order, each once."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from nospoon.store import lab_notices
from nospoon.store.database import Database
from nospoon.store.lab_notices import Notice


async def test_tens_of_thousands_are_stored_at_once_and_none_twice(tmp_path: Path) -> None:
    """As many as are of ten thousand sets that end with their lab."""
    many = [Notice(f"id-{number}", "7:c/dev", float(number), "{}") for number in range(40_000)]
    with closing(Database.open(f"sqlite:///{tmp_path}/store.db")) as database:
        await database.call(lab_notices.put, many[:10])
        await database.call(lab_notices.put, many)
        assert await database.read(lab_notices.waiting) == many
        await database.call(lab_notices.remove_old, 39_998.0)
        await database.call(lab_notices.remove, ["id-39998"])
        assert await database.read(lab_notices.waiting) == many[-1:]
