"""Whether a certificate and its key can be served, and which of both is to blame."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nospoon.runtime import clock
from nospoon.runtime.tls import why_unusable
from nospoon.testing.certificates import certified, written


def why(pair: tuple[Path, Path]) -> tuple[str, str] | None:
    return why_unusable(*pair, now=clock.unix())


@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_a_certificate_and_its_key_are_fine(tmp_path: Path, kind: str) -> None:
    key = (
        ec.generate_private_key(ec.SECP384R1())
        if kind == "ec"
        else rsa.generate_private_key(65537, 2048)
    )
    assert why(written(tmp_path, "a", key)) is None


def test_of_a_chain_the_first_counts(tmp_path: Path) -> None:
    certificate, key = written(tmp_path, "a")
    own, other = certificate.read_bytes(), certified("an authority")
    certificate.write_bytes(own + other)
    assert why((certificate, key)) is None
    certificate.write_bytes(other + own)
    assert why((certificate, key)) == ("key", "it is not that of the certificate")


@pytest.mark.parametrize(
    ("since", "until", "message"), [(-9, -1, "it expired on 20"), (1, 9, "it is not valid before")]
)
def test_a_certificate_has_its_time(tmp_path: Path, since: int, until: int, message: str) -> None:
    found = why(written(tmp_path, "a", since=since, until=until))
    assert found is not None
    assert found[0] == "certificate"
    assert found[1].startswith(message)


def test_a_key_of_another_is_told(tmp_path: Path) -> None:
    certificate, _ = written(tmp_path, "a")
    _, other = written(tmp_path, "b")
    assert why((certificate, other)) == ("key", "it is not that of the certificate")


def test_a_key_with_a_pass_phrase_is_told(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pair = written(tmp_path, "a", key)
    pair[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"open sesame"),
        )
    )
    assert why(pair) == ("key", "it has a pass phrase: give one without")


def test_a_key_that_is_too_small_for_tls_is_told(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 1024)
    found = why(written(tmp_path, "a", key))
    assert found is not None
    assert found[1].startswith("TLS cannot be served with it")


def test_files_in_the_wrong_order_are_told(tmp_path: Path) -> None:
    certificate, key = written(tmp_path, "a")
    found = why((key, certificate))
    assert found is not None
    assert found[0] == "certificate"
    assert why((certificate, certificate)) == ("key", "it is not a private key in PEM")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.booleans())
def test_garbage_is_told_as_such(tmp_path: Path, data: bytes, is_key: bool) -> None:  # noqa: FBT001
    pair = written(tmp_path, "a")
    pair[is_key].write_bytes(data)
    found = why(pair)
    assert found is not None
    assert found[0] == ("key" if is_key else "certificate")
