"""Records of another host are copied whole and in order, and stay bounded."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from uuid import UUID, uuid4

from nospoon.runtime.runner import LocalRunner
from nospoon.services.consoles.mirror import Mirror
from nospoon.services.consoles.records import SEGMENT_SIZE, Records


def mirror_of(there: Path, records: Records, machine: UUID) -> Mirror:
    return Mirror(
        LocalRunner(),
        PurePosixPath(there),
        records,
        host="there",
        home=lambda each: "there" if each == machine else None,
        lives=lambda: True,
        busy=lambda: True,
    )


async def test_what_is_written_on_another_host_is_copied_once_and_the_oldest_dropped(
    tmp_path: Path,
) -> None:
    there, machine = tmp_path / "there", uuid4()
    there.mkdir()
    log = there / f"{machine}.log"
    records = Records(tmp_path / "here", most=SEGMENT_SIZE + 100)
    records.keep(machine, group="0/dev", node="n")
    log.write_bytes(b"a" * SEGMENT_SIZE)
    await mirror_of(there, records, machine).pull()
    await mirror_of(there, records, machine).pull()
    assert records.size(machine) == SEGMENT_SIZE
    log.rename(f"{log}.0")
    log.write_bytes(b"b" * SEGMENT_SIZE)
    await mirror_of(there, records, machine).pull()
    with log.open("ab") as file:
        file.write(b"end")
    await mirror_of(there, records, machine).pull()
    assert records.size(machine) == 2 * SEGMENT_SIZE + 3
    assert records.read(machine, 0, 1)[0] > 0
    assert records.tail(machine, 5) == b"bbend"
    kept = (tmp_path / "here" / f"{machine}.d").glob("*.log")
    assert sum(file.stat().st_size for file in kept) <= SEGMENT_SIZE + 100
