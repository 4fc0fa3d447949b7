"""Certificates of Redfish services: each address has one of its own, made once, signed by itself.

A certificate and its key that an operator puts there, as ADDRESS.pem, are taken as they are. One
that a client brings replaces it: with its key, or for the key of the request made here last.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from nospoon.errors import UsageError
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

    def chain(self, address: str) -> list[x509.Certificate]:
        """What is served at an address, its own certificate first."""
        return x509.load_pem_x509_certificates(self.path(address).read_bytes())

    def request(self, address: str, wanted: Wanted) -> str:
        """A signing request (RFC 2986) in PEM, with a new key that is kept until it is answered.

        Raises `UsageError`.
        """
        key = wanted.key()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(self._pending(address), _private(key))
        names = [_general_name(each) for each in wanted.alternatives]
        builder = x509.CertificateSigningRequestBuilder().subject_name(wanted.subject)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        try:
            signed = builder.sign(key, hashes.SHA256())
        except ValueError as error:  # a country, for one, is a PrintableString (RFC 5280 A.1)
            raise UsageError(f"X.509 cannot say this: {error}") from None
        return signed.public_bytes(serialization.Encoding.PEM).decode()

    def replace(self, address: str, text: str) -> None:
        """Serve this certificate, or chain with its own certificate first. Raises `UsageError`."""
        data = text.encode()
        try:
            chain = x509.load_pem_x509_certificates(data)
            wanted = _public(chain[0].public_key())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise UsageError(f"the certificate cannot be read as PEM: {error}") from None
        pending = self._pending(address)
        kept = pending.read_bytes() if pending.exists() else b""
        for candidate in (data, kept, self.path(address).read_bytes()):
            key = _key_in(candidate)
            if key is not None and _public(key.public_key()) == wanted:
                break
        else:
            raise UsageError(
                "the certificate is for no key that is known here",
                hint="Sign the request that GenerateCSR gave last, or add the private key.",
            )
        whole = [each.public_bytes(serialization.Encoding.PEM) for each in chain]
        self._take(address, _private(key) + b"".join(whole))
        pending.unlink(missing_ok=True)

    def _take(self, address: str, pem: bytes) -> None:
        """Only what TLS can be served with: keys may be too small for it."""
        tried = self.path(address).with_suffix(".tried")
        _write(tried, pem)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tried)
        except ssl.SSLError as error:
            tried.unlink()
            raise UsageError(f"the certificate cannot be served: {error.reason}") from None
        tried.replace(self.path(address))

    def _pending(self, address: str) -> Path:
        """The key of the last request that no certificate has come for."""
        return self.directory / f"{address.replace(':', '_')}.request"


Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a signing request shall say, and the key that it is for."""

    subject: x509.Name
    alternatives: tuple[str, ...]
    key: Callable[[], Key]


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _public(key: Any) -> bytes:
    data: bytes = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return data


def _key_in(data: bytes) -> Key | None:
    """The private key in some PEM, None when there is none that can be used."""
    try:
        found = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return found if isinstance(found, Key) else None


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
    return _private(key) + certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, and never readable by others."""
    part = path.with_suffix(".part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    part.replace(path)
