"""Who forges sources does not keep others from logging in by IPMI."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from nospoon.protocols.ipmi.endpoint import KNOWN, MAX_HANDSHAKES, Endpoint, Send
from nospoon.protocols.limit import BURST, RATE, TOGETHER
from nospoon.runtime.udp import Peer
from nospoon.testing.console import Console
from nospoon.testing.fuzzing import IDENTITY

HERE = Peer("192.0.2.7", 623, "127.0.0.1")


def forged(count: int) -> Iterable[Peer]:
    return (replace(HERE, address=f"198.51.{n // 256 % 256}.{n % 256}") for n in range(count))


def numbers() -> Callable[[int], bytes]:
    state = iter(range(1, 1 << 30))
    return lambda size: next(state).to_bytes(size, "little")


class Bmc:
    def __init__(self) -> None:
        self.endpoint, self.random = Endpoint(IDENTITY), numbers()

    def said(self, data: bytes, source: Peer = HERE, now: float = 1.0) -> bytes:
        """The answer; none is empty."""
        events = self.endpoint.receive(data, source, now=now, random=self.random)
        return b"".join(each.data for each in events if isinstance(each, Send))

    def log_in(self, console: Console, source: Peer = HERE) -> None:
        console.take_open(self.said(console.open_request(), source))
        assert console.take_rakp2(self.said(console.rakp1(), source))
        assert console.take_rakp4(self.said(console.rakp3(), source))

    def flood(self) -> None:
        """Handshakes begin and never go on."""
        for number, source in enumerate(forged(4 * MAX_HANDSHAKES)):
            self.said(Console(b"admin", b"s3cret", id=100 + number).open_request(), source)


def test_a_handshake_from_where_somebody_logged_in_keeps_its_place() -> None:
    bmc = Bmc()
    bmc.log_in(Console(b"admin", b"s3cret", id=1))
    console = Console(b"admin", b"s3cret", id=2)
    console.take_open(bmc.said(console.open_request()))
    bmc.flood()
    assert console.take_rakp2(bmc.said(console.rakp1()))
    bmc.flood()
    assert console.take_rakp4(bmc.said(console.rakp3()))


def test_a_handshake_that_went_on_keeps_its_place() -> None:
    """Its source is not forged, for the BMC's answer was read there."""
    bmc, console = Bmc(), Console(b"admin", b"s3cret", id=2)
    console.take_open(bmc.said(console.open_request()))
    assert console.take_rakp2(bmc.said(console.rakp1()))
    bmc.flood()
    assert console.take_rakp4(bmc.said(console.rakp3()))


def test_forged_sources_together_are_limited_and_those_who_logged_in_are_not() -> None:
    """Whatever is limited makes no handshake, and costs little."""
    bmc = Bmc()
    bmc.log_in(Console(b"admin", b"s3cret", id=1))
    most = int(TOGETHER * BURST)
    begun, request = 0, Console(b"admin", b"s3cret", id=3).open_request()
    for source in forged(most + 1000):
        before = set(bmc.endpoint.sessions)
        bmc.said(request, source)
        begun += set(bmc.endpoint.sessions) != before
    assert 0 < begun <= most
    console = Console(b"admin", b"s3cret", id=2)
    assert bmc.said(request, replace(HERE, address="203.0.113.1")) == b""
    console.take_open(bmc.said(console.open_request()))
    assert console.take_rakp2(bmc.said(console.rakp1()))
    later = 1.0 + 10 / (TOGETHER * RATE)
    assert bmc.said(request, replace(HERE, address="203.0.113.1"), later)


def test_few_sources_are_remembered() -> None:
    bmc = Bmc()
    for number, source in enumerate(forged(2 * KNOWN)):
        bmc.log_in(Console(b"admin", b"s3cret", id=1 + number), source)
        bmc.endpoint.close(None)
    assert len(bmc.endpoint._known) == KNOWN
