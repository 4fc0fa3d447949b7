"""A host by `qemu+tls://`: libvirtd answers on a port, and both sides show certificates."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.fleet.conftest import FarHost

from nospoon.testing.libvirtd import wait_until
from nospoon.testing.rack import Rack
from nospoon.testing.trees import remove_tree

pytestmark = [pytest.mark.libvirt, pytest.mark.timeout(300)]

PORT = 16514
"""libvirt's own; the host has a network namespace of its own."""
CONFIGURATION = """
listen_tls = 1
listen_tcp = 0
listen_addr = "127.0.0.1"
ca_file = "{pki}/cacert.pem"
cert_file = "{pki}/servercert.pem"
key_file = "{pki}/serverkey.pem"
"""
INSTALL = """
mkdir -p /etc/pki && mount -t tmpfs tmpfs /etc/pki
mkdir -p /etc/pki/CA /etc/pki/libvirt/private
cp "$1/cacert.pem" /etc/pki/CA/ && cp "$1/clientcert.pem" /etc/pki/libvirt/
cp "$1/clientkey.pem" /etc/pki/libvirt/private/
"""
"""Where libvirt's client looks for certificates (https://libvirt.org/kbase/tlscerts.html)."""
NODES = """
networks: {lan: {}}
nodes:
  - {name: n, firmware: bios, memory: 64MiB, disks: [16MiB]}
  - {name: u, firmware: uefi, memory: 256MiB, disks: [16MiB]}
"""


def openssl(*argv: str) -> None:
    subprocess.run(["openssl", *argv], check=True, capture_output=True)


def certificates(pki: Path, *names: str) -> None:
    """An authority of its own, and what it signs, under the names that libvirt looks for."""
    pki.mkdir()
    new = ["req", "-newkey", "rsa:2048", "-nodes", "-x509", "-days", "2"]
    openssl(*new, "-subj", "/CN=nospoon test", "-keyout", f"{pki}/cakey.pem", "-out",
            f"{pki}/cacert.pem", "-addext", "keyUsage=keyCertSign")  # fmt: skip
    for name in names:
        openssl(*new, "-subj", f"/CN={name}", "-CA", f"{pki}/cacert.pem", "-CAkey",
                f"{pki}/cakey.pem", "-keyout", f"{pki}/{name}key.pem", "-out",
                f"{pki}/{name}cert.pem", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
                "-addext", "keyUsage=digitalSignature,keyEncipherment",
                "-addext", "basicConstraints=critical,CA:FALSE")  # fmt: skip


@pytest.fixture
def rack() -> Iterator[Rack]:
    """A daemon beside a libvirtd that it reaches by TLS only."""
    if os.geteuid() != 0 or shutil.which("openssl") is None:
        pytest.skip("needs root and openssl")
    place = Path(tempfile.mkdtemp(prefix="nospoon-tls-"))
    place.chmod(0o711)
    host = FarHost("tls", place / "host")
    try:
        certificates(place / "pki", "server", "client")
        host.stop()
        configuration = place / "libvirtd.conf"
        configuration.write_text(CONFIGURATION.format(pki=place / "pki"))
        host.start("--listen", "-f", str(configuration))
        (place / "daemon").mkdir(mode=0o711)
        made = Rack.at(place / "daemon")
        made.prefix = host.enter
        yield made
        made.close()
    finally:
        host.close()
        remove_tree(place)


def test_machines_are_made_and_started_over_tls_and_who_shows_no_certificate_is_refused(
    rack: Rack,
) -> None:
    name, pki = rack.name(), rack.directory.parent / "pki"

    host = f"hosts: {{far: {{libvirt: 'qemu+tls://localhost:{PORT}/system'}}}}\n"
    good = rack.file(f"cluster: {name}\n{rack.bmc()}{host}{NODES}", f"{name}.yaml")
    refused = rack.run("plan", good, status=1).stderr
    assert "far" in refused
    subprocess.run([*rack.prefix, "sh", "-ec", INSTALL, "sh", str(pki)], check=True)
    rack.run("up", "--yes", good)
    rack.run("node", "power", f"{name}/n", "on")

    def power(node: str) -> str:
        return rack.run("node", "power", f"{name}/{node}", "status").stdout.strip()

    wait_until(lambda: power("n") == "on")
    rack.power(f"{name}/u", "on")
    wait_until(lambda: power("u") == "on")
    rack.power(f"{name}/u", "off")
    wait_until(lambda: power("u") == "off")
    rack.run("node", "boot", f"{name}/u", "setup")
    with suppress(AssertionError):  # it fails at once, or later than the command waits for it
        rack.power(f"{name}/u", "on")
    wait_until(lambda: "no commands run there" in rack.run("status", name).stdout)
    assert rack.run("plan", "--detailed-exitcode", good).returncode == 0
    rack.run("down", "--yes", name)
    assert list((rack.directory / "pool").glob("*")) == []
