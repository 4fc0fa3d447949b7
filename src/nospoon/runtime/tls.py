"""Certificates: those that sign themselves, for services that are found by their address, and
whether a given one can be served; how TLS is served, and spoken to others.
"""

from __future__ import annotations

import ssl
from collections.abc import Hashable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from threading import Lock

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.x509.oid import NameOID

from nospoon.runtime import clock

YEARS = 10
GROUP = "prime256v1"
"""Of the key exchange; everyone must have this one (RFC 8446 §9.1). Left to itself, OpenSSL takes
what a client likes: finite fields of 8,192 bits cost the daemon 100 ms a handshake, and the client,
who may send any number, nothing (CVE-2002-20001).
"""
CURVES = ("secp256r1", "secp384r1", "secp521r1")
"""Of certificates' keys: with others no client gets through a handshake (RFC 8446 §4.2.3)."""
SESSIONS = 16
"""Sessions that clients may leave in one context."""
LARGEST_EXPONENT = 64
"""Bits of the public exponent of an RSA key."""
LONGEST = 64 << 10
"""Bytes of a file with a certificate and its chain, or a key. A file that was uploaded may have
gigabytes, and no other thread runs while it is parsed.
"""
LARGEST_KEY = 4096
"""Bits of an RSA key; each handshake costs the daemon a signature with it."""
UNSPECIFIED = frozenset({"0.0.0.0", "::"})  # noqa: S104  (compared with, not bound to)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def restrict(context: ssl.SSLContext) -> None:
    """What the other side may choose: a listener's client, or a server that is connected to. By
    nine bytes a server of TLS 1.2 asks for another handshake (RFC 5246 §7.4.1.1), again and again.
    """
    context.set_ecdh_curve(GROUP)
    context.options |= ssl.OP_NO_RENEGOTIATION


def _connecting(context: ssl.SSLContext) -> ssl.SSLContext:
    """A server of TLS 1.2 may choose any prime for a finite field, too (RFC 5246 §7.4.3): one of
    10,000 bits takes a second, for each connection.
    """
    restrict(context)
    wanted = (each["name"] for each in context.get_ciphers() if each["kea"] == "kx-ecdhe")
    context.set_ciphers(":".join(wanted))
    return context


def client_context(*, verify: bool, authorities: str = "") -> ssl.SSLContext:
    """For connections to servers; with `verify` their certificates must hold. `authorities`: a file
    with all those that count, "" for the system's. It is shared: do not change it. Raises `OSError`
    where the file cannot be read. With `verify`, call it in a thread.
    """
    if not verify:
        return _trusting()
    with _ONE_READS:
        return _verifying(authorities, _since(authorities))


_ONE_READS = Lock()
"""The authorities have changed for all at once."""


@lru_cache(maxsize=1)
def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return _connecting(context)


@lru_cache(maxsize=2)
def _verifying(authorities: str, since: Hashable) -> ssl.SSLContext:
    """Reading the authorities takes tens of milliseconds and 700 KiB; other threads wait 2 ms
    for it, and 5 ms with Python's own default.
    """
    del since
    context, paths = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.get_default_verify_paths()
    if authorities:
        context.load_verify_locations(authorities)
    elif paths.cafile or paths.capath:
        context.load_verify_locations(paths.cafile, paths.capath)
    return _connecting(context)


def _since(authorities: str) -> Hashable:
    """Where the certificates of authorities are, and since when they are so."""
    paths = ssl.get_default_verify_paths()
    files = (authorities,) if authorities else (paths.cafile, paths.capath)
    places = [Path(each) for each in files if each is not None]
    return tuple((place, place.stat().st_mtime_ns) for place in places if place.exists())


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
    for which, path in ("certificate", certificate), ("key", key):
        if path.stat().st_size > LONGEST:
            return which, f"it has more than {LONGEST} bytes"
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
    if isinstance(found, ec.EllipticCurvePrivateKey) and found.curve.name not in CURVES:
        raise ValueError(f"expected a key on one of {', '.join(CURVES)}, got {found.curve.name}")
    if isinstance(found, rsa.RSAPrivateKey) and not _is_sound(found.private_numbers()):
        raise ValueError("the numbers of the RSA key do not belong together")
    return found


def _is_sound(key: rsa.RSAPrivateNumbers) -> bool:
    """Whether no number is larger than it has to be (RFC 8017 §3.2): OpenSSL takes exponents as
    they are, and one of 200,000 bits makes each handshake a hundred times as long.
    """
    public = key.public_numbers
    return (
        public.e.bit_length() <= LARGEST_EXPONENT
        and key.p * key.q == public.n
        and 0 < key.d < public.n
        and 0 < key.dmp1 < key.p
        and 0 < key.dmq1 < key.q
        and 0 < key.iqmp < key.p
    )


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


def public_bytes(key: PublicKeyTypes) -> bytes:
    """What a certificate and its key have in common (RFC 5280 §4.1.2.7)."""
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def private_pem(key: Key) -> bytes:
    """PKCS #8 without encryption (RFC 5958)."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
