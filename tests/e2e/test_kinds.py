"""Kinds of nodes on a simulated host: made beside one another, changed by their rules, removed."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from nospoon.model.rest.nodes import NodeLogin
from nospoon.testing.rack import Rack

KEY = "ssh-ed25519 AAAA me@here"
SECRET = "follow-the-white-rabbit"


@pytest.fixture
def images(shared: Rack) -> Rack:
    """A disk and a root file system beside the cluster files."""
    place = shared.directory / "files"
    place.mkdir(exist_ok=True)
    (place / "disk.img").write_bytes(bytes(1 << 20))
    with tarfile.open(place / "root.tar", "w") as archive:
        archive.add(Path(__file__), "etc/file")
    return shared


def written(rack: Rack, name: str, nodes: str, more: str = "") -> str:
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}{more}\nnodes: {nodes}\n"
    path = rack.directory / "files" / f"{name}.yaml"
    path.write_text(text)
    return str(path)


def steps(rack: Rack, file: str) -> dict[str, dict[str, Any]]:
    plan = rack.json("plan", file)
    return {each["node"]: each for each in plan["steps"] if each["kind"] == "machine"}


def test_all_kinds_stand_beside_one_another_and_down_leaves_nothing(images: Rack) -> None:
    name = images.name()
    nodes = (
        "[{name: metal}, {name: vm, kind: vm, image: disk.img},"
        " {name: box, kind: container, image: root.tar}]"
    )
    file = written(images, name, nodes)
    shown = images.run("up", "--yes", file).stderr
    assert "vm, 1 CPU" in shown
    assert "container, 1 CPU, 1 GiB, 1 disk" in shown, "it has no firmware"
    rows = {row["node"]: row for row in images.json("status", name)}
    assert {row["state"] for row in rows.values()} == {"present"}
    assert "Nothing to do" in images.run("up", "--yes", file).stderr
    refused = images.run("node", "boot", f"{name}/box", "network", status=2).stderr
    assert f"node {name}/box is a container that boots its root, and nothing else" in refused
    images.run("node", "boot", f"{name}/metal", "network")
    images.run("down", "--yes", name)
    assert name not in {row["name"] for row in images.json("status")}


def test_an_image_of_the_wrong_sort_is_refused_where_it_is_named(images: Rack) -> None:
    name = images.name()
    wrong = images.run(
        "plan", written(images, name, "[{kind: container, image: disk.img}]"), status=2
    )
    assert f"{name}.yaml:5:34" in wrong.stderr
    assert "disk.img is not a root file system" in wrong.stderr
    booted = images.run("plan", written(images, name, "[{kind: vm, image: root.tar}]"), status=2)
    assert f"{name}.yaml:5:27: image root.tar is an archive (tar), expected a disk" in booted.stderr
    assert "`kind: container`" in booted.stderr
    both = "[{kind: container, image: root.tar}, {name: b, kind: vm, image: root.tar}]"
    refused = images.run("plan", written(images, name, both), status=2)
    assert "nodes of both kinds name it" in refused.stderr


def test_changes_of_what_cloud_init_gets_follow_their_rules(images: Rack) -> None:
    name = images.name()
    vm = "{name: n, kind: vm, image: disk.img, user_data: '#a', ssh_keys: ['%s'], nics: [%s]}"
    before = vm % (KEY, "{network: lan}")
    lan = "networks: {lan: {cidr: 10.93.7.0/24}}"
    images.run("up", "--yes", written(images, name, f"[{before}]", lan))
    images.power(f"{name}/n", "on")
    for change in (
        before.replace("'#a'", f"'#{SECRET}'"),
        before.replace("me@here", "me@there"),
        before.replace("network: lan", "network: lan, address: 10.93.7.9/24"),
    ):
        file = written(images, name, f"[{change}]", lan)
        found = steps(images, file)["n"]
        assert (found["action"], found["at_power_off"]) == ("change", True)
        assert [(each["field"], each["rule"]) for each in found["changes"]] == [
            ("seed", "at power-off")
        ]
        shown = images.run("plan", file).stdout
        assert "seed: changed  [at power-off]" in shown
        assert SECRET not in shown
    (images.directory / "files" / "disk.img").write_bytes(b"\1" * (1 << 20))
    found = steps(images, written(images, name, f"[{before}]", lan))["n"]
    assert found["action"] == "replace"
    for again in ("kind: container, image: root.tar, nics: [lan]", "nics: [lan]"):
        file = written(images, name, f"[{{name: n, {again}}}]", lan)
        found = steps(images, file)["n"]
        assert found["action"] == "replace"
    of_flavor = f"{lan}\nflavors: {{f: {{kind: container, image: root.tar}}}}"
    file = written(images, name, "[{name: n, flavor: f, nics: [lan]}]", of_flavor)
    assert steps(images, file)["n"]["action"] == "replace"
    images.run("down", "--yes", name)


def test_ssh_goes_to_the_address_that_a_node_is_given(images: Rack, tmp_path: Path) -> None:
    fake = tmp_path / "ssh"
    fake.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 3\n')
    fake.chmod(0o755)
    name = images.name()
    lan = "networks: {lan: {cidr: 10.93.8.0/24}}"
    nodes = "[{name: n, kind: vm, image: disk.img, nics: [{network: lan, address: 10.93.8.9/24}]}]"
    images.run("up", "--yes", written(images, name, nodes, lan))
    path = {"PATH": f"{tmp_path}:{images.environment['PATH']}"}
    rack = Rack(images.directory, {**images.environment, **path})
    done = rack.run("node", "exec", f"{name}/n", "-l", "debian", "--", "ls", "a b", status=3)
    assert done.stdout.endswith("|-l|debian|--|10.93.8.9|ls 'a b'|")
    assert rack.run("node", "ssh", f"{name}/n", status=3).stdout.endswith("|--|10.93.8.9|")
    asked = ("-l", "debian", "-u", "a b.service", "-n", "5", "-f")
    done = rack.run("node", "logs", f"{name}/n", *asked, status=3)
    journal = "journalctl --no-pager --quiet '--unit=a b.service' --lines=5 --follow"
    assert done.stdout.endswith(f"|-l|debian|--|10.93.8.9|{journal}|")
    assert images.json("node", "show", f"{name}/n")["kind"] == "vm"
    images.run("down", "--yes", name)


def test_users_are_led_to_a_network_on_which_the_host_has_an_address(images: Rack) -> None:
    """Not to the first NIC, which is on one that leads nowhere."""
    name = images.name()
    lans = "networks: {apart: {cidr: 10.93.7.0/24}, lan: {cidr: 10.93.8.0/24, nat: true}}"
    nics = "[{network: apart, address: 10.93.7.9/24}, {network: lan, address: 10.93.8.9/24}]"
    nodes = f"[{{name: n, kind: vm, image: disk.img, nics: {nics}}}]"
    images.run("up", "--yes", written(images, name, nodes, lans))
    seen = images.client.ask(NodeLogin, "GET", f"/v1/nodes/{name}/n/login")
    assert seen.address == "10.93.8.9"
    for to, line in (("ssh-config", "HostName 10.93.8.9"), ("ansible", "ansible_host: 10.93.8.9")):
        assert line in images.run("export", name, "--to", to).stdout
    assert '"10.93.7.9:9100"' in images.run("export", name, "--to", "prometheus-sd").stdout
    images.run("down", "--yes", name)


def test_deployers_and_verify_get_bare_metal_alone(images: Rack) -> None:
    name = images.name()
    nodes = "[{name: metal}, {name: v, kind: vm, image: disk.img}]"
    images.run("up", "--yes", written(images, name, nodes))
    done = images.run("export", name, "--to", "instackenv")
    assert "node v: instackenv is for bare metal, not for kind vm" in done.stderr
    assert '"metal"' in done.stdout
    refused = images.run("verify", name, "--node", "v", status=2)
    assert "these are of another kind: v (vm)" in refused.stderr
    images.run("down", "--yes", name)


def test_nodes_without_a_bmc_are_exported_without_one(images: Rack) -> None:
    name = images.name()
    nodes = "[{name: metal}, {name: v, kind: vm, image: disk.img, nics: [{network: lan, "
    nodes += "address: 10.93.8.9/24}]}, {name: c, kind: container, image: root.tar, bmc: ipmi}]"
    lan = "networks: {lan: {cidr: 10.93.8.0/24}}"
    images.run("up", "--yes", written(images, name, nodes, lan))
    known = yaml.safe_load(images.run("export", name, "--to", "ansible").stdout)["all"]["hosts"]
    assert known["v"]["ansible_host"] == "10.93.8.9"
    has_bmc = {node: [key for key in known[node] if key.startswith("bmc_")] for node in known}
    assert has_bmc["v"] == []
    assert "bmc_password" in has_bmc["c"]
    targets = json.loads(images.run("export", name, "--to", "prometheus-sd").stdout)
    ends = [(e["labels"]["__meta_nospoon_node"], e["labels"]["__meta_nospoon_endpoint"])
            for e in targets]  # fmt: skip
    assert sorted(ends) == [("c", "ipmi"), ("metal", "ipmi"), ("metal", "redfish"), ("v", "node")]
    assert "HostName 10.93.8.9" in images.run("export", name, "--to", "ssh-config").stdout
    images.run("down", "--yes", name)


def test_user_data_is_masked_in_a_support_bundle(images: Rack, tmp_path: Path) -> None:
    name = images.name()
    (images.directory / "files" / "u").write_text(f"#cloud-config\nchpasswd:\n  list: {SECRET}\n")
    named = "[{name: n, kind: vm, image: disk.img, user_data: {file: u}}]"
    images.run("up", "--yes", written(images, name, named))
    images.run("support-bundle", "-o", str(tmp_path / "b.tar.gz"))
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        texts = [archive.extractfile(each) for each in archive.getmembers()]
        assert not any(SECRET.encode() in each.read() for each in texts if each is not None)
    images.run("down", "--yes", name)


def test_up_starts_what_runs_its_own_image_and_says_what_does_not_start(images: Rack) -> None:
    name = images.name()
    nodes = "[{name: metal}, {name: v, kind: vm, image: disk.img}]"
    file = written(images, name, nodes)
    images.run("up", "--yes", file)
    power = {row["node"]: row["power"] for row in images.json("status", name)}
    assert power == {"metal": "off", "v": "on"}
    images.run("down", "--yes", name)
    text = (
        Path(file)
        .read_text()
        .replace("{sim: simulated}", "{sim: {simulated: {power_failures: 1}}}")
    )
    Path(file).write_text(text)
    said = images.run("up", "--yes", file, status=3).stderr
    assert "node v was made and does not start: " in said
    assert "nospoon node power v on" in said
    images.run("down", "--yes", name)


def test_an_upgrade_keeps_the_former_root_and_its_image_brings_it_back(images: Rack) -> None:
    name = images.name()
    disk = images.directory / "files" / "disk.img"

    def up(content: bytes, more: str = "") -> str:
        disk.write_bytes(content * (1 << 20))
        file = written(images, name, f"[{{name: n, kind: vm, image: disk.img{more}}}]")
        said = images.run("up", "--yes", file).stderr
        assert "Nothing to do" in images.run("up", "--yes", file).stderr
        return said

    def roots() -> set[str]:
        removal = images.json("plan", "--down", name)["steps"]
        return {each["name"] for each in removal if each["kind"] == "volume"}

    up(b"\1")
    said = up(b"\2")
    assert "the root that n has now (n-0) is kept" in said
    assert "-/+ machine n on" in said
    assert roots() == {"n-0", "n-1000"}
    assert images.json("node", "show", f"{name}/n")["power"] == "on"
    assert "returns to the root that it had of this image (n-0)" in up(b"\1")
    up(b"\3")
    assert roots() == {"n-0", "n-2000"}, "one is kept"
    up(b"\3", ", rollback: false")
    assert roots() == {"n-2000"}
    up(b"\4", ", rollback: false")
    assert roots() == {"n-0"}
    images.run("down", "--yes", name)


def test_up_waits_for_a_slow_start_and_says_of_one_that_fails_late(images: Rack) -> None:
    name = images.name()
    (images.directory / "files" / "disk.img").write_bytes(bytes(1 << 20))

    def file(more: str) -> str:
        text = Path(written(images, name, "[{name: n, kind: vm, image: disk.img}]"))
        simulated = f"sim: {{simulated: {{power_on: 1s{more}}}}}"
        text.write_text(text.read_text().replace("sim: simulated", simulated))
        return str(text)

    said = images.run("up", "--yes", file(", power_failures: 1"), status=3).stderr
    assert "node n was made and does not start: " in said
    images.run("up", "--yes", file(""))  # what did not start is started by the next one
    assert images.json("node", "show", f"{name}/n")["power"] == "on"
    images.run("down", "--yes", name)
