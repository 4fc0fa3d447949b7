"""Added users of a BMC cannot take the sessions that its owner needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nospoon.bmc import ipmi
from nospoon.bmc.aggregate import Bmc as Aggregate
from nospoon.protocols.ipmi.endpoint import FOR_THE_OWNER, MAX_SESSIONS, OF_A_USER, Endpoint, Send
from nospoon.protocols.ipmi.session import Login, Privilege
from nospoon.runtime.udp import Peer
from nospoon.testing.bench import ORDER
from nospoon.testing.console import Console
from nospoon.testing.fuzzing import IDENTITY

HERE = Peer("192.0.2.7", 623, "127.0.0.1")
DEACTIVATE_SOL = bytes([1, 1, 0, 0, 0, 0])
GUESTS = tuple(
    Login(f"guest{n}".encode(), b"guests", id=n, limit=Privilege.ADMINISTRATOR)
    for n in range(3, 10)
)


def numbers() -> Callable[[int], bytes]:
    state = iter(range(1, 1 << 30))
    return lambda size: next(state).to_bytes(size, "little")


class Bmc:
    def __init__(self, others: tuple[Login, ...] = GUESTS) -> None:
        self.endpoint = Endpoint(replace(IDENTITY, others=others))
        self.random = numbers()

    def log_in(self, name: bytes, password: bytes, number: int) -> Console | None:
        """The console of a session; None when there is no place for it."""
        console = Console(name, password, id=number)
        steps = ((console.open_request, console.take_open), (console.rakp1, console.take_rakp2))
        for ask, take in steps:
            said = [each for each in self.tell(ask()) if isinstance(each, Send)]
            if not said:
                return None
            take(said[0].data)
            if console.status:
                return None
        said = [each for each in self.tell(console.rakp3()) if isinstance(each, Send)]
        return console if said and console.take_rakp4(said[0].data) else None

    def tell(self, data: bytes) -> list[object]:
        return list(self.endpoint.receive(data, HERE, now=1.0, random=self.random))

    @property
    def users(self) -> list[int]:
        return [each.user for each in self.endpoint.sessions.values() if each.active]


def test_the_oldest_session_of_an_added_user_gives_way() -> None:
    bmc = Bmc()
    for number in range(1, OF_A_USER + 3):
        assert bmc.log_in(b"guest3", b"guests", number) is not None
    assert bmc.users == [3] * OF_A_USER


def test_added_users_together_leave_the_owner_some_sessions() -> None:
    bmc = Bmc()
    got = [
        bmc.log_in(f"guest{n}".encode(), b"guests", n * 10 + each)
        for n in range(3, 10)
        for each in range(OF_A_USER)
    ]
    assert len(bmc.users) == MAX_SESSIONS - FOR_THE_OWNER
    assert got[-1] is None
    for number in range(FOR_THE_OWNER):
        assert bmc.log_in(IDENTITY.username, IDENTITY.password, 200 + number) is not None


def test_a_user_without_serial_over_lan_does_not_end_that_of_others() -> None:
    for allowed in (True, False):
        bmc = Bmc((replace(GUESTS[0], sol=allowed),))
        assert bmc.log_in(b"guest3", b"guests", 1) is not None
        (session,) = bmc.endpoint.sessions.values()
        session.privilege = session.limit
        context = ipmi.Context(
            Aggregate(order=ORDER, script=False), IDENTITY, session, 1.0, {}, sol=session.id + 1
        )
        answer = ipmi.answer(context, 0x06, 0x49, DEACTIVATE_SOL)
        assert answer == (ipmi.Deactivate() if allowed else ipmi.Reply(0x81))
