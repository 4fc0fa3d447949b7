"""The User-based Security Model (RFC 3414): SHA-1 and SHA-2 (RFC 7860), AES (RFC 3826).

Which digest a client uses is told by the length of its authentication parameters, so that one user
may come with any of them. AES-256 is the one of draft-blumenthal-aes-usm, as net-snmp has it.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from nospoon.protocols.snmp import ber
from nospoon.protocols.snmp.ber import Garbage, Reader
from nospoon.protocols.snmp.pdu import Version

AUTH, PRIV, REPORTABLE = 0x01, 0x02, 0x04
USM = 3
WINDOW = 150
"""Seconds that a message may be older or newer than our clock (RFC 3414 §2.2.3)."""
DIGESTS = {12: "sha1", 16: "sha224", 24: "sha256", 32: "sha384", 48: "sha512"}
"""Length of the authentication parameters -> digest (RFC 3414 §6, RFC 7860 §4)."""
SALT = 8
KEY_SIZES = (16, 32)
_STRETCHED = 1 << 20


@dataclass(frozen=True, slots=True)
class Security:
    """msgSecurityParameters. `at`: where the authentication parameters stand in the message."""

    engine: bytes
    boots: int
    time: int
    user: bytes
    auth: bytes = field(repr=False)
    priv: bytes = field(repr=False)
    at: int = 0


@dataclass(frozen=True, slots=True)
class Secured:
    """A v3 message as it stands on the wire (RFC 3412 §6); `data`: the scoped PDU or its cipher."""

    id: int
    max_size: int
    flags: int
    security: Security
    data: bytes


@dataclass(frozen=True, slots=True)
class User:
    """Who may ask, and with which pass phrases (at least 8 characters each)."""

    name: bytes
    auth: bytes = field(repr=False)
    priv: bytes = field(repr=False)


def read(data: bytes) -> Secured:
    """Raises `Garbage`."""
    inside = Reader(data).inside()
    if inside.integer() != Version.V3:
        raise Garbage("not version 3")
    header = inside.inside()
    id_, max_size, flags = header.integer(), header.integer(), header.octets()
    if len(flags) != 1 or header.integer() != USM or flags[0] & (AUTH | PRIV) == PRIV:
        raise Garbage("no user-based security, or encrypted and not signed")
    begin, end = inside.expect(ber.Tag.OCTETS)
    fields = inside.part(begin, end).inside()
    engine, boots, time, user = fields.octets(), fields.integer(), fields.integer(), fields.octets()
    auth_begin, auth_end = fields.expect(ber.Tag.OCTETS)
    security = Security(
        engine, boots, time, user, data[auth_begin:auth_end], fields.octets(), auth_begin
    )
    if flags[0] & PRIV:
        body = inside.octets()
    else:
        start = inside.position
        inside.element()
        body = data[start : inside.position]
    return Secured(id_, max_size, flags[0], security, body)


def write(message: Secured) -> bytes:
    """With `security.auth` as it is; see `sign`."""
    security = message.security
    parameters = ber.sequence(
        ber.encode_octets(security.engine),
        ber.encode_int(security.boots),
        ber.encode_int(security.time),
        ber.encode_octets(security.user),
        ber.encode_octets(security.auth),
        ber.encode_octets(security.priv),
    )
    header = ber.sequence(
        ber.encode_int(message.id),
        ber.encode_int(message.max_size),
        ber.encode_octets(bytes((message.flags,))),
        ber.encode_int(USM),
    )
    body = ber.encode_octets(message.data) if message.flags & PRIV else message.data
    return ber.sequence(ber.encode_int(Version.V3), header, ber.encode_octets(parameters), body)


def localized(passphrase: bytes, engine: bytes, digest: str) -> bytes:
    """The key of one engine (RFC 3414 §2.6, A.2). Hashes a mebibyte: keep the result."""
    repeated = passphrase * (_STRETCHED // len(passphrase) + 1)
    key = hashlib.new(digest, repeated[:_STRETCHED]).digest()
    return hashlib.new(digest, key + engine + key).digest()


def extended(key: bytes, size: int, digest: str) -> bytes:
    """As many bytes as the cipher wants (draft-blumenthal-aes-usm-04 §3.1.2.1)."""
    while len(key) < size:
        key += hashlib.new(digest, key).digest()
    return key[:size]


def mac(key: bytes, message: bytes, digest: str, size: int) -> bytes:
    """Over the whole message, authentication parameters zeroed (RFC 3414 §6.3.1)."""
    return hmac.digest(key, message, digest)[:size]


def is_signed(message: bytes, security: Security, key: bytes, digest: str) -> bool:
    size, at = len(security.auth), security.at
    zeroed = message[:at] + bytes(size) + message[at + size :]
    return hmac.compare_digest(mac(key, zeroed, digest, size), security.auth)


def sign(message: bytes, key: bytes, digest: str, size: int) -> bytes:
    """Put in the authentication parameters of a message that has zeroes there."""
    at = read(message).security.at
    return message[:at] + mac(key, message, digest, size) + message[at + size :]


def cipher(key: bytes, security: Security) -> Cipher[CFB]:
    """AES in CFB-128; the salt is `security.priv`, 8 bytes (RFC 3826 §3.1.2.1)."""
    iv = (
        (security.boots & 0xFFFFFFFF).to_bytes(4)
        + (security.time & 0xFFFFFFFF).to_bytes(4)
        + security.priv
    )
    return Cipher(algorithms.AES(key), CFB(iv))
