"""A remote console for tests and measurements: the other side of RMCP+, as plain as can be.

It knows nothing of the code under test but packet headers: keys and hashes are written out again
from §13.20 to §13.32, so that a mistake on one side does not hide on the other.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

HEADER = bytes.fromhex("0600ff07")
ALGORITHMS = {0: (0, 0, 0), 1: (1, 0, 0), 2: (1, 1, 0), 3: (1, 1, 1), 17: (3, 4, 1)}
"""Cipher suite -> authentication, integrity, confidentiality (table 22-20)."""
_DIGESTS = {3: ("sha1", 12), 17: ("sha256", 16)}


@dataclass(slots=True)
class Console:
    """One client. Each `…_request` gives a datagram, each `take_…` reads the answer to it."""

    name: bytes
    password: bytes
    suite: int = 17
    privilege: int = 4
    id: int = 0xA0A1A2A3
    random: bytes = bytes(range(16))
    session: int = 0
    sequence: int = 0
    status: int = 0
    _rc: bytes = b""
    guid: bytes = b""
    _sik: bytes = field(default=b"", repr=False)
    _k1: bytes = field(default=b"", repr=False)
    _k2: bytes = field(default=b"", repr=False)

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, _DIGESTS[self.suite][0])

    @property
    def _who(self) -> bytes:
        return bytes([self.privilege, len(self.name)]) + self.name

    def open_request(self) -> bytes:
        blocks = (bytes([k, 0, 0, 8, a, 0, 0, 0]) for k, a in enumerate(ALGORITHMS[self.suite]))
        payload = struct.pack("<BBxxI", 1, self.privilege, self.id) + b"".join(blocks)
        return setup(0x10, payload)

    def take_open(self, data: bytes) -> None:
        payload = data[16:]
        self.status = payload[1]
        if self.status == 0:
            self.session = int.from_bytes(payload[8:12], "little")

    def rakp1(self) -> bytes:
        who = bytes([self.privilege, 0, 0, len(self.name)]) + self.name
        return setup(0x12, struct.pack("<BxxxI", 2, self.session) + self.random + who)

    def take_rakp2(self, data: bytes) -> bool:
        """Whether the BMC proved that it knows the password."""
        payload = data[16:]
        self.status = payload[1]
        if self.status:
            return False
        self._rc, self.guid, code = payload[8:24], payload[24:40], payload[40:]
        ids = struct.pack("<II", self.id, self.session)
        signed = ids + self.random + self._rc + self.guid + self._who
        return code == self._mac(self.password, signed)

    def rakp3(self) -> bytes:
        signed = self._rc + struct.pack("<I", self.id) + self._who
        code = self._mac(self.password, signed)
        return setup(0x14, struct.pack("<BBxxI", 3, 0, self.session) + code)

    def take_rakp4(self, data: bytes) -> bool:
        """Whether the session is ours and its keys are the same on both sides."""
        payload = data[16:]
        self.status = payload[1]
        if self.status:
            return False
        self._sik = self._mac(self.password, self.random + self._rc + self._who)
        self._k1 = self._mac(self._sik, b"\x01" * 20)
        self._k2 = self._mac(self._sik, b"\x02" * 20)[:16]
        signed = self.random + struct.pack("<I", self.session) + self.guid
        return payload[8:] == self._mac(self._sik, signed)[: _DIGESTS[self.suite][1]]

    def request(self, netfn: int, command: int, data: bytes = b"") -> bytes:
        """A command within the session, with the next sequence number."""
        self.sequence += 1
        return self.sealed(message(netfn, command, data))

    def sealed(self, payload: bytes, *, kind: int = 0) -> bytes:
        """Any payload, of this type (table 13-16), with the sequence number at hand."""
        body = self._encrypted(payload)
        head = struct.pack("<BBIIH", 6, 0xC0 | kind, self.session, self.sequence, len(body))
        pad = -(len(head) + len(body) + 2) % 4
        signed = head + body + b"\xff" * pad + bytes([pad, 7])
        return HEADER + signed + self._mac(self._k1, signed)[: _DIGESTS[self.suite][1]]

    def _encrypted(self, payload: bytes) -> bytes:
        iv, pad = bytes(range(16, 32)), -(len(payload) + 1) % 16
        encryptor = Cipher(AES(self._k2), CBC(iv)).encryptor()
        return iv + encryptor.update(payload + bytes(range(1, pad + 1)) + bytes([pad]))

    def take(self, data: bytes) -> tuple[int, bytes]:
        """Completion code and data of a response; asserts that it is authentic and for us."""
        size = _DIGESTS[self.suite][1]
        assert data[-size:] == self._mac(self._k1, data[4:-size])[:size]
        assert int.from_bytes(data[6:10], "little") == self.id
        length = int.from_bytes(data[14:16], "little")
        body = data[16 : 16 + length]
        decryptor = Cipher(AES(self._k2), CBC(body[:16])).decryptor()
        clear = decryptor.update(body[16:])
        reply = clear[: len(clear) - clear[-1] - 1]
        assert sum(reply[:3]) & 0xFF == 0
        assert sum(reply[3:]) & 0xFF == 0
        return reply[6], reply[7:-1]


def setup(kind: int, payload: bytes) -> bytes:
    """An RMCP+ datagram outside a session."""
    return HEADER + struct.pack("<BBIIH", 6, kind, 0, 0, len(payload)) + payload


def message(netfn: int, command: int, data: bytes = b"", *, lun: int = 0) -> bytes:
    """An IPMI request message (§13.8)."""
    head = bytes([0x20, netfn << 2 | lun])
    rest = bytes([0x81, 0x04, command]) + data
    return head + bytes([-sum(head) & 0xFF]) + rest + bytes([-sum(rest) & 0xFF])


def plain(netfn: int, command: int, data: bytes = b"") -> bytes:
    """A command in an IPMI 1.5 datagram, outside a session."""
    payload = message(netfn, command, data)
    return HEADER + struct.pack("<BIIB", 0, 0, 0, len(payload)) + payload
