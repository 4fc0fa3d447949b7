"""A server of the project powers another node by its BMC, at an address of their own network."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cloud.test_rack import everything
from tests.cloud.test_relay import POOL, stands_in
from tests.cloud.test_virtual_ips import connection

from nospoon.probe import cpio
from nospoon.probe.build import Probe, build, command_line
from nospoon.testing.cloud import FULL, OwnCloud
from nospoon.testing.ironic import until
from nospoon.testing.rack import CACHE, Rack

pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack"),
    pytest.mark.usefixtures("port_623"),
    pytest.mark.skipif(
        not FULL,
        reason="an undercloud that is an emulated VM takes minutes: make test-openstack-full",
    ),
]
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack:
      cloud: nospoon-cloud
      flavors: [metal.tiny]
      relay: {{network: lab, image: {image}, flavor: tiny, floating_ip: public, bmcs: true}}
networks: {{lab: {{nat: true, cidr: 10.78.0.0/24, netboot: builtin}}}}
flavors: {{usual: {{cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB], nics: [lab]}}}}
nodes:
  - {{name: n, flavor: usual}}
"""
ANOTHER = """\
  - {{name: under, flavor: usual, boot: under}}
boot: {{under: {boot}}}
"""
IPMITOOL = Path("/usr/bin/ipmitool")
SCRIPT = """#!/bin/sh
for path in /sys/class/net/*; do
    [ -e "$path/device" ] || continue
    udhcpc -q -n -f -t 10 -T 3 -i "${{path##*/}}" -s /etc/udhcpc >/dev/null 2>&1
done
ask() {{
    ipmitool -I lanplus -R 12 -H {address} -U {username} -P {password} "$@"
}}
until ask power status; do sleep 2; done
ask chassis bootdev pxe
ask power on
until ask power status | grep 'is on'; do sleep 2; done
echo 'undercloud: it is on'
"""


def needed() -> Iterator[Path]:
    """Files without which ipmitool does not start."""
    done = subprocess.run(["ldd", IPMITOOL], check=True, capture_output=True, text=True)
    yield from (Path(each) for each in re.findall(r"(/\S+) \(0x", done.stdout))


def ramdisk(probe: Probe, script: str) -> bytes:
    """The probe's, which runs a script when it has found its hardware."""
    probes = (Path(build.__code__.co_filename).with_name("init")).read_text()
    asks = probes.replace("while :; do\n    setsid", "sh /undercloud\nwhile :; do\n    setsid")
    assert asks != probes
    own = [
        cpio.file("init", asks.encode(), mode=0o755),
        cpio.file("undercloud", script.encode(), mode=0o755),
        cpio.file("bin/ipmitool", IPMITOOL.read_bytes(), mode=0o755),
        *(cpio.file(str(each)[1:], each.read_bytes(), mode=0o755) for each in needed()),
    ]
    first = probe.initrd.read_bytes()
    return first + bytes(-len(first) % 4) + cpio.archive(own)


@pytest.mark.timeout(1800, func_only=True)
def test_a_server_of_the_project_powers_a_node_by_the_address_of_its_bmc(
    cloud: OwnCloud, rack: Rack, tmp_path: Path
) -> None:
    member, name = connection(cloud), rack.name()
    before = everything(member)
    image = next(iter(member.image.images()))
    text = FILE.format(name=name, image=image.name)
    bmc_section = rack.bmc(pool=POOL)
    file = rack.file(text + bmc_section)
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(1))
        up = threads.submit(rack.run, "up", file, "--yes")
        stack.enter_context(stands_in(cloud, member, name))
        up.result()
        bmc = rack.bmcs(name)["n"]
        probe = asyncio.run(build(CACHE))
        script = SCRIPT.format(address=bmc["ipmi"].partition(":")[0], **login(bmc))
        (tmp_path / "initrd").write_bytes(ramdisk(probe, script))
        boot = {
            "kernel": str(probe.kernel), "initrd": str(tmp_path / "initrd"),
            "cmdline": command_line(probe.arch),
        }  # fmt: skip
        rack.file(text + ANOTHER.format(boot=json.dumps(boot)) + bmc_section)
        rack.run("up", file, "--yes")
        assert "is off" in rack.ipmitool(bmc, "power", "status")
        rack.power(f"{name}/under", "on")
        until(lambda: "undercloud: it is on" in said(rack), 900)
        assert "Chassis Power is off" in said(rack)
        assert "Set Boot Device to pxe" in said(rack)
        (server,) = (each for each in member.compute.servers() if each.name == f"{name}-n")
        until(lambda: member.compute.get_server(server).status == "ACTIVE")
        rack.run("down", name, "--yes")
    assert everything(member) == before


def login(bmc: dict[str, str]) -> dict[str, str]:
    return {each: bmc[each] for each in ("username", "password")}


def said(rack: Rack) -> str:
    return rack.run("node", "console", "under", "--log").stdout
