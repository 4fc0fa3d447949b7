"""Boot ISOs: for machines whose boot order is not ours to set, they ask the daemon and obey.

They ask for as long as it takes: a boot order holds while the daemon is away, too.

One ISO serves both firmwares, and none is signed: no secure boot. A UEFI machine needs 320 MiB.

The *boot ISO* is for hosts of `qemu:///session`. BIOS starts isolinux, which starts iPXE with our
script; UEFI starts a GRUB of ours with the script inside. Measured under OVMF: GRUB finds a NIC
only if the firmware connected it, which it does for devices in the boot order: so machines that
boot this ISO have their NICs there, behind the disks.

The *boot image* is for machines of clouds, which have nothing else in their boot order. iPXE asks
under both firmwares, started by our code (`protocols.ipxe.starters`); its GRUB boots disks.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from nospoon.errors import MissingTool
from nospoon.protocols.ipxe import grub, image, script, starters
from nospoon.runtime import process

log = structlog.get_logger()

FILES = {
    "isolinux.bin": (Path("/usr/lib/ISOLINUX/isolinux.bin"), "isolinux"),
    "ldlinux.c32": (Path("/usr/lib/syslinux/modules/bios/ldlinux.c32"), "syslinux-common"),
    "ipxe.krn": (Path("/boot/ipxe.lkrn"), "ipxe"),
}
"""Name on the ISO (8.3, as plain ISO 9660 has it) -> Debian's file, and its package."""
IPXE_EFI = (Path("/boot/ipxe.efi"), "ipxe")

GRUB_TARGET = "x86_64-efi"
GRUB_PACKAGE = "grub-efi-amd64-bin"
DISK_MODULES = (
    *("normal", "configfile", "echo", "sleep", "test", "minicmd"),
    *("regexp", "chain", "fat", "part_gpt", "part_msdos"),
)
GRUB_MODULES = (
    *DISK_MODULES,
    *("smbios", "true", "net", "efinet", "http", "linux", "boot", "efifwsetup", "reboot"),
)
ISOLINUX = f"""\
DEFAULT nospoon
LABEL nospoon
LINUX ipxe.krn
INITRD {starters.SCRIPT}
"""
FLOPPY = 2880  # KiB: room for GRUB's 1.1 MiB, and a size that El Torito knows
LOADER = "EFI/BOOT/BOOTX64.EFI"
"""What UEFI starts by default (UEFI 2.10 §3.5.1.1)."""


@dataclass(frozen=True, slots=True)
class _Disc:
    """What an ISO is made of. `script`: of iPXE. `grub`, `modules`: GRUB's configuration and
    modules; `grub_at`: its place on the file system for UEFI, beside `efi`. `isolinux`: what BIOS
    starts, and how many sectors of it are loaded at first.
    """

    script: str
    grub: str
    modules: Sequence[str]
    grub_at: str
    efi: Mapping[str, bytes]
    isolinux: tuple[bytes, int]

    @property
    def inputs(self) -> list[bytes]:
        texts = (self.script, self.grub, " ".join(self.modules), self.grub_at, ISOLINUX)
        return [*(text.encode() for text in texts), *self.efi.values(), self.isolinux[0]]


async def build_boot_iso(*, base_url: str, place: Path) -> Path:
    """The ISO that asks at this URL ("http://10.0.2.2:8069"), the only file in the directory.

    One that is there already and still right is taken; an older one is removed.

    Needs no rights. Raises `MissingTool` naming the package that is missing.
    """
    disc = _Disc(
        script.ask_from_iso(base_url),
        grub.ask_from_iso(_server(base_url)),
        GRUB_MODULES,
        LOADER,
        {},
        (_found(*FILES["isolinux.bin"]).read_bytes(), 4),
    )
    return await _built(disc, place=place, name="boot", base_url=base_url)


async def build_boot_image(*, base_url: str, place: Path) -> Path:
    """The boot image of clouds. It asks at this URL, by which its machines reach the daemon.

    Images for other URLs in the directory stay. Otherwise as `build_boot_iso`.
    """
    asking = image.ask(base_url)
    disc = _Disc(
        asking,
        grub.boot_disk(),
        DISK_MODULES,
        image.DISK_LOADER,
        {
            LOADER: starters.efi_program(_found(*IPXE_EFI).read_bytes()),
            starters.SCRIPT: asking.encode(),
        },
        (starters.bios_image(_found(*FILES["isolinux.bin"]).read_bytes()), starters.BIOS_SECTORS),
    )
    of = hashlib.sha256(base_url.encode()).hexdigest()[:8]
    return await _built(disc, place=place, name=f"image-{of}", base_url=base_url)


