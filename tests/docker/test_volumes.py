"""One process at a time makes the file system of a root: what a daemon began that was killed, or an
`up` that was cancelled, goes on for a moment.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from nospoon.providers.docker.program import processes, roots

SIZE = 1 << 20


def is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_its_commands_keep_others_from_it_after_who_ran_them_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, part = tmp_path / "r.volume", tmp_path / "r.volume.part"
    part.write_bytes(b"what one before has left")
    seen = []
    run = processes.run

    def look(*argv: str, keeps: tuple[int, ...] = ()) -> str:
        (lock,) = keeps
        of_child = run("sh", "-c", f"readlink /proc/self/fd/{lock}", keeps=keeps).strip()
        seen.append(
            (argv[-3], of_child, is_locked(part), part.stat().st_size, part.read_bytes()[:4])
        )
        return ""

    monkeypatch.setattr(roots, "run", look)
    roots.make_volume(volume, tmp_path / "diff", SIZE)
    assert seen == [(str(part), str(part), True, SIZE, bytes(4))]
    assert not is_locked(volume)
    assert not part.exists()


def test_one_that_another_process_made_meanwhile_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, part = tmp_path / "r.volume", tmp_path / "r.volume.part"
    flock = fcntl.flock

    def late(file: int, how: int) -> None:
        """The other one has ended when this one has its turn."""
        if not volume.exists():
            volume.write_bytes(b"whole")
            part.unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    roots.make_volume(volume, tmp_path / "diff", SIZE)
    assert volume.read_bytes() == b"whole"
    assert not part.exists()
