"""Small ISO 9660 images: what other programs read in them, and we."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.protocols import iso9660

FILES = {
    "meta-data": b"{}",
    "network-config": b"version: 2\n" * 700,
    "user-data": b"#cloud-config\n",
    "empty": b"",
}


def ran(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.mark.tools
def test_other_programs_read_the_label_and_every_file(tmp_path: Path) -> None:
    image, out = tmp_path / "x.iso", tmp_path / "out"
    image.write_bytes(iso9660.image("cidata", FILES))
    assert ran("blkid", "-p", "-o", "value", "-s", "LABEL", str(image)).strip() == "cidata"
    ran("xorriso", "-osirrox", "on", "-indev", str(image), "-extract", "/", str(out))
    assert {each.name.lower(): each.read_bytes() for each in out.iterdir()} == FILES


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z-]{0,26}", fullmatch=True), st.binary(max_size=9000), max_size=8
    )
)
def test_every_file_is_found_by_its_name(files: dict[str, bytes]) -> None:
    made = iso9660.image("cidata", files)
    assert len(made) % iso9660.SECTOR == 0

    def read(offset: int, length: int) -> bytes:
        return made[offset : offset + length]

    for name, content in files.items():
        assert list(iso9660.find(read, frozenset({name}), largest=1 << 20)) == [content]


def test_equal_files_make_equal_images() -> None:
    again = dict(reversed(FILES.items()))
    assert iso9660.image("cidata", FILES) == iso9660.image("cidata", again)
