"""Images are what their first bytes say; none makes QEMU open another file."""

from __future__ import annotations

import gzip
import subprocess
import tarfile
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.control.content.images import (
    GZIP,
    HEAD,
    ROOT_HEAD,
    XZ,
    format_of,
    image_facts,
    refuse_other_root,
    root_facts,
)
from nospoon.errors import UsageError
from nospoon.model.images import MOUNTED_ROOT

pytestmark = pytest.mark.tools


def made(path: Path, kind: str, *options: str) -> Path:
    argv = ["qemu-img", "create", "-q", "-f", kind, *options, str(path), "4M"]
    subprocess.run(argv, check=True, capture_output=True)
    return path


def packed(path: Path, tool: str) -> None:
    done = subprocess.run([tool, "-c", path], check=True, capture_output=True)
    path.write_bytes(done.stdout)


async def test_raw_and_qcow2_are_taken_for_what_they_are(tmp_path: Path) -> None:
    for kind in ("raw", "qcow2"):
        facts = await image_facts(made(tmp_path / kind, kind), kind, "ab")
        assert (facts.format, facts.virtual_size) == (kind, 4 << 20)


@pytest.mark.parametrize("kind", ["vmdk", "vdi", "vhdx", "vpc", "qed", "parallels", "qcow"])
async def test_every_other_format_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path / "image", kind)
    with pytest.raises(UsageError, match=r"expected (raw or qcow2|2 or 3)\. Convert it"):
        await image_facts(path, "seed.img", "ab")


@pytest.mark.parametrize("tool", ["gzip", "xz", "bzip2"])
async def test_a_compressed_image_is_refused(tmp_path: Path, tool: str) -> None:
    path = made(tmp_path / "image", "raw")
    packed(path, tool)
    with pytest.raises(UsageError, match=f"compressed by {tool}. Unpack it"):
        await image_facts(path, "seed.img", "ab")


async def test_a_descriptor_that_names_another_file_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_text('# Disk DescriptorFile\nversion=1\nRW 2048 FLAT "/etc/shadow" 0\n')
    with pytest.raises(UsageError) as refused:
        await image_facts(path, "seed.vmdk", "ab")
    assert "shadow" not in str(refused.value)


async def test_a_qcow2_on_top_of_another_file_or_beside_one_is_refused(tmp_path: Path) -> None:
    base = made(tmp_path / "base", "qcow2")
    top = made(tmp_path / "top", "qcow2", "-b", str(base), "-F", "qcow2")
    with pytest.raises(UsageError, match=r"refers to another file .*base"):
        await image_facts(top, "top.qcow2", "ab")
    apart = made(tmp_path / "apart", "qcow2", "-o", f"data_file={tmp_path}/data")
    with pytest.raises(UsageError, match="refers to another file"):
        await image_facts(apart, "apart.qcow2", "ab")


@given(st.binary(max_size=200), st.booleans())
def test_no_bytes_make_it_stumble(rest: bytes, qcow: bool) -> None:  # noqa: FBT001
    head = (b"QFI\xfb" + rest if qcow else rest)[:HEAD]
    with suppress(UsageError):
        assert format_of("x", head) in {"raw", "qcow2"}


@pytest.mark.parametrize("tool", ["", "gzip", "xz", "zstd"])
async def test_a_root_file_system_is_a_tar_however_it_is_compressed(
    tmp_path: Path, tool: str
) -> None:
    path = tmp_path / "root.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(Path(__file__), "etc/file")
    if tool:
        packed(path, tool)
    facts = root_facts(path, "root", "ab")
    assert (facts.format, facts.virtual_size) == ("tar", path.stat().st_size)


@pytest.mark.parametrize("tool", ["", "gzip", "xz"])
async def test_a_disk_image_is_no_root_file_system(tmp_path: Path, tool: str) -> None:
    path = made(tmp_path / "image", "raw")
    if tool:
        packed(path, tool)
    with pytest.raises(UsageError, match=r"image seed.img is not a root file system.*Pack one"):
        root_facts(path, "seed.img", "ab")


@given(st.binary(max_size=2000), st.sampled_from([b"", GZIP, XZ, bytes.fromhex("1f8b0800")]))
def test_no_bytes_of_a_root_make_it_stumble(rest: bytes, magic: bytes) -> None:
    with suppress(UsageError):
        refuse_other_root("x", magic + rest)


def test_what_unpacks_to_much_takes_little_memory() -> None:
    bomb = gzip.compress(bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(UsageError):
        refuse_other_root("x", bomb[:ROOT_HEAD])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 << 20


def test_a_root_may_be_an_ext4_file_system_which_is_as_large_as_its_file(tmp_path: Path) -> None:
    image = tmp_path / "root.ext4"
    argv = ["mke2fs", "-q", "-t", "ext4", str(image), "4M"]
    subprocess.run(argv, check=True, env={"PATH": "/usr/sbin:/sbin"})
    facts = root_facts(image, "root.ext4", "ab")
    assert (facts.format, facts.virtual_size) == (MOUNTED_ROOT, 4 << 20)
    image.write_bytes(bytes(4 << 20))
    with pytest.raises(UsageError, match="not a root file system"):
        root_facts(image, "root.ext4", "ab")
