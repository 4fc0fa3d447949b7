"""Disk images as clients give them: what they are, told by their own first bytes.

QEMU is never left to guess a format: some formats name other files, which it would open. Two are
taken, raw and qcow2, and of a qcow2 the header is read here before QEMU sees it (QEMU,
docs/interop/qcow2.txt). Containers begin with a root file system instead: a tar, which may be
compressed, or, in a cloud, an ext4 file system, which nothing here opens.
"""

from __future__ import annotations

import json
import lzma
import struct
import zlib
from pathlib import Path

from nospoon.clusterfile.fields import MOST_DISK
from nospoon.errors import UsageError
from nospoon.model.images import MOUNTED_ROOT, ROOT_FORMAT
from nospoon.plan.resolution.around import ImageFacts
from nospoon.runtime import process

QCOW2 = b"QFI\xfb"
HEAD = 4096
ROOT_HEAD = 16 << 10
"""Of a compressed file, enough for the first header in it. Blocks may be empty: a member's file
could have megabytes of them before its first byte.
"""
XZ_MEMORY = 256 << 20
"""xz -9 takes 65 MiB to unpack (xz(1))."""
MOST_INFO = 1 << 20
"""Bytes of what QEMU says of an image: it names 65,536 snapshots, if it has so many, and they would
be decoded where nothing else runs meanwhile.
"""
OTHERS = (
    (0, b"KDMV", "VMDK"),
    (0, b"COWD", "VMDK"),
    (0, b"# Disk DescriptorFile", "VMDK"),
    (0x40, b"\x7f\x10\xda\xbe", "VDI"),
    (0, b"vhdxfile", "VHDX"),
    (0, b"conectix", "VHD"),
    (0, b"QED", "QED"),
    (0, b"OOOM", "COW"),
    (0, b"WithoutFreeSpace", "Parallels"),
    (0, b"WithouFreSpacExt", "Parallels"),
)
"""Where other formats have which bytes, and what they are called: so few as libvirt looks at, which
is less than QEMU does, and COW, which QEMU dropped (storage_file_probe.c, fileTypeInfo).
"""
QCOW = b"QFI"
GZIP, XZ, ZSTD = b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
COMPRESSED = (
    (GZIP, "gzip"),
    (XZ, "xz"),
    (ZSTD, "zstd"),
    (b"BZh", "bzip2"),
)
_HEADER = struct.Struct(">4sIQIIQ")
_FEATURES, _DATA_FILE, _CORRUPT, _BITMAPS = struct.Struct(">QQQ"), 1 << 2, 1 << 1, 1
_FEATURES_AT = 72
"""Of version 3: incompatible, compatible and autoclear ones."""
MEMORY = 1 << 30
"""Bytes of address space for QEMU's look at an image, as much as Nova gives it (images_api.py,
QEMU_IMG_LIMITS): its tables may be large, and the file small. The C library would take 64 MiB of
that for each thread, of which QEMU has more on a busy machine, hence one arena for all.
"""
LIMITED = ("env", "MALLOC_ARENA_MAX=1", "prlimit", f"--as={MEMORY}")


def format_of(name: str, head: bytes) -> str:
    """ "raw" or "qcow2", by the file's first bytes. Raises `UsageError` for all others, and for a
    qcow2 that refers to another file; the messages call it `name`.
    """
    if called := _other(head):
        raise UsageError(
            f"image {name} is a {called}, expected raw or qcow2",
            hint="Convert it: qemu-img convert -O qcow2 OLD NEW.",
        )
    for magic, called in COMPRESSED:
        if head.startswith(magic):
            raise UsageError(f"image {name} is compressed by {called}", hint="Unpack it first.")
    if head.startswith(QCOW) and not head.startswith(QCOW2):
        raise UsageError(f"image {name} begins as a qcow and is none, expected raw or qcow2")
    if not head.startswith(QCOW2):
        return "raw"
    _check_qcow2(name, head)
    return "qcow2"


def _other(head: bytes) -> str:
    return next((called for at, magic, called in OTHERS if head[at:].startswith(magic)), "")


