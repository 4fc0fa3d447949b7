"""Services on simulated hosts: listed, started in order, changed by their rules."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from nospoon.clusterfile.changes import Rule, rule_of
from nospoon.clusterfile.services import ServiceSection
from nospoon.model.rest.services import ServiceStatus
from nospoon.testing.rack import Rack

NODES = "[{name: db, kind: container, image: root.tar}, {name: web, kind: vm, image: disk.img}]"
SERVICES = (
    "{db: {health: {port: 3306, timeout: 5min}}, "
    "web: {after: db, unit: nginx, environment: {TOKEN: swordfish-1}}}"
)


@pytest.fixture
def images(shared: Rack) -> Rack:
    (shared.directory / "disk.img").write_bytes(bytes(1 << 20))
    with tarfile.open(shared.directory / "root.tar", "w") as archive:
        archive.add(Path(__file__), "etc/file")
    return shared


def written(rack: Rack, name: str, services: str, *, host: str = "simulated") -> str:
    text = f"cluster: {name}\nhosts: {{sim: {host}}}\n{rack.bmc()}networks: {{lan: {{netboot: "
    text += f"builtin}}}}\nnodes: {NODES}\nservices: {services}\n"
    return rack.file(text, f"{name}.yaml")


def test_services_are_listed_with_their_nodes_and_health(images: Rack) -> None:
    name = images.name()
    images.run("up", "--yes", written(images, name, SERVICES))
    rows = images.json("service", "list", "--cluster", name)
    assert [(row["service"], row["node"], row["kind"], row["health"]) for row in rows] == [
        ("db", "db", "container", "healthy"),
        ("web", "web", "vm", ""),
    ]
    assert (rows[1]["unit"], rows[1]["after"], rows[1]["power"]) == ("nginx", ["db"], "on")
    seen = images.client.ask(list[ServiceStatus], "GET", "/v1/services", cluster=name)
    assert [each.timeout for each in seen] == [300, 0]
    images.power(f"{name}/db", "off")
    assert images.json("service", "list", "--cluster", name)[0]["health"] == ""
    said = images.run("service", "logs", "nope", "--cluster", name, status=2).stderr
    assert "no service nope" in said
    assert "`nospoon service list`" in said
    images.run("down", "--yes", name)
    assert images.run("service", "list").stderr == "Nothing to show.\n"


def test_what_comes_after_a_service_that_does_not_start_waits(images: Rack) -> None:
    name = images.name()
    file = written(images, name, SERVICES, host="{simulated: {power_failures: 1}}")
    said = images.run("up", "--yes", file, status=3).stderr
    assert "node db was made and does not start" in said
    assert "node web was made and waits for service db: service db is not healthy: node db" in said
    assert f"{name}" in images.run("up", "--yes", written(images, name, SERVICES)).stderr
    power = {row["node"]: row["power"] for row in images.json("status", name)}
    assert power == {"db": "on", "web": "on"}, "an `up` that did not end is taken up again"
    images.run("down", "--yes", name)


def test_an_upgrade_takes_one_node_after_the_other(images: Rack) -> None:
    name = images.name()
    file = written(images, name, "{both: {nodes: [db, web]}}")
    images.run("up", "--yes", file)
    (images.directory / "new.img").write_bytes(bytes(2 << 20))
    Path(file).write_text(Path(file).read_text().replace("disk.img", "new.img"))
    said = images.run("service", "upgrade", "both", file, "--yes").stderr
    assert said.index("== db") < said.index("== web") < said.index("-/+ machine web")
    refused = images.run("service", "rollback", "both", file, "--yes", status=1).stderr
    assert "db, web would not return to a former root" in refused
    assert f"{file} names the image and roles that they have now" in refused
    other = Path(file).read_text().replace("new.img", "other.img")
    (images.directory / "other.img").write_bytes(bytes(3 << 20))
    Path(file).write_text(other)
    refused = images.run("service", "rollback", "both", file, "--yes", status=1).stderr
    assert f"web would not return to a former root: none is of the image and roles that {file}" in (
        refused
    )
    Path(file).write_text(other.replace("other.img", "new.img"))
    back = Path(file).read_text().replace("new.img", "disk.img")
    Path(file).write_text(back)
    assert images.json("plan", file)["returns"] == ["web"]
    assert images.json("plan", "--target", "db", file)["returns"] == []
    images.power(f"{name}/db", "off")
    said = images.run("service", "rollback", "both", file, "--yes").stderr
    assert "web returns to the root that it had of this image" in said
    assert f"{name}/db was off, and stays off: `nospoon node power {name}/db on` starts it" in said
    assert f"{name}/web was off" not in said
    assert images.json("plan", file)["returns"] == []
    images.run("down", "--yes", name)


def test_an_upgrade_to_fewer_nodes_removes_the_others(images: Rack) -> None:
    name = images.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{images.bmc()}"
    text += "services: {web: {image: root.tar, count: 2}}\n"
    images.run("up", "--yes", images.file(text, f"{name}.yaml"))
    fewer = images.file(text.replace("count: 2", "count: 1"), f"{name}.yaml")
    said = images.run("service", "upgrade", "web", fewer, "--yes").stderr
    assert f"{name}/web-1 runs service web no more" in said
    assert [row["node"] for row in images.json("status", name)] == ["web-0"]
    images.run("down", "--yes", name)


def test_changes_of_services_follow_their_rules(images: Rack) -> None:
    name = images.name()
    images.run("up", "--yes", written(images, name, SERVICES))
    for change in (
        SERVICES.replace("3306", "3307"),
        SERVICES.replace("timeout: 5min", "path: /, timeout: 5s"),
        SERVICES.replace("after: db, ", ""),
        SERVICES.replace("db: {", "d: {nodes: db, ").replace("after: db", "after: d"),
    ):
        plan = images.json("plan", written(images, name, change))
        assert (plan["steps"], plan["remembers"]) == ([], True), change
        images.run("up", "--yes", written(images, name, change))
    for change in (SERVICES.replace("swordfish-1", "swordfish-2"), SERVICES.replace("nginx", "n")):
        shown = images.run("plan", written(images, name, change))
        (step,) = images.json("plan", written(images, name, change))["steps"]
        assert (step["kind"], step["node"], step["at_power_off"]) == ("machine", "web", True)
        assert "swordfish" not in shown.stdout + shown.stderr
    images.run("down", "--yes", name)


def test_changes_of_nodes_that_services_describe_follow_their_rules(images: Rack) -> None:
    name = images.name()

    def file(db: str, web: str, more: str = "") -> str:
        text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{images.bmc()}"
        text += "networks: {lan: {netboot: builtin}}\nservices:\n"
        return images.file(f"{text}  db: {{{db}}}\n  web: {{{web}}}\n{more}", f"{name}.yaml")

    def machines(changed: str) -> list[tuple[str, str, bool]]:
        steps = images.json("plan", changed)["steps"]
        return [
            (each["action"], each["node"], each["at_power_off"])
            for each in steps
            if each["kind"] == "machine"
        ]

    db = "image: root.tar, volumes: [{size: 1GiB, mount: /a}], networks: lan"
    web = "image: disk.img, kind: vm, count: 1, after: db"
    images.run("up", "--yes", file(db, web))
    rows = images.json("service", "list", "--cluster", name)
    assert [(row["service"], row["node"]) for row in rows] == [("db", "db"), ("web", "web-0")]
    assert rule_of(ServiceSection, "count") is Rule.NODES
    assert machines(file(db, web.replace("count: 1", "count: 2"))) == [("create", "web-1", False)]
    assert rule_of(ServiceSection, "kind") is Rule.REPLACE
    container = web.replace("disk.img, kind: vm", "root.tar")
    assert {each[1:] for each in machines(file(db, container))} == {("web-0", False)}
    assert rule_of(ServiceSection, "networks") is Rule.AT_POWER_OFF
    changed = file(db.replace("networks: lan", "networks: [lan, lan]"), web)
    assert machines(changed) == [("change", "db", True)]
    assert rule_of(ServiceSection, "volumes") is Rule.AT_POWER_OFF
    assert machines(file(db.replace("/a", "/b"), web)) == [("change", "db", True)]
    assert rule_of(ServiceSection, "role") is Rule.REPLACE
    images.file("#!/bin/sh\necho swordfish\n", "db.sh")
    with_role = file(f"{db}, health: 80, role: db.sh", web)
    assert machines(with_role) == [("replace", "db", False)]
    plan = images.run("plan", with_role)
    assert "the root that db has now (db-0) is kept: with its image and roles in" in plan.stdout
    assert "volume db-1 " not in plan.stdout
    assert "swordfish" not in plan.stdout + plan.stderr
    images.run("up", "--yes", with_role)
    assert images.json("plan", with_role)["steps"] == []
    assert images.json("plan", file(db, web))["returns"] == ["db"]
    images.run("up", "--yes", file(db, web))
    assert rule_of(ServiceSection, "combine") is Rule.NODES
    together = file("", "after: db", "  both: {combine: [db, web], image: root.tar}\n")
    assert sorted(machines(together)) == [
        ("create", "both", False), ("delete", "db", False), ("delete", "web-0", False)
    ]  # fmt: skip
    images.run("up", "--yes", together)
    rows = images.json("service", "list", "--cluster", name)
    assert [(row["service"], row["node"]) for row in rows] == [("db", "both"), ("web", "both")]
    refused = images.run("service", "logs", "both", "--cluster", name, status=2).stderr
    assert "no service both" in refused
    images.run("down", "--yes", name)
