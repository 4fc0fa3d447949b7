"""What a driver of relays asks of this daemon: keys, and a tunnel to each relay."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Protocol
from uuid import UUID

from nospoon.errors import ProviderError

Address = IPv4Address | IPv6Address
PORTS = range(1, 1 << 16)


@dataclass(frozen=True, slots=True)
class RelayId:
    """Names a relay: a cluster has one on a host."""

    cluster: UUID
    host: str


@dataclass(frozen=True, slots=True)
class RelayKeys:
    """`host`: the relay's own key, as OpenSSH has it in a file; `client`: the public one that it
    lets in, as a line of authorized_keys (sshd(8)).
    """

    host: str = field(repr=False)
    client: str


@dataclass(frozen=True, slots=True)
class RelayPlace:
    """Where a relay's ssh server is, and where it is to listen for boot images. `bmcs`: and, on its
    own loopback, for its helper, which carries what BMCs are asked. `netboot`: likewise, for
    the one that serves DHCP there.
    """

    address: Address
    port: int
    on: Address
    listens: int
    bmcs: bool = False
    netboot: bool = False

    @classmethod
    def parse(cls, address: str, port: int, on: str, listens: int) -> RelayPlace:
        """Of what a cloud says. Raises `ProviderError`."""
        said = f"a cloud has no relay at {address[:64]} port {port}, {on[:64]} port {listens}"
        if any("%" in each for each in (address, on)) or not {port, listens} <= set(PORTS):
            raise ProviderError(said)
        try:
            return cls(ip_address(address), port, ip_address(on), listens)
        except ValueError as error:
            raise ProviderError(said) from error


Find = Callable[[], Awaitable[RelayPlace]]
"""Where a relay is now. Raises `NospoonError`."""


class Tunnels(Protocol):
    """Kept until they are ended; each is opened again when it breaks."""

    def keys(self, relay: RelayId) -> RelayKeys:
        """The same each time."""

    def keep(self, relay: RelayId, find: Find) -> None:
        """From now on; one that is kept is looked for there from its next try on. Raises
        `ProviderError` where its cluster's owner may have no more.
        """

    async def opened(self, relay: RelayId, seconds: float) -> None:
        """Wait for it. Raises `ProviderError` with ssh's words after that time."""

    async def end(self, relay: RelayId, find: Find | None = None) -> None:
        """One that is not kept is fine. `find`: only if it is looked for there; one that another
        connection keeps meanwhile stays.
        """

    def fault(self, relay: RelayId) -> str:
        """Why it is not open, or that it is not kept; "" while why is not known, and for one that
        is open.
        """

    def is_kept(self, relay: RelayId) -> bool: ...


BMCS_PORT, NETBOOT_PORT = 8070, 8071
"""Where a relay listens for its helpers, TCP."""
READY = "nospoon: ready"
"""What a relay says once the daemon is let in."""
