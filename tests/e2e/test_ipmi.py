"""IPMI of a whole daemon: serial over LAN to a booted guest, and what survives a restart."""

from __future__ import annotations

import pytest

from nospoon.runtime.clock import monotonic
from nospoon.testing import guests
from nospoon.testing.rack import Rack
from nospoon.testing.terminal import terminal


def one_node(rack: Rack, node: str, *, hosts: str = "") -> dict[str, str]:
    """A cluster of one node `n`; its BMC's row."""
    name = rack.name()
    text = f"cluster: {name}\n{hosts}networks: {{lan: {{}}}}\nnodes: [{node}]\n{rack.bmc()}"
    rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
    return rack.bmcs(name)["n"]


def sol(bmc: dict[str, str]) -> list[str]:
    host, port = bmc["ipmi"].rsplit(":", 1)
    login = ["-U", bmc["username"], "-P", bmc["password"]]
    return ["ipmitool", "-I", "lanplus", "-H", host, "-p", port, *login, "sol", "activate"]


def until_logged(rack: Rack, bmc: dict[str, str], *events: str) -> None:
    """A reset of SeaBIOS is told once it has settled, a second or two later."""
    deadline = monotonic() + 240
    while not all(each in (told := rack.ipmitool(bmc, "sel", "elist")) for each in events):
        assert monotonic() < deadline, told


@pytest.mark.libvirt
@pytest.mark.boots
def test_serial_over_lan_types_at_a_booted_guest_and_reads_its_answer(rack: Rack) -> None:
    (rack.directory / "disk.img").write_bytes(guests.speaking_disk())
    bmc = one_node(rack, "{name: n, firmware: bios, memory: 64MiB, disks: [{image: disk.img}]}")
    with terminal(sol(bmc)) as screen:
        screen.shows(b"SOL Session operational")
        rack.ipmitool(bmc, "chassis", "power", "on")
        screen.shows(guests.BOOTED)
        screen.types(b"\r~B")  # a break
        screen.types(b"r")  # the guest resets itself
        screen.shows(guests.BOOTED)
    until_logged(rack, bmc, "Initiated by power up", "Initiated by warm reset")
    assert "task failed" not in rack.log()


def test_serial_over_lan_of_a_simulated_machine(shared: Rack) -> None:
    bmc = one_node(shared, "{name: n}", hosts="hosts: {sim: simulated}\n")
    shared.ipmitool(bmc, "chassis", "power", "on")
    with terminal(sol(bmc)) as screen:
        screen.shows(b"SOL Session operational")
        screen.types(b"hello there\r")
        screen.shows(b"hello there")


def test_bmcs_answer_on_ipv6_when_the_file_says_so(shared: Rack) -> None:
    name = shared.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\nnodes: [{{name: n}}]\n"
    shared.run("up", "--yes", shared.file(text + shared.bmc(address="'::1'"), f"{name}.yaml"))
    bmc = shared.bmcs(name)["n"]
    assert bmc["ipmi"].startswith("[::1]:")
    assert bmc["redfish"].startswith("http://[::1]:")
    assert "Chassis Power is off" in shared.ipmitool(bmc, "power", "status")


def test_the_log_users_and_settings_survive_a_restart_of_the_daemon(rack: Rack) -> None:
    bmc = one_node(rack, "{name: n}", hosts="hosts: {sim: simulated}\n")
    rack.ipmitool(bmc, "chassis", "power", "on")
    rack.ipmitool(bmc, "chassis", "policy", "previous")
    rack.ipmitool(bmc, "user", "set", "name", "3", "bob")
    rack.ipmitool(bmc, "user", "set", "password", "3", "hunter22")
    rack.ipmitool(bmc, "channel", "setaccess", "1", "3", "ipmi=on", "link=on", "privilege=4")
    rack.ipmitool(bmc, "user", "enable", "3")
    before = rack.ipmitool(bmc, "sel", "elist")
    assert "S0/G0: working" in before
    rack.run("daemon", "stop")
    rack.run("status")
    assert rack.ipmitool(bmc, "sel", "elist") == before
    assert "previous" in rack.ipmitool(bmc, "chassis", "status")
    bob = {**bmc, "username": "bob", "password": "hunter22"}
    assert "Chassis Power is" in rack.ipmitool(bob, "chassis", "power", "status")