def refuse_formatted(path: Path, name: str) -> None:
    """Raises `UsageError` for a medium in a format that may name other files. QEMU gets it as raw,
    but libvirt looks for a format whenever it looks at a pool, and opens, as root, what that names:
    a FIFO holds up all pools of the host for good, and a watchdog's device resets it.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    called = "qcow2" if head.startswith(QCOW) else _other(head)
    if called:
        raise UsageError(
            f"medium {name} is a {called}, expected an ISO image or another raw one",
            hint="Convert it: qemu-img convert -O raw OLD NEW.",
        )


def _check_qcow2(name: str, head: bytes) -> None:
    if len(head) < _HEADER.size:
        raise UsageError(f"image {name} ends within its qcow2 header: it is damaged")
    _, version, offset, length, _, _ = _HEADER.unpack_from(head)
    if version not in {2, 3}:
        raise UsageError(
            f"image {name} is a qcow of version {version}, expected 2 or 3",
            hint="Convert it: qemu-img convert -O qcow2 OLD NEW.",
        )
    features = autoclear = 0
    if version == 3 and len(head) >= _FEATURES_AT + _FEATURES.size:
        features, _, autoclear = _FEATURES.unpack_from(head, _FEATURES_AT)
    if features & _CORRUPT:
        raise UsageError(f"image {name} is marked corrupt", hint="Run qemu-img check on it.")
    if offset or features & _DATA_FILE:
        other = head[offset : offset + length].decode(errors="replace") if offset else "a data file"
        raise UsageError(
            f"image {name} refers to another file ({other})",
            hint="Flatten it: qemu-img convert -O qcow2 OLD NEW.",
        )
    if autoclear & _BITMAPS:
        # whatever opens the image reads them all, of 512 MiB each, which take 40 bytes of the file
        raise UsageError(
            f"image {name} has bitmaps, of which QEMU reads each into memory",
            hint="Make a plain one: qemu-img convert -O qcow2 OLD NEW.",
        )


TAR_AT, TAR = 257, b"ustar"
"""Of POSIX.1-2017, pax, "ustar Interchange Format"; GNU tar has it, too."""
TAR_HEAD = SECTOR = 512
EXT_AT, EXT = 1024 + 56, b"\x53\xef"
"""Of the superblock of ext2 to ext4 (Linux, Documentation/filesystems/ext4/super.rst)."""


def refuse_other_root(name: str, head: bytes) -> None:
    """Raises `UsageError` for what is no tar, plain or compressed by gzip, xz or zstd. Of the last
    the magic number alone is looked at: the connection that unpacks it sees the rest.
    """
    if head.startswith(ZSTD) or _unpacked(head)[TAR_AT:].startswith(TAR):
        return
    raise UsageError(
        f"image {name} is not a root file system, which a container begins with",
        hint="Pack one: tar --numeric-owner -C DIRECTORY -cJf root.tar.xz .",
    )


def is_file_system(head: bytes) -> bool:
    """Whether an image begins as an ext4 file system, without a table of partitions."""
    return head[EXT_AT:].startswith(EXT)


def refuse_archive(path: Path, name: str) -> bytes:
    """The first bytes of a disk that a VM boots. Raises `UsageError` for a tar, such as the root of
    a container, which has whole sectors as well.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    if head[TAR_AT:].startswith(TAR):
        raise UsageError(
            f"image {name} is an archive (tar), expected a disk: raw or qcow2",
            hint="A container's root is for `kind: container`, and --hypervisor-type lxc or "
            "docker; `nospoon image build --as qcow2` makes a disk.",
        )
    return head


def refuse_other_disk(path: Path, name: str) -> None:
    """Raises `UsageError` for what no machine boots: an archive, and a file without whole sectors,
    such as a web page that was saved in place of an image. Other disks of cluster files than those
    that VMs boot may have any content.
    """
    head = refuse_archive(path, name)
    size = path.stat().st_size
    if format_of(name, head) == "raw" and size % SECTOR:
        raise UsageError(
            f"image {name} is not a disk: raw ones have whole sectors of {SECTOR} bytes, and it "
            f"has {size} bytes"
        )


def is_root(path: Path) -> bool:
    """Whether it is a root file system, by its first bytes. Run it in a thread."""
    try:
        with path.open("rb") as file:
            refuse_other_root(path.name, file.read(ROOT_HEAD))
    except UsageError:
        return False
    return True


def _unpacked(head: bytes) -> bytes:
    """The first bytes of what may be compressed; no more memory is used than they take."""
    try:
        if head.startswith(GZIP):
            return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, TAR_HEAD)
        if head.startswith(XZ):
            unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
            return unpacking.decompress(head, TAR_HEAD)
    except (zlib.error, lzma.LZMAError):
        return b""
    return head


def root_facts(path: Path, name: str, sha256: str) -> ImageFacts:
    """What the root file system at `path`, which the user calls `name`, is. Run it in a thread: to
    unpack takes milliseconds. Raises `UsageError`.
    """
    with path.open("rb") as file:
        head = file.read(ROOT_HEAD)
    if is_file_system(head):
        return ImageFacts(sha256, MOUNTED_ROOT, path.stat().st_size)
    refuse_other_root(name, head)
    return ImageFacts(sha256, ROOT_FORMAT, path.stat().st_size)


async def image_facts(path: Path, name: str, sha256: str) -> ImageFacts:
    """What the file at `path`, which the user calls `name`, is. Raises `UsageError`."""
    with path.open("rb") as file:
        kind = format_of(name, file.read(HEAD))
    argv = [*LIMITED, "qemu-img", "info", "--output=json", "-U", "-f", kind, str(path)]
    try:
        done = await process.run(argv, check=False, most=MOST_INFO)
    except process.OutputTooLong:
        raise UsageError(
            f"image {name} has too many snapshots to list",
            hint="Make a plain one: qemu-img convert -O qcow2 OLD NEW.",
        ) from None
    if done.status != 0:
        said = done.stderr.replace(str(path), name).strip()
        raise UsageError(f"image {name}: qemu-img cannot read it: {said}")
    size = json.loads(done.stdout)["virtual-size"]
    if not size:
        raise UsageError(f"image {name} is empty")
    if size > MOST_DISK:
        raise UsageError(
            f"image {name} is of a disk of {size >> 40}TiB, expected at most {MOST_DISK >> 40}TiB"
        )
    return ImageFacts(sha256, kind, size)
