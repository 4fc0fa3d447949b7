"""What console logs may take of the state directory's disk.

Logs of machines that are gone stay for `node console --log`, up to some bytes of each user. When
the disk has less free than its reserve, these go first, the oldest of the user who has most; then
logs of machines that are there lose their older files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from nospoon.services.consoles.records import SEGMENT_SIZE, Records

MOST_GONE = 1 << 30
"""Bytes of the logs of one user's machines that are gone."""
SHORTENED = 4 * SEGMENT_SIZE
"""Bytes of a log that stay when the disk is full; virtlogd keeps as many by itself."""
LEAST = 8 << 10
"""Bytes that a log counts at least: a directory and a file take so many on most disks."""


def _nothing() -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """`is_gone`: whether a machine is none of any cluster now; asked in a thread. `lacking`: bytes
    that the disk has less than its reserve.
    """

    is_gone: Callable[[UUID], bool] = lambda _: False
    lacking: Callable[[], int] = _nothing
    most_gone: int = MOST_GONE


@dataclass(slots=True)
class _Gone:
    """Logs of one user, of machines that are gone. `logs`: (last written, bytes, machine)."""

    logs: list[tuple[float, int, UUID]] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(size for _, size, _ in self.logs)


def make_room(records: Records, capacity: Capacity) -> None:
    """Remove what is too much."""
    users = _gone(records, capacity)
    for user in users.values():
        user.logs.sort()
        size = user.size
        while size > capacity.most_gone:
            size -= user.logs[0][1]
            _remove_oldest(records, user, capacity)
    while capacity.lacking() and (left := [each for each in users.values() if each.logs]):
        _remove_oldest(records, max(left, key=lambda each: each.size), capacity)
    if capacity.lacking():
        for machine in _largest(records):
            records.shorten(machine, SHORTENED)
            if not capacity.lacking():
                return


def _gone(records: Records, capacity: Capacity) -> dict[str, _Gone]:
    """By user. A group is a user and a cluster (`control.operations.memory.record_group`)."""
    users: defaultdict[str, _Gone] = defaultdict(_Gone)
    for machine in records.machines():
        if capacity.is_gone(machine) and (group := records.group(machine)):
            last, size = records.usage(machine)
            log = last, max(size, LEAST), machine
            users[group.partition("/")[0]].logs.append(log)
    return users


def _remove_oldest(records: Records, user: _Gone, capacity: Capacity) -> None:
    records.remove(user.logs.pop(0)[2], only_if=capacity.is_gone)


def _largest(records: Records) -> Iterator[UUID]:
    sizes = [(records.usage(machine)[1], machine) for machine in records.machines()]
    return (machine for size, machine in sorted(sizes, reverse=True) if size > SHORTENED)
