"""`nospoon export`: of a cluster that is there, for its owner, into files that only they read."""

from __future__ import annotations

import json
from pathlib import Path

from nospoon.testing.rack import Rack


def _file(rack: Rack, name: str, count: int) -> str:
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}nodes: [{{count: {count}}}]\n"
    return rack.file(text, f"{name}.yaml")


def test_an_export_has_the_bmcs_as_bmc_list_tells_them(shared: Rack) -> None:
    name = shared.name()
    file = _file(shared, name, 2)
    shared.run("up", "--yes", file)
    bmcs = shared.bmcs(name)
    by_file = shared.run("export", "--to", "ironic", file)
    assert shared.run("export", "--to", "ironic", name).stdout == by_file.stdout
    for node in json.loads(by_file.stdout)["nodes"]:
        there = bmcs[node["name"]]
        info = node["driver_info"]
        assert f"{info['ipmi_address']}:{info['ipmi_port']}" == there["ipmi"]
        assert (info["ipmi_username"], info["ipmi_password"]) == (
            there["username"], there["password"],
        )  # fmt: skip
        assert node["uuid"] == there["uuid"]
    told = shared.run("export", "--to", "ssh-config", name)
    assert told.stdout == ""
    assert "no DHCP of nospoon" in told.stderr


def test_a_file_with_passwords_is_its_owners_alone(shared: Rack) -> None:
    name = shared.name()
    shared.run("up", "--yes", _file(shared, name, 1))
    out = Path(shared.file("old", "export.json"))
    out.chmod(0o644)
    assert shared.run("export", "--to", "instackenv", name, "-o", str(out)).stdout == ""
    assert out.stat().st_mode & 0o777 == 0o600
    assert shared.bmcs(name).popitem()[1]["password"] in out.read_text()


def test_what_is_not_there_is_told(shared: Rack) -> None:
    name = shared.name()
    file = _file(shared, name, 1)
    refused = shared.run("export", "--to", "bmh", file, status=2).stderr
    assert f"no cluster '{name}'" in refused
    assert "no format" not in refused
    assert "tofu" in shared.run("export", "--to", "tofu", name, status=2).stderr
