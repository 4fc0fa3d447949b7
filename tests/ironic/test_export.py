"""What `export --to ironic` writes, given to Ironic's own command: nodes whose BMCs it reaches."""

from __future__ import annotations

import os
import subprocess
import time

from nospoon.dev.ironic import Ironic
from nospoon.testing.ironic import Api
from nospoon.testing.rack import BIN, Rack

BOTH = (
    "[{name: 'i{n}', count: 1}, {name: r0, ironic: {driver: redfish}, nics: [lan, {network: lan,"
    " portgroup: b}], portgroups: {b: {mode: 802.3ad}}}]"
)


def test_ironics_own_command_creates_nodes_that_its_conductor_can_power(
    rack: Rack, api: Api, running_ironic: Ironic
) -> None:
    name = rack.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\nnetworks: {{lan: {{}}}}\n{rack.bmc()}"
    text += f'ironic: {{endpoint: "{running_ironic.endpoint}", name: "{{cluster}}-{{node}}"}}\n'
    rack.run("up", "--yes", rack.file(f"{text}nodes: {BOTH}\n", f"{name}.yaml"))
    rack.run("export", "--to", "ironic", name, "-o", "nodes.json")
    # those that are enrolled make room for those of the file
    lines = text.splitlines()[:-1]
    rack.run("up", "--yes", rack.file("\n".join([*lines, f"nodes: {BOTH}"]), f"{name}.yaml"))
    environment = {"OS_CLIENT_CONFIG_FILE": str(running_ironic.clouds_file)}
    environment |= {"OS_CLOUD": "nospoon-dev", "PATH": os.environ["PATH"]}
    subprocess.run(
        [BIN / "baremetal", "create", rack.directory / "nodes.json"], env=environment, check=True
    )
    names = [f"{name}-{each}" for each in ("i0", "r0")]
    try:
        for each in names:
            api("PUT", f"/nodes/{each}/states/provision", {"target": "manage"})
        for each in names:
            _until_powered(api, each)
        ports = api("GET", f"/ports?detail=true&node={names[1]}")["ports"]
        assert sorted(bool(port["portgroup_uuid"]) for port in ports) == [False, True]
    finally:
        for each in names:
            api("DELETE", f"/nodes/{each}")


def _until_powered(api: Api, node: str) -> None:
    """It is manageable when its conductor has logged in to its BMC."""
    end = time.monotonic() + 240
    while (record := api("GET", f"/nodes/{node}"))["provision_state"] != "manageable":
        assert time.monotonic() < end, record["last_error"]
        assert record["provision_state"] == "verifying", record["last_error"]
        time.sleep(0.2)
    assert record["power_state"] == "power off"
