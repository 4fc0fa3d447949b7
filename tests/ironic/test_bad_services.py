"""An Ironic that hangs, gives short pages, breaks connections, and nodes that others claim."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.ironic.conftest import IMPATIENT, free_port_number
from tests.ironic.test_enrolment import Cluster

from nospoon.dev import ironic
from nospoon.dev.configuration import Wanted
from nospoon.dev.ironic import Ironic
from nospoon.testing.ironic import Api, until
from nospoon.testing.rack import CACHE, Rack

SHORT = "api.max_limit=2"
CLAIM = "11111111-2222-4333-8444-555555555555"


@pytest.fixture(scope="module")
def odd_ironic() -> Iterator[Ironic]:
    """Its pages are short."""
    state = Path(tempfile.mkdtemp(prefix="nospoon-ironic-"))
    wanted = Wanted(
        port=free_port_number(), files_port=free_port_number(), options=(*IMPATIENT, SHORT)
    )
    try:
        yield asyncio.run(ironic.up(wanted, state=state, cache=CACHE))
    finally:
        asyncio.run(ironic.down(state=state, cache=CACHE, purge=False))
        shutil.rmtree(state, ignore_errors=True)


@pytest.fixture
def api(odd_ironic: Ironic) -> Api:
    return Api(odd_ironic.endpoint)


@pytest.fixture
def cluster(rack: Rack, odd_ironic: Ironic) -> Cluster:
    return Cluster(rack, odd_ironic)


def test_what_is_past_a_short_page_is_known_and_removed(
    rack: Rack, api: Api, cluster: Cluster
) -> None:
    file = cluster.write("[{count: 5, ironic: {state: enroll}}]")
    rack.run("up", "--yes", file)
    assert "Nothing to do" in rack.run("plan", file).stdout
    rack.run("down", "--yes", cluster.name)
    assert api("GET", "/nodes")["nodes"] == []
    assert api("GET", "/ports")["ports"] == []


def test_a_new_node_has_its_owner(rack: Rack, api: Api, cluster: Cluster) -> None:
    file = cluster.write("[{name: n0, ironic: {state: enroll}}]", owner="me", lessee="you")
    rack.run("up", "--yes", file)
    node = api("GET", f"/nodes/{cluster.name}-n0")
    assert (node["owner"], node["lessee"]) == ("me", "you")
    assert "Nothing to do" in rack.run("plan", file).stdout
    rack.run("down", "--yes", cluster.name)


def test_nodes_that_were_left_in_ironic_are_taken_back(
    rack: Rack, api: Api, cluster: Cluster
) -> None:
    file = Path(cluster.write("[{name: n0, ironic: {state: enroll}}]"))
    rack.run("up", "--yes", str(file))
    name = f"{cluster.name}-n0"
    before = api("GET", f"/nodes/{name}")["uuid"]
    said = rack.run("down", "--yes", "--keep-enrolment", cluster.name).stderr
    refused = rack.run("up", "--yes", str(file), status=1).stderr
    assert "`nospoon orphans FILE`" in refused, "it is another cluster's"
    rack.run("down", "--yes", cluster.name)
    again = said.partition("`id: ")[2].partition("`")[0]
    file.write_text(f"id: {again}\n{file.read_text()}")
    rack.run("up", "--yes", str(file))
    assert api("GET", f"/nodes/{name}")["uuid"] == before
    rack.run("down", "--yes", cluster.name)
    assert api("GET", "/nodes")["nodes"] == []


def test_traits_of_others_are_let_be(rack: Rack, api: Api, cluster: Cluster) -> None:
    def write(traits: str) -> str:
        return cluster.write(f"[{{name: n0, traits: [{traits}], ironic: {{state: enroll}}}}]")

    rack.run("up", "--yes", write("CUSTOM_A, CUSTOM_B"))
    path = f"/nodes/{cluster.name}-n0/traits"
    api("PUT", f"{path}/CUSTOM_THEIRS")
    assert "Nothing to do" in rack.run("plan", write("CUSTOM_A, CUSTOM_B")).stdout
    rack.run("up", "--yes", write("CUSTOM_B, CUSTOM_C"))
    assert sorted(api("GET", path)["traits"]) == ["CUSTOM_B", "CUSTOM_C", "CUSTOM_THEIRS"]
    api("DELETE", f"{path}/CUSTOM_B")
    assert "traits" in rack.run("plan", write("CUSTOM_B, CUSTOM_C")).stdout
    rack.run("down", "--yes", cluster.name)


def test_a_node_that_somebody_claims_is_neither_deployed_nor_moved(
    rack: Rack, api: Api, cluster: Cluster
) -> None:
    rack.run("up", "--yes", cluster.write("[{name: n0}]"))
    name = f"{cluster.name}-n0"
    claim = {"op": "add", "path": "/instance_uuid", "value": CLAIM}
    api("PATCH", f"/nodes/{name}", [claim])
    told = api("GET", f"/nodes/{name}")["instance_info"]
    for wanted in ("{state: active, image: 'http://192.0.2.1/i.raw'}", "{state: manageable}"):
        file = cluster.write(f"[{{name: n0, ironic: {wanted}}}]")
        refused = rack.run("up", "--yes", file, status=1).stderr
        assert f"it has the instance {CLAIM}" in refused
        node = api("GET", f"/nodes/{name}")
        assert (node["provision_state"], node["instance_info"]) == ("available", told)
    for disks, sign in (("[2GiB]", "-/+"), ("[2GiB]", "-/+"), ("[]", "-")):
        without = cluster.write(f"[{{name: n0, disks: {disks}}}]")  # what is on it would be lost
        assert f"{sign} volume n0-0" in rack.run("plan", without).stdout
        refused = rack.run("up", "--yes", without, status=1).stderr
        assert f"it has the instance {CLAIM}" in refused
    refused = rack.run("down", "--yes", "--keep-enrolment", cluster.name, status=5).stderr
    assert "in use in Ironic, and they would be left without a machine: n0" in refused
    assert {row["state"] for row in rack.json("status", cluster.name)} == {"drifted"}
    rack.run("down", "--yes", "--force", cluster.name)


def test_who_has_a_node_that_leaves_the_file_is_told(
    rack: Rack, api: Api, cluster: Cluster
) -> None:
    two = cluster.write(
        "[{name: n0, ironic: {state: enroll}}, {name: n1, ironic: {state: enroll}}]"
    )
    rack.run("up", "--yes", two)
    claim = [{"op": "add", "path": "/instance_uuid", "value": CLAIM}]
    api("PATCH", f"/nodes/{cluster.name}-n0", claim)
    before = rack.bmcs(cluster.name)["n0"]["ipmi"]
    one = cluster.write("[{name: n1, ironic: {state: enroll}}]")
    assert "it is in use in Ironic: `up` refuses this" in rack.run("plan", one).stdout
    told = rack.run("up", "--yes", one, status=1).stderr
    assert f"it has the instance {CLAIM}" in told
    two = cluster.write(
        "[{name: n2, ironic: {state: enroll}}, {name: n0, ironic: {state: enroll}}, "
        "{name: n1, ironic: {state: enroll}}]"
    )
    rack.run("up", "--yes", two)
    assert rack.bmcs(cluster.name)["n0"]["ipmi"] == before
    rack.run("down", "--yes", "--force", cluster.name)


def test_maintenance_that_an_interrupted_up_left_ends_with_the_next(
    rack: Rack, api: Api, cluster: Cluster
) -> None:
    file = cluster.write("[{name: n0}]")
    rack.run("up", "--yes", file)
    name = f"{cluster.name}-n0"
    api("PUT", f"/nodes/{name}/maintenance", {"reason": "nospoon changes its ports"})
    assert "left in maintenance" in rack.run("plan", file).stdout
    rack.run("up", "--yes", file)
    assert not api("GET", f"/nodes/{name}")["maintenance"]
    api("PUT", f"/nodes/{name}/maintenance", {"reason": "a fan"})
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr
    assert api("GET", f"/nodes/{name}")["maintenance"], "that is somebody else's"
    rack.run("down", "--yes", cluster.name)


def test_volumes_of_a_node_that_is_on_go_by_force_alone(
    rack: Rack, api: Api, cluster: Cluster
) -> None:
    def write(lun: int) -> str:
        target = {"volume_id": "root", "properties": {"target_lun": lun}}
        node = {
            "state": "manageable", "volumes": {"targets": [target]},
            "interfaces": {"storage": "external"},
        }  # fmt: skip
        return cluster.write(f"[{{name: n0, ironic: {json.dumps(node)}}}]")

    rack.run("up", "--yes", write(1))
    name = f"{cluster.name}-n0"
    api("PUT", f"/nodes/{name}/states/power", {"target": "power on"})
    until(lambda: api("GET", f"/nodes/{name}")["power_state"] == "power on")
    refused = rack.run("up", "--yes", write(2), status=1).stderr
    assert "only while their node is off" in refused
    refused = rack.run("down", "--yes", cluster.name, status=3).stderr
    assert "`nospoon down --force` does both" in refused
    rack.run("down", "--yes", "--force", cluster.name)
    assert api("GET", "/nodes")["nodes"] == []


@contextmanager
def hanging(found: Ironic) -> Iterator[None]:
    """Its kernel accepts connections still."""
    group = os.getpgid(found.process.pid)
    os.killpg(group, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(group, signal.SIGCONT)


def test_an_ironic_that_hangs_is_away_and_hinders_nobody_from_stopping(
    rack: Rack, cluster: Cluster, odd_ironic: Ironic, tmp_path: Path
) -> None:
    file = Path(cluster.write("[{name: n0, ironic: {state: enroll}}]"))
    endpoint = json.dumps(odd_ironic.endpoint)
    text = file.read_text().replace(f'"endpoint": {endpoint}', '"cloud": "nospoon-dev"')
    file.write_text(text)
    clouds: dict[str, Any] = yaml.safe_load(odd_ironic.clouds_file.read_text())
    clouds["clouds"]["nospoon-dev"]["api_timeout"] = 3
    (tmp_path / "clouds.yaml").write_text(json.dumps(clouds))
    rack.environment["OS_CLIENT_CONFIG_FILE"] = str(tmp_path / "clouds.yaml")
    rack.run("up", "--yes", str(file))
    with hanging(odd_ironic):
        assert "does not answer" in rack.run("plan", str(file), status=1).stderr
        assert "does not answer" in rack.run("status", cluster.name).stderr
        rack.run("daemon", "stop")
        assert "does not answer" in rack.run("plan", str(file), status=1).stderr, "of a new daemon"
        rack.run("daemon", "stop")
    rack.run("down", "--yes", cluster.name)


def test_a_name_that_another_node_has_is_refused_before_anything_goes(
    rack: Rack, api: Api, cluster: Cluster
) -> None:
    one = cluster.write("[{name: n0, ironic: {state: enroll}}]")
    rack.run("up", "--yes", one)
    foreign = api("POST", "/nodes", {"name": f"{cluster.name}-n1", "driver": "ipmi"})
    two = cluster.write("[{name: n1, ironic: {state: enroll}}]")
    refused = rack.run("plan", two, status=1).stderr
    assert f"Ironic has another node named '{cluster.name}-n1' ({foreign['uuid']})" in refused
    assert rack.run("up", "--yes", two, status=1).stderr == refused
    assert f"{cluster.name}-n0" in api.nodes()
    api("DELETE", f"/nodes/{foreign['uuid']}")
    rack.run("up", "--yes", two)
    rack.run("down", "--yes", cluster.name)
