"""Rules of the standard that clients other than ipmitool hold a BMC to: reservations, "set in
progress", lengths, record types (IPMI 2.0 §22, §23, §26, §28, §31, §33, §35).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nospoon.bmc import ipmi
from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.ipmi.sdr import RECORDS
from nospoon.bmc.log import Kind
from nospoon.bmc.messages import LogEraseRequested, RestartRequested
from nospoon.protocols.ipmi.crypto import SUITES
from nospoon.protocols.ipmi.session import Asked, Identity, Privilege, Session
from nospoon.runtime.udp import Peer
from nospoon.testing.bench import ORDER

IDENTITY = Identity(b"admin", b"s3cret", bytes(range(16)))
RESERVE, DELETE, GET, ADD, CLEAR = ((0x0A, each) for each in (0x42, 0x46, 0x43, 0x44, 0x47))
CANCELLED, IN_PROGRESS, WRONG_LENGTH = 0xC5, 0x81, 0xC7


class Client:
    """One session with a BMC."""

    def __init__(self, bmc: Bmc, id_: int, others: dict[int, Session]) -> None:
        asked = Asked(1, Privilege.ADMINISTRATOR, 7, SUITES[-1])
        peer = Peer("127.0.0.1", 1, "127.0.0.1")
        self.session = Session(
            id=id_, asked=asked, suite=SUITES[-1], identity=IDENTITY, source=peer, now=0.0
        )
        self.session.privilege, self.session.active = Privilege.ADMINISTRATOR, True
        others[id_] = self.session
        self.bmc, self.sessions = bmc, others

    def __call__(self, key: tuple[int, int], data: str = "") -> tuple[int, bytes]:
        context = ipmi.Context(self.bmc, IDENTITY, self.session, 100.0, self.sessions, sol=0)
        match ipmi.answer(context, *key, bytes.fromhex(data)):
            case ipmi.Reply(code=code, data=said):
                return code, said
            case ipmi.Ask(event=event, data=said):
                list(self.bmc.receive(event, 100.0))
                return 0, said
            case ipmi.Close():
                return 0, b""
            case other:
                raise AssertionError(other)

    def reserve(self) -> str:
        return self(RESERVE)[1].hex()


@pytest.fixture
def bmc() -> Bmc:
    subject = Bmc(order=ORDER, script=False)
    for _ in range(3):
        subject.log.add(Kind.BOOTED, 1.0)
    return subject


@pytest.fixture
def clients(bmc: Bmc) -> tuple[Client, Client]:
    sessions: dict[int, Session] = {}
    return Client(bmc, 1, sessions), Client(bmc, 2, sessions)


def test_one_reservation_deletes_several_records(clients: tuple[Client, Client]) -> None:
    client, _ = clients
    reservation = client.reserve()
    assert [client(DELETE, f"{reservation}{n:02x}00")[0] for n in (1, 2, 3)] == [0, 0, 0]


def test_a_new_reservation_cancels_the_one_before(clients: tuple[Client, Client]) -> None:
    client, other = clients
    mine, theirs = client.reserve(), other.reserve()
    assert mine != theirs
    assert client(DELETE, f"{mine}0100")[0] == CANCELLED
    assert other(DELETE, f"{theirs}0100")[0] == 0


@pytest.mark.parametrize(
    "cancel",
    [
        lambda bmc: list(bmc.receive(LogEraseRequested(), 1.0)),
        lambda bmc: list(bmc.receive(RestartRequested(), 1.0)),
    ],
    ids=["cleared", "restarted"],
)
def test_clearing_and_a_restart_cancel_the_reservation(
    clients: tuple[Client, Client], cancel: Callable[[Bmc], object]
) -> None:
    client, _ = clients
    reservation = client.reserve()
    cancel(client.bmc)
    client.bmc.log.add(Kind.BOOTED, 2.0)
    assert client(GET, f"{reservation}0000 0110")[0] == CANCELLED
    assert client(CLEAR, f"{reservation}434c52aa")[0] == CANCELLED


def test_nothing_is_erased_without_a_reservation(clients: tuple[Client, Client]) -> None:
    client, _ = clients
    assert client(DELETE, "0000 0100")[0] == CANCELLED
    assert client(CLEAR, "0000 434c52aa")[0] == CANCELLED


@pytest.mark.parametrize("kind", ["00", "01", "03", "bf"])
def test_records_of_reserved_types_are_refused(clients: tuple[Client, Client], kind: str) -> None:
    client, _ = clients
    assert client(ADD, f"0000{kind}{'00' * 13}")[0] == 0xCC
    assert len(client.bmc.log.records) == 3


GROUPS = {
    "LAN": ((0x0C, 0x01), "0100", (0x0C, 0x02), "01000000"),
    "serial over LAN": ((0x0C, 0x21), "0100", (0x0C, 0x22), "01000000"),
    "boot options": ((0x00, 0x08), "00", (0x00, 0x09), "000000"),
    "system info": ((0x06, 0x58), "00", (0x06, 0x59), "00000000"),
    "PEF": ((0x04, 0x12), "00", (0x04, 0x13), "000000"),
}


@pytest.mark.parametrize("group", GROUPS)
def test_a_set_in_progress_is_shown_and_not_begun_twice(
    clients: tuple[Client, Client], group: str
) -> None:
    put, selected, get, asked = GROUPS[group]
    client, other = clients
    assert client(get, asked)[1][-1] == 0
    assert client(put, f"{selected}01")[0] == 0
    assert other(get, asked)[1][-1] == 1
    assert other(put, f"{selected}01")[0] == IN_PROGRESS
    assert client(put, f"{selected}02")[0] == 0  # commit write
    assert client(put, f"{selected}00")[0] == 0
    assert other(get, asked)[1][-1] == 0
    assert other(put, f"{selected}01")[0] == 0
    assert client(put, f"{selected}03")[0] == 0xCC


def test_a_set_in_progress_ends_with_its_session(clients: tuple[Client, Client]) -> None:
    client, other = clients
    assert client((0x0C, 0x01), "010001")[0] == 0
    client.session.active = False
    assert other((0x0C, 0x02), "01000000")[1][-1] == 0
    assert other((0x0C, 0x01), "010001")[0] == 0


def test_a_set_in_progress_of_one_group_is_none_of_another(
    clients: tuple[Client, Client],
) -> None:
    client, _ = clients
    assert client((0x0C, 0x01), "010001")[0] == 0
    assert client((0x0C, 0x21), "010001")[0] == 0


@pytest.mark.parametrize(
    ("key", "data"),
    [
        ((0x00, 0x08), "05 8004000000 00"),
        ((0x00, 0x08), "03 00 00"),
        ((0x00, 0x08), "04 00"),
        ((0x0C, 0x01), "01 03 7f00000100"),
        ((0x0C, 0x01), "01 00 01 00"),
        ((0x0C, 0x21), "01 01 01 01"),
        ((0x0C, 0x21), "01 05 0a 00"),
        ((0x06, 0x58), "02 00" + "41" * 17),
        ((0x06, 0x45), "03" + "41" * 17),
        ((0x06, 0x47), "0301" + "41" * 21),
        ((0x06, 0x38), "0e 04 00"),
        ((0x06, 0x54), "0e 00 80 00"),
        ((0x06, 0x3D), "00 00"),
        ((0x06, 0x3D), "ff 00"),
        ((0x04, 0x02), "00" * 9),
    ],
)
def test_a_request_of_the_wrong_length_is_refused_and_changes_nothing(
    clients: tuple[Client, Client], key: tuple[int, int], data: str
) -> None:
    client, _ = clients
    before = client.bmc.runtime, client.bmc.log.records
    assert client(key, data)[0] == WRONG_LENGTH
    assert (client.bmc.runtime, client.bmc.log.records) == before


def test_a_session_closes_itself_at_callback_level(clients: tuple[Client, Client]) -> None:
    client, _ = clients
    client.session.privilege = Privilege.CALLBACK
    assert client((0x06, 0x3C), client.session.id.to_bytes(4, "little").hex())[0] == 0


@pytest.mark.parametrize(("level", "code"), [(5, 0x81), (6, 0xCC), (15, 0xCC)])
def test_levels_above_administrator_are_refused(
    clients: tuple[Client, Client], level: int, code: int
) -> None:
    client, _ = clients
    assert client((0x06, 0x3B), f"{level:02x}")[0] == code


@pytest.mark.parametrize("command", [0x23, 0x25, 0x27])
def test_discrete_sensors_have_no_thresholds(clients: tuple[Client, Client], command: int) -> None:
    client, _ = clients
    assert client((0x04, command), "06" if command != 0x23 else "0600")[0] == 0xCD


def test_the_largest_sdr_takes_as_many_units_as_the_repository_says(
    clients: tuple[Client, Client],
) -> None:
    client, _ = clients
    _, said = client((0x0A, 0x21))
    size, units = int.from_bytes(said[2:4], "little"), said[8]
    assert units * size >= max(map(len, RECORDS)) > (units - 1) * size
