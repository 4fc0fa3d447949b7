"""What goes into the probe, without building one."""

from __future__ import annotations

import gzip
import subprocess
import threading
from importlib import resources
from pathlib import Path

import pytest

from nospoon.model.cluster import Arch
from nospoon.probe import build
from nospoon.probe.build import APPLETS, command_line, compress, contents
from nospoon.probe.packages import Apt, Package, Sources

INIT = (resources.files("nospoon.probe") / "init").read_text()


def test_compression_is_gzip_and_reproducible() -> None:
    data = b"cpio" * 1000
    assert gzip.decompress(compress(data)) == data
    assert compress(data) == compress(data)


async def test_it_is_packed_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gzip takes seconds of a processor for a kernel's modules; others' BMCs answer meanwhile."""
    packed: list[int] = []

    class Unpacked(Apt):
        async def download(self, package: Package, directory: Path) -> Path:
            del directory
            return Path(package.name)

    async def unpack(package: Path, target: Path) -> None:
        (target / "boot").mkdir(parents=True, exist_ok=True)
        (target / "boot/vmlinuz-1").write_bytes(package.name.encode())

    def noted(data: bytes) -> bytes:
        packed.append(threading.get_ident())
        return data

    monkeypatch.setattr(build, "unpack", unpack)
    monkeypatch.setattr(build, "contents", lambda *_: [])
    monkeypatch.setattr(build, "compress", noted)
    sources = Sources(Unpacked(Arch.X86_64), Package("kernel", "1"), Package("busybox", "1"))
    await build._make(sources, place=tmp_path / "probe")
    assert (tmp_path / "probe/vmlinuz").read_bytes() == b"busybox"
    assert (tmp_path / "probe/initrd").exists()
    (where,) = packed
    assert where != threading.get_ident()


def test_the_command_line_names_console_report_and_what_comes_after() -> None:
    line = command_line(Arch.X86_64, report="http://10.0.2.2:1/probe/${uuid}", after="poweroff")
    assert line.split() == [
        *("console=ttyS0,115200", "quiet", "panic=10", "nospoon.after=poweroff"),
        "nospoon.report=http://10.0.2.2:1/probe/${uuid}",
    ]
    assert "console=ttyAMA0" in command_line(Arch.AARCH64)


@pytest.mark.tools
def test_busybox_s_shell_can_read_our_scripts() -> None:
    for name in ("init", "udhcpc"):
        text = (resources.files("nospoon.probe") / name).read_text()
        done = subprocess.run(
            ["busybox", "sh", "-n"], input=text, text=True, capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), name


def test_the_ramdisk_holds_init_busybox_and_the_modules_that_exist(tmp_path: Path) -> None:
    module = tmp_path / "lib/modules/6.1/kernel/virtio_blk.ko"
    other = tmp_path / "lib/modules/6.1/kernel/sound.ko"
    for path in (module, other, tmp_path / "bin/busybox"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\0depends=\0alias=virtio:d2\0")
    entries = {entry.path: entry for entry in contents(tmp_path, "6.1")}
    assert entries["init"].data.decode() == INIT
    assert entries["init"].mode & 0o111
    assert "lib/modules/6.1/kernel/virtio_blk.ko" in entries
    assert not any("sound" in path for path in entries)
    assert entries["lib/modules/6.1/modules.alias"].data == b"alias virtio:d2 virtio_blk\n"
    assert {f"bin/{applet}" for applet in APPLETS} <= entries.keys()


def test_init_uses_no_applet_that_is_not_there() -> None:
    used = {"cat", "modprobe", "mount", "usleep", "tr", "sed", "od", "tail", "head", "readlink",
            "ip", "uname", "sha256sum", "base64", "udhcpc", "nc", "sync", "poweroff", "reboot",
            "setsid", "cttyhack", "sh"}  # fmt: skip
    assert used <= set(APPLETS)
    assert "wget" not in INIT.replace("the wget of", "")
