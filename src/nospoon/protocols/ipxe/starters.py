"""What firmware starts first from the boot image, in front of ISOLINUX and of iPXE for UEFI.

The code is that of `bios_start.S` and `efi_start.S`, which say what it does and why. A test
assembles them and compares.
"""

from __future__ import annotations

import struct

BIOS_CODE = bytes.fromhex(
    "eb3e0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000fafc065731c08ed88ec0be6b7cbf0002b94d00f3a466a1400066a32c"
    "0266c706400000020000ea3002000080fc0e75225589e5817e0400805d721750515288c431c9bafd03eca820e1fb"
    "88e0b2f8ee5a59582eff2e2c020000000066a10c7c664066a30c84be0084bf007cb90004f3a55f07fbea007c0000"
)
EFI_CODE = bytes.fromhex(
    "535657554881ec880000004889ce4889d7488b5a6031c931d24531c04c8d4c2468488d4424704889442420ff9338"
    "0100004885c0752e488b4424684885c0742448ffc84889442468488b4c2470488b0cc131d24531c041b901000000"
    "ff9308010000ebd231c94889f24531c04c8d0d85010000488b05760100004889442420488d4424784889442428ff"
    "93c80000004885c00f85e10000004889f1488d15200100004c8d842480000000ff9398000000488b842480000000"
    "488b6818488b4c2478488d15fa0000004c8d842480000000ff9398000000488b84248000000048896818488d05ca"
    "0000004889442430488d05900000004889442438488d05d1000000488944244848897c2450488b47304889442458"
    "488b47284889442460b900010000ba080000004c8d05880000004989d9488d4424404889442420ff53504885c075"
    "36488d442430488947304883672800488b4c247831d24531c0ff93d00000004889c5488d4c2430e831000000488b"
    "4c2440ff53704889e84881c4880000005d5f5e5bc34c8b4118410fb600c1e010890249ffc04c8941184180380075"
    "14488b5120488b412848894230488b41304889422831c0c34883ec28ff52684883c428c3a1311b5b6295d2118e3f"
    "00a0c969723b02636861696e2066696c653a2f626f6f742e6970780d000f1f80000000000000000000000000"
)
SCRIPT = "boot.ipx"
"""The file that iPXE for UEFI runs from its own file system: `efi_start.S` types its name."""
CD_SECTOR, SECTOR = 2048, 512
BIOS_SECTORS = 2 * CD_SECTOR // SECTOR
"""How much of it firmware has to load: our code, and the first sector of ISOLINUX."""
_PAGE = 0x1000
_TABLE_AT, _TABLE_END = 8, 64


def bios_image(isolinux: bytes) -> bytes:
    """An El Torito boot image: our code, then ISOLINUX with its boot information table filled in
    (volume descriptor, place on the disc, length, sum), the place of which our code sets.
    """
    image = bytearray(isolinux + bytes(-len(isolinux) % 4))
    words = struct.unpack_from(f"<{(len(image) - _TABLE_END) // 4}I", image, _TABLE_END)
    struct.pack_into("<4I", image, _TABLE_AT, 16, 0, len(image), sum(words) & 0xFFFFFFFF)
    return BIOS_CODE.ljust(CD_SECTOR, b"\0") + bytes(image)


def efi_program(ipxe: bytes) -> bytes:
    """An EFI application: our code, then iPXE."""
    return efi_application(EFI_CODE[:-8] + struct.pack("<Q", len(ipxe)) + ipxe)


def efi_application(body: bytes) -> bytes:
    """An EFI application for x86-64 (PE32+, Microsoft's PE format §3) of one section, which begins
    with its code and runs wherever it is loaded.
    """
    raw, pages = len(body) + -len(body) % SECTOR, len(body) + -len(body) % _PAGE
    coff = struct.pack("<HHIIIHH", 0x8664, 1, 0, 0, 0, 240, 0x22)
    optional = struct.pack("<HBBIIIII", 0x20B, 0, 0, raw, 0, 0, _PAGE, _PAGE)
    optional += struct.pack("<QII6HI", 0, _PAGE, SECTOR, 0, 0, 0, 0, 0, 0, 0)
    optional += struct.pack("<IIIHH4QII", _PAGE + pages, SECTOR, 0, 10, 0, 0, 0, 0, 0, 0, 16)
    optional += bytes(16 * 8)  # no directories
    section = struct.pack(
        "<8s6I2HI", b".text", len(body), _PAGE, raw, SECTOR, 0, 0, 0, 0, 0x60000020
    )
    head = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64)
    head += b"PE\0\0" + coff + optional + section
    return head.ljust(SECTOR, b"\0") + body.ljust(raw, b"\0")
