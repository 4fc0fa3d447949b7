"""What media tell the kernels on them, read when they are inserted: then their file is there."""

from __future__ import annotations

from pathlib import Path

from nospoon.protocols import iso9660
from nospoon.protocols.agent.parameters import of_menu

MENUS = frozenset({"grub.cfg", "isolinux.cfg"})
LARGEST_MENU = 1 << 16
LONGEST_CMDLINE = 2048
"""What Linux takes of it on x86 (COMMAND_LINE_SIZE)."""


def cmdline(path: Path) -> str:
    """The kernel command line of an agent's ISO, "" of any other."""
    with path.open("rb") as file:

        def read(offset: int, length: int) -> bytes:
            file.seek(offset)
            return file.read(length)

        found = iso9660.find(read, MENUS, largest=LARGEST_MENU)
        lines = (of_menu(each.decode("utf-8", "replace")) for each in found)
        return next((line for line in lines if line), "")[:LONGEST_CMDLINE]
