"""A running Ironic as someone else sees it, and what it gives to nodes."""

from __future__ import annotations

import hashlib
import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nospoon.dev.ironic import Ironic

VERSION = {"X-OpenStack-Ironic-API-Version": "1.90", "Content-Type": "application/json"}
IMAGE = bytes(1 << 20)


class Api:
    """What someone else sees and does in Ironic."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def __call__(self, method: str, path: str, body: object = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        url = f"{self.endpoint}/v1{path}"
        request = urllib.request.Request(url, data, VERSION, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def nodes(self) -> dict[str, dict[str, Any]]:
        """By name, those that have one."""
        listed = self("GET", "/nodes?detail=true")["nodes"]
        return {each["name"]: each for each in listed if each["name"]}

    def ports(self, node: str) -> list[dict[str, Any]]:
        ports: list[dict[str, object]] = self("GET", f"/ports?detail=true&node={node}")["ports"]
        return sorted(ports, key=lambda port: str(port["extra"]["nospoon"]["key"]))


DEAR = 4
"""Between two looks is this many times what one took: a command costs as much of the processor as a
machine needs to get on.
"""


def until(
    done: Callable[[], object], seconds: float = 240, shows: Callable[[], object] = lambda: None
) -> None:
    """Wait for what can only be looked at. `shows`: what there is where it does not come."""
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if done():
            return
        now = time.monotonic()
        assert now < end, shows()
        time.sleep(min(max(0.2, DEAR * (now - began)), 2))


def files_of(found: Ironic) -> dict[str, str]:
    """Kernel, ramdisk, boot loader and image for machines that start nothing: where they are, and
    the image's checksum.
    """
    directory = Path(found.state) / "http"
    parts = {"kernel": b"kernel", "ramdisk": b"ramdisk", "esp.img": b"esp", "image.raw": IMAGE}
    for name, content in parts.items():
        (directory / name).write_bytes(content)
    return {
        **{name: f"{found.wanted.files_url}/{name}" for name in parts},
        "checksum": hashlib.sha256(IMAGE).hexdigest(),
    }
