"""CertificateService: the certificate that is served is shown, requested anew, and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from nospoon.errors import Conflict, ProviderError, UsageError
from nospoon.runtime import clock
from nospoon.runtime.tls import Key, private_pem
from nospoon.services.bmcs.certificates import Certificates, Wanted
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.testing import dmtf_tools
from nospoon.testing.bench import Bench, bench, config, free_port
from nospoon.testing.certificates import written
from nospoon.testing.redfish import Answer, client

SERVICE = "/redfish/v1/CertificateService"
GENERATE = f"{SERVICE}/Actions/CertificateService.GenerateCSR"
REPLACE = f"{SERVICE}/Actions/CertificateService.ReplaceCertificate"
PEM = serialization.Encoding.PEM


def collection(config: BmcConfig) -> str:
    return f"/redfish/v1/Managers/{config.bmc.uuid}/NetworkProtocol/HTTPS/Certificates"


async def ask(config: BmcConfig, method: str, path: str, body: Any = None) -> Answer:
    return await client(config).ask(method, path, body)


async def served(config: BmcConfig) -> x509.Certificate:
    """What a client that connects now is shown."""
    place = config.bmc.address, config.bmc.redfish_port
    text = await asyncio.to_thread(ssl.get_server_certificate, place)
    return x509.load_pem_x509_certificate(text.encode())


@dataclass(frozen=True)
class Authority:
    """Signs requests."""

    key: ec.EllipticCurvePrivateKey
    name: x509.Name

    def sign(self, public: Any, subject: x509.Name) -> str:
        now = datetime.fromtimestamp(clock.unix(), UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=9))
            .sign(self.key, hashes.SHA256())
        )
        return made.public_bytes(PEM).decode()

    def answer(self, request: str) -> str:
        asked = x509.load_pem_x509_csr(request.encode())
        assert asked.is_signature_valid
        return self.sign(asked.public_key(), asked.subject)


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


@pytest.fixture
def authority() -> Authority:
    return Authority(ec.generate_private_key(ec.SECP256R1()), named("an authority"))


async def generate(config: BmcConfig, **more: Any) -> Answer:
    place = {"@odata.id": collection(config)}
    body = {"CertificateCollection": place, "CommonName": "bmc.example", **more}
    return await ask(config, "POST", GENERATE, body)


async def put(config: BmcConfig, text: str) -> Answer:
    place = {"@odata.id": f"{collection(config)}/1"}
    body = {"CertificateString": text, "CertificateType": "PEM", "CertificateUri": place}
    return await ask(config, "POST", REPLACE, body)


async def test_the_certificate_that_is_served_is_the_one_that_is_shown(tmp_path: Path) -> None:
    async with bench(1, tls=tmp_path) as b:
        locations = await ask(b.first, "GET", f"{SERVICE}/CertificateLocations")
        (link,) = locations.json["Links"]["Certificates"]
        shown = (await ask(b.first, "GET", link["@odata.id"])).json
        now = await served(b.first)
        assert shown["CertificateString"] == now.public_bytes(PEM).decode()
        assert shown["Fingerprint"] == now.fingerprint(hashes.SHA256()).hex(":")
        assert shown["Subject"] == {"CommonName": "nospoon BMC at 127.0.0.1"}


@pytest.mark.parametrize(
    "key", [{}, {"KeyPairAlgorithm": "TPM_ALG_RSA"}, {"KeyCurveId": "TPM_ECC_NIST_P384"}]
)
async def test_a_signed_request_replaces_the_certificate_for_good(
    tmp_path: Path, authority: Authority, key: dict[str, str]
) -> None:
    async with bench(1, tls=tmp_path) as b:
        made = await generate(b.first, AlternativeNames=["bmc.example", "192.0.2.1"], **key)
        assert made.status == 200
        asked = x509.load_pem_x509_csr(made.json["CSRString"].encode())
        names = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == ["bmc.example"]
        assert (await served(b.first)).subject != asked.subject
        signed = authority.answer(made.json["CSRString"])
        assert (await put(b.first, signed)).status == 204
        now = await served(b.first)
        assert now.public_bytes(PEM).decode() == signed
        await b.service.remove(b.first.bmc.uuid)
        await b.service.put(b.first)
        assert await served(b.first) == now


async def test_requests_at_the_same_moment_are_all_answered(
    tmp_path: Path, authority: Authority
) -> None:
    """The key of one of them is kept, whole, and nothing else."""
    kept, many, place = Certificates(tmp_path), 6, "127.0.0.1"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n0")])
    together = threading.Barrier(many)

    def key() -> Key:
        made = ec.generate_private_key(ec.SECP256R1())
        together.wait(timeout=60)
        return made

    def request(_: int) -> str:
        return kept.request(place, Wanted(name, (), key))

    with ThreadPoolExecutor(many) as pool:
        for _ in range(20):
            asked = list(pool.map(request, range(many)))
            assert len(set(asked)) == many
            taken = 0
            for each in asked:
                with contextlib.suppress(UsageError):
                    kept.replace(place, authority.answer(each))
                    taken += 1
            assert taken == 1
            assert [each.name for each in tmp_path.iterdir()] == [f"{place}.pem"]


async def test_a_certificate_may_bring_its_key(tmp_path: Path, authority: Authority) -> None:
    key = rsa.generate_private_key(65537, 2048)
    text = authority.sign(key.public_key(), named("given"))
    text += key.private_bytes(
        PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    async with bench(1, tls=tmp_path) as b:
        assert (await put(b.first, text)).status == 204
        assert (await served(b.first)).subject == named("given")
        shown = await ask(b.first, "GET", f"{collection(b.first)}/1")
        assert b"PRIVATE" not in shown.data
    assert (tmp_path / "127.0.0.1.pem").stat().st_mode & 0o777 == 0o600


async def test_what_cannot_be_served_is_refused_and_nothing_changes(
    tmp_path: Path, authority: Authority
) -> None:
    stranger = ec.generate_private_key(ec.SECP256R1()).public_key()
    small = rsa.generate_private_key(65537, 1024)
    weak = authority.sign(small.public_key(), named("weak"))
    weak += small.private_bytes(
        PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    async with bench(1, tls=tmp_path) as b:
        before = await served(b.first)
        for text in ("garbage", "", authority.sign(stranger, named("x")), weak):
            answer = await put(b.first, text)
            assert answer.status == 400
            assert "the certificate" in answer.json["error"]["message"]
        assert await served(b.first) == before
        assert not list(tmp_path.glob("*.tried"))


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"CommonName": 4}, 400, "ActionParameterValueTypeError"),
        ({"Country": "Ù"}, 400, "GeneralError"),
        ({"Country": "Utopia"}, 400, "ActionParameterValueFormatError"),
        ({"KeyPairAlgorithm": "TPM_ALG_SHA1"}, 400, "ActionParameterValueNotInList"),
        (
            {"KeyPairAlgorithm": "TPM_ALG_RSA", "KeyBitLength": 512},
            400,
            "ActionParameterValueNotInList",
        ),
        ({"KeyCurveId": ["P256"]}, 400, "ActionParameterValueTypeError"),
        ({"AlternativeNames": [1]}, 400, "ActionParameterValueTypeError"),
        ({"CertificateCollection": "/x"}, 400, "ActionParameterValueTypeError"),
        ({"CertificateCollection": {"@odata.id": "/x"}}, 400, "ActionParameterValueNotInList"),
        ({"Spoon": 1}, 400, "ActionParameterUnknown"),
    ],
)
async def test_a_wrong_request_is_refused(
    tmp_path: Path, body: dict[str, Any], status: int, told: str
) -> None:
    async with bench(1, tls=tmp_path) as b:
        answer = await generate(b.first, **body)
        assert (answer.status, answer.message) == (status, told)


async def test_one_who_shares_the_address_cannot_change_it_alone(
    tmp_path: Path, authority: Authority
) -> None:
    async with bench(2, tls=tmp_path) as b:
        assert (await generate(b.first)).status == 403
        await b.service.put(replace(b.configs[1], password=b.first.password))
        made = await generate(b.first)
        assert (await put(b.first, authority.answer(made.json["CSRString"]))).status == 204


async def test_another_users_bmcs_at_the_address_have_a_certificate_of_their_own(
    tmp_path: Path, authority: Authority
) -> None:
    """Who knows the key of a certificate could answer in the place of all that show it."""
    text = authority.sign(authority.key.public_key(), named("one's"))
    text += private_pem(authority.key).decode()
    async with bench(1, tls=tmp_path) as b:
        assert (await put(b.first, text)).status == 204
        theirs = config(7, redfish_port=free_port(socket.SOCK_STREAM))
        theirs = replace(theirs, owner=1000, bmc=replace(theirs.bmc, tls=True))
        await b.service.put(theirs)
        assert (await served(theirs)).subject == named("nospoon BMC at 127.0.0.1")
        assert (await served(b.first)).subject == named("one's")
        made = await generate(theirs)
        assert (await put(theirs, authority.answer(made.json["CSRString"]))).status == 204
        assert (await served(theirs)).subject == named("bmc.example")
        assert (await served(b.first)).subject == named("one's")


def give(b: Bench, place: Path, name: str) -> str:
    """A certificate as a cluster file gives it; its digest."""
    pair = written(place, name)
    digest = sha256(pair[0].read_bytes()).hexdigest()
    certificates = b.service.listeners.certificates(b.first.bmc)
    assert certificates is not None
    certificates.give(digest, *pair)
    return digest


def given(config: BmcConfig, digest: str) -> BmcConfig:
    return replace(config, bmc=replace(config.bmc, certificate=digest))


async def test_what_the_cluster_file_gives_is_served_and_changes_and_goes(tmp_path: Path) -> None:
    async with bench(2, tls=tmp_path / "own") as b:
        own = await served(b.first)
        for name in ("one", "two"):
            digest = give(b, tmp_path, name)
            for each in b.configs:
                await b.service.put(given(each, digest))
                assert b.service.is_served(given(each, digest).bmc)
            assert (await served(b.first)).subject == named(name)
            shown = (await ask(b.first, "GET", f"{collection(b.first)}/1")).json
            assert shown["Subject"] == {"CommonName": name}
        for each in b.configs:
            await b.service.put(each)
        assert await served(b.first) == own
    assert "one" not in {path.stem for path in (tmp_path / "own").iterdir()}


async def test_what_the_cluster_file_gives_only_the_file_changes(
    tmp_path: Path, authority: Authority
) -> None:
    async with bench(1, tls=tmp_path / "own") as b:
        config = given(b.first, give(b, tmp_path, "one"))
        await b.service.put(config)
        refused = await generate(config)
        assert refused.status == 409
        assert "change it there" in refused.json["error"]["message"]
        text = authority.sign(authority.key.public_key(), named("two"))
        assert (await put(config, text + private_pem(authority.key).decode())).status == 409
        assert (await served(config)).subject == named("one")


async def test_one_that_is_gone_is_told_and_what_was_served_goes_on(tmp_path: Path) -> None:
    async with bench(1, tls=tmp_path / "own") as b:
        before = await served(b.first)
        with pytest.raises(ProviderError, match="is not here any more"):
            await b.service.put(given(b.first, "0" * 64))
        assert await served(b.first) == before


async def test_others_at_the_same_port_keep_their_certificate(tmp_path: Path) -> None:
    async with bench(1, tls=tmp_path / "own") as b:
        other = given(config(7, redfish_port=b.first.bmc.redfish_port), give(b, tmp_path, "one"))
        other = replace(other, bmc=replace(other.bmc, tls=True))
        with pytest.raises(Conflict, match="with another certificate for other nodes"):
            await b.service.put(other)


@pytest.mark.tools
async def test_dmtfs_tool_requests_and_installs_a_certificate(
    tmp_path: Path, authority: Authority
) -> None:
    async with bench(1, tls=tmp_path / "certificates") as b:
        run = partial(dmtf_tools.run, b, "rf_certificates.py")
        request, answer = tmp_path / "request.pem", tmp_path / "answer.pem"
        place = collection(b.first)
        await run("csr", "-col", place, "-cn", "by.tool", "-out", str(request))
        answer.write_text(authority.answer(request.read_text()))
        await run("install", "-dest", f"{place}/1", "-cert", str(answer))
        assert (await served(b.first)).subject == named("by.tool")
        assert "by.tool" in await run("info")
