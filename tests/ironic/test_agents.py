"""Simulated deploy agents, obeying a real conductor."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from nospoon.dev import ironic
from nospoon.dev.ironic import Ironic
from nospoon.runtime import owned
from nospoon.testing.ironic import Api, files_of, until
from nospoon.testing.rack import Rack

ADOPTED = ["ai", "am"]
"""Machines of others, on each simulated host."""


class Scale:
    """A cluster file whose nodes have agents; each `write` says something else."""

    def __init__(self, rack: Rack, found: Ironic) -> None:
        self.rack, self.name, self.bmc = rack, rack.name(), rack.bmc()
        self.endpoint, self.url, self.files = (
            found.endpoint,
            found.wanted.files_url,
            files_of(found),
        )

    def write(self, nodes: str, *, hosts: dict[str, Any] | None = None, **more: Any) -> str:
        """`hosts`: name -> more settings of its agents."""
        script = {"boot_script": f"{self.url}/boot.ipxe"}
        places = {
            name: {"simulated": {"boot": "2s", "agents": script | told, "machines": ADOPTED}}
            for name, told in (hosts or {"sim": {}}).items()
        }
        told = {
            "endpoint": self.endpoint,
            "name": "{cluster}-{node}",
            "deploy_kernel": self.files["kernel"],
            "deploy_ramdisk": self.files["ramdisk"],
            "interfaces": {"deploy": "direct", "boot": "ipxe", "inspect": "agent"},
            "automated_clean": True,
            **more,
        }
        text = f"cluster: {self.name}\nhosts: {json.dumps(places)}\n{self.bmc}"
        text += f"networks: {{lan: {{}}}}\nironic: {json.dumps(told)}\nnodes: {nodes}\n"
        return self.rack.file(text, f"{self.name}.yaml")

    def active(self) -> dict[str, Any]:
        image = {"image": self.files["image.raw"], "checksum": self.files["checksum"]}
        return {"state": "active", **image}

    def record(self, node: dict[str, Any]) -> str:
        path = self.rack.directory / "state" / "consoles" / f"{node['uuid']}.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def scale(rack: Rack, running_ironic: Ironic) -> Scale:
    return Scale(rack, running_ironic)


MEDIA = (
    "{driver: redfish, interfaces: {boot: redfish-virtual-media}, driver_info: {bootloader: '%s'}}"
)
SIX = (
    "[{name: i}, {name: r, ironic: {driver: redfish}}, {name: m, ironic: %s},"
    " {name: h, ironic: %s}, {adopt: ai}, {adopt: am, ironic: %s}]"
)
"""Of every kind of boot, two of them adopted, and more than the conductor takes on at once.
benchmarks/agents.py has hundreds.
"""


@pytest.mark.timeout(1200)  # a conductor needs a dozen CPU seconds a node
def test_six_nodes_are_inspected_cleaned_deployed_and_undeployed(
    rack: Rack, api: Api, scale: Scale
) -> None:
    media = MEDIA % scale.files["esp.img"]
    nodes = SIX % (media, media.replace("redfish-virtual-media", "redfish-https"), media)
    rack.run("up", "--yes", scale.write(nodes, state="inspected"))
    there = {name: each for name, each in api.nodes().items() if scale.name in name}
    assert Counter(each["provision_state"] for each in there.values()) == {"manageable": 6}
    assert all(each["inspection_finished_at"] for each in there.values())
    inventory = api("GET", f"/nodes/{scale.name}-m/inventory")["inventory"]
    assert inventory["memory"]["physical_mb"] == 1024
    assert inventory["disks"][0]["size"] == 10 << 30
    deploy = scale.active()
    rack.run("up", "--yes", scale.write(nodes, automated_clean=False, **deploy))
    there = {name: each for name, each in api.nodes().items() if scale.name in name}
    assert Counter(each["provision_state"] for each in there.values()) == {"active": 6}
    for each in there.values():
        assert scale.record(each).rstrip().endswith(f"boots disk: {scale.files['image.raw']}")
    assert "boots cdrom" in scale.record(there[f"{scale.name}-m"])
    assert "boots cdrom" not in scale.record(there[f"{scale.name}-h"])
    assert "boots cdrom" in scale.record(there[f"{scale.name}-am"])
    assert "boots network" in scale.record(there[f"{scale.name}-ai"])
    cleaned = scale.write(nodes, **deploy)
    rack.run("up", "--yes", cleaned)
    assert "Nothing to do" in rack.run("up", "--yes", cleaned).stderr
    rack.run("down", "--yes", scale.name)
    assert not [name for name in api.nodes() if scale.name in name]
    for each in there.values():
        assert "erase_devices_metadata: SUCCEEDED" in scale.record(each)


def slow(rack: Rack, scale: Scale, name: str) -> None:
    """Until its agent writes the image, which it does not soon end."""
    uuid = rack.bmcs(scale.name)[name]["uuid"]
    until(lambda: "begins deploy.execute_deploy_step write_image" in scale.record({"uuid": uuid}))


BAD = {
    "sim": {},
    "mute": {"silent": 1.0},
    "torn": {"failing": {"write_image": "no space left on device"}},
    "slow": {"commands": {"write_image": "20s"}},
}
FOUR = (
    "[{name: fine, host: sim}, {name: mute, host: mute}, {name: torn, host: torn},"
    " {name: hung, host: slow}]"
)


def begun(rack: Rack, file: str, *more: str) -> subprocess.Popen[str]:
    """An `up` under way."""
    return subprocess.Popen(
        [*rack.prefix, "nospoon", "up", "--yes", *more, file], env=rack.environment, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def states(api: Api, scale: Scale) -> dict[str, str]:
    found = api.nodes().items()
    return {n.rpartition("-")[2]: each["provision_state"] for n, each in found if scale.name in n}


def test_nodes_that_fail_say_why_and_are_mended_by_a_second_up(
    rack: Rack, api: Api, scale: Scale
) -> None:
    """An agent that is never heard of, an image that cannot be written, a BMC that hangs."""
    deploy = {"automated_clean": False, **scale.active()}
    up = begun(rack, scale.write(FOUR, hosts=BAD, **deploy))
    until(lambda: "hung" in states(api, scale))
    slow(rack, scale, "hung")
    rack.run("node", "fault", f"{scale.name}/hung", "drop")
    _, said = up.communicate(timeout=500)
    assert up.returncode == 3, said
    assert states(api, scale) == {
        "fine": "active", "mute": "deploy failed", "torn": "deploy failed", "hung": "deploy failed",
    }  # fmt: skip
    assert "node mute is deploy failed, not active: Timeout reached" in said
    assert "| simulated agent: stays silent" in said
    assert "no space left on device" in said
    assert "node hung is deploy failed, not active" in said
    rows = {row["node"]: row["drift"] for row in rack.json("status", scale.name)}
    assert "no space left on device" in rows["torn"]
    rack.run("node", "fault", f"{scale.name}/hung", "--clear")
    rack.run("up", "--yes", scale.write(FOUR, hosts={key: {} for key in BAD}, **deploy))
    assert set(states(api, scale).values()) == {"active"}


@pytest.mark.parametrize(
    ("state", "clean", "waits_in"),
    [
        ("active", False, {"wait call-back"}),
        ("active", True, {"cleaning", "clean wait"}),
        ("available", True, {"cleaning", "clean wait"}),
        ("inspected", True, {"inspecting", "inspect wait"}),
    ],
)
def test_down_breaks_off_what_waits_for_an_agent(
    rack: Rack,
    api: Api,
    scale: Scale,
    running_ironic: Ironic,
    state: str,
    clean: bool,  # noqa: FBT001
    waits_in: set[str],
) -> None:
    """It would wait until the conductor gives up, and says so."""
    told = {**(scale.active() if state == "active" else {"state": state}), "automated_clean": clean}
    file = scale.write("[{name: n0}]", hosts={"mute": {"silent": 1.0}}, **told)
    rack.run("up", "--yes", "--no-wait", file)
    until(lambda: states(api, scale).get("n0") in waits_in)
    node = of(api, scale)
    (row,) = [row for row in rack.json("operation", "list") if row["state"] == "running"]
    rack.run("operation", "cancel", row["id"])
    rack.run("down", "--yes", scale.name)
    assert states(api, scale) == {}
    said = [
        line for line in running_ironic.log_file.read_text().splitlines() if node["uuid"] in line
    ]
    assert said
    assert not [line for line in said if "timeout" in line.lower()]


def of(api: Api, scale: Scale) -> dict[str, Any]:
    """The cluster's only node, as Ironic has it."""
    (node,) = [each for name, each in api.nodes().items() if scale.name in name]
    return node


