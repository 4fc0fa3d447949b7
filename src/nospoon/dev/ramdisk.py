"""A ramdisk with ironic-python-agent: Debian's packages, Debian's kernel, and the agent of PyPI.

It is made once, below the cache: its name is the key of its inputs. busybox is its init, so that
an emulated processor reaches the agent soon. mmdebstrap makes the root, also without rights.
"""

from __future__ import annotations

import compileall
import hashlib
import shutil
import stat
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import structlog

from nospoon.dev import environment
from nospoon.errors import MissingTool
from nospoon.model.cluster import Arch
from nospoon.probe import build, cpio, modules
from nospoon.probe.packages import find_sources, unpack
from nospoon.runtime import process

log = structlog.get_logger()

LOCK_FILE = Path(__file__).with_name("agent.txt")
NAME = "agent"
SUITE, PYTHON = "bookworm", (3, 11)
"""Debian's suite, and the Python in it: the agent's packages are made for that one."""
LONGEST = 1800.0
"""Seconds in which 100 MB of packages come through a slow line."""
PACKAGES = (
    *("busybox-static", "python3", "udev", "kmod", "iproute2", "procps", "psmisc", "util-linux"),
    *("parted", "gdisk", "fdisk", "dosfstools", "e2fsprogs", "qemu-utils", "efibootmgr", "mdadm"),
    *("hdparm", "nvme-cli", "pciutils", "dmidecode", "ipmitool", "ethtool", "bsdextrautils"),
    *("ca-certificates", "lshw"),
)
"""What the agent runs, and what runs it."""
MODULES = (
    *modules.WANTED,
    *("vfat", "nls_ascii", "nls_cp437", "nls_utf8", "isofs", "loop", "ext4", "usb_storage"),
    *("xhci_pci", "ehci_pci", "uhci_hcd", "uas", "ipmi_devintf", "ipmi_si", "md_mod", "raid1"),
)
LEFT_OUT = (
    *("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"),
    *("/usr/share/lintian/*", "/usr/share/zoneinfo/*", "/usr/share/i18n/*"),
)
NOT_IN = ("dev/", "boot/", "var/cache/", "var/lib/apt/", "var/lib/dpkg/info/", "var/log/")
"""What the root has and a ramdisk does not need."""
NOT_NEEDED = frozenset({"pip", "setuptools"})
FILES = {"etc/rcS": 0o755, "opt/agent/run": 0o755, "etc/udhcpc": 0o755, "etc/inittab": 0o644}


@dataclass(frozen=True, slots=True)
class Ramdisk:
    """A deploy agent that can be booted: paths of the kernel and of the ramdisk."""

    kernel: Path
    initramfs: Path


async def ensure(cache: Path) -> Ramdisk:
    """The ramdisk, made when it is not there. Raises `MissingTool` or `ProviderError`."""
    place = cache / f"agent-ramdisk-{_key()}"
    found = Ramdisk(place / "agent.kernel", place / "agent.initramfs")
    if not found.initramfs.exists():
        _refuse_other_python()
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".building-") as made:
            await _make(cache, work=Path(made), place=place)
    return found


def remove(cache: Path) -> None:
    """Remove every ramdisk, and the environment that they are made from."""
    for found in cache.glob("agent-ramdisk-*"):
        shutil.rmtree(found)
    environment.remove(cache, NAME)


def _key() -> str:
    ours = resources.files("nospoon.dev") / "agent"
    texts = [(ours / Path(each).name).read_bytes() for each in FILES]
    texts += [LOCK_FILE.read_bytes(), Path(__file__).read_bytes()]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def _refuse_other_python() -> None:
    if sys.version_info[:2] != PYTHON:
        wanted = ".".join(map(str, PYTHON))
        raise MissingTool(
            f"the agent's ramdisk has Debian {SUITE}'s Python {wanted}; this is {sys.version}",
            hint=f"Run nospoon with Python {wanted} to build it; any version can use it.",
        )


