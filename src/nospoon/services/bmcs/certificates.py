"""Certificates of Redfish services: each address has one of its own, made once, signed by itself.

A certificate and its key that an operator puts there, as ADDRESS.pem, are taken as they are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from nospoon.runtime import clock

YEARS = 10
UNSPECIFIED = frozenset({"0.0.0.0", "::"})  # noqa: S104  (compared with, not bound to)


@dataclass(frozen=True, slots=True)
class Certificates:
    """A directory that its owner alone reads."""

    directory: Path

    def path(self, address: str) -> Path:
        """Certificate and key for an address, in one PEM file."""
        path = self.directory / f"{address.replace(':', '_')}.pem"
        if not path.exists():
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(path, _made(address))
        return path


def _made(address: str) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"nospoon BMC at {address}")])
    now = datetime.fromtimestamp(clock.unix(), UTC)
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    if address not in UNSPECIFIED:
        names.append(x509.IPAddress(ip_address(address)))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365 * YEARS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, and never readable by others."""
    part = path.with_suffix(".part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    part.replace(path)
