"""Files of volumes of containers: what is in one that is there is never written over."""

from __future__ import annotations

import subprocess
from pathlib import Path

from nospoon.providers.containers.scripts import MAKE_VOLUME
from nospoon.testing.racks import MEBI


def make(path: Path, size: int) -> None:
    subprocess.run(["sh", "-ec", MAKE_VOLUME, "sh", str(path), str(size)], check=True)


def label(path: Path) -> str:
    """What is in it, in place of data."""
    done = subprocess.run(["e2label", str(path)], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_volume_whose_record_was_lost_keeps_what_is_in_it(tmp_path: Path) -> None:
    """It was made again, empty: a plan shows a volume without a record as one that is missing."""
    volume = tmp_path / "db-1.volume"
    make(volume, 8 * MEBI)
    subprocess.run(["e2label", str(volume), "data"], check=True)
    make(volume, 16 * MEBI)
    assert (label(volume), volume.stat().st_size) == ("data", 16 * MEBI)
    make(volume, 8 * MEBI)
    assert (label(volume), volume.stat().st_size) == ("data", 16 * MEBI), "none of it is cut off"


def test_half_of_a_volume_is_made_again(tmp_path: Path) -> None:
    volume = tmp_path / "db-1.volume"
    Path(f"{volume}.part").write_bytes(b"half of one")
    make(volume, 8 * MEBI)
    assert (label(volume), volume.stat().st_size) == ("", 8 * MEBI)
    assert [each.name for each in tmp_path.iterdir()] == [volume.name]