def test_a_deployed_node_whose_disks_are_made_anew_is_deployed_again(
    rack: Rack, api: Api, scale: Scale, running_ironic: Ironic
) -> None:
    """Ironic calls it active, and what it deployed is gone; also when the daemon dies meanwhile,
    and where Ironic has seen that its BMC was away.
    """
    unpinned = Path(scale.write("[{name: n0}]", automated_clean=False, **scale.active()))
    file = rack.file(f"id: {uuid4()}\n{unpinned.read_text()}", unpinned.name)
    rack.run("up", "--yes", file)
    rack.run("down", "--yes", "--keep-enrolment", scale.name)
    node = of(api, scale)
    assert node["provision_state"] == "active"
    before = scale.record(node)
    with closing(sqlite3.connect(running_ironic.state / "ironic.sqlite")) as database, database:
        away = "UPDATE nodes SET maintenance = 1, fault = 'power failure' WHERE uuid = ?"
        database.execute(away, (node["uuid"],))
    assert "-/+ ironic-standing n0" in rack.run("plan", file).stdout
    rack.run("up", "--yes", "--no-wait", file)
    until(lambda: of(api, scale)["extra"]["nospoon"].get("stale"))
    rack.crash()
    assert " ironic-standing n0" in rack.run("plan", file).stdout
    rack.run("up", "--yes", file)
    node = of(api, scale)
    assert (node["provision_state"], node["maintenance"]) == ("active", False)
    said = scale.record(node).removeprefix(before)
    assert said.rstrip().endswith(f"boots disk: {scale.files['image.raw']}")
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr
    rack.run("down", "--yes", "--keep-enrolment", scale.name)
    rack.run("orphans", "--reap", "--yes", "--grace", "0.2", file)
    assert states(api, scale) == {}


