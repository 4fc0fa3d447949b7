"""A certificate in the cluster file: checked where the file lies, served, kept, and kept secret."""

from __future__ import annotations

import io
import ssl
import stat
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from nospoon.api.client import Client
from nospoon.errors import SpecError
from nospoon.testing.certificates import written
from nospoon.testing.rack import Rack


def cluster(rack: Rack, certificate: str = "bmc.pem", key: str = "bmc.key") -> tuple[str, str]:
    """The text of a file, and the name of its cluster; `bmc` is its last line."""
    name = rack.name()
    tls = f"{{certificate: {certificate}, key: {key}}}"
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\nnodes: [{{count: 1}}]\n"
    return text + rack.bmc(tls=tls), name


def served(rack: Rack, name: str) -> str:
    """The name in the certificate of the node's Redfish."""
    (bmc,) = rack.bmcs(name).values()
    host, _, port = bmc["redfish"].split("/")[2].rpartition(":")
    found = x509.load_pem_x509_certificate(ssl.get_server_certificate((host, int(port))).encode())
    (common,) = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(common.value)


def whose(rack: Rack, text: bytes) -> list[Path]:
    """Files of the daemon in which this is to be found."""
    state = rack.directory / "state"
    return [path for path in state.rglob("*") if path.is_file() and text in path.read_bytes()]


def test_a_given_certificate_is_served_for_good_and_its_key_stays_secret(rack: Rack) -> None:
    written(rack.directory, "bmc")
    text, name = cluster(rack)
    file = rack.file(text, f"{name}.yaml")
    said = rack.run("up", "--yes", file)
    assert served(rack, name) == "bmc"
    rack.crash()
    assert served(rack, name) == "bmc"
    middle = (rack.directory / "bmc.key").read_bytes().splitlines()[1]
    kept = whose(rack, middle)
    assert kept
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}
    shown = rack.run("plan", file).stdout + rack.run("status", name).stdout + rack.log()
    assert middle.decode() not in said.stdout + said.stderr + shown
    rack.run("down", "--yes", "--purge", name)
    assert whose(rack, middle) == []


def test_what_cannot_be_served_is_told_with_its_place_in_the_file(rack: Rack) -> None:
    written(rack.directory, "good")
    written(rack.directory, "old", since=-9, until=-1)
    (rack.directory / "there").mkdir()
    text, _ = cluster(rack, "CERTIFICATE", "KEY")
    line = text.count("\n")
    start = text.splitlines()[-1].index
    for certificate, key, wrong, why in (
        (
            "gone.pem",
            "good.key",
            "CERTIFICATE",
            "cannot read 'gone.pem': {}/gone.pem: No such",
        ),
        ("good.pem", "there", "KEY", "cannot read 'there': {}/there: Is a directory"),
        ("old.pem", "old.key", "CERTIFICATE", "cannot serve with 'old.pem': it expired on 20"),
        ("good.pem", "old.key", "KEY", "cannot serve with 'old.key': it is not that of the cert"),
        ("good.key", "good.pem", "CERTIFICATE", "cannot serve with 'good.key': it is not a certif"),
    ):
        file = rack.file(text.replace("CERTIFICATE", certificate).replace("KEY", key))
        column = start(wrong) + 1
        if wrong == "KEY":
            column += len(certificate) - len("CERTIFICATE")
        path = f"bmc.tls.{wrong.lower()}"
        told = rack.run("plan", file, status=2).stderr
        assert f"{file}:{line}:{column}: {path}: {why.format(rack.directory)}" in told


def test_the_daemon_looks_at_what_other_clients_give_it(rack: Rack) -> None:
    """Over the API: the command line would not let it pass."""
    old = [path.read_bytes() for path in written(rack.directory, "old", since=-9, until=-1)]
    text, name = cluster(rack, "old.pem", "old.key")
    digests = [sha256(each).hexdigest() for each in old]
    rack.run("status")
    client = Client(rack.directory / "runtime" / "nospoond.sock")
    for digest, content in zip(digests, old, strict=True):
        client.upload(digest, io.BytesIO(content), len(content))
    uploads = dict(zip(("old.pem", "old.key"), digests, strict=True))
    with pytest.raises(SpecError, match=r"bmc\.tls\.certificate: cannot serve with 'old\.pem'"):
        client.post("/v1/plan", {"file": "c.yaml", "text": text, "uploads": uploads})
    rack.names.remove(name)
