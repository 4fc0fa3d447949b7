"""Every decoder of what strangers send, as a function of bytes: for hypothesis, and for atheris.

A target takes any bytes and returns. It catches the decoder's own error for garbage and no other:
what comes out of it is a fault, and so is an assertion here that fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from nospoon.bmc import ipmi
from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.messages import MachineReported
from nospoon.bmc.pdu import apc
from nospoon.bmc.pdu.device import Outlet, Pdu
from nospoon.model.machine import MachineChange, MachineEvent, PowerState
from nospoon.probe import record
from nospoon.protocols import relayed
from nospoon.protocols.ipmi.endpoint import Call, Endpoint, Send
from nospoon.protocols.ipmi.session import Identity
from nospoon.protocols.ipmi.sol import Sol
from nospoon.protocols.ipmi.wire import Garbage
from nospoon.protocols.ipxe.advertisement import is_solicitation
from nospoon.protocols.snmp import ber
from nospoon.protocols.snmp.agent import Access, Agent
from nospoon.protocols.snmp.mib import TableMib
from nospoon.protocols.snmp.usm import User
from nospoon.providers.libvirt.key_databases import key_databases, signatures
from nospoon.providers.libvirt.varstore import BadVariables
from nospoon.runtime.udp import Peer
from nospoon.services.bmcs.redfish.http import query
from nospoon.services.bmcs.redfish.messages.errors import RedfishError
from nospoon.testing.bench import CLUSTER, ORDER
from nospoon.testing.console import Console, setup

HERE = Peer("127.0.0.1", 40000, "127.0.0.1")
IDENTITY = Identity(username=b"admin", password=b"s3cret", guid=bytes(16))
BODY: Mapping[str, object] = {
    "@odata.id": "/redfish/v1/Systems",
    "Members@odata.count": 1,
    "Members": [{"@odata.id": "/redfish/v1/Systems/1"}],
    "Name": "Systems",
    "Status": {"Health": "OK", "Count": 4},
}


def _random(size: int) -> bytes:
    return bytes(range(size))


def strangers_datagram(data: bytes) -> None:
    """RMCP of someone who did not log in: no session comes of one datagram."""
    endpoint = Endpoint(IDENTITY)
    list(endpoint.receive(data, HERE, now=0.0, random=_random))
    assert not any(each.active for each in endpoint.sessions.values())


def handshake(data: bytes) -> None:
    """What is in the packets by which a session is set up; the first byte chooses which."""
    endpoint = Endpoint(IDENTITY)
    kind = (0x10, 0x12, 0x14)[data[0] % 3] if data else 0x10
    list(endpoint.receive(setup(kind, data[1:]), HERE, now=0.0, random=_random))


def _logged_in() -> tuple[Endpoint, Console]:
    endpoint, console = Endpoint(IDENTITY), Console(b"admin", b"s3cret")

    def ask(datagram: bytes) -> bytes:
        (sent,) = endpoint.receive(datagram, HERE, now=0.0, random=_random)
        assert isinstance(sent, Send)
        return bytes(sent.data)

    console.take_open(ask(console.open_request()))
    assert console.take_rakp2(ask(console.rakp1()))
    assert console.take_rakp4(ask(console.rakp3()))
    return endpoint, console


def session_payload(data: bytes) -> None:
    """What someone who logged in puts into a packet, and what its command makes of it."""
    endpoint, console = _logged_in()
    console.sequence += 1
    for each in endpoint.receive(console.sealed(data), HERE, now=0.0, random=_random):
        if isinstance(each, Call):
            _command(endpoint, each.message.netfn, each.message.command, each.message.data)


def ipmi_command(data: bytes) -> None:
    """The data of any command of the table, of an administrator; the first byte chooses it."""
    endpoint, _ = _logged_in()
    keys = sorted(ipmi.COMMANDS)
    _command(endpoint, *keys[data[0] % len(keys) if data else 0], data[1:])


def _command(endpoint: Endpoint, netfn: int, command: int, data: bytes) -> None:
    bmc = Bmc(order=ORDER, script=False)
    seen = MachineEvent(CLUSTER, MachineChange.OBSERVED, PowerState.ON)
    list(bmc.receive(MachineReported(seen), 0.0))
    (session,) = endpoint.sessions.values()
    session.privilege = session.limit
    context = ipmi.Context(bmc, IDENTITY, session, 1.0, endpoint.sessions, sol=0)
    answer = ipmi.answer(context, netfn, command, data)
    if isinstance(answer, ipmi.Ask):
        list(bmc.receive(answer.event, 1.0))


def serial_over_lan(data: bytes) -> None:
    """Packets of a console, one after the other; each begins with its length."""
    sol, place = Sol(1), 0
    sol.say(b"login: ", 0.0)
    while place < len(data):
        end = place + 1 + data[place]
        with contextlib.suppress(Garbage):
            sol.receive(data[place + 1 : end], float(place))
        place = end


def _agent() -> Agent:
    access = Access(b"secret", User(b"u", b"passphrase", b"passphrase"), b"engine", 1, 0.0)
    pdu = Pdu(name="pdu", serial="1", started=0.0)
    pdu.plug(1, Outlet(CLUSTER, "n", Bmc(order=ORDER, script=False)), 0.0)
    return Agent(access, TableMib(pdu, apc.COLUMNS, lambda each: each.rows))


def snmp_datagram(data: bytes) -> None:
    """SNMP of anybody."""
    _agent().receive(data, source="127.0.0.1", now=0.0, random=_random)


def snmp_request(data: bytes) -> None:
    """What someone who knows the community asks."""
    whole = ber.sequence(ber.encode_int(1), ber.encode_octets(b"secret"), data)
    _agent().receive(whole, source="127.0.0.1", now=0.0, random=_random)


async def _nothing(path: str) -> dict[str, object] | None:
    return {"@odata.id": path, "Name": "1"}


def redfish_query(data: bytes) -> None:
    """Query parameters on a collection."""
    asked = dict(parse_qsl(data.decode(errors="replace"), keep_blank_values=True))
    answering = query.apply(dict(BODY), asked, _nothing)
    try:
        while True:
            answering.send(None)
    except (StopIteration, RedfishError):
        return
    finally:
        answering.close()


def uefi_variables(data: bytes) -> None:
    """What a guest may have written to its flash."""
    for read in (key_databases, lambda raw: list(signatures(raw))):
        with contextlib.suppress(BadVariables):
            read(data)


def probe_record(data: bytes) -> None:
    """What a guest says on its console, or posts."""
    record.find_all(data)
    record.decode(data)


def router_solicitation(data: bytes) -> None:
    """Frames that the network boot service hears."""
    assert is_solicitation(data) in {True, False}


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder, and a valid input to begin from."""

    run: Callable[[bytes], None]
    seed: bytes


