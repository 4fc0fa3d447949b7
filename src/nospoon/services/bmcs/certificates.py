"""Certificates of Redfish services: each address has one of its own, made once, signed by itself.

A certificate and its key that an operator puts there, as ADDRESS.pem, are taken as they are. One
that a client brings goes before it, at the BMCs of their owner alone, as ADDRESS.UID.pem: with its
key, or for the key of the request made here last. Where BMCs of several owners are at one socket,
it takes the place of the other, and its client administers them all.

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

    def pair(self, address: str, given: str = "", owner: int | None = None) -> tuple[Path, Path]:
        """Certificate and key, each a file. `given`: digest of one that a cluster file gives.
        `owner`, here and below: whose BMCs show it, None for those of several users.

        Raises `ProviderError` for one that is not here any more.
        """
        if not given:
            return self.path(address, owner), self.path(address, owner)
        found = self._given.get(given)
        if found is None or not all(each.is_file() for each in found):
            raise ProviderError(
                "the certificate that the cluster file gives is not here any more",
                hint="`nospoon up` brings it again",
            )
        return found

    def path(self, address: str, owner: int | None = None) -> Path:
        """Certificate and key for an address, in one PEM file."""
        brought, path = self._file(address, owner, "pem"), self._file(address, None, "pem")
        if brought.exists():
            return brought
        if not path.exists():
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(path, b"".join(self_signed(address, name=f"nospoon BMC at {address}")))
        return path

    def _file(self, address: str, owner: int | None, ending: str) -> Path:
        whose = "" if owner is None else f".{owner}"
        return self.directory / f"{address.replace(':', '_')}{whose}.{ending}"

    def chain(
        self, address: str, given: str = "", owner: int | None = None
    ) -> list[x509.Certificate]:
        """What is served at an address, its own certificate first. Raises as `pair`."""
        return x509.load_pem_x509_certificates(self.pair(address, given, owner)[0].read_bytes())

    def request(self, address: str, wanted: Wanted, owner: int | None = None) -> str:
        """A signing request (RFC 2986) in PEM, with a new key that is kept until it is answered.

        Raises `UsageError`.
        """
        key = wanted.key()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(self._pending(address, owner), private_pem(key))
        names = [_general_name(each) for each in wanted.alternatives]
        builder = x509.CertificateSigningRequestBuilder().subject_name(wanted.subject)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        try:
            signed = builder.sign(key, hashes.SHA256())
        except ValueError as error:  # a country, for one, is a PrintableString (RFC 5280 A.1)
            raise UsageError("a name has characters that X.509 does not allow in it") from error
        return signed.public_bytes(serialization.Encoding.PEM).decode()

    def replace(self, address: str, text: str, owner: int | None = None) -> None:
        """Serve this certificate, or chain with its own certificate first. Raises `UsageError`."""
        data = text.encode()
        try:
            chain = x509.load_pem_x509_certificates(data)
            wanted = public_bytes(chain[0].public_key())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise UsageError("the certificate is not a certificate in PEM") from error
        pending = self._pending(address, owner)
        kept = pending.read_bytes() if pending.exists() else b""
        for candidate in (data, kept, self.path(address, owner).read_bytes()):
            key = _key_in(candidate)
            if key is not None and public_bytes(key.public_key()) == wanted:
                break
        else:
            raise UsageError(
                "the certificate is for no key that is known here",
                hint="Sign the request that GenerateCSR gave last, or add the private key.",
            )
        whole = [each.public_bytes(serialization.Encoding.PEM) for each in chain]
        self._take(self._file(address, owner, "pem"), private_pem(key) + b"".join(whole))
        pending.unlink(missing_ok=True)

    def _take(self, path: Path, pem: bytes) -> None:
        """Only what TLS can be served with: keys may be too small for it."""
        tried = path.with_suffix(".tried")
        _write(tried, pem)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tried)
        except ssl.SSLError as error:
            tried.unlink()
            raise UsageError(f"the certificate cannot be served: {error.reason}") from None
        tried.replace(path)

    def _pending(self, address: str, owner: int | None) -> Path:
        """The key of the last request that no certificate has come for."""
        return self._file(address, owner, "request")


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
