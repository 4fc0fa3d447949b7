"""Virtual media by the command line: files, URLs, credentials, and what cannot be had."""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nospoon.testing.rack import Rack

CONTENT = b"a disc".ljust(4096, b"\0")
WANTED = "Basic " + b64encode(b"me:secret").decode()


class Handler(BaseHTTPRequestHandler):
    """A disc for those who say who they are."""

    def do_GET(self) -> None:
        allowed = self.headers.get("Authorization") == WANTED
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(CONTENT) if allowed else 0))
        self.end_headers()
        if allowed:
            self.wfile.write(CONTENT)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        """Not a word."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/disc.iso"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def node(shared: Rack) -> str:
    name = shared.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{shared.bmc()}nodes: [{{name: n}}]\n"
    shared.run("up", "--yes", shared.file(text, f"{name}.yaml"))
    return f"{name}/n"


def boots(rack: Rack, node: str) -> str:
    """What the node says that it boots when it is told to boot from its CD drive once."""
    rack.run("node", "boot", node, "cdrom")
    rack.run("node", "power", node, "off")
    rack.run("node", "power", node, "on")
    return rack.run("node", "console", node, "--log").stdout.strip().splitlines()[-1]


def test_a_file_is_inserted_booted_and_ejected(shared: Rack, node: str) -> None:
    disc = shared.directory / "disc.iso"
    disc.write_bytes(CONTENT)
    assert "boots disk" in boots(shared, node)
    shared.run("node", "media", "insert", node, str(disc))
    assert "boots cdrom" in boots(shared, node)
    shared.run("node", "media", "eject", node)
    assert "boots disk" in boots(shared, node)
    assert not list((shared.directory / "state" / "files").glob("*"))


def test_a_url_is_fetched_with_the_credentials_that_it_wants(
    shared: Rack, node: str, url: str, tmp_path: Path
) -> None:
    refused = shared.run("node", "media", "insert", node, url, status=1)
    assert f"cannot fetch {url}: HTTP Error 401" in refused.stderr
    (tmp_path / "secret").write_text("secret\n")
    credentials = ("--username", "me", "--password-file", str(tmp_path / "secret"))
    shared.run("node", "media", "insert", node, url, *credentials)
    assert "boots cdrom" in boots(shared, node)


def test_what_is_neither_a_file_nor_a_url_is_told(shared: Rack, node: str) -> None:
    refused = shared.run("node", "media", "insert", node, "no.iso", status=2)
    assert "cannot read no.iso: No such file or directory" in refused.stderr
    assert "no node" in shared.run("node", "media", "eject", "nobody", status=2).stderr
