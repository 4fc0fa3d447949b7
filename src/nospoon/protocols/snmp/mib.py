"""MIBs as tables: a column is an object identifier, how it is read, and how it may be written.

A scalar is a column with one row, 0 (RFC 2578 §7.7). A PDU's vendor is one such table.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from nospoon.protocols.snmp import ber
from nospoon.protocols.snmp.ber import Oid, Tag, Value
from nospoon.protocols.snmp.pdu import Status

D = TypeVar("D")
"""The device that is read and written."""


@dataclass(frozen=True, slots=True)
class Column(Generic[D]):
    """`read(device, row, now)`; `write` None: read-only. `accepts`: what may be written."""

    oid: Oid
    name: str
    read: Callable[[D, int, float], Value]
    write: Callable[[D, int, int | bytes, float], None] | None = None
    tag: Tag = Tag.INTEGER
    accepts: Callable[[int | bytes], bool] = lambda _: True
    rows: bool = True


class TableMib(Generic[D]):
    """The instances of these columns; `rows(device)` are the numbers of its outlets, in order."""

    __slots__ = ("_by_oid", "_device", "_oids", "_rows")

    def __init__(
        self,
        device: D,
        columns: Sequence[Column[D]],
        rows: Callable[[D], Sequence[int]],
    ) -> None:
        self._device, self._rows = device, rows
        self._by_oid: Mapping[Oid, Column[D]] = {each.oid: each for each in columns}
        self._oids = sorted(self._by_oid)

    def _rows_of(self, column: Column[D]) -> Sequence[int]:
        return self._rows(self._device) if column.rows else (0,)

    def _find(self, oid: Oid) -> tuple[Column[D], int] | Value:
        column = self._by_oid.get(oid[:-1])
        if column is None:
            known = any(oid[: len(each)] == each for each in self._oids)
            return ber.NO_SUCH_INSTANCE if known else ber.NO_SUCH_OBJECT
        found = self._rows_of(column)
        at = bisect_left(found, oid[-1])
        here = at < len(found) and found[at] == oid[-1]
        return (column, oid[-1]) if here else ber.NO_SUCH_INSTANCE

    def get(self, oid: Oid, now: float) -> Value:
        found = self._find(oid)
        if isinstance(found, Value):
            return found
        column, row = found
        return column.read(self._device, row, now)

    def next(self, oid: Oid) -> Oid | None:
        """No column's identifier begins another's, so that columns follow each other as a whole."""
        at = max(bisect_right(self._oids, oid) - 1, 0)
        for prefix in self._oids[at:]:
            rows = self._rows_of(self._by_oid[prefix])
            if oid < prefix or oid == prefix:
                first = 0
            elif oid[: len(prefix)] == prefix:
                first = bisect_right(rows, oid[len(prefix)])
            else:
                continue
            if first < len(rows):
                return (*prefix, rows[first])
        return None

    def check(self, oid: Oid, value: Value) -> Status:
        """The order is that of RFC 3416 §4.2.5."""
        found = self._find(oid)
        if isinstance(found, Value):
            return Status.NO_ACCESS if found == ber.NO_SUCH_OBJECT else Status.NO_CREATION
        column, _ = found
        if column.write is None:
            return Status.NOT_WRITABLE
        if value.tag is not column.tag or not isinstance(value.content, int | bytes):
            return Status.WRONG_TYPE
        return Status.NO_ERROR if column.accepts(value.content) else Status.WRONG_VALUE

    def set(self, oid: Oid, value: Value, now: float) -> None:
        found = self._find(oid)
        assert not isinstance(found, Value), "it was checked"
        column, row = found
        write = column.write
        assert write is not None, "it was checked"
        assert isinstance(value.content, int | bytes), "it was checked"
        write(self._device, row, value.content, now)
