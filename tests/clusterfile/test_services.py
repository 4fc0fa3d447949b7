"""`services` of a file: which nodes run them, in which order, and what cloud-init sets for them."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from nospoon.cli.files import read_cluster
from nospoon.clusterfile.document import MAX_PROBLEMS
from nospoon.clusterfile.load import load
from nospoon.clusterfile.places import placed
from nospoon.clusterfile.schema import json_schema
from nospoon.clusterfile.service_nodes import MOST_PLACES
from nospoon.clusterfile.vendor_data import vendor_data
from nospoon.errors import SpecError
from nospoon.model.cluster import Cluster
from nospoon.model.node_kind import NodeKind
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
        ("  xyz: {}\n", "Write `nodes: NAME`, or describe its node here: `image: PATH`"),
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


SHORT = """\
cluster: c
hosts: {here: simulated}
flavors: {metal: {kind: baremetal}, box: {kind: container, disks: [{image: f.tar, size: 4GiB}]}}
networks: {lan: {netboot: builtin}, cut: {}}
"""


def described(services: str) -> Cluster:
    return load(f"{SHORT}services:\n{services}", file="c.yaml")


def test_a_service_that_describes_its_node_has_one_of_its_own() -> None:
    found = described(
        "  db: {image: x.tar, memory: 2GiB, volumes: [{size: 1GiB, mount: /var/lib/mysql}]}\n"
        "  api: {after: db, image: y.img, kind: vm, count: 2, networks: [lan, cut], cpus: 2,\n"
        "        user_data: '#cloud-config', placement: pack, host: here, labels: {role: api}}\n"
        "  one: {count: 1, image: z.tar, health: 80, environment: {A: x}}\n"
        "  kept: {flavor: box, volumes: [{size: 2GiB, mount: /srv}]}\n"
        "  whole: {flavor: box, disks: [{image: z.tar, size: 3GiB}], nics: lan}\n"
    )
    assert [(each.name, each.nodes) for each in found.services] == [
        ("db", ("db",)), ("one", ("one-0",)), ("kept", ("kept",)), ("whole", ("whole",)),
        ("api", ("api-0", "api-1")),
    ]  # fmt: skip
    db, api, api_1, one, kept, whole = found.nodes
    assert (db.kind, db.flavor, db.memory) == (NodeKind.CONTAINER, "default", 2 << 30)
    assert [(each.image, each.mount) for each in db.disks] == [
        ("x.tar", ""), ("", "/var/lib/mysql")
    ]  # fmt: skip
    assert (api.kind, api.cpus, api.host, api.labels) == (
        NodeKind.VM, 2, "here", (("role", "api"),)
    )  # fmt: skip
    assert [each.network for each in api.nics] == ["lan", "cut"]
    assert (api.cloud_init.user_data, api.placement.strategy) == ("#cloud-config", "pack")
    assert replace(api_1, name="api-0") == api
    assert "/etc/nospoon/one.env" in one.cloud_init.vendor_data
    assert [(each.image, each.size) for each in kept.disks] == [("f.tar", 4 << 30), ("", 2 << 30)]
    assert [(each.image, each.size) for each in whole.disks] == [("z.tar", 3 << 30)]


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (
            (
                "services:\n  db: {image: x, volumes: [{size: 1GiB, mount: /a}], health: 80}\n"
                "  api: {count: 2, flavor: box, networks: cut, after: db}\n"
            ),
            (
                "nodes:\n"
                "  - {name: db, flavor: own, disks: [{image: x}, {size: 1GiB, mount: /a}]}\n"
                "  - {name: 'api-{n}', count: 2, flavor: box, nics: cut}\n"
                "services: {db: {health: 80}, api: {after: db}}\n"
            ),
        ),
        (
            (
                "services:\n  control: {combine: [a, b], image: x, memory: 3GiB}\n"
                "  a: {unit: u, environment: {A: x}, health: 80}\n  b: {after: a}\n"
            ),
            (
                "nodes: [{name: control, flavor: own, image: x, memory: 3GiB}]\nservices:\n"
                "  a: {nodes: control, unit: u, environment: {A: x}, health: 80}\n"
                "  b: {nodes: control, after: a}\n"
            ),
        ),
    ],
)
def test_the_short_form_is_what_its_nodes_are_in_the_long_one(short: str, long: str) -> None:
    own = SHORT.replace("flavors: {", "flavors: {own: {kind: container}, ")
    brief, whole = load(own + short, file="c.yaml"), load(own + long, file="c.yaml")
    nodes = tuple(
        replace(each, flavor="own" if each.flavor == "default" else each.flavor)
        for each in brief.nodes
    )
    assert replace(brief, nodes=nodes) == whole


def test_services_are_combined_on_nodes_called_as_the_entry() -> None:
    found = described(
        "  control: {combine: [keystone, glance], count: 2, image: x.tar}\n"
        "  keystone: {unit: apache2, environment: {A: k}, after: db}\n"
        "  glance: {environment: {A: g}, after: keystone}\n"
        "  db: {image: x.tar}\n  alone: {nodes: control-1}\n  single: {combine: last, image: y}\n"
        "  last:\n"
    )
    assert {each.name: each.nodes for each in found.services} == {
        "db": ("db",),
        "keystone": ("control-0", "control-1"),
        "glance": ("control-0", "control-1"),
        "alone": ("control-1",),
        "last": ("single",),
    }
    assert found.services[-1].after == ("keystone",)
    text = found.nodes[0].cloud_init.vendor_data
    assert "restart 'apache2.service' 'glance.service'" in text


@pytest.mark.parametrize(
    ("services", "said"),
    [
        (
            "  db: {image: x, nodes: other}\n  other: {image: y}\n",
            ["6:8: services.db.image: expected `nodes`, or a node of its own with `image`, got"],
        ),
        ("  db: {memory: 1GiB}\n", ["6:7: services.db: expected an image for 'db', which is of"]),
        ("  db: {image: x, count: 0}\n", ["6:25: services.db.count: expected at least 1, got 0"]),
        ("  db: {image: x, count: no}\n", ["services.db.count: expected a whole number, got 'no'"]),
        (
            "  db: {image: x, kind: baremetal}\n",
            ["6:18: services.db.kind: services run on nodes of kind vm and container, and this is"],
        ),
        (
            "  db: {image: x, flavor: metal}\n",
            ["services.db.flavor: services run on nodes of kind vm and container, and flavor 'm"],
        ),
        (
            "  db: {image: x, flavor: bux}\n",
            ["db.flavor: no flavor named 'bux'. Did you mean 'box'"],
        ),
        ("  db: {image: x, networks: la}\n", ["db.networks: no network named 'la'. Did you mean"]),
        ("  db: {image: x, networks: [la]}\n", ["6:29: services.db.networks[0]: no network named"]),
        (
            "  db: {image: x, networks: [{network: lan, pxe: true}]}\n",
            ["6:49: services.db.networks[0].pxe: a node of kind container has no pxe"],
        ),
        (
            "  db: {image: x, networks: lan, nics: lan}\n",
            ["6:33: services.db.nics: expected networks or nics, got both"],
        ),
        (
            "  db: {volumes: [{size: 1GiB, mount: /a}], disks: [{image: x}]}\n",
            ["6:44: services.db.disks: expected volumes or disks, got both"],
        ),
        (
            "  db: {volumes: [{size: 1GiB, mount: /a}]}\n",
            ["services.db.volumes: volumes come after a root, and the image of that is missing"],
        ),
        (
            "  db: {image: x, volumes: [{size: 1GiB, mount: /a}, 1GiB]}\n",
            ["6:53: services.db.volumes[1]: each disk of a container after its root needs a"],
        ),
        (
            "  db: {image: x, volumes: [{image: 'ftp://h', size: 1GiB, mount: /a}]}\n",
            [
                "services.db.volumes[0].image: expected a path, or a URL",
                "begins with what the image",
            ],
        ),
        ("  db: {image: 'snapshot:a/b'}\n", ["db: disk 0 of 'db': only roots of VMs start from a"]),
        (
            "  db: {image: x, boot_order: [disk]}\n",
            ["db.boot_order: a node of kind container has no"],
        ),
        (
            "  db: {image: x, role: y}\n",
            ["6:24: services.db.role: expected a script, which begins with a line `#!` and a"],
        ),
        (
            "  db: {image: x, role: '#!/bin/sh', after: api}\n  api: {image: x}\n",
            ["6:24: services.db.role: a service with a role needs `health`, by which `up` sees"],
        ),
        ("  db: {image: x, role: 5}\n", ["db.role: expected the path of a script, or its text"]),
        (
            f"  db: {{image: x, role: '#!{'x' * (1 << 16)}'}}\n",
            ["services.db.role: expected at most 65536 characters, got 65538"],
        ),
        (
            "  all: {combine: a, image: x, role: '#!/bin/sh'}\n  a:\n",
            ["services.all.role: an entry with `combine` describes a node, which has no `role`"],
        ),
        ("  db: {imag: x, memory: 1GiB}\n", ["6:8: services.db.imag: unknown key 'imag'. Did you"]),
        (
            "  db: {image: x, count: 2}\n  db-1: {image: x}\n",
            ["7:9: services.db-1: 'db-1' is also named by services.db. Give one of them another"],
        ),
        (
            f"  {'a' * 62}: {{image: x, count: 2}}\n",
            [f"services.{'a' * 62}: makes the name", "expected at most 63"],
        ),
        (
            (
                "  control: {combine: [glence, control, two, glance, glance], image: x}\n"
                "  two: {combine: [glance, keystone], image: x, unit: u, nodes: other}\n"
                "  glance: {after: control}\n  keystone: {image: y, memory: 1GiB}\n"
                "  other: {image: x}\n"
            ),
            [
                "6:23: services.control.combine[0]: no service 'glence'. Did you mean 'glance'?",
                "control.combine[1]: 'control' is the node of the services, and none of them",
                (
                    "combine[2]: 'two' is a node of several services, and none itself. Name the "
                    "services: glance, keystone"
                ),
                "services.control.combine[4]: service 'glance' is named twice",
                "services.two.combine[0]: service 'glance' is combined in 'control' already",
                "7:48: services.two.unit: an entry with `combine` describes a node, which has no",
                "services.two.nodes: an entry with `combine` describes a node",
                "8:19: services.glance.after[0]: 'control' is the node of several services",
                (
                    "9:14: services.keystone.image: service 'keystone' is combined in 'two', whose "
                    "`image` holds. Write `image` there, or take it out of that `combine`"
                ),
                "services.keystone.memory: service 'keystone' is combined in 'two', whose `memory`",
            ],
        ),
        (
            "  all: {combine: a, image: x}\n  a: {nodes: b}\n  b: {image: x}\n",
            ["7:7: services.a.nodes: service 'a' is combined in 'all', whose node it runs on"],
        ),
        ("  all: {combine: [], image: x}\n", ["services.all.combine: expected at least 1 entry"]),
        ("  all: {combine: 5, image: x}\n", ["services.all.combine: expected a list, got 5"]),
        ("  all: {combine: a}\n  a:\n", ["services.all: expected an image for 'all', which is of"]),
        (
            "  all: {combine: [a], image: x, cpus: many}\n  a: {after: b}\n",
            [
                "all.cpus: expected a whole number, got 'many'",
                "services.a.after[0]: no service 'b'",
            ],
        ),
    ],
)
def test_what_is_wrong_with_the_short_form_is_said_where_it_is_written(
    services: str, said: list[str]
) -> None:
    with pytest.raises(SpecError) as error:
        described(services)
    problems = [str(each) for each in error.value.problems]
    assert all(any(each in problem for problem in problems) for each in said), problems
    assert all(any(each in problem for each in said) for problem in problems), "and nothing else"
    assert "nodes[" not in str(error.value)


def test_a_service_may_not_have_the_name_of_a_node() -> None:
    text = (
        SHORT + "nodes: [{name: db, flavor: metal}, {name: 'api-{n}', count: 2, flavor: metal}]\n"
    )
    with pytest.raises(SpecError) as error:
        load(f"{text}services:\n  db: {{image: x}}\n  api: {{image: x, count: 2}}\n", file="c.yaml")
    assert [str(each).partition(". ")[0] for each in error.value.problems] == [
        "c.yaml:7:7: services.db: 'db' is also named by nodes[0]",
        "c.yaml:8:8: services.api: 'api-0' is also named by nodes[1]",
        "c.yaml:8:8: services.api: 'api-1' is also named by nodes[1]",
    ]


def test_a_node_that_is_not_read_is_missed_by_no_service() -> None:
    with pytest.raises(SpecError) as error:
        load(
            NODES.replace("name: db,", "name: db, cpus: x,") + "  db:\n  a: {nodes: db}\n", file="c"
        )
    assert [each.path for each in error.value.problems] == ["nodes[0].cpus"]


def test_files_and_reasons_of_such_nodes_have_the_place_of_their_service() -> None:
    services = "  db: {image: a.tar, volumes: [{size: 1GiB, mount: /a}]}\n"
    services += "  all: {combine: x, flavor: box}\n  x:\n"
    with pytest.raises(SpecError) as error:
        load(SHORT + "services:\n" + services, file="c.yaml", local_file=lambda name: f"no {name}")
    assert {each.path for each in error.value.problems} == {
        "flavors.box.disks[0].image",
        "services.db.image",
    }
    reasons = ["node db fits on no host.", "node all fits on no host."]
    assert placed(reasons, SHORT + "services:\n" + services, "c.yaml") == [
        "c.yaml:6:7: node db fits on no host.", "c.yaml:7:8: node all fits on no host."
    ]  # fmt: skip


def test_user_data_of_a_service_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "init").write_text("#cloud-config\n")
    (tmp_path / "c.yaml").write_text(
        f"{SHORT}services: {{db: {{image: x, user_data: {{file: init}}}}}}\n"
    )
    (node,) = read_cluster(str(tmp_path / "c.yaml")).nodes
    assert node.cloud_init.user_data == "#cloud-config\n"


def test_a_role_is_read_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    script = "#!/bin/sh -e\napt-get install -y mariadb-server\n# é\n"
    (tmp_path / "db.sh").write_text(script)

    def written(role: str) -> str:
        path.write_text(f"{SHORT}services:\n  db: {{image: x, health: 80, role: {role}}}\n")
        return str(path)

    found = read_cluster(written("db.sh"))
    assert found.services[0].role == script
    (init,) = (node.cloud_init for node in found.nodes)
    assert script in init.vendor_data
    assert "mariadb" not in repr(found)
    (tmp_path / "plain").write_text("hello\n")
    (tmp_path / "large").write_text("#!" + "x" * (1 << 16))
    for role, why in {
        "none.sh": f"{tmp_path}/none.sh: No such file or directory",
        "plain": f"{tmp_path}/plain does not begin with a line `#!` and a program",
        "large": f"{tmp_path}/large is larger than 64 KiB",
    }.items():
        with pytest.raises(SpecError) as error:
            read_cluster(written(role))
        assert f"c.yaml:6:36: services.db.role: cannot read the role: {why}" in str(error.value)


def test_the_roles_of_a_node_are_those_of_its_services_in_their_order() -> None:
    file = (
        "  both: {combine: [a, b], image: x}\n"
        "  a: {after: b, health: 80, role: '#!/bin/a'}\n  b: {health: 81, role: '#!/bin/b'}\n"
        "  c: {image: x, environment: {A: x}}\n"
    )

    def roles(services: str) -> dict[str, str]:
        return {node.name: node.cloud_init.roles for node in described(services).nodes}

    both, alone = described(file).nodes
    assert alone.cloud_init.roles == ""
    text = both.cloud_init.vendor_data
    assert text.index("start 'nospoon-role-b") < text.index("restart 'b.service'")
    assert text.index("restart 'b.service'") < text.index("start 'nospoon-role-a")
    assert len(both.cloud_init.roles) == 64
    assert roles(file.replace("health: 80", "health: 82")) == roles(file)
    assert roles(file.replace("/bin/a", "/bin/c"))["both"] != both.cloud_init.roles


@pytest.mark.parametrize("status", [0, 7])
def test_a_role_runs_once_and_before_the_unit(tmp_path: Path, status: int) -> None:
    """systemctl is a double that runs what the unit of a role does."""
    (tmp_path / "systemctl").write_text(
        "#!/bin/sh\n"
        f'case "$1" in show) cat {tmp_path}/status ;; start) echo "$2" >>{tmp_path}/called\n'
        f"file=$(sed -n 's/^ExecStart=//p' {tmp_path}/etc/systemd/system/$2)\n"
        f'"$file" >>{tmp_path}/called; echo $? >{tmp_path}/status; '
        f'exit $(cat {tmp_path}/status) ;; *) echo "$@" >>{tmp_path}/called ;; esac\n'
    )
    (tmp_path / "systemctl").chmod(0o755)
    services = [
        Service("db", ("n",), "mariadb", role=f"#!/bin/sh\necho 'role $X'\nexit {status}\n"),
        Service("web", ("n",), "web", environment=(("A", "x"),), role="#!/bin/sh\necho web"),
    ]
    script = vendor_data(services).replace("/etc/", f"{tmp_path}/etc/")
    script = script.replace("/dev/console", f"{tmp_path}/console")
    script = script.replace(f">{tmp_path}/console", f">>{tmp_path}/console")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def ran() -> list[str]:
        (tmp_path / "called").unlink(missing_ok=True)
        done = subprocess.run(["sh", "-c", script], check=False, env=environment)
        assert (done.returncode != 0) is (status != 0)
        return (tmp_path / "called").read_text().splitlines()

    first = ["daemon-reload", "nospoon-role-db.service", "role $X"]
    if status:
        assert ran() == ran() == first, "no unit is started, and it is tried again"
    else:
        restarts = ["restart mariadb.service", "restart web.service"]
        assert ran() == [*first, restarts[0], "nospoon-role-web.service", "web", restarts[1]]
        assert ran() == ["daemon-reload", *restarts]
    line = services[0].role_line
    said = (tmp_path / "console").read_text().splitlines()
    assert [each for each in said if each][:2] == [f"{line}begins", f"{line}exit status {status}"]
    assert (tmp_path / "etc/nospoon/db.role").stat().st_mode & 0o777 == 0o700


def test_what_is_wrong_with_many_entries_is_bounded() -> None:
    members = ", ".join(f"x{n}" for n in range(64))
    services = "".join(f"  s{n}: {{combine: [{members}], image: x}}\n" for n in range(100))
    with pytest.raises(SpecError) as error:
        described(services)
    assert len(error.value.problems) == MAX_PROBLEMS


def test_a_file_needs_nodes_or_services() -> None:
    with pytest.raises(SpecError, match="missing key 'nodes'"):
        load("cluster: c\n", file="c.yaml")
    assert load("cluster: c\nservices: {}\n", file="c.yaml").nodes == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nodes": ""}, "expected text of the form"),
        ({"unit": "a b"}, "expected text of the form"),
        ({"health": {"port": 80, "path": "v3"}}, "expected text of the form"),
        ({"unit": 5}, "expected text, got 5"),
        ({"health": 2.5}, "expected a whole number, got 2.5"),
    ],
)
def test_the_schema_refuses_what_the_loader_does(given: dict[str, object], said: str) -> None:
    value = {"cluster": "c", "services": {"a": given}}
    assert not Draft202012Validator(json_schema()).is_valid(value)
    with pytest.raises(SpecError, match=said):
        load(json.dumps(value), file="c")


def test_services_of_a_huge_cluster_are_bounded() -> None:
    text = "cluster: c\nhosts: {here: simulated}\n"
    text += "nodes: [{name: 'n-{n}', count: 15000, kind: vm, image: y.img}]\nservices:\n"
    one = "  a: {nodes: 'n-*', environment: {A: %s}}\n"
    load(text + one % "x", file="c.yaml")
    with pytest.raises(SpecError, match=f"at most {MOST_PLACES} nodes of all services together"):
        load(text + one % "x" + "  b: {nodes: '*'}\n", file="c.yaml")
    variables = ", ".join(f"V{n}: {'x' * 4000}" for n in range(5))
    large = f"  a: {{nodes: 'n-*', environment: {{{variables}}}}}\n"
    with pytest.raises(
        SpecError, match="characters of environment and roles on all nodes of a cluster"
    ):
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


def test_services_of_one_unit_on_a_node_have_their_environments_together(tmp_path: Path) -> None:
    """As keystone and horizon of one Apache have, when they are combined."""
    keystone = Service("keystone", ("control",), "apache2", (), (("A", "x"),))
    horizon = Service("horizon", ("control",), "apache2", (), (("B", "y"),))
    script = vendor_data([keystone, horizon]).replace("/etc/", f"{tmp_path}/etc/")
    (tmp_path / "systemctl").write_text("#!/bin/sh\n")
    (tmp_path / "systemctl").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script], check=True, env=environment)
    unit = tmp_path / "etc/systemd/system/apache2.service.d/nospoon.conf"
    files = [
        f"EnvironmentFile={tmp_path}/etc/nospoon/{name}.env" for name in ("keystone", "horizon")
    ]
    assert unit.read_text().splitlines() == ["[Service]", *files]
