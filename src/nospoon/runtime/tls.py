"""Certificates that sign themselves, for services that are found by their address."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from nospoon.runtime import clock

YEARS = 10
UNSPECIFIED = frozenset({"0.0.0.0", "::"})  # noqa: S104  (compared with, not bound to)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def self_signed(address: str, *, name: str) -> tuple[bytes, bytes]:
    """A new private key and its certificate for an address, both as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.fromtimestamp(clock.unix(), UTC)
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    if address not in UNSPECIFIED:
        names.append(x509.IPAddress(ip_address(address)))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365 * YEARS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return private_pem(key), certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: Key) -> bytes:
    """PKCS #8 without encryption (RFC 5958)."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
