"""A machine of a lab on libvirt that starts from a cloud image: its user data reports."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.lab.test_installers import left, until

from nospoon.testing.bench import free_port
from nospoon.testing.rack import CACHE, Rack, private_rack
from nospoon.testing.seeded import READY, seeded_image

pytestmark = [pytest.mark.libvirt, pytest.mark.boots, pytest.mark.timeout(1200)]

USER_DATA = """#!/bin/sh
modprobe -abq af_packet 2>/dev/null
ip link set eth0 up
udhcpc -i eth0 -s /etc/udhcpc -n -q
busybox wget -q -O - {{install_start}}
echo "image: hello {{recipe}} of {{owner}}"
busybox wget -q -O - {{install_done}}
"""


@pytest.fixture
def rack() -> Iterator[Rack]:
    with private_rack(NOSPOON_BOOT_PORT=str(free_port(socket.SOCK_STREAM))) as made:
        shutil.copy(asyncio.run(seeded_image(CACHE)), made.directory / "cloud.img")
        yield made


def test_a_machine_runs_its_user_data_reports_and_leaves_nothing(rack: Rack) -> None:
    name = rack.name()
    lab = f"l{name}"
    (rack.directory / "user-data").write_text(USER_DATA)
    text = f"""
cluster: {name}
{rack.bmc()}
networks: {{lan: {{netboot: builtin, nat: true}}}}
flavors: {{small: {{memory: 320MiB, disks: [256MiB]}}}}
labs:
  {lab}:
    minimum_disk: 64MiB
    distros: {{tiny: {{image: cloud.img, user_data: {{file: user-data}}}}}}
nodes: []
"""
    rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
    before = left(rack, lab)
    request = rack.file("<hostRequires/>", "request.xml")
    submitted = rack.json("request", "submit", request, "--lab", f"{name}/{lab}", "--owner", "root")
    set_id = submitted[0]["set"]

    def show() -> Any:
        return rack.client.get(f"/v1/requests/{set_id}")

    def ready(shown: Any) -> bool:
        assert shown["state"] != "ended", json.dumps(shown, indent=1)
        return bool(shown["leases"][0]["stage"] == "ready")

    until(show, ready)
    log = until(
        lambda: rack.run("request", "console", f"{set_id}.0").stdout, lambda said: READY in said
    )
    assert f"image: hello {set_id}.0 of root" in log
    events = [each["event"] for each in show()["history"] if each["recipe"] == 0]
    assert events == ["booting", "installing", "ready"]
    rack.run("request", "release", set_id)
    ended = until(show, lambda found: found["state"] == "ended")
    assert ended["result"] == "completed"
    assert left(rack, lab) == before
    rack.run("down", "--yes", "--purge", name)
