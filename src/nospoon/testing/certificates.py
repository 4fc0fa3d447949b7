"""Certificates for tests: of any name and time, for any key."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from nospoon.runtime import clock
from nospoon.runtime.tls import Key, private_pem


def certified(name: str, key: Key | None = None, *, since: int = -1, until: int = 9) -> bytes:
    """A certificate in PEM, valid between days from now; signed by its own or another key."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.fromtimestamp(clock.unix(), UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=since))
        .not_valid_after(now + timedelta(days=until))
        .sign(key, hashes.SHA256())
    )
    return signed.public_bytes(serialization.Encoding.PEM)


def written(directory: Path, name: str, key: Key | None = None, **days: int) -> tuple[Path, Path]:
    """NAME.pem and NAME.key in a directory."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    certificate, private = directory / f"{name}.pem", directory / f"{name}.key"
    certificate.write_bytes(certified(name, key, **days))
    private.write_bytes(private_pem(key))
    return certificate, private