async def _make(cache: Path, *, work: Path, place: Path) -> None:
    """Build in a private directory and move it in place whole."""
    made = await environment.ensure(cache, NAME, LOCK_FILE)
    packages = made / "lib" / f"python{PYTHON[0]}.{PYTHON[1]}" / "site-packages"
    compileall.compile_dir(packages, quiet=2, workers=0)
    root = work / "root.tar"
    await process.run(_mmdebstrap(root), timeout=LONGEST)
    sources = await find_sources(Arch.X86_64, directory=cache / f"apt-{Arch.X86_64}")
    await unpack(await sources.apt.download(sources.kernel, work), work / "kernel")
    kernel = next((work / "kernel/boot").glob("vmlinuz-*"))
    release = kernel.name.split("-", 1)[1]
    with tarfile.open(root) as archive:
        entries = [*_ours(), *_root(archive), *_packages(packages)]
    entries += _modules(work / "kernel/lib/modules" / release, release)
    result = work / "result"
    result.mkdir()
    shutil.copyfile(kernel, result / "agent.kernel")
    (work / "cpio").write_bytes(cpio.archive(entries))
    await process.run(
        ["zstd", "-q", "-10", "-T0", str(work / "cpio"), "-o", str(result / "agent.initramfs")],
        timeout=LONGEST,
    )
    if not place.exists():
        result.rename(place)
    log.info("deploy agent built", kernel=sources.kernel.version, at=str(place))


def _mmdebstrap(root: Path) -> list[str]:
    excluded = [f"--dpkgopt=path-exclude={each}" for each in LEFT_OUT]
    return [
        "mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", *excluded,
        SUITE, str(root),
    ]  # fmt: skip


def _ours() -> Iterator[cpio.Entry]:
    ours = resources.files("nospoon.dev") / "agent"
    for path, mode in FILES.items():
        yield cpio.file(path, (ours / Path(path).name).read_bytes(), mode=mode)
    yield cpio.symlink("init", "usr/bin/busybox")
    yield cpio.character_device("dev/console", major=5, minor=1)
    yield from map(cpio.directory, ("proc", "sys", "run", "tmp", "var/log"))
    for applet in ("poweroff", "reboot", "halt"):
        yield cpio.symlink(f"usr/sbin/{applet}", "../bin/busybox")


def _root(archive: tarfile.TarFile) -> Iterator[cpio.Entry]:
    """What Debian's packages put there. Hard links become files of their own."""
    for member in archive:
        path = member.name.removeprefix("./").rstrip("/")
        if not path or f"{path}/".startswith(NOT_IN):
            continue
        if member.isdir():
            yield cpio.Entry(path, stat.S_IFDIR | member.mode)
        elif member.issym():
            yield cpio.symlink(path, member.linkname)
        elif member.isfile() or member.islnk():
            content = archive.extractfile(member)
            assert content is not None, "files have contents"
            made = cpio.file(path, content.read(), mode=member.mode)
            yield replace(made, modified=int(member.mtime))  # by it Python knows its bytecode


def _packages(directory: Path) -> Iterator[cpio.Entry]:
    for path in sorted(directory.rglob("*")):
        inside = path.relative_to(directory)
        if path.is_file() and inside.parts[0] not in NOT_NEEDED and "tests" not in inside.parts:
            made = cpio.file(f"opt/agent/packages/{inside}", path.read_bytes())
            yield replace(made, modified=int(path.stat().st_mtime))


def _modules(directory: Path, release: str) -> Iterator[cpio.Entry]:
    base = f"usr/lib/modules/{release}"
    for module in build.chosen(directory, MODULES):
        yield cpio.file(f"{base}/{module.path}", (directory / module.path).read_bytes())
    for name in ("modules.builtin", "modules.order", "modules.builtin.modinfo"):
        yield cpio.file(f"{base}/{name}", (directory / name).read_bytes())
