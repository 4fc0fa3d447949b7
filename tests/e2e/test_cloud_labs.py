"""Labs of a cloud whose machines start from images: uploaded once, and ready by their user data."""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.request
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest

from nospoon.runtime.clock import monotonic
from nospoon.testing.cloud_connection import fake_cloud
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.rack import Rack, private_rack

FILE = """
cluster: cloudy
hosts:
  cloud:
    openstack: {{cloud: {settings}, boot_address: 127.0.0.1}}
    physnets: {{external: external}}
networks: {{external: {{physnet: external}}}}
flavors:
  small: {{memory: 512MiB, disks: [{disk}], nics: [{{network: external}}]}}
labs:
  dev:
    host: cloud
    minimum_disk: 1GiB
    distros: {{cloud: {{image: cloud.raw, user_data: "#!/bin/sh\\nwget {{{{install_done}}}}"}}}}
nodes: []
"""


def lab(cloud: FakeCloud, disk: str) -> str:
    settings = json.dumps({"name": "mine", **cloud.settings})
    return FILE.format(settings=settings, disk=disk)


@pytest.mark.timeout(240)
async def test_machines_of_a_clouds_lab_share_an_image_and_report_by_their_user_data() -> None:
    async with fake_cloud() as cloud:
        cloud.networks["n0"]["project_id"] = "0" * 32
        with private_rack() as rack:
            await asyncio.to_thread(_used, rack, cloud)
        assert not cloud.images
        assert not cloud.servers


@pytest.mark.timeout(240)
async def test_a_clouds_lab_makes_the_root_volume_that_a_recipe_asks_for() -> None:
    async with fake_cloud() as cloud:
        cloud.networks["n0"]["project_id"] = "0" * 32
        cloud.volume_types = ["lvm"]
        for each in cloud.flavors.values():  # Nova gives their servers a disk more
            each["OS-FLV-EXT-DATA:ephemeral"] = 0
        with private_rack() as rack:
            await asyncio.to_thread(_asked, rack, cloud)
        assert not cloud.volumes
        assert not cloud.servers


REGIONS = """
cluster: regions
hosts:
  one: {{openstack: {{cloud: {one}, boot_address: 127.0.0.1}}, physnets: {{external: external}}}}
  two: {{openstack: {{cloud: {two}, boot_address: 127.0.0.1}}, physnets: {{external: external}}}}
networks: {{external: {{physnet: external}}}}
flavors:
  small: {{memory: 512MiB, firmware: bios, disks: [2GiB], nics: [{{network: external}}]}}
labs:
  first: {{host: one, minimum_disk: 1GiB}}
  second: {{host: two, minimum_disk: 1GiB}}
nodes: []
"""
IN_SECOND = "<hostRequires><labcontroller op='=' value='second'/></hostRequires>"


@pytest.mark.timeout(240)
async def test_each_lab_has_its_region_and_one_that_fails_is_passed_over() -> None:
    async with fake_cloud() as one, fake_cloud() as two:
        for cloud in (one, two):
            cloud.networks["n0"]["project_id"] = "0" * 32
        with private_rack() as rack:
            await asyncio.to_thread(_in_regions, rack, one, two)
        assert not one.servers
        assert not two.servers


@pytest.mark.timeout(240)
async def test_a_set_waits_for_a_quota_and_starts_elsewhere_where_it_may() -> None:
    async with fake_cloud() as one, fake_cloud() as two:
        for cloud in (one, two):
            cloud.networks["n0"]["project_id"] = "0" * 32
            cloud.limits = {"maxTotalInstances": 1}
        two.limits["totalInstancesUsed"] = 0  # what it counts is late, so that Nova refuses
        with private_rack() as rack:
            await asyncio.to_thread(_wait_for_quota, rack, one, two)
        assert not one.servers
        assert not two.servers


@pytest.mark.timeout(240)
@pytest.mark.parametrize("by", ["u", "v"])
async def test_a_set_is_removed_whose_labs_cloud_has_another_login_by_now(by: str) -> None:
    """Another password, or another user, as of an application credential that expired: the login
    of the time when it was made is revoked, and leases last for days.
    """
    async with fake_cloud() as cloud:
        cloud.networks["n0"]["project_id"] = "0" * 32
        with private_rack() as rack:
            await asyncio.to_thread(_with_another_login, rack, cloud, by)
        assert not cloud.servers
        assert not cloud.images


