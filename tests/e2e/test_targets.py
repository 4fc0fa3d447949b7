"""`--target`: a part of the plan, with what it needs; the rest stays as it is."""

from __future__ import annotations

from nospoon.testing.rack import Rack


def cluster(rack: Rack, nodes: str) -> tuple[str, str]:
    name = rack.names[-1] if rack.names else rack.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{BMC[name]}nodes: [{nodes}]\n"
    return name, rack.file(text, f"{name}.yaml")


BMC: dict[str, str] = {}


def states(rack: Rack, name: str) -> dict[str, str]:
    return {row["node"]: row["state"] for row in rack.json("status", name)}


def test_only_what_is_named_is_made_changed_and_removed(rack: Rack) -> None:
    BMC[rack.name()] = rack.bmc()
    name, file = cluster(rack, "{count: 3}")
    planned = rack.run("plan", "-t", "node-1", file).stdout
    assert "machine node-1" in planned
    assert "machine node-0" not in planned
    assert "network provision" in planned
    rack.run("up", "--yes", "-t", "node-1", "--parallel", "1", file)
    assert states(rack, name) == {"node-0": "missing", "node-1": "present", "node-2": "missing"}
    rack.run("up", "--yes", file)
    _, file = cluster(rack, "{count: 3, memory: 2GiB}")
    rack.run("up", "--yes", "-t", "node-0", "-t", "node-2", file)
    memory = {n: rack.json("node", "show", f"node-{n}")["memory"] for n in range(3)}
    assert rack.run("plan", file).stdout.count("memory") >= 1, "node-1 is left"
    assert memory[0] == memory[2] == "2048 MiB"
    assert memory[1] == "1024 MiB", "it is as it was, and its BMC tells no other"
    _, file = cluster(rack, "{count: 1, memory: 2GiB}")
    rack.run("up", "--yes", "-t", "node-2", file)
    assert set(states(rack, name)) >= {"node-0", "node-1"}, "node-1 left the file and is there"
    assert "- machine node-1" in rack.run("plan", file).stdout
    assert "machine node-2" not in rack.run("plan", file).stdout
    rack.run("up", "--yes", file)
    assert states(rack, name) == {"node-0": "present"}


def test_a_target_that_is_no_node_is_refused(shared: Rack) -> None:
    BMC[shared.name()] = shared.bmc()
    _, file = cluster(shared, "{count: 2}")
    refused = shared.run("up", "--yes", "-t", "nod-1", file, status=2).stderr
    assert "no node 'nod-1' in the file. Did you mean 'node-1'?" in refused


def test_nodes_that_are_not_named_are_reached_as_before(shared: Rack) -> None:
    """The file gives them another password, and another host, with the next `up` of all."""
    name, section = shared.name(), shared.bmc()

    def file(password: str, host: str) -> str:
        bmc = section.replace("{", f"{{password: {password}, ", 1)
        nodes = f"[{{name: a}}, {{name: b, host: {host}}}, {{name: gone}}]"
        text = f"cluster: {name}\nhosts: {{x: simulated, y: simulated}}\n{bmc}nodes: {nodes}\n"
        return shared.file(text, f"{name}.yaml")

    shared.run("up", "--yes", file("before1", "x"))
    shared.power(f"{name}/b", "on")
    changed = file("after12", "y")
    shared.run("up", "--yes", "-t", "a", changed)
    bmcs = shared.bmcs(name)
    assert {node: each["password"] for node, each in bmcs.items()} == {
        "a": "after12", "b": "before1", "gone": "before1",
    }  # fmt: skip
    for each in bmcs.values():
        shared.ipmitool(each, "mc", "info")
    assert {row["node"]: row["host"] for row in shared.json("status", name)}["b"] == "x"
    shared.ipmitool(bmcs["b"], "power", "off")
    shared.power(f"{name}/b", "on")
    shared.run("up", "--yes", changed)
    bmcs = shared.bmcs(name)
    assert {each["password"] for each in bmcs.values()} == {"after12"}
    for each in bmcs.values():
        shared.ipmitool(each, "mc", "info")
    assert {row["node"]: row["host"] for row in shared.json("status", name)}["b"] == "y"
    assert shared.run("plan", "--detailed-exitcode", changed).returncode == 0


def test_a_node_that_left_the_file_and_was_named_is_known_no_more(shared: Rack) -> None:
    BMC[shared.name()] = shared.bmc()
    name = shared.names[-1]
    file = "hosts: {x: simulated}\n"
    text = f"cluster: {name}\n{file}{BMC[name]}nodes: [{{count: 2}}]\n"
    shared.run("up", "--yes", shared.file(text, f"{name}.yaml"))
    less = shared.file(text.replace("count: 2", "count: 1"), f"{name}.yaml")
    shared.run("up", "--yes", "-t", "node-1", less)
    assert list(shared.bmcs(name)) == ["node-0"]


def test_a_node_that_was_never_made_goes_elsewhere_when_its_host_is_drained(shared: Rack) -> None:
    name, section = shared.name(), shared.bmc()

    def file(more: str) -> str:
        hosts = f"{{x: {{simulated: {{}}, drained: {more}}}, y: simulated}}"
        nodes = "[{count: 2, placement: pack}]"
        text = f"cluster: {name}\nhosts: {hosts}\n{section}nodes: {nodes}\n"
        return shared.file(text, f"{name}.yaml")

    shared.run("up", "--yes", "-t", "node-0", file("false"))
    assert "on x" in shared.run("plan", file("false")).stdout, "where it was to go"
    drained = file("true")
    shared.run("up", "--yes", drained)
    hosts = {row["node"]: row["host"] for row in shared.json("status", name)}
    assert hosts == {"node-0": "x", "node-1": "y"}
    assert "Nothing to do" in shared.run("plan", drained).stdout
