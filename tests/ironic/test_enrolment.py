"""Nodes of simulated machines, enrolled in a real Ironic, which talks to our BMCs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import urllib.error
from pathlib import Path
from typing import Any

import pytest

from nospoon.dev import ironic
from nospoon.dev.ironic import Ironic
from nospoon.testing.ironic import Api, until
from nospoon.testing.rack import Rack


class Cluster:
    """A cluster file for an Ironic; each `write` says something else."""

    def __init__(self, rack: Rack, found: Ironic) -> None:
        self.rack, self.name, self.endpoint = rack, rack.name(), found.endpoint
        self.bmc = rack.bmc()

    def write(self, nodes: str, **more: Any) -> str:
        told = {
            "endpoint": self.endpoint,
            "name": "{cluster}-{node}",
            "automated_clean": False,
            **more,
        }
        text = f"cluster: {self.name}\nhosts: {{sim: simulated}}\n{self.bmc}"
        text += f"networks: {{lan: {{}}}}\nironic: {json.dumps(told)}\nnodes: {nodes}\n"
        return self.rack.file(text, f"{self.name}.yaml")


@pytest.fixture
def cluster(rack: Rack, running_ironic: Ironic) -> Cluster:
    return Cluster(rack, running_ironic)


FIVE = (
    "[{name: 'i{n}', count: 3, traits: [CUSTOM_GOLD], ironic: {resource_class: gold}},"
    " {name: 'r{n}', count: 2, ironic: {driver: redfish, state: manageable}, nics: [lan,"
    " {network: lan, portgroup: b, pxe: false}], portgroups: {b: {mode: 802.3ad}},"
    " overrides: {r1: {ironic: {state: inspected, interfaces: {inspect: redfish}}}}}]"
)


def test_five_nodes_are_enrolled_changed_and_removed(
    rack: Rack, api: Api, cluster: Cluster
) -> None:
    file = cluster.write(FIVE, capabilities={"rack": "7"}, deploy_kernel="http://192.0.2.1/k")
    assert "+ ironic-node i0 on Ironic" in rack.run("plan", file).stdout
    rack.run("up", "--yes", file)
    nodes = api.nodes()
    names = [f"{cluster.name}-{each}" for each in ("i0", "i1", "i2", "r0", "r1")]
    states = {name: nodes[name]["provision_state"] for name in names}
    assert states == dict(zip(names, ["available"] * 3 + ["manageable"] * 2, strict=True))
    first, bonded = nodes[names[0]], nodes[names[3]]
    assert (first["uuid"], first["driver"]) == (rack.bmcs(cluster.name)["i0"]["uuid"], "ipmi")
    assert first["power_state"] == "power off"
    assert (first["traits"], first["resource_class"]) == (["CUSTOM_GOLD"], "gold")
    assert first["properties"]["memory_mb"] == 1024
    assert "rack:7" in first["properties"]["capabilities"]
    assert first["driver_info"]["deploy_kernel"] == "http://192.0.2.1/k"
    assert bonded["driver"] == "redfish"
    assert nodes[names[4]]["inspection_finished_at"]
    assert nodes[names[4]]["properties"]["memory_mb"] in (1024, "1024")
    one, two = api.ports(names[3])
    assert (one["pxe_enabled"], two["pxe_enabled"]) == (True, False)
    assert two["local_link_connection"]["port_id"] != one["local_link_connection"]["port_id"]
    (bond,) = api("GET", f"/portgroups?detail=true&node={names[3]}")["portgroups"]
    assert (bond["mode"], two["portgroup_uuid"]) == ("802.3ad", bond["uuid"])
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr
    _change(rack, api, cluster)
    rack.run("down", "--yes", cluster.name)
    assert not set(names) & set(api.nodes())


@pytest.mark.parametrize("mac", ["02:00:00:00:00:01", "02:00:00:00:00:02"])
def test_a_port_goes_to_another_group_at_once_also_with_another_address(
    rack: Rack, api: Api, cluster: Cluster, mac: str
) -> None:
    def file(mac: str, group: str) -> str:
        nic = f"{{network: lan, mac: '{mac}', portgroup: {group}}}"
        return cluster.write(f"[{{name: n0, nics: [{nic}], portgroups: {{{group}: {{}}}}}}]")

    rack.run("up", "--yes", file("02:00:00:00:00:01", "b"))
    rack.run("up", "--yes", file(mac, "c"))
    name = f"{cluster.name}-n0"
    (group,) = api("GET", f"/portgroups?node={name}")["portgroups"]
    (port,) = api.ports(name)
    assert group["name"].endswith("c")
    assert (port["address"], port["portgroup_uuid"]) == (mac, group["uuid"])
    rack.run("down", "--yes", cluster.name)


def _change(rack: Rack, api: Api, cluster: Cluster) -> None:
    """A changed file changes what it says, in place; what others did is put right, or let be."""
    name = f"{cluster.name}-r0"
    before = api.nodes()
    file = cluster.write(
        FIVE.replace("manageable", "available").replace("pxe: false", "pxe: true"),
        owner="me", properties={"vendor": "nobody"}, capabilities={"rack": "7"},
    )  # fmt: skip
    plan = rack.run("plan", file).stdout
    assert 'properties/vendor: none -> "nobody"' in plan
    assert "0 to create" in plan
    assert "0 to replace" in plan
    rack.run("up", "--yes", file)
    node = api.nodes()[name]
    assert (node["uuid"], node["provision_state"]) == (before[name]["uuid"], "available")
    assert (node["owner"], node["properties"]["vendor"]) == ("me", "nobody")
    assert "deploy_kernel" not in node["driver_info"]
    assert [port["pxe_enabled"] for port in api.ports(name)] == [True, True]
    assert node["maintenance"] is False
    api("PATCH", f"/nodes/{name}", [
        {"op": "replace", "path": "/properties/vendor", "value": "other"},
        {"op": "add", "path": "/properties/theirs", "value": "1"},
    ])  # fmt: skip
    (row,) = [row for row in rack.json("status", cluster.name) if row["node"] == "r0"]
    assert 'properties/vendor: "other", file says "nobody"' in row["drift"]
    rack.run("up", "--yes", file)
    properties = api.nodes()[name]["properties"]
    assert (properties["vendor"], properties["theirs"]) == ("nobody", "1")


def test_every_interface_and_what_is_said_of_a_node_reach_ironic(
    rack: Rack, api: Api, cluster: Cluster
) -> None:
    interfaces = {
        "bios": "no-bios", "boot": "redfish-virtual-media", "console": "no-console",
        "deploy": "ramdisk", "firmware": "redfish", "inspect": "agent", "management": "redfish",
        "network": "noop", "power": "redfish", "raid": "agent", "rescue": "agent",
        "storage": "external", "vendor": "redfish",
    }  # fmt: skip
    said = {"conductor_group": "", "shard": "s1", "lessee": "you", "description": "a rack"}
    files = {"rescue_kernel": "http://192.0.2.1/k", "rescue_ramdisk": "http://192.0.2.1/r"}
    redfish = {
        "driver": "redfish",
        "interfaces": interfaces,
        "state": "manageable",
        **said,
        **files,
    }
    agent = {"interfaces": {"power": "agent"}, "driver_info": {"fast_track": True}}
    nodes = f"[{{name: r0, ironic: {json.dumps(redfish)}}},"
    nodes += f" {{name: a0, bmc: [], ironic: {json.dumps({**agent, 'state': 'enroll'})}}}]"
    file = cluster.write(nodes, root_device={"serial": "A1"})
    rack.run("up", "--yes", file)
    there = api.nodes()[f"{cluster.name}-r0"]
    found = {name: there[f"{name}_interface"] for name in interfaces}
    assert found == interfaces
    assert (there["shard"], there["lessee"], there["description"]) == ("s1", "you", "a rack")
    assert there["driver_info"]["rescue_ramdisk"] == files["rescue_ramdisk"]
    assert there["properties"]["root_device"] == {"serial": "A1"}
    manual = api.nodes()[f"{cluster.name}-a0"]
    assert (manual["driver"], manual["power_interface"]) == ("manual-management", "agent")
    assert manual["driver_info"] == {"fast_track": True}
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr


def test_volumes_to_boot_from_reach_ironic_and_change_and_go(
    rack: Rack, api: Api, cluster: Cluster
) -> None:
    target = {
        "volume_id": "{node}-root",
        "properties": {"target_iqn": "iqn.2026-11.org.example:{node}", "target_lun": 1},
    }
    volumes = {
        "connectors": [{"type": "iqn", "id": "iqn.2026-11.org.example:{cluster}-{node}"}],
        "targets": [target, {"volume_id": "data", "boot_index": 1}],
    }
    more = {"interfaces": {"storage": "external"}, "capabilities": {"iscsi_boot": "true"}}

    def write(volumes: dict[str, Any]) -> str:
        node = {"state": "manageable", "volumes": volumes, **more}
        return cluster.write(f"[{{name: n0, ironic: {json.dumps(node)}}}]")

    rack.run("up", "--yes", write(volumes))
    name = f"{cluster.name}-n0"
    (connector,) = api("GET", f"/volume/connectors?detail=true&node={name}")["connectors"]
    assert connector["connector_id"] == f"iqn.2026-11.org.example:{cluster.name}-n0"
    targets = api("GET", f"/volume/targets?detail=true&node={name}")["targets"]
    root, data = sorted(targets, key=lambda each: int(each["boot_index"]))
    assert (root["volume_type"], root["volume_id"], data["volume_id"]) == (
        "iscsi", "n0-root", "data",
    )  # fmt: skip
    assert root["properties"] == {"target_iqn": "iqn.2026-11.org.example:n0", "target_lun": 1}
    target["properties"] = {"target_lun": 2}
    file = write({"targets": [target]})
    plan = rack.run("plan", file).stdout
    assert "properties/target_lun: 1 -> 2" in plan
    rack.run("up", "--yes", file)
    (root,) = api("GET", f"/volume/targets?detail=true&node={name}")["targets"]
    assert root["properties"] == {"target_lun": 2}
    assert api("GET", f"/volume/connectors?node={name}")["connectors"] == []
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr


def test_nodes_to_be_discovered_are_started_and_found_by_ironic_itself(
    rack: Rack, api: Api, cluster: Cluster
) -> None:
    file = cluster.write("[{name: d0, nics: [lan, lan], ironic: {enrolment: discover}}]")
    assert "+ ironic-discovery d0" in rack.run("plan", file).stdout
    rack.run("up", "--yes", file)
    path = f"{cluster.name}/d0"
    assert rack.run("node", "power", path, "status").stdout.strip() == "on"
    macs = [port["address"] for port in rack.json("node", "show", path)["ports"]]
    before = {port["address"] for port in api("GET", "/ports")["ports"]}
    assert not before & set(macs)
    # what a deploy agent sends that nobody knows
    interfaces = [{"name": f"eth{n}", "mac_address": mac} for n, mac in enumerate(macs)]
    inventory = {"interfaces": interfaces, "disks": [], "memory": {}, "boot": {}, "cpu": {}}
    told = {"inventory": {**inventory, "cpu": {"architecture": "x86_64", "count": 1}}}
    uuid = api("POST", "/continue_inspection", told)["node"]["uuid"]
    try:
        until(lambda: {port["address"] for port in api("GET", f"/nodes/{uuid}/ports")["ports"]})
        found = {port["address"] for port in api("GET", f"/nodes/{uuid}/ports")["ports"]}
        assert found & set(macs)
        rack.run("node", "power", path, "off")
        assert "Nothing to do" in rack.run("up", "--yes", file).stderr
        assert rack.run("node", "power", path, "status").stdout.strip() == "off"
        rack.run("down", "--yes", cluster.name)
        assert api("GET", f"/nodes/{uuid}")["driver"] == "ipmi"
    finally:
        until(lambda: _gone(api, uuid))


def _gone(api: Api, uuid: str) -> bool:
    """Ironic lets a node go only when no conductor holds it."""
    try:
        api("DELETE", f"/nodes/{uuid}")
    except urllib.error.HTTPError as error:
        if error.code != 409:
            raise
        return False
    return True


def test_another_password_reaches_ironic(rack: Rack, api: Api, cluster: Cluster) -> None:
    one = "[{name: n0, ironic: {state: manageable}, bmc: {password: %s}}]"
    rack.run("up", "--yes", cluster.write(one % "first-pass"))
    file = cluster.write(one % "second-pass")
    plan = rack.run("plan", file).stdout
    assert "second-pass" not in plan
    assert "credentials_key: changed" in plan
    rack.run("up", "--yes", file)
    name = f"{cluster.name}-n0"
    api("PUT", f"/nodes/{name}/states/power", {"target": "power on"})
    until(lambda: api.nodes()[name]["power_state"] == "power on")
    assert rack.run("node", "power", f"{cluster.name}/n0", "status").stdout.strip() == "on"
    assert "second-pass" not in rack.log()


def test_a_node_that_is_not_ours_is_let_be(rack: Rack, api: Api, cluster: Cluster) -> None:
    name = f"{cluster.name}-n0"
    theirs = api("POST", "/nodes", {"name": name, "driver": "ipmi"})
    try:
        file = cluster.write("[{name: n0, ironic: {state: enroll}}]")
        refused = rack.run("up", "--yes", file, status=1).stderr
        assert f"Ironic has another node named '{name}'" in refused
        assert api.nodes()[name]["uuid"] == theirs["uuid"]
    finally:
        api("DELETE", f"/nodes/{theirs['uuid']}")


def test_a_node_in_use_is_removed_only_by_force(rack: Rack, api: Api, cluster: Cluster) -> None:
    rack.run("up", "--yes", cluster.write("[{name: n0, ironic: {state: manageable}}]"))
    name = f"{cluster.name}-n0"
    instance = "11111111-2222-4333-8444-555555555555"
    api("PATCH", f"/nodes/{name}", [{"op": "add", "path": "/instance_uuid", "value": instance}])
    refused = rack.run("down", "--yes", cluster.name, status=1).stderr
    assert instance in refused
    assert "--force" in refused
    assert rack.bmcs(cluster.name)["n0"]["ipmi"]
    rack.run("down", "--yes", "--force", cluster.name)
    assert name not in api.nodes()


def test_a_node_that_fails_shows_what_ironic_says_and_is_mended(
    rack: Rack, api: Api, cluster: Cluster
) -> None:
    cannot = "[{name: n0, ironic: {driver: redfish, driver_info: {redfish_system_id: /none}}}]"
    failed = rack.run("up", "--yes", cluster.write(cannot), status=3).stderr
    assert "n0 is enroll, not available" in failed
    assert "Failed to validate power driver interface" in failed or "/none" in failed
    rack.run("up", "--yes", cluster.write("[{name: n0}]"))
    assert api.nodes()[f"{cluster.name}-n0"]["provision_state"] == "available"
    api("PUT", f"/nodes/{cluster.name}-n0/maintenance", {"reason": "a fan"})
    (row,) = rack.json("status", cluster.name)
    assert "in maintenance: a fan" in row["drift"]


def test_an_ironic_that_is_away_is_told_and_a_cluster_can_leave_it_its_nodes(
    rack: Rack, api: Api, cluster: Cluster, running_ironic: Ironic
) -> None:
    rack.run("up", "--yes", cluster.write("[{name: n0, ironic: {state: enroll}}]"))
    text = Path(rack.directory / f"{cluster.name}.yaml").read_text()
    gone = text.replace(running_ironic.endpoint, "http://127.0.0.1:9")
    refused = rack.run("plan", rack.file(gone, f"{cluster.name}.yaml"), status=1).stderr
    assert "127.0.0.1:9 does not answer" in refused
    rack.run("down", "--yes", "--keep-enrolment", cluster.name)
    name = f"{cluster.name}-n0"
    api("DELETE", f"/nodes/{api.nodes()[name]['uuid']}")


def test_a_file_that_enrols_no_more_takes_its_nodes_out(
    rack: Rack, api: Api, cluster: Cluster
) -> None:
    file = cluster.write("[{name: n0, ironic: {state: enroll}}]")
    rack.run("up", "--yes", file)
    assert f"{cluster.name}-n0" in api.nodes()
    lines = [line for line in Path(file).read_text().splitlines() if 'ironic: {"' not in line]
    rack.run("up", "--yes", rack.file("\n".join(lines), f"{cluster.name}.yaml"))
    assert f"{cluster.name}-n0" not in api.nodes()
    rack.run("down", "--yes", cluster.name)


async def test_an_ironic_that_dies_while_nodes_are_enrolled_is_mended_by_a_second_up(
    rack: Rack, api: Api, cluster: Cluster, running_ironic: Ironic, cache: Path
) -> None:
    file = cluster.write("[{name: 'n{n}', count: 4, ironic: {state: manageable}}]")
    argv = [*rack.prefix, "nospoon", "up", "--yes", file]
    first = await asyncio.create_subprocess_exec(
        *argv, env=rack.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert first.stderr is not None
    while b"ironic-node/" not in await first.stderr.readline():
        pass
    found = ironic.running(running_ironic.state)
    assert found is not None
    os.killpg(found.process.pid, signal.SIGKILL)
    said = (await first.stderr.read()).decode()
    assert await first.wait() == 3, said
    assert "does not answer" in said
    refused = rack.run("down", "--yes", cluster.name, status=1).stderr
    assert "--forget-enrolment" in refused
    assert len(rack.bmcs(cluster.name)) == 4
    await ironic.up(running_ironic.wanted, state=running_ironic.state, cache=cache)
    rack.run("up", "--yes", file)
    states = {n: each["provision_state"] for n, each in api.nodes().items() if cluster.name in n}
    assert states == {f"{cluster.name}-n{n}": "manageable" for n in range(4)}


def test_a_cloud_of_clouds_yaml_is_written_out_for_the_daemon(
    rack: Rack, api: Api, cluster: Cluster, running_ironic: Ironic
) -> None:
    file = Path(cluster.write("[{name: n0, ironic: {state: enroll}}]"))
    endpoint = json.dumps(running_ironic.endpoint)
    text = file.read_text().replace(f'"endpoint": {endpoint}', '"cloud": "nospoon-dev"')
    file.write_text(text)
    rack.environment["OS_CLIENT_CONFIG_FILE"] = "/dev/null"
    assert "nospoon-dev" in rack.run("plan", str(file), status=2).stderr
    rack.environment["OS_CLIENT_CONFIG_FILE"] = str(running_ironic.clouds_file)
    rack.run("up", "--yes", str(file))
    assert f"{cluster.name}-n0" in api.nodes()
    del rack.environment["OS_CLIENT_CONFIG_FILE"]
    rack.run("down", "--yes", cluster.name)
    assert f"{cluster.name}-n0" not in api.nodes()
