"""What Glance is told of a file that is loaded there, and files that no compute host runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nospoon.cli.glance import formats
from nospoon.errors import UsageError
from nospoon.model.images import HypervisorType
from nospoon.testing.container_root import busybox_root

DISK = bytes(4096)


def file_of(directory: Path, content: bytes) -> Path:
    path = directory / "image"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("kind", "disk", "container"),
    [
        (None, "raw", "bare"),
        (HypervisorType.LXC, "raw", "bare"),
        (HypervisorType.KVM, "raw", "bare"),
        (HypervisorType.DOCKER, "raw", "docker"),
    ],
)
def test_glance_gets_the_formats_that_the_machine_type_has(
    tmp_path: Path, kind: HypervisorType | None, disk: str, container: str
) -> None:
    content = busybox_root() if kind is HypervisorType.DOCKER else DISK
    found = formats(file_of(tmp_path, content), kind)
    assert found == {"disk_format": disk, "container_format": container}


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        (HypervisorType.DOCKER, DISK, "is not a root file system"),
        (HypervisorType.KVM, b"<html>", "is not a disk"),
        (HypervisorType.LXC, busybox_root(), "is a root file system, packed as a tar"),
        (HypervisorType.LXC, b"QFI\xfb\0\0\0\3" + DISK, "is a qcow2, which Nova's LXC driver"),
    ],
    ids=["a disk for Docker", "a web page", "a root for Nova", "a qcow2 for LXC"],
)
def test_what_no_compute_host_runs_is_refused(
    tmp_path: Path, kind: HypervisorType, content: bytes, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        formats(file_of(tmp_path, content), kind)
