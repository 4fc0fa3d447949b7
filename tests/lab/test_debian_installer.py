"""Debian's own network installer in a mixed set: both machines fetch their preseeds and report."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.lab.test_installers import MAC, left, metal, served, served_at, until

from nospoon.errors import ProviderError
from nospoon.model.cluster import Arch
from nospoon.probe.packages import fetch, unpack
from nospoon.testing.bench import free_port
from nospoon.testing.rack import CACHE, Rack, private_rack

pytestmark = [pytest.mark.libvirt, pytest.mark.boots, pytest.mark.timeout(1200)]

PACKAGE = "debian-installer-12-netboot-amd64"
FILES = "usr/lib/debian-installer/images/12/amd64/text/debian-installer/amd64"
SUITE = "dists/bookworm/main/installer-amd64"
PLACE = f"{SUITE}/current/images/netboot/debian-installer/amd64"
SECONDS = 1500
MEMORY = "1GiB"
"""With less than 780 MiB it asks whether that is meant (its package lowmem)."""
PRESEED = "d-i preseed/early_command string wget -q -O - {{install_start}}"
OPTIONS = (
    "hostname=lab domain=example DEBIAN_FRONTEND=text DEBCONF_DROP_TRANSLATIONS=1 no_timer_check"
)
"""No windows and languages: they take a part of the processor's time. Linux compares the timer with
the processor's speed, and panics where an emulated one has waited for its turn.
"""
NETWORK = "Configuring the network with DHCP"
"""What the installer shows before it fetches its preseed."""
REQUEST = """<recipeSet>
<recipe><hostRequires><system_type value='Machine'/></hostRequires></recipe>
<recipe><hostRequires><system><vendor value='Acme'/></system></hostRequires></recipe>
</recipeSet>"""
LAB = """
    minimum_disk: 1GiB
    timeouts: {{boot: 2h}}
    machines:
      m1: {{bmc: {bmc}, memory: {memory}, macs: ["{mac}"], attributes: {{system/vendor: Acme}}}}
    distros:
      {distro}
        kickstart: "{preseed}"
"""


async def installer(directory: Path) -> None:
    """Its kernel and ramdisk, as Debian's package has them."""
    package = await fetch(PACKAGE, Arch.X86_64, directory=CACHE / "apt-x86_64", into=directory)
    await unpack(package, directory / "unpacked")
    package.unlink()
    for name in ("linux", "initrd.gz"):
        (directory / "unpacked" / FILES / name).rename(directory / name)


@contextmanager
def mirror(directory: Path, address: str = "") -> Iterator[str]:
    """The URL of a stub of Debian's mirrors, at `address` or one that guests route to, which has
    the installer as they do.
    """
    place = directory / PLACE
    place.mkdir(parents=True)
    try:
        asyncio.run(installer(place))
    except ProviderError as error:
        if "no package source of this machine has" not in str(error):
            raise
        pytest.skip("no package source of this machine has Debian's installer")
    with served_at(address, directory) if address else served(directory) as url:
        yield url


def rules(bmc: str, distro: str) -> str:
    """Of a lab with a registered machine and this distribution."""
    return LAB.format(memory=MEMORY, bmc=bmc, mac=MAC, distro=distro, preseed=PRESEED)


def entry(rack: Rack, url: str, options: str) -> str:
    """Of the mirror's installer among a lab's `distros`, with more of a kernel's command line."""
    found = rack.run("distro", "import", f"{url}/{SUITE}", "--name", "debian-12").stdout
    wanted = "auto=true priority=critical url={{kickstart}}"
    assert wanted in found
    return found.rstrip().replace(wanted, f"{wanted} {options}").replace("\n", "\n      ")


def console(rack: Rack, lease: str) -> str:
    """Without the ends of lines: iPXE breaks long URLs."""
    return "".join(rack.run("request", "console", lease).stdout.splitlines())


def install(rack: Rack, set_id: str, first: str = "iPXE") -> None:
    """Both machines of a set start their installers, fetch their preseeds and report; then the set
    is cancelled. `first`: what the console of the dynamic machine shows before that.
    """

    def show() -> Any:
        return rack.client.get(f"/v1/requests/{set_id}")

    def installing(shown: Any) -> bool:
        assert shown["state"] != "ended", json.dumps(shown, indent=1)
        return {each["stage"] for each in shown["leases"]} == {"installing"}

    shown = until(show, installing, SECONDS)
    assert [each["machine"] for each in shown["leases"]] == ["", "m1"]
    shows = ((first, "nospoon: boot recipe-0"), ("iPXE", "nospoon: boot debian-12"))
    for number, boots in enumerate(shows):
        words = (*boots, "Linux version", NETWORK)
        log = until(partial(console, rack, f"{set_id}.{number}"), lambda said: NETWORK in said)
        places = [log.index(each) for each in words]
        assert places == sorted(places)
    rack.run("request", "cancel", set_id)
    until(show, lambda found: found["state"] == "ended")


@pytest.fixture
def rack() -> Iterator[Rack]:
    with private_rack(
        NOSPOON_BOOT_PORT=str(free_port(socket.SOCK_STREAM)),
        NOSPOON_MEDIA_NETWORKS="127.0.0.0/8, ::1, 172.31.0.0/16",
    ) as made:
        yield made


def test_both_machines_of_a_set_fetch_their_preseeds_and_report(rack: Rack) -> None:
    with mirror(rack.directory / "mirror") as url:
        other, bmc = metal(rack, memory=MEMORY)
        name = rack.name()
        lab = f"l{name}"
        made = rules(bmc, entry(rack, url, OPTIONS))
        text = f"""
cluster: {name}
{rack.bmc()}
networks: {{lan: {{netboot: builtin, nat: true}}}}
flavors: {{small: {{firmware: bios, memory: {MEMORY}, disks: [4GiB]}}}}
labs:
  {lab}: {made}
nodes: []
"""
        rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
        before = left(rack, lab)
        submit = ("request", "submit", rack.file(REQUEST, "request.xml"), "--lab", f"{name}/{lab}")
        install(rack, rack.json(*submit)[0]["set"])
        assert left(rack, lab) == before
        assert rack.json("node", "show", f"{other}/m")["power"] == "off"
        rack.run("down", "--yes", "--purge", name)
        rack.run("down", "--yes", "--purge", other)
