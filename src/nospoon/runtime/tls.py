"""Certificates: those that sign themselves, for services that are found by their address, and
whether one that somebody gives can be served.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from nospoon.runtime import clock

YEARS = 10
LARGEST_KEY = 4096
"""Bits of an RSA key; each handshake costs the daemon a signature with it."""
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


def why_unusable(certificate: Path, key: Path, *, now: float) -> tuple[str, str] | None:
    """Which of both ("certificate", "key") hinders to serve with them, and why; None: neither.

    `certificate`: in PEM, the first of a chain is looked at. Raises `OSError`.
    """
    try:
        first = x509.load_pem_x509_certificates(certificate.read_bytes())[0]
        wanted = public_bytes(first.public_key())
    except (ValueError, UnsupportedAlgorithm):
        return "certificate", "it is not a certificate in PEM"
    why = _out_of_time(first, datetime.fromtimestamp(now, UTC))
    if why:
        return "certificate", why
    try:
        found = private_key(key.read_bytes())
    except TypeError:
        return "key", "it has a pass phrase: give one without"
    except UnsupportedAlgorithm:
        return "key", "it is not a private key in PEM"
    except ValueError as error:
        return "key", str(error)
    if public_bytes(found.public_key()) != wanted:
        return "key", "it is not that of the certificate"
    return _why_not_served(certificate, key)


def private_key(data: bytes) -> Key:
    """The private key in some PEM. Raises `ValueError`, `TypeError` for one with a pass phrase, and
    `UnsupportedAlgorithm`.

    Whether the primes of an RSA key are primes is not asked: that takes seconds to hours of a
    processor, as whoever brings the key likes. That it is the certificate's is asked.
    """
    try:
        found = serialization.load_pem_private_key(data, None, unsafe_skip_rsa_key_validation=True)
    except ValueError:
        raise ValueError("it is not a private key in PEM") from None
    if not isinstance(found, Key):
        raise ValueError("it is neither an RSA nor an elliptic curve key")  # noqa: TRY004  (a value)
    if found.key_size > LARGEST_KEY:
        raise ValueError(f"expected a key of at most {LARGEST_KEY} bits, got {found.key_size}")
    return found


def _out_of_time(certificate: x509.Certificate, now: datetime) -> str:
    since, until = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > until:
        return f"it expired on {until:%Y-%m-%d}"
    return f"it is not valid before {since:%Y-%m-%d}" if now < since else ""


def _why_not_served(certificate: Path, key: Path) -> tuple[str, str] | None:
    """What TLS itself says: keys may be too small for it, chains not in order."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        return "certificate", f"TLS cannot be served with it: {error.reason or error}"
    return None


def public_bytes(key: Any) -> bytes:
    """What a certificate and its key have in common (RFC 5280 §4.1.2.7)."""
    data: bytes = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return data


def private_pem(key: Key) -> bytes:
    """PKCS #8 without encryption (RFC 5958)."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
