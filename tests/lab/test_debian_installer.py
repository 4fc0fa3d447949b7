"""Debian's own network installer on a dynamic machine, until it has its preseed and reports."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from tests.lab.test_installers import served

from nospoon.errors import ProviderError
from nospoon.model.cluster import Arch
from nospoon.probe.packages import fetch, unpack
from nospoon.runtime.clock import monotonic
from nospoon.testing.rack import CACHE, private_rack

pytestmark = [pytest.mark.libvirt, pytest.mark.boots, pytest.mark.timeout(1200)]

PACKAGE = "debian-installer-12-netboot-amd64"
FILES = "usr/lib/debian-installer/images/12/amd64/text/debian-installer/amd64"
SECONDS, WANTED = 900, "installing"
PRESEED = "d-i preseed/early_command string wget -q -O - {{install_start}}"
CMDLINE = "auto=true priority=critical url={{kickstart}} hostname=lab domain=example"


async def installer(directory: Path) -> None:
    """Its kernel and ramdisk, as Debian's package has them."""
    package = await fetch(PACKAGE, Arch.X86_64, directory=CACHE / "apt-x86_64", into=directory)
    await unpack(package, directory / "unpacked")
    package.unlink()
    for name in ("linux", "initrd.gz"):
        (directory / "unpacked" / FILES / name).rename(directory / name)


def test_it_fetches_its_preseed_and_reports() -> None:
    with private_rack(NOSPOON_MEDIA_NETWORKS="127.0.0.0/8, ::1, 172.31.0.0/16") as rack:
        tree = rack.directory / "tree"
        tree.mkdir()
        try:
            asyncio.run(installer(tree))
        except ProviderError as error:
            if "no package source of this machine has" not in str(error):
                raise
            pytest.skip("no package source of this machine has Debian's installer")
        name = rack.name()
        with served(tree) as url:
            text = f"""
cluster: {name}
{rack.bmc()}
networks: {{lan: {{netboot: builtin, nat: true}}}}
flavors: {{small: {{firmware: bios, memory: 1GiB, disks: [4GiB]}}}}
labs:
  dev:
    minimum_disk: 1GiB
    distros:
      debian-12:
        kernel: {url}/linux
        initrd: {url}/initrd.gz
        cmdline: "{CMDLINE}"
        kickstart: "{PRESEED}"
nodes: []
"""
            rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
            request = rack.file("<hostRequires/>", "request.xml")
            set_id = rack.json("request", "submit", request)[0]["set"]
            end = monotonic() + SECONDS
            path = f"/v1/requests/{set_id}"
            while (found := rack.client.get(path))["leases"][0]["stage"] != WANTED:
                assert found["state"] != "ended", json.dumps(found, indent=1)
                assert monotonic() < end, rack.run("request", "console", f"{set_id}.0").stdout
                time.sleep(1)
            rack.run("request", "cancel", set_id)
            rack.run("request", "watch", set_id, status=1)
            rack.run("down", "--yes", "--purge", name)
