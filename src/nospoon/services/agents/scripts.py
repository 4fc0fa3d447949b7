"""Boot scripts, fetched as iPXE would: the one that DHCP names, then the one for a NIC."""

from __future__ import annotations

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
from nospoon.runtime.http import request

PATIENCE = 30.0

__all__ = ["LocalDisk", "Nothing", "Ramdisk", "follow"]


async def follow(url: str, macs: tuple[str, ...]) -> Target:
    """Where a boot script leads a machine; `Nothing` where there is none for its NICs.

    Raises `ProviderError` when its server does not answer.
    """
    script = await _script(url)
    for mac in macs:
        place = per_mac(script, mac)
        if place is None:
            return target(script, mac)
        own = await _script(urljoin(url, place))
        if own:
            return target(own, mac)
    return Nothing()


async def _script(url: str) -> str:
    """ "" where there is none."""
    answer = await request("GET", url, verify=False, patience=PATIENCE)
    if answer.status >= 500:
        raise ProviderError(f"{url} answers {answer.status}")
    return answer.body.decode("utf-8", "replace") if answer.status == 200 else ""
