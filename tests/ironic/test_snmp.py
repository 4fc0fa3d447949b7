"""Ironic's own snmp driver and our PDU: that of Ironic 34, for the 39 has none any more."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nospoon.dev import environment
from nospoon.dev.configuration import Wanted, ironic_conf
from nospoon.runtime import owned
from nospoon.testing.ironic import Api, until
from nospoon.testing.rack import Rack

LOCK = Path(__file__).with_name("ironic-snmp.txt")
OVERRIDES = """
[DEFAULT]
enabled_hardware_types = snmp
enabled_boot_interfaces = ipxe
enabled_deploy_interfaces = direct
enabled_inspect_interfaces = no-inspect
enabled_management_interfaces = noop
enabled_power_interfaces = snmp
enabled_bios_interfaces = no-bios
enabled_firmware_interfaces = no-firmware
enabled_raid_interfaces = no-raid
enabled_vendor_interfaces = no-vendor
[snmp]
reboot_delay = 0
"""
START_SECONDS = 120


def answers(api: Api) -> bool:
    try:
        return bool(api("GET", "/drivers")["drivers"])
    except OSError:
        return False


@pytest.fixture
def old_ironic(own_directory: Path, cache: Path, free_port: int) -> Iterator[Api]:
    made = asyncio.run(environment.ensure(cache, "ironic-snmp", LOCK))
    wanted, state = Wanted(port=free_port), own_directory / "ironic"
    for name in ("tmp", "http", "tftp", "tftp-master", "images", "master", "locks"):
        (state / name).mkdir(parents=True)
    (state / "ironic.conf").write_text(ironic_conf(wanted, state=state))
    (state / "snmp.conf").write_text(OVERRIDES)
    config = [f"--config-file={state / name}" for name in ("ironic.conf", "snmp.conf")]
    path = f"{made / 'bin'}:{os.environ['PATH']}"
    sync = [str(made / "bin" / "ironic-dbsync"), *config, "create_schema"]
    subprocess.run(sync, check=True, capture_output=True, env={"PATH": path})
    argv = [str(made / "bin" / "python"), str(made / "bin" / "ironic"), *config]
    process = owned.begin(argv, output=state / "ironic.log", env={**os.environ, "PATH": path})
    found = Api(wanted.endpoint)
    try:
        until(lambda: answers(found), START_SECONDS)
        yield found
    except BaseException:
        print((state / "ironic.log").read_text()[-8000:])  # noqa: T201  (what its reader needs)
        raise
    finally:
        asyncio.run(owned.stop(process, patience=10, with_session=True))


def test_the_snmp_driver_of_ironic_switches_nodes_by_our_pdu(rack: Rack, old_ironic: Api) -> None:
    name = rack.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}"
    text += f'ironic: {{endpoint: "{old_ironic.endpoint}", state: manageable, driver: snmp}}\n'
    text += "nodes: [{name: v2, bmc: [pdu]}, {name: v3, bmc: [ipmi, pdu], ironic: {driver_info:"
    text += " {snmp_version: '3'}}}]\n"
    rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
    assert rack.bmcs(name)["v2"]["pdu_secret"] not in rack.run("plan", f"{name}.yaml").stdout

    def power(node: str) -> str:
        return rack.run("node", "power", f"{name}/{node}", "status").stdout.strip()

    for node in ("v2", "v3"):
        assert old_ironic("GET", f"/nodes/{node}")["provision_state"] == "manageable"
        # an outlet has power from the first, while its machine is off, as one that is just plugged
        for target, ours in (("power off", "off"), ("power on", "on"), ("power off", "off")):
            old_ironic("PUT", f"/nodes/{node}/states/power", {"target": target})
            until(lambda: _settled(old_ironic, node) == target)  # noqa: B023  (used at once)
            until(lambda: power(node) == ours)  # noqa: B023
    old_ironic("PUT", "/nodes/v2/states/power", {"target": "rebooting"})
    until(lambda: _settled(old_ironic, "v2") == "power on")
    until(lambda: power("v2") == "on")
    rack.run("down", "--yes", "--purge", rack.names.pop())
    assert old_ironic("GET", "/nodes")["nodes"] == []


def _settled(found: Api, node: str) -> str:
    record = found("GET", f"/nodes/{node}")
    assert not record["last_error"]
    return str(record["power_state"]) if record["target_power_state"] is None else ""
