"""A forged source is sent no more than came from it: IPMI by those who did not log in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from nospoon.bmc.runtime import SolSettings
from nospoon.protocols.ipmi.endpoint import Call, Endpoint, Event, Send
from nospoon.protocols.ipmi.sol import Retries
from nospoon.protocols.ipmi.wire import Payload, plus, rmcp
from nospoon.protocols.limit import OF_A_BMC, OF_THE_DAEMON, Allowance, Budget, Budgets
from nospoon.runtime.udp import Peer
from nospoon.services.bmcs.sol import SHORTEST, retries
from nospoon.testing.console import Console
from nospoon.testing.fuzzing import IDENTITY

VICTIM = Peer("192.0.2.7", 623, "127.0.0.1")
PING = bytes.fromhex("0600ff06000011be80420000")
CAPABILITIES = bytes.fromhex("2018c88100388e04b5")
FLOOD = 2000


def numbers() -> Callable[[int], bytes]:
    state = iter(range(1, 1 << 30))
    return lambda size: next(state).to_bytes(size, "little")


class Bmc:
    def __init__(self, shared: Budgets | None = None) -> None:
        self.endpoint, self.random = Endpoint(IDENTITY, shared), numbers()

    def tell(self, data: bytes, now: float = 0.0, source: Peer = VICTIM) -> list[Event]:
        return list(self.endpoint.receive(data, source, now=now, random=self.random))

    def sent(self, data: bytes, now: float = 0.0, source: Peer = VICTIM) -> int:
        """Bytes that go to the source for a datagram."""
        size = 0
        for each in self.tell(data, now, source):
            if isinstance(each, Call):
                answer = self.endpoint.reply(each, 0, bytes(40), random=self.random)
                size += len(answer.data) if answer is not None else 0
            elif isinstance(each, Send):
                size += len(each.data)
        return size


def signed(data: bytes) -> bytes:
    """The same RMCP+ packet with the bit that says it is signed, and a trailer of nothing."""
    kind, payload = data[5], data[16:]
    body = plus(Payload(kind & 0x3F), payload, authenticated=True)
    return rmcp(body + bytes(16))


def asked(console: Console) -> dict[str, bytes]:
    return {
        "ping": PING,
        "auth capabilities": bytes.fromhex("0600ff07000000000000000000092018c88100388e04b5"),
        "open session": console.open_request(),
        "open session, signed": signed(console.open_request()),
        "auth capabilities, signed": signed(rmcp(plus(Payload.IPMI, CAPABILITIES))),
    }


@pytest.mark.parametrize("kind", sorted(asked(Console(b"admin", b"s3cret"))))
def test_a_flood_gets_no_more_bytes_than_it_has(kind: str) -> None:
    bmc, data = Bmc(), asked(Console(b"admin", b"s3cret"))[kind]
    got = sum(bmc.sent(data) for _ in range(FLOOD))
    assert bmc.sent(data, source=replace(VICTIM, address="192.0.2.8")) > 0, (
        "others still get theirs"
    )
    assert got <= FLOOD * len(data) + OF_A_BMC.most


def test_the_limit_holds_over_all_bmcs_together() -> None:
    shared = Budgets(OF_THE_DAEMON)
    bmcs = [Bmc(shared) for _ in range(100)]
    rounds = 250
    got = sum(bmc.sent(PING) for _ in range(rounds) for bmc in bmcs)
    assert got <= rounds * len(bmcs) * len(PING) + OF_THE_DAEMON.most


def test_who_logs_in_is_not_held_up() -> None:
    bmc = Bmc()
    for number in range(500):
        console = Console(b"admin", b"s3cret", id=number + 1)
        (opened,) = bmc.tell(console.open_request())
        assert isinstance(opened, Send)
        console.take_open(opened.data)
        (second,) = (each for each in bmc.tell(console.rakp1()) if isinstance(each, Send))
        assert console.take_rakp2(second.data)
        (fourth,) = (each for each in bmc.tell(console.rakp3()) if isinstance(each, Send))
        assert console.take_rakp4(fourth.data)
        assert bmc.sent(console.request(0x00, 0x01)) > 0
        bmc.endpoint.close(None)


def log_in(bmc: Bmc, now: float) -> bool:
    """Whether the owner gets in at the first try."""
    console = Console(b"admin", b"s3cret", id=7)
    for ask, take in (
        (console.open_request, console.take_open),
        (console.rakp1, console.take_rakp2),
    ):
        said = [each for each in bmc.tell(ask(), now) if isinstance(each, Send)]
        if not said:
            return False
        take(said[0].data)
    return any(isinstance(each, Send) for each in bmc.tell(console.rakp3(), now))


@pytest.mark.parametrize("sources", [1, 60])
def test_pings_in_the_owners_name_do_not_lock_the_owner_out(sources: int) -> None:
    bmc = Bmc(Budgets(OF_THE_DAEMON))
    for number in range(6000):
        address = VICTIM.address if sources == 1 else f"198.51.100.{number % sources}"
        bmc.sent(PING, number / 2000, replace(VICTIM, address=address))
    bmc.sent(PING, 3.0, VICTIM)
    assert log_in(bmc, 3.0)


def test_many_forged_sources_have_no_allowance_each() -> None:
    budget, size = Budget(Allowance(100.0, 1.0, 4)), 10
    got = 0
    for number in range(1000):
        address = f"192.0.2.{number}"
        budget.came(address, size, 0.0)
        while budget.pays(address, size):
            got += size
    assert got <= 1000 * size + 4 * 100
    budget.came("198.51.100.1", size, 1000.0)
    assert budget.pays("198.51.100.1", 100), "in time there is room again"


def test_serial_over_lan_is_not_sent_without_a_pause_to_who_says_nothing() -> None:
    """A client may set 0 for it, and forge the source of one packet in a minute."""
    assert retries(SolSettings(retries=0, retry_interval=0)) == Retries(0, SHORTEST)
    assert retries(SolSettings(retries=7, retry_interval=50)) == Retries(7, 0.5)
