"""`bmc: {tls: …}`: yes, no, or a certificate and its key; what is wrong is told with its place."""

from __future__ import annotations

import pytest

from nospoon.clusterfile.load import load
from nospoon.errors import SpecError
from nospoon.model.cluster import BmcAddressing, CertificateFiles


def text(tls: str) -> str:
    return f"cluster: dev\nbmc:\n  tls: {tls}\nnodes: [{{count: 1}}]\n"


GIVEN = "{certificate: bmc.pem, key: bmc.key}"


def addressing(tls: str) -> BmcAddressing:
    return load(text(tls), file="c").addressing


def problems(tls: str, *, missing: str = "", pair: tuple[str, str] | None = None) -> list[str]:
    with pytest.raises(SpecError) as refused:
        load(
            text(tls),
            file="c",
            local_file=lambda name: "/w/" + name + ": gone" if name == missing else "",
            local_pair=lambda *names: pair if names == ("bmc.pem", "bmc.key") else None,
        )
    return [str(each) for each in refused.value.problems]


def test_it_is_yes_or_no_or_a_certificate_and_its_key() -> None:
    assert (addressing("true").tls, addressing("true").certificate) == (True, None)
    assert (addressing("false").tls, addressing("false").certificate) == (False, None)
    found = addressing(GIVEN)
    assert (found.tls, found.certificate) == (True, CertificateFiles("bmc.pem", "bmc.key"))


@pytest.mark.parametrize(
    ("tls", "problem"),
    [
        ("maybe", "c:3:8: bmc.tls: expected true or false, got 'maybe'"),
        ("[a, b]", "c:3:8: bmc.tls: expected true or false, got a list"),
        ("{certificate: a.pem}", "c:3:8: bmc.tls: missing key 'key'"),
        ("{key: a.key}", "c:3:8: bmc.tls: missing key 'certificate'"),
        (
            "{certificate: 5, key: a.key}",
            "c:3:22: bmc.tls.certificate: expected text, got 5. Put it in quotes",
        ),
        (
            "{certificate: a, key: b, keys: c}",
            "c:3:33: bmc.tls.keys: unknown key 'keys'. Did you mean 'key'?",
        ),
    ],
)
def test_other_forms_are_refused_where_they_stand(tls: str, problem: str) -> None:
    assert problems(tls) == [problem]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("bmc.pem", "c:3:22: bmc.tls.certificate: cannot read 'bmc.pem': /w/bmc.pem: gone"),
        ("bmc.key", "c:3:36: bmc.tls.key: cannot read 'bmc.key': /w/bmc.key: gone"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_where_it_is_named(name: str, problem: str) -> None:
    assert problems(GIVEN, missing=name) == [problem]


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        (
            ("certificate", "it expired on 2020-01-01"),
            "c:3:22: bmc.tls.certificate: cannot serve with 'bmc.pem': it expired on 2020-01-01",
        ),
        (
            ("key", "it is not that of the certificate"),
            "c:3:36: bmc.tls.key: cannot serve with 'bmc.key': it is not that of the certificate",
        ),
    ],
)
def test_a_pair_with_which_nothing_is_served_is_told(pair: tuple[str, str], problem: str) -> None:
    assert problems(GIVEN, pair=pair) == [problem]
