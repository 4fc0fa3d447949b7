"""Subscriptions to events of a real daemon, which outlive it."""

from __future__ import annotations

import base64
import json
import queue
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from nospoon.testing.rack import Rack


@contextmanager
def listener() -> Iterator[tuple[str, queue.Queue[tuple[str, Any]]]]:
    """Where to post events to, and what was posted: a header and the body."""
    told: queue.Queue[tuple[str, Any]] = queue.Queue()

    class Take(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()
            told.put((self.headers["X-Token"], json.loads(body)))

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            del format, args

    server = HTTPServer(("127.0.0.1", 0), Take)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def subscribe(bmc: dict[str, str], destination: str) -> None:
    root = bmc["redfish"].partition("/redfish/v1")[0] + "/redfish/v1"
    login = base64.b64encode(f"{bmc['username']}:{bmc['password']}".encode()).decode()
    body = {"Destination": destination, "Protocol": "Redfish", "Context": "after",
            "HttpHeaders": [{"X-Token": "s3cret-token"}]}  # fmt: skip
    asked = urllib.request.Request(
        f"{root}/EventService/Subscriptions",
        json.dumps(body).encode(),
        {"Authorization": f"Basic {login}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert answer.status == 201


def test_a_subscription_survives_the_sudden_end_of_the_daemon(rack: Rack) -> None:
    name = rack.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}nodes: [{{count: 2}}]\n"
    rack.run("up", "--yes", rack.file(text))
    machines = [each["redfish"].rpartition("/")[2] for each in rack.bmcs(name).values()]
    rack.until_kept("sim", *machines)
    with listener() as (destination, told):
        subscribe(rack.bmcs(name)["node-0"], destination)
        rack.crash()
        rack.run("node", "power", "node-1", "on")
        rack.run("node", "power", "node-0", "on")
        token, event = told.get(timeout=240)
        assert (token, event["Context"]) == ("s3cret-token", "after")
        (record, *_) = event["Events"]
        assert record["MessageId"] == "ResourceEvent.1.3.ResourcePoweredOn"
        assert record["MessageArgs"] == ["node-0"]
    kept = b"".join(p.read_bytes() for p in (rack.directory / "state").glob("nospoon.db*"))
    assert b"s3cret-token" not in kept
