"""What other tools were given -> cluster files, with what could not be carried over."""

from __future__ import annotations

from collections.abc import Callable

from nospoon.importers import instackenv, ovb, sushy, tenks, virtualbmc
from nospoon.importers.source import Imported, Source

READERS: dict[str, Callable[[Source], Imported]] = {
    "tenks": tenks.read,
    "instackenv": instackenv.read,
    "ovb": ovb.read,
    "virtualbmc": virtualbmc.read,
    "sushy-tools": sushy.read,
}
"""What `nospoon import --from` knows."""

__all__ = ["READERS", "Imported", "Source"]