def switch_off(api: Api, scale: Scale) -> None:
    """Through Ironic: what is switched off behind its back, its next look switches on again."""
    place = f"/nodes/{of(api, scale)['uuid']}/states/power"
    api("PUT", place, {"target": "power off"})
    until(lambda: of(api, scale)["power_state"] == "power off")


def test_a_node_is_deployed_again_for_the_disk_on_which_it_was(
    rack: Rack, api: Api, scale: Scale
) -> None:
    """Without a disk that came later, and when the disk of the deployment leaves the file."""

    def file(disks: str, **more: str) -> str:
        settings = {"automated_clean": False, **scale.active(), **more}
        return scale.write(f"[{{name: n0, disks: {disks}}}]", **settings)

    rack.run("up", "--yes", file("[9GiB, 5GiB]"))
    assert of(api, scale)["extra"]["nospoon"]["roots"] == ["n0-1"]
    switch_off(api, scale)
    told = rack.run("up", "--yes", file("[9GiB, 5GiB, 4500MiB]", description="with a third"))
    assert "ironic-node/n0@Ironic: change" in told.stderr
    assert of(api, scale)["extra"]["nospoon"]["roots"] == ["n0-1"]
    assert "-/+ ironic-standing" not in rack.run("plan", file("[9GiB, 5GiB]")).stdout
    without = file("[9GiB]")
    assert "-/+ ironic-standing n0" in rack.run("plan", without).stdout
    before, place = scale.record(of(api, scale)), f"/nodes/{of(api, scale)['uuid']}/maintenance"
    api("PUT", place, {"reason": "operator"})
    assert "is in maintenance: operator" in rack.run("up", "--yes", without, status=1).stderr
    assert "- volume n0-1" in rack.run("plan", without).stdout
    api("DELETE", place)
    rack.run("up", "--yes", without)
    node = of(api, scale)
    assert (node["provision_state"], node["extra"]["nospoon"]["roots"]) == ("active", ["n0-0"])
    assert f"boots disk: {scale.files['image.raw']}" in scale.record(node).removeprefix(before)
    assert "Nothing to do" in rack.run("up", "--yes", without).stderr
    left = scale.write("[{name: n1}]", state="enroll")
    shown = rack.run("plan", left).stdout
    assert "it is undeployed, and what is on its disks is lost" in shown
    refused = rack.run("up", "--yes", left, status=5).stderr
    assert "deployed in Ironic, and no longer in the file: n0" in refused
    assert of(api, scale)["provision_state"] == "active"
    assert_protected_stays(rack, api, scale, left)
    rack.run("up", "--yes", "--force", left)
    assert states(api, scale) == {"n1": "enroll"}
    rack.run("down", "--yes", scale.name)


