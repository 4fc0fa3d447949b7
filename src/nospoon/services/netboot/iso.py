"""The boot ISO: for machines whose boot order is not ours to set, it asks the daemon and obeys.

One ISO serves both firmwares. BIOS starts isolinux, which starts iPXE with our script; UEFI starts
a GRUB of ours with the script inside. Measured under OVMF: GRUB finds a NIC only if the firmware
connected it, which it does for devices in the boot order: so machines that boot this ISO have their
NICs there, behind the disks. GRUB is not signed: no secure boot. A UEFI machine needs 320 MiB.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import structlog

from nospoon.errors import MissingTool
from nospoon.protocols.ipxe import grub, script
from nospoon.runtime import process

log = structlog.get_logger()

FILES = {
    "isolinux.bin": (Path("/usr/lib/ISOLINUX/isolinux.bin"), "isolinux"),
    "ldlinux.c32": (Path("/usr/lib/syslinux/modules/bios/ldlinux.c32"), "syslinux-common"),
    "ipxe.krn": (Path("/boot/ipxe.lkrn"), "ipxe"),
}
"""Name on the ISO (8.3, as plain ISO 9660 has it) -> Debian's file, and its package."""

GRUB_TARGET = "x86_64-efi"
GRUB_PACKAGE = "grub-efi-amd64-bin"
GRUB_MODULES = (
    *("normal", "configfile", "echo", "sleep", "test", "smbios", "net", "efinet", "http"),
    *("minicmd", "linux", "boot", "efifwsetup", "reboot"),
    *("regexp", "chain", "fat", "part_gpt", "part_msdos"),
)
ISOLINUX = """\
DEFAULT nospoon
LABEL nospoon
LINUX ipxe.krn
INITRD boot.ipx
"""
FLOPPY = 2880  # KiB: room for GRUB's 1.1 MiB, and a size that El Torito knows


async def build_boot_iso(*, base_url: str, place: Path) -> Path:
    """The ISO that asks at this URL ("http://10.0.2.2:8069"), the only file in the directory.

    One that is there already and still right is taken; an older one is removed.

    Needs no rights. Raises `MissingTool` naming the package that is missing.
    """
    sources = {name: _found(path, package) for name, (path, package) in FILES.items()}
    modules = _found(Path("/usr/lib/grub") / GRUB_TARGET / "http.mod", GRUB_PACKAGE)
    text = [base_url, script.ask_from_iso(base_url), grub.ask_from_iso(_server(base_url)), ISOLINUX]
    stamps = [
        " ".join(GRUB_MODULES),
        *(f"{p} {p.stat().st_mtime_ns}" for p in (*sources.values(), modules)),
    ]
    key = hashlib.sha256("\0".join([*text, *stamps]).encode()).hexdigest()[:16]
    iso = place / f"boot-{key}.iso"
    if not iso.exists():
        place.mkdir(parents=True, exist_ok=True)
        await _make(iso, base_url, sources)
        for older in set(place.glob("boot-*.iso")) - {iso}:
            older.unlink(missing_ok=True)
    return iso


def _server(base_url: str) -> str:
    return base_url.removeprefix("http://").rstrip("/")


def _found(path: Path, package: str) -> Path:
    if not path.exists():
        raise MissingTool(f"{path} is not there", hint=f"Install the package {package}.")
    return path


async def _make(iso: Path, base_url: str, sources: dict[str, Path]) -> None:
    """Build in a private directory and move it in place whole."""
    with tempfile.TemporaryDirectory(dir=iso.parent, prefix=".iso-") as made:
        work = Path(made)
        content = work / "content"
        content.mkdir()
        for name, source in sources.items():
            shutil.copyfile(source, content / name)
        (content / "boot.ipx").write_text(script.ask_from_iso(base_url))
        (content / "isolinux.cfg").write_text(ISOLINUX)
        await _efi_image(work, content / "efi.img", grub.ask_from_iso(_server(base_url)))
        await process.run(_xorriso(content, work / "iso"))
        (work / "iso").chmod(0o644)
        (work / "iso").replace(iso)
    log.info("boot ISO built", url=base_url, at=str(iso))


async def _efi_image(work: Path, image: Path, config: str) -> None:
    """A FAT image with GRUB as its default loader (UEFI 2.10 §3.5.1.1)."""
    loader = await make_loader(work, config, GRUB_MODULES)
    await process.run(["mformat", "-C", "-f", str(FLOPPY), "-i", str(image), "::"])
    await process.run(["mmd", "-i", str(image), "::/EFI", "::/EFI/BOOT"])
    await process.run(["mcopy", "-i", str(image), str(loader), "::/EFI/BOOT/BOOTX64.EFI"])


async def make_loader(work: Path, config: str, modules: Sequence[str]) -> Path:
    """A GRUB for UEFI, below `work`, that does what this configuration says and has these modules.

    It is not signed. Raises `MissingTool` naming the package that is missing.
    """
    _found(Path("/usr/lib/grub") / GRUB_TARGET / "http.mod", GRUB_PACKAGE)
    (work / "grub.cfg").write_text(config)
    loader, names = work / "bootx64.efi", " ".join(modules)
    standalone = ["grub-mkstandalone", "-O", GRUB_TARGET, "-o", str(loader)]
    lists = [f"--modules={names}", f"--install-modules={names}"]
    nothing = ["--fonts=", "--locales=", "--themes="]
    await process.run([*standalone, *lists, *nothing, f"boot/grub/grub.cfg={work / 'grub.cfg'}"])
    return loader


def _xorriso(content: Path, iso: Path) -> list[str]:
    """El Torito with one entry for BIOS (isolinux) and one for UEFI (the FAT image)."""
    return [
        *("xorriso", "-as", "mkisofs", "-quiet", "-o", str(iso), "-V", "NOSPOON"),
        *("-b", "isolinux.bin", "-c", "boot.cat", "-no-emul-boot"),
        *("-boot-load-size", "4", "-boot-info-table"),
        *("-eltorito-alt-boot", "-e", "efi.img", "-no-emul-boot"),
        str(content),
    ]
