"""What a cluster file names by URL is fetched as an operation: shown, cancelled, all at once."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256, sha512
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from nospoon.testing.bench import free_port
from nospoon.testing.rack import BIN, Rack

MIB = 1 << 20
PIECES = 8


@contextmanager
def slow_server(pause: float) -> Iterator[str]:
    """Serves eight MiB, one in `pause` seconds; gives its URL."""
    ending = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(PIECES * MIB))
            self.end_headers()
            for _ in range(PIECES):
                self.wfile.write(bytes(MIB))
                if ending.wait(pause):
                    return

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            ending.set()
            server.shutdown()


@contextmanager
def directory_server(directory: Path) -> Iterator[str]:
    """Serves what lies there; gives its address and port."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def cluster_of(rack: Rack, *urls: str) -> tuple[str, str]:
    name = rack.name()
    disks = ", ".join(f"{{image: '{url}'}}" for url in urls)
    text = (
        f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}nodes: [{{disks: [{disks}]}}]\n"
    )
    return name, rack.file(text, f"{name}.yaml")


def test_a_plan_tells_how_far_a_download_is(rack: Rack) -> None:
    with slow_server(0.4) as url:
        _, file = cluster_of(rack, f"{url}/disk.raw")
        planned = rack.run("plan", file)
    assert f"{url}/disk.raw: fetched {PIECES} MiB" in planned.stderr
    assert f" MiB of {PIECES} MiB" in planned.stderr
    assert "+ machine node-0" in planned.stdout


def test_a_cancelled_download_ends_its_plan_and_leaves_nothing(rack: Rack) -> None:
    rack.run("daemon", "start")
    with slow_server(3) as url:
        name, file = cluster_of(rack, f"{url}/disk.raw")
        planning = subprocess.Popen(
            [BIN / "nospoon", "plan", file], env=rack.environment, cwd=rack.directory,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        rack.run("operation", "cancel", begun(rack, name))
        assert "cancelled" in planning.communicate(timeout=240)[1]
        assert planning.returncode == 1
        deadline = time.monotonic() + 60
        partial = rack.directory / "state" / "files" / ".partial"
        while list(partial.glob("*")):
            assert time.monotonic() < deadline, "the download goes on"
            time.sleep(0.1)
    assert not [each for each in partial.parent.iterdir() if each.is_file()]


def begun(rack: Rack, cluster: str) -> str:
    """The id of the cluster's fetch, once it is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for row in rack.json("operation", "list"):
            if (row["kind"], row["cluster"], row["state"]) == ("fetch", cluster, "running"):
                return str(row["id"])
    raise AssertionError("no fetch began")


def test_every_url_that_cannot_be_had_is_told_at_once(shared: Rack) -> None:
    nowhere = [f"http://127.0.0.1:{free_port(socket.SOCK_STREAM)}/{n}" for n in range(2)]
    _, file = cluster_of(shared, *nowhere)
    refused = shared.run("up", "--yes", file, status=1)
    for url in nowhere:
        assert re.search(rf"\.yaml:4:\d+: cannot fetch {url}", refused.stderr)


def test_every_image_that_cannot_be_read_is_told_at_once(rack: Rack) -> None:
    (rack.directory / "empty.raw").write_bytes(b"")
    (rack.directory / "cut.qcow2").write_bytes(b"QFI\xfb\x00")
    (rack.directory / "large.raw").write_bytes(bytes(2 * MIB))
    name = rack.name()
    text = (
        f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}nodes: [{{disks: ["
        "{image: empty.raw}, {image: cut.qcow2}, {image: large.raw, size: 1MiB}]}]\n"
    )
    refused = rack.run("plan", rack.file(text, f"{name}.yaml"), status=2)
    at = {image: text.splitlines()[3].index(image) + 1 for image in ("empty.raw", "cut.qcow2")}
    assert all(f"{name}.yaml:4:{at[image]}: image {image} " in refused.stderr for image in at)
    assert re.search(rf"{name}\.yaml:4:\d+: node node-0: disk 2 .*large\.raw", refused.stderr)


def test_a_changed_checksum_is_a_changed_image(rack: Rack) -> None:
    served = rack.directory / "served"
    served.mkdir()
    image = served / "disk.raw"
    name = rack.name()
    places = rack.bmc()

    def file(url: str, checksum: str) -> str:
        disk = f"{{image: '{url}', checksum: '{checksum}'}}"
        text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{places}nodes: [{{disks: [{disk}]}}]\n"
        return rack.file(text, f"{name}.yaml")

    with directory_server(served) as place:
        url = f"http://bob:hush@{place}/disk.raw"
        image.write_bytes(b"1" * MIB)
        (served / "SHA512SUMS").write_text(f"{sha512(image.read_bytes()).hexdigest()}  disk.raw\n")
        rack.run("up", "--yes", file(url, f"http://{place}/SHA512SUMS"))
        image.write_bytes(b"2" * MIB)
        first, second = (sha256(each * MIB).hexdigest() for each in (b"1", b"2"))
        assert rack.json("plan", file(url, first))["steps"] == [], "the same content, called else"
        steps = rack.json("plan", file(url, second))["steps"]
        assert {s["action"] for s in steps if s["kind"] == "volume"} == {"replace"}
        rack.run("up", "--yes", file(url, second))
        refused = rack.run("plan", file(url, "0" * 64), status=1)
        assert re.search(rf"\.yaml:4:\d+: http://{place}/disk.raw is not what it", refused.stderr)
        assert f"its sha256 is {second}, not {'0' * 64}. It was not kept" in refused.stderr
    kept = {each.name for each in (rack.directory / "state" / "files").iterdir() if each.is_file()}
    assert second in kept
    assert not list((rack.directory / "state" / "files" / ".partial").iterdir())
    assert "hush" not in refused.stderr + rack.log()
