"""Room on the state disk: a reserve that stays free, and a quota for each owner."""

from __future__ import annotations

import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from nospoon.errors import OutOfSpace

GIB = 1 << 30
MOST_FILES = 40_000
"""Whole files of one owner: a cluster file names 20,000 at most, and each takes an inode."""
STEP = 16 << 20
"""Bytes after which a transfer looks again how much room there is."""


@dataclass(slots=True, eq=False)
class Charge:
    """What one transfer takes of its owner's quota while it runs. `owner` None: no one's."""

    space: Space
    owner: int | None
    taken: int = 0
    looked: int = 0

    def expect(self, amount: int) -> None:
        """Raises `OutOfSpace` when that many bytes would be too many."""
        self.space.refuse_full(amount)
        self.space.refuse_beyond(self.owner, amount)

    def take(self, amount: int) -> None:
        """So many came; raises the same."""
        self.taken += amount
        if self.taken - self.looked >= STEP or not self.looked:
            self.looked = self.taken
            self.space.refuse_full(0)
            self.space.refuse_beyond(self.owner, 0)

    def keep(self, name: str) -> None:
        """It is a whole file now, and counts as one."""
        self.taken = 0
        self.space.kept(self.owner, name)


@dataclass(slots=True)
class Space:
    """`reserve`, `quota`: bytes, 0 for none. `beside`: what an owner has in other directories.
    Used by threads, too.
    """

    directory: Path
    reserve: int = 0
    quota: int = 0
    free: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    beside: Callable[[int], int] = lambda _: 0
    _charges: set[Charge] = field(default_factory=set)
    _files: defaultdict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    _sizes: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def charge(self, owner: int | None) -> Iterator[Charge]:
        """For the time of a transfer."""
        charge = Charge(self, owner)
        with self._lock:
            self._charges.add(charge)
        try:
            yield charge
        finally:
            with self._lock:
                self._charges.discard(charge)

    def kept(self, owner: int | None, name: str) -> None:
        """A whole file that stays counts as its owner's until it is gone."""
        path = self.directory / name
        if owner is not None and path.is_file():
            with self._lock:
                self._put(owner, name, path.stat().st_size)

    def hold(self, owner: int, name: str, size: int) -> None:
        """What is kept elsewhere, and counts as its owner's until it is released."""
        with self._lock:
            self._put(owner, name, size)

    def _put(self, owner: int, name: str, size: int) -> None:
        self._sizes[owner] += size - self._files[owner].get(name, 0)
        self._files[owner][name] = size

    def _pop(self, owner: int, name: str) -> None:
        self._sizes[owner] -= self._files[owner].pop(name, 0)

    def held(self, owner: int, name: str) -> int:
        """Bytes that count as an owner's under this name; 0 for none."""
        with self._lock:
            return self._files[owner].get(name, 0)

    def begin(self, owned: Mapping[int, set[str]]) -> None:
        """At start-up: whose files there are."""
        for owner, names in owned.items():
            for name in names:
                self.kept(owner, name)

    def gone(self, name: str) -> None:
        with self._lock:
            for owner in self._files:
                self._pop(owner, name)

    def release(self, owner: int | None, name: str) -> None:
        """An owner needs a file no more."""
        with self._lock:
            if owner is not None:
                self._pop(owner, name)

    def owned(self, name: str) -> bool:
        """Whether some owner still needs a file."""
        with self._lock:
            return any(name in files for files in self._files.values())

    def used(self, owner: int) -> int:
        """Bytes of an owner: whole files, and what is under way."""
        beside = self.beside(owner)
        with self._lock:
            under_way = sum(each.taken for each in self._charges if each.owner == owner)
            return beside + under_way + self._sizes[owner]

    def lacking(self) -> int:
        """Bytes that the disk has less free than the reserve."""
        return max(0, self.reserve - self._free())

    def _free(self) -> int:
        place = self.directory
        while not place.exists():
            place = place.parent
        return self.free(place)

    def refuse_full(self, amount: int) -> None:
        free = self._free()
        if self.reserve and free - amount < self.reserve:
            raise OutOfSpace(
                f"the disk of {self.directory} has {_gib(free)} free; with {_gib(amount)} more, "
                f"less than the reserve of {_gib(self.reserve)} would be left",
                hint="Free space there, or set NOSPOON_FREE_SPACE.",
            )

    def refuse_beyond(self, owner: int | None, amount: int) -> None:
        if owner is None or not self.quota:
            return
        if len(self._files[owner]) >= MOST_FILES:
            raise OutOfSpace(
                f"one user may have {MOST_FILES} uploads and downloads",
                hint="Take a cluster down: files that no cluster names, and that came more than an "
                "hour ago, are removed then.",
            )
        used = self.used(owner)
        if used + amount > self.quota:
            raise OutOfSpace(
                f"cluster files, uploads and downloads of one user take {_gib(used + amount)}, and "
                f"may take {_gib(self.quota)}",
                hint="Take down clusters whose images are not needed, or set NOSPOON_OWNER_SPACE.",
            )


def text_of(cluster: UUID) -> str:
    """The name under which a cluster's file, in the store, is held; uploads' are digests."""
    return f"text of {cluster}"


def _gib(amount: int) -> str:
    return f"{amount / GIB:.2f} GiB"
