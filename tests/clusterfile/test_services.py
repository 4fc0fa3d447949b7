"""`services` of a file: which nodes run them, in which order, and what cloud-init sets for them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nospoon.clusterfile.load import load
from nospoon.clusterfile.service_nodes import MOST_PLACES, vendor_data
from nospoon.errors import SpecError
from nospoon.model.cluster import Cluster
from nospoon.model.service import Health, Service

NODES = """\
cluster: c
hosts: {here: simulated}
networks: {lan: {netboot: builtin}, cut: {}}
nodes:
  - {name: db, kind: container, image: x.tar}
  - {name: "api-{n}", count: 2, kind: vm, image: y.img}
  - {name: metal}
  - {name: alone, kind: vm, image: y.img, nics: cut}
services:
"""


def loaded(services: str) -> Cluster:
    return load(NODES + services, file="c.yaml")


def test_services_run_on_nodes_of_their_names_and_those_that_they_name() -> None:
    found = loaded(
        "  glance: {nodes: 'api-*', after: api}\n"
        "  api: {after: [db], unit: apache2.service, health: {port: 5000, path: /v3}}\n"
        "  db: {health: 3306, environment: {PASSWORD: secret}}\n"
    )
    assert found.services == (
        Service("db", ("db",), "db", (), (("PASSWORD", "secret"),), Health(3306)),
        Service("api", ("api-0", "api-1"), "apache2", ("db",), (), Health(5000, "/v3")),
        Service("glance", ("api-0", "api-1"), "glance", ("api",)),
    ), "in the order in which they start"
    given = {node.name: node.cloud_init.vendor_data for node in found.nodes}
    assert {name for name, text in given.items() if text} == {"db"}
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("services", "said"),
    [
        ("  dbx: {}\n", "c.yaml:10:8: services.dbx: no node is called 'dbx', or 'dbx-0'. Did you"),
        (
            "  a: {nodes: [db, apl-0]}\n",
            "services.a.nodes[1]: no node 'apl-0'. Did you mean 'api-0'",
        ),
        ("  a: {nodes: 'x*'}\n", "c.yaml:10:14: services.a.nodes[0]: no node 'x*'"),
        ("  metal: {}\n", "run on nodes of kind vm and container, and 'metal' is bare metal"),
        ("  db: {after: api}\n", "services.db.after[0]: no service 'api'"),
        ("  db: {after: api}\n  api: 5\n", "services.api: expected a mapping, got 5"),
        ("  db: {after: db}\n", "these wait for each other: service db -> service db"),
        (
            "  db: {after: api}\n  api: {after: x}\n  x: {nodes: db}\n",
            "these wait for each other: ",
        ),
        ("  alone: {health: 80}\n", "look at a service of node 'alone': no address is known. Plug"),
        ("  db: {health: {port: 80, path: v3}}\n", "services.db.health.path: expected text of the"),
        ("  db: {health: 70000}\n", "services.db.health: expected at most 65535, got 70000"),
        ("  db: {unit: 'a;b'}\n", "services.db.unit: expected text of the form"),
        ("  db: {environment: {1A: x}}\n", "services.db.environment.1A: expected text of the form"),
        ("  db: {environment: {A: 123456}}\n", "A: expected text. Put it in quotes"),
        ('  db: {environment: {A: "x\\ny"}}\n', "A: expected printable characters in one line"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(services: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        loaded(services)
    assert said in str(error.value)
    assert "123456" not in str(error.value), "it may be a password"


def test_services_of_a_huge_cluster_are_bounded() -> None:
    text = "cluster: c\nhosts: {here: simulated}\n"
    text += "nodes: [{name: 'n-{n}', count: 15000, kind: vm, image: y.img}]\nservices:\n"
    one = "  a: {nodes: 'n-*', environment: {A: %s}}\n"
    load(text + one % "x", file="c.yaml")
    with pytest.raises(SpecError, match=f"at most {MOST_PLACES} nodes of all services together"):
        load(text + one % "x" + "  b: {nodes: '*'}\n", file="c.yaml")
    variables = ", ".join(f"V{n}: {'x' * 4000}" for n in range(5))
    large = f"  a: {{nodes: 'n-*', environment: {{{variables}}}}}\n"
    with pytest.raises(SpecError, match="characters of environment on all nodes of a cluster"):
        load(text + large, file="c.yaml")
    many = text + "".join(f"  s{n}: {{nodes: n-0}}\n" for n in range(101))
    with pytest.raises(SpecError, match="expected at most 100 services, got 101"):
        load(many, file="c.yaml")


def test_the_environment_arrives_as_it_is_written(tmp_path: Path) -> None:
    """systemd reads quoted values as a shell does (systemd.exec(5))."""
    odd = "a \"b\" \\ $HOME `id` 'c'"
    values = {"A": "x", "B": odd, "C": "", "D": "END-OF-ENVIRONMENT", "E": " é "}
    service = Service("db", ("db",), "my@db", (), tuple(values.items()))
    script = vendor_data([service])
    called = tmp_path / "called"
    for name in ("systemctl",):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "$@" >>{called}\n')
        (tmp_path / name).chmod(0o755)
    script = script.replace("/etc/", f"{tmp_path}/etc/")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script], check=True, env=environment)
    assert called.read_text() == "daemon-reload\nrestart my@db.service\n"
    unit = tmp_path / "etc/systemd/system/my@db.service.d/nospoon.conf"
    file = tmp_path / "etc/nospoon/db.env"
    assert unit.read_text() == f"[Service]\nEnvironmentFile={file}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    read = ["sh", "-c", f'set -a; . {file}; printf "%s\\0" "$A" "$B" "$C" "$D" "$E"']
    said = subprocess.run(read, check=True, capture_output=True, text=True).stdout
    assert said.split("\0")[:-1] == list(values.values())
