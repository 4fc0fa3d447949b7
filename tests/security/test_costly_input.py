"""Media and keys that BMC clients bring cost the daemon little, however they are made."""

from __future__ import annotations

import asyncio
import struct
import threading

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from nospoon.errors import Conflict
from nospoon.protocols import iso9660
from nospoon.protocols.iso9660 import MOST_BYTES, MOST_RECORDS, SECTOR
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.tls import LARGEST_KEY, private_key
from nospoon.runtime.worker import Worker

MERSENNE = tuple((1 << exponent) - 1 for exponent in (2203, 2281))
"""Primes (Lucas 1876, Robinson 1952); to test them again takes a second of a processor."""


def record(name: bytes, sector: int, size: int, *, directory: bool) -> bytes:
    """A directory record (ECMA-119 §9.1)."""
    padded = name + b"\0" * (len(name) % 2 == 0)
    head = struct.pack("<BBI4sI4s7xB6xB", 33 + len(padded), 0, sector, b"", size, b"",
                       2 if directory else 0, len(name))  # fmt: skip
    return head + padded


class Image:
    """An ISO whose directories all are the one at sector 20; it counts what is read."""

    def __init__(self, directory: bytes) -> None:
        self.directory, self.read_bytes, self.reads = directory, 0, 0

    def read(self, offset: int, length: int) -> bytes:
        self.reads += 1
        if offset == 16 * SECTOR:
            root = record(b"\0", 20, len(self.directory), directory=True)
            data = (b"\x01CD001".ljust(156, b"\0") + root).ljust(SECTOR, b"\0")
        else:
            data = self.directory
        self.read_bytes += len(data[:length])
        return data[:length]


def test_an_iso_whose_directories_lead_in_circles_is_read_once() -> None:
    circles = b"".join(record(b"D", 20, SECTOR, directory=True) for _ in range(58))
    image = Image(circles)
    assert list(iso9660.find(image.read, frozenset({"grub.cfg"}), largest=1 << 16)) == []
    assert image.reads == 2


def test_an_iso_of_endless_directories_is_left_after_some_records() -> None:
    many = b"".join(record(b"D", 21 + n % 65_000, 1 << 20, directory=True) for n in range(30_000))
    image = Image(many)
    assert list(iso9660.find(image.read, frozenset({"grub.cfg"}), largest=1 << 16)) == []
    assert image.reads < MOST_RECORDS
    assert image.read_bytes <= MOST_BYTES + SECTOR


def pem(p: int, q: int) -> bytes:
    d = pow(65537, -1, (p - 1) * (q - 1))
    numbers = rsa.RSAPrivateNumbers(
        p, q, d, d % (p - 1), d % (q - 1), rsa.rsa_crt_iqmp(p, q),
        rsa.RSAPublicNumbers(65537, p * q),
    )  # fmt: skip
    key = numbers.private_key(unsafe_skip_rsa_key_validation=True)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def test_a_key_larger_than_others_is_refused_by_its_size() -> None:
    with pytest.raises(ValueError, match=f"at most {LARGEST_KEY} bits, got 4484"):
        private_key(pem(*MERSENNE))


def test_a_key_whose_factors_are_no_primes_is_read_without_asking_whether_they_are() -> None:
    """Proof that primality is not tested: 2^2048 - 1 is none."""
    composite = (1 << 1024) - 1, (1 << 1023) - 1
    assert private_key(pem(*composite)).key_size == 2047


async def test_a_worker_takes_one_call_of_a_client_and_few_in_all() -> None:
    worker, go_on, tasks = Worker("keys", most=2), threading.Event(), Tasks("test")
    first = tasks.start(worker.run(go_on.wait, client=1), name="first")
    second = tasks.start(worker.run(go_on.wait, client=2), name="second")
    await asyncio.sleep(0)
    with pytest.raises(Conflict, match="other requests are under way"):
        await worker.run(go_on.wait, client=1)
    with pytest.raises(Conflict):
        await worker.run(go_on.wait, client=3)
    go_on.set()
    assert await first
    assert await second
    assert await worker.run(lambda: "again", client=1) == "again"
    worker.close()


async def test_a_call_whose_caller_went_counts_until_it_ended() -> None:
    worker, go_on, tasks = Worker("keys", most=1), threading.Event(), Tasks("test")
    call = tasks.start(worker.run(go_on.wait, client=1), name="call")
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(Conflict):
        await worker.run(go_on.wait, client=2)
    go_on.set()
    worker.close()
