"""Orphans, recovery and support bundles look into Ironic, too, and let others' nodes be."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing

import pytest

from nospoon.testing.ironic import Api
from nospoon.testing.rack import Rack

STRANGER = "0" * 32
PASSWORD = "bmc-pass-word"


def enrolled(rack: Rack, api: Api) -> tuple[str, str]:
    """A cluster with two nodes, and its file."""
    name = rack.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc(password=PASSWORD)}"
    text += f'ironic: {{endpoint: "{api.endpoint}", name: "{{cluster}}-{{node}}", state: enroll}}'
    file = rack.file(f"{text}\nnodes: [{{count: 2, name: 'n{{n}}'}}]\n", f"{name}.yaml")
    rack.run("up", "--yes", file)
    return name, file


def forget(rack: Rack, name: str) -> None:
    """The store, put back from a copy that is older than the cluster."""
    rack.run("daemon", "stop")
    with closing(sqlite3.connect(rack.directory / "state" / "nospoon.db")) as database, database:
        for table in ("bmc_log", "bmcs", "nodes"):
            database.execute(f"DELETE FROM {table}")
        database.execute("DELETE FROM clusters WHERE name = ?", (name,))


@pytest.fixture
def others(api: Api, rack: Rack) -> Iterator[set[str]]:
    """A node without a tag, and one of another deployment of nospoon."""
    tag = {"deployment": STRANGER, "cluster": STRANGER, "generation": 1, "token": "", "key": "n0"}
    bodies = [
        {"name": f"{rack.directory.name}-{n}", "driver": "ipmi", "extra": extra}
        for n, extra in enumerate([{}, {"nospoon": {**tag, "name": "theirs", "uid": 0}}])
    ]
    made = [api("POST", "/nodes", body)["uuid"] for body in bodies]
    yield {str(body["name"]) for body in bodies}
    for uuid in made:
        api("DELETE", f"/nodes/{uuid}")


def test_orphans_in_ironic_are_listed_and_reaped_and_others_are_let_be(
    rack: Rack, api: Api, others: set[str]
) -> None:
    name, file = enrolled(rack, api)
    ours = {f"{name}-n0", f"{name}-n1"}
    forget(rack, name)
    told = rack.run("orphans", file, "-f", "json")
    rows = [row for row in json.loads(told.stdout) if row["kind"].startswith("ironic")]
    assert {row["kind"] for row in rows} == {"ironic-node", "ironic-port", "ironic-standing"}
    assert {(row["host"], row["cluster"]) for row in rows} == {(api.endpoint, name)}
    assert f"1 resource of deployment {STRANGER}" in told.stderr
    rack.run("orphans", "--reap", "--yes", "--grace", "0.2", file)
    there = set(api.nodes())
    assert others <= there
    assert not ours & there
    assert rack.json("orphans", file) == []
    rack.names.remove(name)


def test_machines_whose_nodes_somebody_uses_are_not_reaped(rack: Rack, api: Api) -> None:
    name, file = enrolled(rack, api)
    node = f"/nodes/{name}-n0"
    used = "11111111-2222-4333-8444-666666666666"
    put = {"op": "add", "path": "/instance_uuid", "value": used}
    api("PATCH", node, [put])
    forget(rack, name)
    said = rack.run("orphans", "--reap", "--yes", "--grace", "0.2", file, status=3).stderr
    assert used in said
    kept = {row["name"] for row in rack.json("orphans", file) if row["kind"] == "machine"}
    assert kept == {"n0", "n1"}
    api("PATCH", node, [{"op": "remove", "path": "/instance_uuid"}])
    rack.run("orphans", "--reap", "--yes", "--grace", "0.2", file)
    assert not [each for each in set(api.nodes()) if name in each]
    rack.names.remove(name)


def test_a_recovered_cluster_knows_its_ironic_and_takes_its_nodes_out(
    rack: Rack, api: Api, others: set[str]
) -> None:
    name, file = enrolled(rack, api)
    forget(rack, name)
    (row,) = rack.json("recover", file)
    assert (row["said"], row["nodes"], row["ironic"]) == ("recovered", 2, api.endpoint)
    rack.run("down", "--yes", name)
    there = set(api.nodes())
    assert others <= there
    assert not [each for each in there if name in each]


def test_a_support_bundle_tells_what_ironic_says_and_no_password(
    rack: Rack, api: Api, others: set[str]
) -> None:
    name, _ = enrolled(rack, api)
    path = rack.directory / "bundle.tar.gz"
    rack.run("support-bundle", "-o", str(path))
    with tarfile.open(path) as archive:
        opened = archive.extractfile(f"nospoon-support/{name}/ironic.json")
        assert opened is not None
        text = opened.read().decode()
    assert PASSWORD not in text
    told = {each["name"]: each["provision_state"] for each in json.loads(text)}
    assert told == {f"{name}-n0": "enroll", f"{name}-n1": "enroll"}
    assert not others & set(told)
