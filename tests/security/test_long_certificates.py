"""Certificates of Redfish with thousands of names, of which OpenSSL takes 35 times their bytes.

One of 61 KB, which a member's file gave to BMCs with addresses of their own, had the daemon hold
1.6 MB more for each; so had one that a client of these BMCs brought.
"""

from __future__ import annotations

import gc
import socket
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from nospoon.runtime import serve
from nospoon.runtime.serve import LONG, Contexts, LongCertificates
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.tls import private_pem
from nospoon.services.bmcs.certificates import Certificates
from nospoon.services.bmcs.service import BmcService
from nospoon.testing.bench import MemoryMachines, MemoryStore, config, free_port
from nospoon.testing.certificates import certified, written

ADDRESSES = 5


def held() -> int:
    gc.collect()
    return sum(isinstance(each, ssl.SSLContext) for each in gc.get_objects())


def long_one(directory: Path, name: str) -> Path:
    """A certificate with its chain and key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    path = directory / f"{name}.pem"
    content = private_pem(key) + certified(name, key)
    while len(content) <= LONG:
        content += certified("another")
    path.write_bytes(content)
    return path


def test_of_contexts_with_long_certificates_the_last_ones_used_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "MOST_LONG", 2)
    before, few = held(), LongCertificates()
    made = [Contexts(long_one(tmp_path, str(each)), long=few) for each in range(ADDRESSES)]
    assert held() - before == 2
    first = made[0]()
    assert made[0]() is first
    made[1]()
    assert made[0]() is first
    made[2]()
    assert made[0]() is first, "it was used after another one"
    assert held() - before == 2
    made[2].close()
    made[1]()
    assert made[0]() is first, "what is closed counts no more"
    certificate, key = written(tmp_path, "short")
    short = [Contexts(certificate, key, long=few) for _ in range(ADDRESSES)]
    assert held() - before == 3 + len(short), "that of the closed one is its listener's"


def test_one_that_was_let_go_and_renewed_shows_the_other_certificate(tmp_path: Path) -> None:
    made = Contexts(long_one(tmp_path, "long"), long=LongCertificates())
    made.let_go()
    certificate, key = written(tmp_path, "other")
    certificate.write_bytes(key.read_bytes() + certificate.read_bytes())
    made.renew(certificate)
    assert made() is made()
    made.let_go()
    certificate.unlink()
    with pytest.raises(OSError, match="No such file"):
        made()


async def test_one_of_a_file_is_held_once_for_all_addresses(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "kept")
    certificates.give("digest", *written(tmp_path, "given"))
    async with Tasks("test") as tasks:
        service = BmcService(MemoryMachines(), MemoryStore(), tasks, certificates=certificates)
        before, port = held(), free_port(socket.SOCK_STREAM)
        try:
            for number in range(ADDRESSES):
                made = config(number, redfish_port=port)
                bmc = replace(made.bmc, address=f"127.0.7.{number + 1}", tls=True)
                made = replace(made, bmc=replace(bmc, certificate="digest", ipmi_port=0))
                await service.put(made)
            assert held() - before == 1
        finally:
            await service.close()
