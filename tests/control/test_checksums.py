"""Lists of checksums as tools write them, and anything else."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.protocols.checksums import Checksum, listed, parse

SHA256, SHA512 = "ab" * 32, "cd" * 64
GNU = f"{'11' * 32}  other.img\n{SHA256} *disk.img\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"sha256:{SHA256.upper()}", Checksum("sha256", SHA256)),
        (f"sha512:{SHA512}", Checksum("sha512", SHA512)),
        (SHA256, Checksum("sha256", SHA256)),
        (SHA512, Checksum("sha512", SHA512)),
        (f"sha512:{SHA256}", None),
        (f"md5:{'ab' * 16}", None),
        ("ab" * 16, None),
        ("", None),
        (f"{SHA256}0", None),
    ],
)
def test_a_checksum_is_sha256_or_sha512_by_its_length(text: str, found: Checksum | None) -> None:
    assert parse(text) == found


@pytest.mark.parametrize(
    "text",
    [
        GNU,
        f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{GNU}-----END-----",
        f"SHA256 (other.img) = {'11' * 32}\nSHA256 (disk.img) = {SHA256}\n",
        f"{SHA256}  ./images/disk.img\n",
        f"{SHA256}\n",
    ],
)
def test_a_list_tells_the_checksum_of_the_file(text: str) -> None:
    assert listed(text, "disk.img") == Checksum("sha256", SHA256)


@pytest.mark.parametrize(
    "text", [GNU.replace("disk", "desk"), "", "<html>", f"{'ab' * 16}  disk.img"]
)
def test_a_list_without_the_file_tells_nothing(text: str) -> None:
    assert listed(text, "disk.img") is None


@given(st.text(), st.text())
def test_any_text_is_read_without_an_error(text: str, name: str) -> None:
    found = listed(text, name)
    assert found is None or parse(str(found)) == found


@pytest.mark.parametrize("tool", ["sha256sum", "sha512sum"])
@pytest.mark.parametrize("option", ["--text", "--binary", "--tag"])
def test_what_coreutils_write_is_read(tool: str, option: str, tmp_path: Path) -> None:
    for name in ("a b.img", "c.img"):
        (tmp_path / name).write_text(name)
    argv = [tool, option, "a b.img", "c.img"]
    said = subprocess.run(argv, cwd=tmp_path, text=True, capture_output=True, check=True).stdout
    algorithm = tool.removesuffix("sum")
    for name in ("a b.img", "c.img"):
        digits = hashlib.new(algorithm, name.encode()).hexdigest()
        assert listed(said, name) == Checksum(algorithm, digits)
