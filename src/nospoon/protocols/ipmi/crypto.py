"""Cipher suites 3 and 17 (§22.15.2, table 22-20), and what they compute.

Both use RAKP with HMAC, AES-CBC-128 for confidentiality (§13.29) and an HMAC for integrity
(§13.28.4).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

BLOCK = 16


class Damaged(Exception):
    """A payload that cannot be decrypted."""


@dataclass(frozen=True, slots=True)
class Suite:
    """Numbers on the wire, the digest, and how many bytes of it are sent where."""

    id: int
    authentication: int
    integrity: int
    confidentiality: int
    digest: str
    rakp4_length: int
    trailer_length: int


SUITES = (
    Suite(3, 0x01, 0x01, 0x01, "sha1", rakp4_length=12, trailer_length=12),
    Suite(17, 0x03, 0x04, 0x01, "sha256", rakp4_length=16, trailer_length=16),
)


def mac(suite: Suite, key: bytes, data: bytes) -> bytes:
    """The suite's full HMAC."""
    return hmac.digest(key, data, suite.digest)


def encrypt(key: bytes, data: bytes, iv: bytes) -> bytes:
    """IV and ciphertext; padded with 01 02 03 … and the pad's length (§13.29)."""
    pad = -(len(data) + 1) % BLOCK
    padded = data + bytes(range(1, pad + 1)) + bytes([pad])
    encryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    return iv + encryptor.update(padded) + encryptor.finalize()


def decrypt(key: bytes, data: bytes) -> bytes:
    """The plain payload. Raises `Damaged`."""
    if len(data) < 2 * BLOCK or len(data) % BLOCK:
        raise Damaged("not whole blocks")
    decryptor = Cipher(algorithms.AES(key), modes.CBC(data[:BLOCK])).decryptor()
    plain = decryptor.update(data[BLOCK:]) + decryptor.finalize()
    pad = plain[-1]
    if pad >= BLOCK or plain[-1 - pad : -1] != bytes(range(1, pad + 1)):
        raise Damaged("wrong padding")
    return plain[: -1 - pad]