def assert_protected_stays(rack: Rack, api: Api, scale: Scale, left: str) -> None:
    """Ironic lets nobody undeploy or delete it; what needs it stays with it."""
    place = f"/nodes/{of(api, scale)['uuid']}"
    protected = {"op": "add", "path": "/protected", "value": True}
    api("PATCH", place, [protected, {**protected, "path": "/protected_reason", "value": "ours"}])
    assert "it is protected in Ironic, which refuses this" in rack.run("plan", left).stdout
    assert "it is protected in Ironic" in rack.run("plan", "--down", scale.name).stdout
    refused = rack.run("down", "--yes", "--force", scale.name, status=1).stderr
    assert "node n0 is protected in Ironic: ours. It is left unchanged" in refused
    assert f"node unset --protected {of(api, scale)['uuid']}` ends that" in refused
    node = of(api, scale)
    assert (node["provision_state"], node["maintenance"]) == ("active", False)
    assert rack.bmcs(scale.name)["n0"]["ipmi"]
    api("PATCH", place, [{**protected, "value": False}])


def kill(found: Ironic) -> None:
    there = ironic.running(found.state)
    assert there is not None
    os.killpg(there.process.pid, signal.SIGKILL)
    until(lambda: not owned.is_alive(there.process))


async def test_an_ironic_that_is_restarted_while_agents_work_is_waited_for_and_then_ports_change(
    rack: Rack, api: Api, scale: Scale, running_ironic: Ironic, cache: Path
) -> None:
    hosts = {"slow": {"commands": {"write_image": "15s"}}}
    deploy = {"automated_clean": False, **scale.active()}
    two = "[{name: n0, nics: [lan, %s]}]"
    up = begun(rack, scale.write(two % "lan", hosts=hosts, **deploy))
    until(lambda: "n0" in states(api, scale))
    slow(rack, scale, "n0")
    until(lambda: states(api, scale) == {"n0": "wait call-back"})
    kill(running_ironic)
    await ironic.up(running_ironic.wanted, state=running_ironic.state, cache=cache)
    _, said = up.communicate(timeout=500)
    assert up.returncode == 0, said
    assert states(api, scale) == {"n0": "active"}
    rack.run("up", "--yes", scale.write(two % "{network: lan, pxe: false}", hosts=hosts, **deploy))
    node = api("GET", f"/nodes/{scale.name}-n0")
    assert (node["provision_state"], node["maintenance"]) == ("active", False)
    assert sorted(port["pxe_enabled"] for port in api.ports(node["uuid"])) == [False, True]


async def test_a_conductor_that_dies_while_it_deploys_is_mended_and_another_image_deployed(
    rack: Rack, api: Api, scale: Scale, running_ironic: Ironic, cache: Path
) -> None:
    hosts = {"slow": {"commands": {"write_image": "15s"}}}
    deploy = {"automated_clean": False, **scale.active()}
    file = scale.write("[{name: 'n{n}', count: 2}]", hosts=hosts, **deploy)
    up = begun(rack, file)
    until(lambda: "n0" in states(api, scale))
    slow(rack, scale, "n0")
    kill(running_ironic)
    _, said = up.communicate(timeout=500)
    assert up.returncode == 3, said
    assert "does not answer" in said
    await ironic.up(running_ironic.wanted, state=running_ironic.state, cache=cache)
    rack.run("up", "--yes", file)
    assert states(api, scale) == {"n0": "active", "n1": "active"}
    other = {**deploy, "image": scale.files["esp.img"]}
    file = scale.write("[{name: 'n{n}', count: 2}]", hosts={"slow": {}}, **other)
    up, seen = begun(rack, file, "--parallel", "1"), []
    while up.poll() is None:
        seen.append(tuple(states(api, scale).values()))
        await asyncio.sleep(0.5)  # each look takes the conductor's time; a deployment, some seconds
    _, said = up.communicate()
    assert up.returncode == 0, said
    assert max(sum(state != "active" for state in each) for each in seen) == 1
    for node in ("n0", "n1"):
        said = scale.record(api.nodes()[f"{scale.name}-{node}"])
        assert said.rstrip().endswith(f"boots disk: {scale.files['esp.img']}")