def _with_another_login(rack: Rack, cloud: FakeCloud, by: str) -> None:
    (rack.directory / "cloud.raw").write_bytes(b"\0" * (1 << 20))
    text = lab(cloud, "1GiB") + rack.bmc()
    rack.run("up", "--yes", rack.file(text, "cloudy.yaml"))
    submit = ("request", "submit", rack.file("<hostRequires/>", "any.xml"))
    set_id, ending = (rack.json(*submit)[0]["set"] for _ in range(2))
    for each in (set_id, ending):
        until(rack, each, lambda found: found["state"] == "running")
    cloud.revoked.add("p")
    rack.run("request", "release", ending)
    until(rack, ending, lambda found: "not removed yet" in found["reason"])
    assert len(cloud.servers) == 2
    again = text.replace('"password": "p"', '"password": "q"')
    again = again.replace('"username": "u"', f'"username": "{by}"')
    rack.run("up", "--yes", rack.file(again, "cloudy.yaml"))
    until(rack, ending, lambda found: found["state"] == "ended")
    rack.run("request", "power", f"{set_id}.0", "off")
    until(rack, set_id, lambda _: [x["status"] for x in cloud.servers.values()] == ["SHUTOFF"])
    rack.run("request", "release", set_id)
    until(rack, set_id, lambda found: found["state"] == "ended")
    rack.run("down", "--yes", "--purge", "cloudy")


def _wait_for_quota(rack: Rack, one: FakeCloud, two: FakeCloud) -> None:
    settings = (json.dumps({"name": "mine", **each.settings}) for each in (one, two))
    text = REGIONS.format(one=next(settings), two=next(settings)) + rack.bmc()
    rack.run("up", "--yes", rack.file(text, "regions.yaml"))
    named, anywhere = rack.file(IN_SECOND, "named.xml"), rack.file("<hostRequires/>", "any.xml")

    def submit(file: str) -> str:
        return str(rack.json("request", "submit", file)[0]["set"])

    def running(set_id: str) -> Any:
        return until(rack, set_id, lambda found: found["state"] == "running")

    first = submit(named)
    running(first)
    second, third, last = submit(named), submit(anywhere), submit(anywhere)
    shown = until(rack, second, lambda found: "no capacity now" in found["reason"])
    assert "quota exceeded for instances" in shown["reason"].lower()
    elsewhere = until(rack, third, lambda found: found["state"] != "queued")
    assert running(third)["lab"] == "regions/first", elsewhere
    shown = until(rack, last, lambda found: found["state"] == "queued" and found["attempts"] > 0)
    assert (shown["position"], shown["result"]) == (1, ""), "the first in one of its labs"
    assert (len(one.servers), len(two.servers)) == (1, 1)
    rack.run("request", "release", first)
    assert running(second)["lab"] == "regions/second"
    rack.run("request", "release", third)
    assert running(last)["lab"] == "regions/first"
    for each in (second, last):
        rack.run("request", "release", each)
        until(rack, each, lambda found: found["state"] == "ended")
    rack.run("down", "--yes", "--purge", "regions")


def _in_regions(rack: Rack, one: FakeCloud, two: FakeCloud) -> None:
    settings = (json.dumps({"name": "mine", **each.settings}) for each in (one, two))
    text = REGIONS.format(one=next(settings), two=next(settings)) + rack.bmc()
    rack.run("up", "--yes", rack.file(text, "regions.yaml"))
    named = rack.file(IN_SECOND, "named.xml")
    (set_id,) = (each["set"] for each in rack.json("request", "submit", named))
    shown = until(rack, set_id, lambda found: found["state"] == "running")
    assert shown["lab"] == "regions/second"
    assert (len(one.servers), len(two.servers)) == (0, 1)
    one.fail("POST /compute/v2.1/servers$", 500, times=1000)
    anywhere = rack.file("<hostRequires/>", "any.xml")
    (other,) = (each["set"] for each in rack.json("request", "submit", anywhere))
    shown = until(rack, other, lambda found: found["state"] == "running")
    assert (shown["lab"], shown["attempts"]) == ("regions/second", 2)
    assert (len(one.servers), len(two.servers)) == (0, 2)
    for each in (set_id, other):
        rack.run("request", "release", each)
        until(rack, each, lambda found: found["state"] == "ended")
    rack.run("down", "--yes", "--purge", "regions")


