"""Boot scripts, fetched as iPXE would: the one that DHCP names, then the one for a NIC."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import urljoin

from nospoon.errors import ProviderError
from nospoon.protocols.agent.parameters import (
    LocalDisk,
    Nothing,
    Ramdisk,
    Target,
    per_mac,
    target,
)
from nospoon.runtime.http import Answer

Get = Callable[[str], Awaitable[Answer]]

LONGEST = 64 << 10
"""Bytes of a script that are read; Ironic's have 2 KiB."""

__all__ = ["LocalDisk", "Nothing", "Ramdisk", "follow"]


async def follow(url: str, macs: tuple[str, ...], get: Get) -> Target:
    """Where a boot script leads a machine; `Nothing` where there is none for its NICs.

    Raises `ProviderError` when its server does not answer. `get` asks it.
    """
    script = await _script(url, get)
    for mac in macs:
        place = per_mac(script, mac)
        if place is None:
            return target(script, mac)
        own = await _script(urljoin(url, place), get)
        if own:
            return target(own, mac)
    return Nothing()


async def _script(url: str, get: Get) -> str:
    """ "" where there is none."""
    answer = await get(url)
    if answer.status >= 500:
        raise ProviderError(f"{url} answers {answer.status}")
    return answer.body[:LONGEST].decode("utf-8", "replace") if answer.status == 200 else ""