_PING = bytes.fromhex("0600ff06000011be80420000")
_SNMPGET = "302602010104067075626c6963a019020101020100020100300e300c06082b060102010101000500"


def relayed_opening(data: bytes) -> None:
    """The first line of a connection of a relay's helper."""
    with contextlib.suppress(relayed.Malformed):
        relayed.opening(data)


def relayed_frame(data: bytes) -> None:
    """Heads of frames of a relay's helper: what is read is written as the same."""
    head = data[: relayed.HEAD.size].ljust(relayed.HEAD.size, b"\0")
    with contextlib.suppress(relayed.Malformed):
        flow, length = relayed.head_of(head)
        assert relayed.framed(flow, bytes(length))[: relayed.HEAD.size] == head


def relayed_report(data: bytes) -> None:
    """What a relay says of its files."""
    with contextlib.suppress(relayed.Malformed):
        relayed.report(data)


TARGETS: Mapping[str, Target] = {
    "rmcp": Target(strangers_datagram, _PING),
    "rmcp-handshake": Target(handshake, b"\0" + Console(b"admin", b"").open_request()[16:]),
    "rmcp-session": Target(session_payload, bytes.fromhex("20 18 c8 81 04 01 7a")),
    "ipmi-command": Target(ipmi_command, bytes([0, 1, 2, 3, 4])),
    "sol": Target(serial_over_lan, b"\x07\x01\0\0\0ls\r\x04\0\x01\x07\0"),
    "snmp": Target(snmp_datagram, bytes.fromhex(_SNMPGET)),
    "snmp-request": Target(snmp_request, bytes.fromhex(_SNMPGET)[13:]),
    "redfish-query": Target(redfish_query, b"$filter=Name eq 'x' or not (A/B lt 4)&$expand=."),
    "uefi-variables": Target(uefi_variables, bytes(64)),
    "probe-record": Target(probe_record, record.frame(b'{"version": 1}')),
    "router-solicitation": Target(router_solicitation, bytes(62)),
    "relayed-opening": Target(relayed_opening, b"PROXY TCP4 10.0.0.9 10.0.0.7 4000 443\r\n"),
    "relayed-frame": Target(relayed_frame, bytes(12)),
    "relayed-report": Target(relayed_report, b"SERVES " + b"ab" * 32 + b"\n"),
}
"""By the names that `scripts/fuzz` takes."""
