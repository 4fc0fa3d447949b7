"""Volumes that clients of a BMC make."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AddedVolume:
    """A disk that a client of the BMC made, beside those of the machine's shape (ADR 5).

    `id`: 8 hexadecimal digits, also its serial number. `size` in bytes. `name`, `raid` and `drives`
    (places of the machine's disks) are kept as they were asked for, and have no effect.
    """

    id: str
    size: int
    name: str = ""
    raid: str = ""
    drives: tuple[int, ...] = ()
