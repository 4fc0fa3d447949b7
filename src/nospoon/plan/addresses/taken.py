"""Networks that are taken, as sorted ranges of addresses: one pass, then a search per question."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from ipaddress import IPv4Network


class Taken:
    """Ranges that do not overlap, by their first and last addresses."""

    def __init__(self, networks: Iterable[IPv4Network]) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(map(_range, networks)):
            if self._lasts and first <= self._lasts[-1]:
                self._lasts[-1] = max(last, self._lasts[-1])
            else:
                self._firsts.append(first)
                self._lasts.append(last)

    def frees(self, network: IPv4Network) -> bool:
        """Whether none of its addresses is taken."""
        first, last = _range(network)
        at = bisect_right(self._firsts, last)  # ranges before it begin at or below its end
        return at == 0 or self._lasts[at - 1] < first

    def add(self, network: IPv4Network) -> None:
        """One of which nothing was taken."""
        first, last = _range(network)
        at = bisect_right(self._firsts, first)
        self._firsts.insert(at, first)
        self._lasts.insert(at, last)


def _range(network: IPv4Network) -> tuple[int, int]:
    return int(network.network_address), int(network.broadcast_address)
