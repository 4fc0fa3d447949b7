"""Builds the probe: Debian's own signed kernel, and a ramdisk of busybox, modules and our `init`.

The kernel stays as Debian signed it, so that shim accepts it under secure boot, and so do the
modules, which a locked-down kernel checks. What is built is kept in a cache by a key of its inputs
(package versions and our sources); equal inputs make equal bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import structlog

from nospoon.errors import NospoonError
from nospoon.model.cluster import Arch
from nospoon.probe import cpio, modules
from nospoon.probe.packages import Package, Sources, find_sources, unpack
from nospoon.runtime.telling import tell

log = structlog.get_logger()

SOURCES = ("init", "udhcpc")
CONSOLE = {Arch.X86_64: "ttyS0,115200", Arch.AARCH64: "ttyAMA0"}


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe that can be booted: paths of the kernel and of the ramdisk."""

    arch: Arch
    kernel: Path
    initrd: Path


def command_line(
    arch: Arch, *, report: str = "", after: str = "shell", ipv6: bool = False, run: str = ""
) -> str:
    """The kernel's command line. `report`: URL that takes the record ("${uuid}" is filled in by
    the probe). `after`: shell, poweroff or reboot, when it has told what it found. `ipv6`: it waits
    for an address. `run`: stands in the record, so that it is known for that of this boot.
    """
    words = [f"console={CONSOLE[arch]}", "quiet", "panic=10", f"nospoon.after={after}"]
    words += ["nospoon.ipv6=wait"] if ipv6 else []
    words += [marked(run)] if run else []
    return " ".join([*words, f"nospoon.report={report}"] if report else words)


def marked(run: str) -> str:
    """The word of a command line that names a run."""
    return f"nospoon.run={run}"


async def build(cache: Path, *, arch: Arch = Arch.X86_64) -> Probe:
    """The probe for this architecture, from the cache where it is there.

    Where no package source answers, a probe that was built earlier from the same sources of ours
    serves, whatever its kernel. Raises `ProviderError` or `MissingTool` when there is none.
    """
    cache.mkdir(parents=True, exist_ok=True)
    try:
        sources = await find_sources(arch, directory=cache / f"apt-{arch}")
    except NospoonError as error:
        earlier = _earlier(cache, arch)
        if earlier is None:
            raise
        log.warning("the probe is an earlier one", why=str(error), kernel=str(earlier.kernel))
        return earlier
    place = cache / _name(arch, sources.packages)
    if not (place / "initrd").exists():
        await _make(sources, place=place)
    return _probe(arch, place)


def _probe(arch: Arch, place: Path) -> Probe:
    return Probe(arch=arch, kernel=place / "vmlinuz", initrd=place / "initrd")


def _earlier(cache: Path, arch: Arch) -> Probe | None:
    places = [path for path in cache.glob(f"{_prefix(arch)}*") if (path / "initrd").exists()]
    newest = max(places, key=lambda path: path.stat().st_mtime, default=None)
    return _probe(arch, newest) if newest else None


def _prefix(arch: Arch) -> str:
    """Names what we put in: our files, and this module with those that it builds with."""
    ours = resources.files("nospoon.probe")
    texts = [(ours / name).read_bytes() for name in (*SOURCES, "build.py", "cpio.py", "modules.py")]
    return f"probe-{arch}-{hashlib.sha256(b''.join(texts)).hexdigest()[:12]}-"


def _name(arch: Arch, packages: tuple[Package, ...]) -> str:
    text = " ".join(f"{package.name}={package.version}" for package in packages)
    return _prefix(arch) + hashlib.sha256(text.encode()).hexdigest()[:12]


async def _make(sources: Sources, *, place: Path) -> None:
    """Build into a private directory and move it in place whole, so that no one sees half of it."""
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".building-") as made:
        work, result = Path(made), Path(made) / "result"
        result.mkdir()
        for package in sources.packages:
            await unpack(await sources.apt.download(package, work), work / "root")
        tell("building the probe")
        await asyncio.to_thread(_pack, work / "root", result)
        if not place.exists():
            result.rename(place)
    built_from = [f"{package.name}={package.version}" for package in sources.packages]
    log.info("probe built", packages=built_from, at=str(place))


def _pack(root: Path, result: Path) -> None:
    """Kernel and ramdisk of unpacked packages; takes a second or more of a processor."""
    kernel = next((root / "boot").glob("vmlinuz-*"))
    ramdisk = compress(cpio.archive(contents(root, kernel.name.split("-", 1)[1])))
    shutil.copyfile(kernel, result / "vmlinuz")
    (result / "initrd").write_bytes(ramdisk)


def contents(root: Path, release: str) -> list[cpio.Entry]:
    """What the ramdisk holds, from the unpacked packages below `root`."""
    ours = resources.files("nospoon.probe")
    base = f"lib/modules/{release}"
    found = chosen(root / base, modules.WANTED)
    return [
        *(cpio.directory(name) for name in ("proc", "sys", "dev", "tmp", "etc")),
        cpio.character_device("dev/console", major=5, minor=1),
        cpio.file("init", (ours / "init").read_bytes(), mode=0o755),
        cpio.file("etc/udhcpc", (ours / "udhcpc").read_bytes(), mode=0o755),
        cpio.file("bin/busybox", (root / "bin/busybox").read_bytes(), mode=0o755),
        *(cpio.symlink(f"bin/{applet}", "busybox") for applet in APPLETS),
        cpio.file(f"{base}/modules.dep", modules.modules_dep(found).encode()),
        cpio.file(f"{base}/modules.alias", modules.modules_alias(found).encode()),
        *(cpio.file(f"{base}/{m.path}", (root / base / m.path).read_bytes()) for m in found),
    ]


APPLETS = (
    *("sh", "cat", "mount", "modprobe", "usleep", "sleep", "printf", "echo", "tr", "sed", "od"),
    *("tail", "head", "readlink", "ip", "sha256sum", "base64", "udhcpc", "nc", "sync", "setsid"),
    *("cttyhack", "poweroff", "reboot", "uname", "ls", "dmesg", "ps", "vi", "more", "ping", "free"),
    *("mkdir", "rm", "grep", "lsmod", "insmod", "df", "mknod", "halt", "dd", "hexdump", "find"),
)


def chosen(directory: Path, wanted: Iterable[str]) -> tuple[modules.Module, ...]:
    """The wanted modules and what they need. Only files that may matter are read."""
    files = {modules.module_name(str(path)): path for path in sorted(directory.rglob("*.ko"))}
    known: dict[str, modules.Module] = {}
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name in files and name not in known:
            path = files[name]
            known[name] = modules.parse(str(path.relative_to(directory)), path.read_bytes())
            waiting.extend(known[name].depends)
    return modules.closure(wanted, known)


def compress(data: bytes) -> bytes:
    """gzip (RFC 1952) with no time and no name, so that it is reproducible.

    Measured under TCG: the kernel unpacks it faster than xz, and zlib is in every Python.
    """
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = packer.compress(data) + packer.flush()
    header = b"\x1f\x8b\x08\x00" + b"\0" * 4 + b"\x02\xff"
    return (
        header
        + body
        + zlib.crc32(data).to_bytes(4, "little")
        + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
    )
