"""Virtual media by the command line: files, URLs, credentials, and what is not available."""

from __future__ import annotations

import asyncio
import io
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nospoon.api.client import Client
from nospoon.model.cluster import Firmware
from nospoon.testing import guests
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack
from nospoon.testing.redfish import System
from nospoon.testing.serial import Serial

CONTENT = b"a disc".ljust(4096, b"\0")
WANTED = "Basic " + b64encode(b"me:secret").decode()


class Handler(BaseHTTPRequestHandler):
    """A disc for those who say who they are."""

    content = CONTENT

    def do_GET(self) -> None:
        allowed = self.headers.get("Authorization") == WANTED
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(self.content) if allowed else 0))
        self.end_headers()
        if allowed:
            self.wfile.write(self.content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        """Not a word."""


@contextmanager
def served(content: bytes) -> Iterator[str]:
    handler = type("Handler", (Handler,), {"content": content})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/disc.iso"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def url() -> Iterator[str]:
    with served(CONTENT) as place:
        yield place


@pytest.fixture
def node(shared: Rack) -> str:
    name = shared.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{shared.bmc()}nodes: [{{name: n}}]\n"
    shared.run("up", "--yes", shared.file(text, f"{name}.yaml"))
    return f"{name}/n"


def boots(rack: Rack, node: str) -> str:
    """What the node says that it boots when it is told to boot from its CD drive once."""
    rack.run("node", "boot", node, "cdrom")
    rack.power(node, "off")
    rack.power(node, "on")
    return rack.run("node", "console", node, "--log").stdout.strip().splitlines()[-1]


def test_a_file_is_inserted_booted_and_ejected(shared: Rack, node: str) -> None:
    disc = shared.directory / "disc.iso"
    disc.write_bytes(CONTENT)
    assert "boots disk" in boots(shared, node)
    kept = shared.directory / "state" / "files" / sha256(CONTENT).hexdigest()
    shared.run("node", "media", "insert", node, str(disc))
    assert shared.json("node", "show", node)["media"] == "disc.iso"
    assert "boots cdrom" in boots(shared, node)
    shared.run("node", "media", "eject", node)
    assert "boots disk" in boots(shared, node)
    assert not kept.exists()


def test_an_upload_without_a_name_is_shown_by_its_digest(shared: Rack, node: str) -> None:
    digest = sha256(CONTENT).hexdigest()
    client = Client(shared.directory / "runtime" / "nospoond.sock")
    client.upload(digest, io.BytesIO(CONTENT), len(CONTENT))
    client.post(f"/v1/nodes/{node}/media", {"sha256": digest})
    assert shared.json("node", "show", node)["media"] == digest
    shared.run("node", "media", "eject", node)


def test_a_url_is_fetched_with_the_credentials_that_it_wants(
    shared: Rack, node: str, url: str, tmp_path: Path
) -> None:
    refused = shared.run("node", "media", "insert", node, url, status=1)
    assert f"cannot fetch {url}: the server answered 401" in refused.stderr
    (tmp_path / "secret").write_text("secret\n")
    credentials = ("--username", "me", "--password-file", str(tmp_path / "secret"))
    shared.run("node", "media", "insert", node, url, *credentials)
    assert "boots cdrom" in boots(shared, node)


def test_what_is_neither_a_file_nor_a_url_is_told(shared: Rack, node: str) -> None:
    refused = shared.run("node", "media", "insert", node, "no.iso", status=2)
    assert "cannot read no.iso: No such file or directory" in refused.stderr
    assert "no node" in shared.run("node", "media", "eject", "nobody", status=2).stderr


@pytest.mark.libvirt
@pytest.mark.boots
@pytest.mark.parametrize("firmware", [Firmware.BIOS, Firmware.UEFI])
def test_a_real_machine_boots_what_was_inserted_over_redfish(
    rack: Rack, tmp_path: Path, firmware: Firmware
) -> None:
    name = rack.name()
    node = f"{{name: n, firmware: {firmware}, memory: 256MiB, disks: [16MiB]}}"
    text = f"cluster: {name}\nnetworks: {{lan: {{}}}}\n{rack.bmc()}nodes: [{node}]\n"
    rack.run("up", "--yes", rack.file(text))
    bmc = rack.bmcs(name)["n"]
    redfish = System(bmc)
    disc = asyncio.run(guests.speaking_cd(tmp_path, firmware=firmware))
    with served(disc.read_bytes()) as url:
        body = {"Image": url, "UserName": "me", "Password": "secret"}
        media = "/VirtualMedia/Cd/Actions/VirtualMedia"
        redfish.ask("POST", f"{media}.InsertMedia", body)
    once = {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once"}
    redfish.ask("PATCH", "", {"Boot": once})
    serial = Serial(rack.directory / "state" / "consoles" / f"{bmc['uuid']}.log")
    redfish.ask("POST", "/Actions/ComputerSystem.Reset", {"ResetType": "On"})
    assert serial.hears(guests.BOOTED) == guests.BOOTED
    redfish.ask("POST", f"{media}.EjectMedia", {})
    pool = rack.directory / "pool"
    until(lambda: not list(pool.rglob("media-*")))  # a job that takes long is answered before
