"""What to do where QEMU, which runs as another user, may not enter a directory above its disks."""

from __future__ import annotations


def remedy(directory: str, *, here: bool) -> str:
    """`directory`: "" for one whose name is not known. `here`: pools are on this machine, where a
    setting says in which directory.
    """
    if directory:
        command = f"run `chmod o+x {directory}`"
    else:
        command = "run `chmod o+x` on each directory above it that others may not enter"
    if here:
        return f"{command}, or set NOSPOON_POOL_DIR to a place outside of homes"
    return f"{command} on that host"