async def _built(disc: _Disc, *, place: Path, name: str, base_url: str) -> Path:
    """The ISO, from the directory if it is there."""
    sources = {name: _found(path, package) for name, (path, package) in FILES.items()}
    modules = _found(Path("/usr/lib/grub") / GRUB_TARGET / "http.mod", GRUB_PACKAGE)
    stamps = [f"{p} {p.stat().st_mtime_ns}".encode() for p in (*sources.values(), modules)]
    inputs = [image.RECIPE.encode(), *disc.inputs, *stamps]
    key = hashlib.sha256(b"\0".join(inputs)).hexdigest()[:16]
    iso = place / f"{name}-{key}.iso"
    if not iso.exists():
        place.mkdir(parents=True, exist_ok=True)
        await _make(iso, disc, sources)
        log.info("boot ISO built", url=base_url, at=str(iso))
        for older in set(place.glob(f"{name}-*.iso")) - {iso}:
            older.unlink(missing_ok=True)
    return iso


def _server(base_url: str) -> str:
    return base_url.removeprefix("http://").rstrip("/")


def _found(path: Path, package: str) -> Path:
    if not path.exists():
        raise MissingTool(f"{path} is not there", hint=f"Install the package {package}.")
    return path


async def _make(iso: Path, disc: _Disc, sources: Mapping[str, Path]) -> None:
    """Build in a private directory and move it in place whole."""
    with tempfile.TemporaryDirectory(dir=iso.parent, prefix=".iso-") as made:
        work = Path(made)
        content = work / "content"
        content.mkdir()
        for name, source in sources.items():
            shutil.copyfile(source, content / name)
        started, sectors = disc.isolinux
        (content / "isolinux.bin").write_bytes(started)
        (content / starters.SCRIPT).write_text(disc.script)
        (content / "isolinux.cfg").write_text(ISOLINUX)
        loader = await make_loader(work, disc.grub, disc.modules)
        files = {**disc.efi, disc.grub_at: loader.read_bytes()}
        await _efi_image(work, content / "efi.img", files)
        await process.run(_xorriso(content, work / "iso", sectors))
        (work / "iso").chmod(0o644)
        (work / "iso").replace(iso)


async def _efi_image(work: Path, fat: Path, files: Mapping[str, bytes]) -> None:
    """A FAT file system with these files."""
    await process.run(["mformat", "-C", "-f", str(FLOPPY), "-i", str(fat), "::"])
    await process.run(["mmd", "-i", str(fat), "::/EFI", "::/EFI/BOOT"])
    for name, content in files.items():
        (work / "file").write_bytes(content)
        await process.run(["mcopy", "-i", str(fat), str(work / "file"), f"::/{name}"])


async def make_loader(work: Path, config: str, modules: Sequence[str]) -> Path:
    """A GRUB for UEFI, below `work`, that does what this configuration says and has these modules.

    It is not signed. Raises `MissingTool` naming the package that is missing.
    """
    module = _found(Path("/usr/lib/grub") / GRUB_TARGET / "http.mod", GRUB_PACKAGE)
    (work / "grub.cfg").write_text(config)
    loader, names = work / "bootx64.efi", " ".join(modules)
    available = _without_file_systems(work / "modules", module.parent)
    standalone = ["grub-mkstandalone", "-d", str(available), "-O", GRUB_TARGET, "-o", str(loader)]
    lists = [f"--modules={names}", f"--install-modules={names}"]
    nothing = ["--fonts=", "--locales=", "--themes="]
    await process.run([*standalone, *lists, *nothing, f"boot/grub/grub.cfg={work / 'grub.cfg'}"])
    return loader


def _without_file_systems(place: Path, modules: Path) -> Path:
    """GRUB's modules with an empty list of those for file systems. With Debian's, GRUB loads each
    of them for a disk that has no file system it knows, and prints an error for each left out.
    """
    place.mkdir()
    for each in modules.iterdir():
        if each.name == "fs.lst":
            (place / each.name).touch()
        else:
            (place / each.name).symlink_to(each)
    return place


def _xorriso(content: Path, iso: Path, sectors: int) -> list[str]:
    """El Torito with one entry for BIOS (isolinux) and one for UEFI (the FAT file system)."""
    return [
        *("xorriso", "-as", "mkisofs", "-quiet", "-o", str(iso), "-V", "NOSPOON"),
        *("-b", "isolinux.bin", "-c", "boot.cat", "-no-emul-boot"),
        *("-boot-load-size", str(sectors), "-boot-info-table"),
        *("-eltorito-alt-boot", "-e", "efi.img", "-no-emul-boot"),
        str(content),
    ]