def _asked(rack: Rack, cloud: FakeCloud) -> None:
    (rack.directory / "cloud.raw").write_bytes(b"\0" * (1 << 20))
    text = lab(cloud, "2GiB").replace("boot_address", "volumes: true, boot_address")
    text = text.replace("    minimum_disk", "    disks: asked\n    minimum_disk")
    rack.run("up", "--yes", rack.file(text + rack.bmc(), "cloudy.yaml"))
    rack.run("lab", "check", "dev")
    size = "<hostRequires><disk><size op='&gt;=' value='30' units='GiB'/></disk></hostRequires>"
    request = rack.file(size, "disk.xml")
    (checked,) = rack.json("request", "check", request)
    assert (checked["chosen"], checked["disk_gib"]) == ("small", 30)
    set_id = rack.json("request", "submit", request)[0]["set"]
    until(rack, set_id, lambda found: found["state"] == "running")
    assert [each["size"] for each in cloud.volumes.values()] == [30]
    rack.run("request", "release", set_id)
    until(rack, set_id, lambda found: found["state"] == "ended")
    rack.run("down", "--yes", "--purge", "cloudy")


def _used(rack: Rack, cloud: FakeCloud) -> None:
    (rack.directory / "cloud.raw").write_bytes(b"\0" * (1 << 20))
    rack.run("up", "--yes", rack.file(lab(cloud, "2GiB") + rack.bmc(), "cloudy.yaml"))
    checked = ("lab", "check", "dev")
    rack.run(*checked)
    request = rack.file("<hostRequires/>", "any.xml")
    failed = rack.json("request", "submit", request)[0]["set"]
    why = until(rack, failed, lambda shown: shown["state"] == "ended")["reason"]
    assert "no flavor has 1 CPU, 512 MiB of memory, 0 B of disks, 2 GiB of root" in why
    rack.run("up", "--yes", rack.file(lab(cloud, "1GiB") + rack.bmc(), "cloudy.yaml"))
    sets = [rack.json("request", "submit", request)[0]["set"] for _ in range(2)]
    for each in sets:
        shown = until(rack, each, lambda found: found["state"] == "running")
        assert shown["leases"][0]["stage"] == "booting"
    (image,) = cloud.images.values()
    assert len(cloud.servers) == 2
    assert all(asked["imageRef"] == image["id"] for asked in cloud.requested)
    for asked in cloud.requested:
        given = b64decode(asked["user_data"]).decode()
        (url,) = re.findall(r"wget (http://127.0.0.1:\d+/lab/\S+/install_done)", given)
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.status == 200
    for each in sets:
        until(rack, each, lambda found: found["leases"][0]["stage"] == "ready")
    rack.run("request", "power", f"{sets[0]}.0", "off")
    both = ["ACTIVE", "SHUTOFF"]
    until(rack, sets[0], lambda _: sorted(x["status"] for x in cloud.servers.values()) == both)
    rack.run("request", "release", sets[0])
    until(rack, sets[0], lambda found: found["state"] == "ended")
    assert list(cloud.images) == [image["id"]], "the other set uses it"
    rack.run("request", "release", sets[1])
    until(rack, sets[1], lambda found: found["state"] == "ended")
    assert not cloud.images
    rack.run("down", "--yes", "--purge", "cloudy")


def until(rack: Rack, set_id: str, reached: Callable[[Any], bool]) -> Any:
    end = monotonic() + 240
    while not reached(shown := rack.client.get(f"/v1/requests/{set_id}")):
        assert monotonic() < end, json.dumps(shown, indent=1)
        time.sleep(0.2)
    return shown
