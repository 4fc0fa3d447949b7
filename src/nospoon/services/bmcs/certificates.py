"""Certificates of Redfish services: each address has one of its own, made once, signed by itself.

A certificate and its key that an operator puts there, as ADDRESS.pem, are taken as they are. One
that a client brings replaces it: with its key, or for the key of the request made here last.

One that a cluster file gives is known by its digest, and lies where uploads lie. Only the file
changes it.
"""

from __future__ import annotations

import os
import secrets
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization

from nospoon.errors import ProviderError, UsageError
from nospoon.runtime.tls import Key, private_key, private_pem, public_bytes, self_signed


@dataclass(frozen=True, slots=True)
class Certificates:
    """A directory that its owner alone reads."""

    directory: Path
    _given: dict[str, tuple[Path, Path]] = field(default_factory=dict, repr=False)

    def give(self, digest: str, certificate: Path, key: Path) -> None:
        """A cluster file gives this pair; it can be served."""
        self._given[digest] = certificate, key

    def pair(self, address: str, given: str = "") -> tuple[Path, Path]:
        """Certificate and key, each a file. `given`: digest of one that a cluster file gives.

        Raises `ProviderError` for one that is not here any more.
        """
        if not given:
            return self.path(address), self.path(address)
        found = self._given.get(given)
        if found is None or not all(each.is_file() for each in found):
            raise ProviderError(
                "the certificate that the cluster file gives is not here any more",
                hint="`nospoon up` brings it again",
            )
        return found

    def path(self, address: str) -> Path:
        """Certificate and key for an address, in one PEM file."""
        path = self.directory / f"{address.replace(':', '_')}.pem"
        if not path.exists():
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(path, b"".join(self_signed(address, name=f"nospoon BMC at {address}")))
        return path

    def chain(self, address: str, given: str = "") -> list[x509.Certificate]:
        """What is served at an address, its own certificate first. Raises as `pair`."""
        return x509.load_pem_x509_certificates(self.pair(address, given)[0].read_bytes())

    def request(self, address: str, wanted: Wanted) -> str:
        """A signing request (RFC 2986) in PEM, with a new key that is kept until it is answered.

        Raises `UsageError`.
        """
        key = wanted.key()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(self._pending(address), private_pem(key))
        names = [_general_name(each) for each in wanted.alternatives]
        builder = x509.CertificateSigningRequestBuilder().subject_name(wanted.subject)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        try:
            signed = builder.sign(key, hashes.SHA256())
        except ValueError as error:  # a country, for one, is a PrintableString (RFC 5280 A.1)
            raise UsageError("a name has characters that X.509 does not allow in it") from error
        return signed.public_bytes(serialization.Encoding.PEM).decode()

    def replace(self, address: str, text: str) -> None:
        """Serve this certificate, or chain with its own certificate first. Raises `UsageError`."""
        data = text.encode()
        try:
            chain = x509.load_pem_x509_certificates(data)
            wanted = public_bytes(chain[0].public_key())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise UsageError("the certificate is not a certificate in PEM") from error
        pending = self._pending(address)
        kept = pending.read_bytes() if pending.exists() else b""
        for candidate in (data, kept, self.path(address).read_bytes()):
            key = _key_in(candidate)
            if key is not None and public_bytes(key.public_key()) == wanted:
                break
        else:
            raise UsageError(
                "the certificate is for no key that is known here",
                hint="Sign the request that GenerateCSR gave last, or add the private key.",
            )
        whole = [each.public_bytes(serialization.Encoding.PEM) for each in chain]
        self._take(address, private_pem(key) + b"".join(whole))
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


def _key_in(data: bytes) -> Key | None:
    """The private key in some PEM, None when there is none that can be used."""
    try:
        return private_key(data)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, and never readable by others. Many may do so at a time, in threads."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    part.replace(path)
