"""A Docker Engine that is away for a while: what BMCs of its containers answer then, and when it is
back.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.docker.conftest import REMAPPED, DockerService

from nospoon.testing.container_root import SAYS, busybox_root
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack, private_rack

pytestmark = [pytest.mark.libvirt, pytest.mark.docker]

REBOOTS = f"""\
#!/bin/busybox sh
trap '/bin/busybox reboot -f' PWR
echo '{SAYS}'
while :; do /bin/busybox sleep 1 & wait $!; done
"""
"""When it is asked to shut down."""
FILE = """\
cluster: {name}
bmc: {bmc}
hosts: {{here: {{libvirt: 'qemu:///system', docker: {{socket: {socket}}}}}}}
nodes:
- name: box
  kind: container
  bmc: ipmi
  memory: 32MiB
  disks: [{{image: root.tar, size: 16MiB}}]
"""


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with private_rack() as made:
        (made.directory / "root.tar").write_bytes(busybox_root(init=REBOOTS))
        yield made


@pytest.fixture(scope="module")
def dockerd() -> Iterator[DockerService]:
    with closing(DockerService("--userns-remap", REMAPPED, "--live-restore")) as made:
        yield made


@pytest.fixture(scope="module")
def box(rack: Rack, dockerd: DockerService) -> Iterator[str]:
    """A container, on or off: the tests may come in any order."""
    name, bmc = rack.name(), rack.bmc().removeprefix("bmc: ").strip()
    rack.run("up", "--yes", rack.file(FILE.format(name=name, bmc=bmc, socket=dockerd.socket)))
    yield f"{name}/box"
    dockerd.start_again()
    rack.run("down", "--yes", "--purge", name)


def power(rack: Rack, node: str) -> str:
    return str(rack.json("node", "show", node)["power"])


def test_a_power_command_is_refused_while_the_engine_is_away_and_works_when_it_is_back(
    rack: Rack, dockerd: DockerService, box: str
) -> None:
    bmc = rack.bmcs(box.partition("/")[0])["box"]
    rack.power(box, "on")
    dockerd.stop()
    until(lambda: power(rack, box) == "unknown")
    assert f"no engine answers at {dockerd.socket}" in rack.run("host", "list").stdout
    refused = rack.run("node", "power", box, "off", status=1).stderr
    assert f"no engine answers at {dockerd.socket}" in refused
    said = rack.ipmitool(bmc, "chassis", "power", "off", status=1)
    assert "Destination unavailable" in said
    dockerd.start_again()
    until(lambda: power(rack, box) == "on")
    rack.power(box, "off")
    status = rack.ipmitool(bmc, "chassis", "status")
    assert "System Power         : off" in status
    assert "Power Control Fault  : false" in status
    assert dockerd.running() == []


def test_a_guest_that_ends_while_the_engine_is_away_has_a_console_when_it_is_on_again(
    rack: Rack, dockerd: DockerService, box: str
) -> None:
    """It reboots, and is on when the engine is back; or it is powered on then."""
    (file,) = (rack.directory / "pool").glob(f"docker-*/*/{box.replace('/', '-*-')}/machine.json")

    def init() -> str:
        found = file.with_name("init")
        return found.read_text().split()[0] if found.exists() else ""

    def says(times: int) -> None:
        """When its trap is set."""
        until(
            lambda: console_of(rack, box).count(SAYS) == times,
            shows=lambda: (times, console_of(rack, box), dockerd.events(), init()),
        )

    rack.power(box, "off")
    before = console_of(rack, box).count(SAYS)
    rack.power(box, "on")
    for turn, sent in enumerate((signal.SIGPWR, signal.SIGKILL), before + 1):
        says(turn)
        first = init()
        dockerd.stop()
        until(lambda: power(rack, box) == "unknown")
        os.kill(int(first), sent)
        until(lambda: not Path(f"/proc/{first}").exists())  # noqa: B023  (called at once)
        dockerd.start_again()
        if sent == signal.SIGKILL:
            until(lambda: power(rack, box) == "off")
            rack.power(box, "on")
        until(lambda: init() not in ("", first) and power(rack, box) == "on")  # noqa: B023
    says(before + 3)
    rack.power(box, "off")
    assert dockerd.running() == []


def console_of(rack: Rack, node: str) -> str:
    return rack.run("node", "console", "--log", node).stdout
