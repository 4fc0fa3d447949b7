"""The example of a control plane: MariaDB, RabbitMQ, Keystone and Glance in containers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nospoon.testing.rack import Rack, private_rack

pytestmark = [
    pytest.mark.lxc,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        not os.environ.get("NOSPOON_CONTROL_PLANE"),
        reason="takes both processors of CI for six minutes: make test-control-plane",
    ),
]
EXAMPLES = Path(__file__).parents[2] / "examples" / "control-plane"
INCLUDED = ("mariadb-server", "rabbitmq-server", "keystone", "glance", "python3-openstackclient")
USE = """
set -e
export OS_AUTH_URL=http://$1:5000/v3 OS_USERNAME=admin OS_PASSWORD=secret OS_PROJECT_NAME=admin
export OS_USER_DOMAIN_ID=default OS_PROJECT_DOMAIN_ID=default HOME=/root
[ -n "$(openstack token issue -f value -c id)" ]
echo "an image of $1" >/tmp/sent
openstack image create --file /tmp/sent --disk-format raw --container-format bare own >/tmp/made
openstack image save --file /tmp/got own
cat /tmp/got
"""


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with private_rack() as made:
        script = EXAMPLES / "control-plane"
        included = [word for each in INCLUDED for word in ("--include", each)]
        build = ["image", "build", "images", "--name", "control-plane", "--as", "lxc", *included]
        build += ["--copy", f"{script}:/usr/local/sbin", "--run", "control-plane install"]
        made.run(*build, seconds=2000)
        made.run("image", "load", "images/control-plane.tar.zst", "--hypervisor-type", "lxc")
        yield made


def inside(rack: Rack, name: str, node: str, *argv: str) -> str:
    (where,) = (rack.directory / "pool" / "lxc").glob(f"nospoon-{name}-*/{name}-*-{node}")
    return subprocess.run(
        ["lxc-attach", "-P", str(where.parent), "-n", where.name, "--clear-env", "--", *argv],
        text=True, capture_output=True, check=True, timeout=120,
    ).stdout  # fmt: skip


@pytest.mark.parametrize(
    ("example", "node_of"),
    [
        ("each-in-its-own", {"identity": "identity", "images": "images", "messages": "messages"}),
        ("all-in-one", {"identity": "control", "images": "control", "messages": "control"}),
    ],
)
def test_a_control_plane_gives_tokens_and_takes_images(
    rack: Rack, example: str, node_of: dict[str, str]
) -> None:
    name = rack.name()
    text = (EXAMPLES / f"{example}.yaml").read_text()
    own = text.replace("\ncluster: ", f"\ncluster: {name}\n# ", 1)
    rack.run("up", "--yes", rack.file(own + rack.bmc()), seconds=900)
    healthy = {row["service"]: row["health"] for row in rack.json("service", "list")}
    assert healthy == dict.fromkeys(("database", "messages", "identity", "images"), "healthy")
    identity, images = node_of["identity"], node_of["images"]
    got = inside(rack, name, images, "sh", "-c", USE, "use", identity)
    assert got == f"an image of {identity}\n"
    queues = inside(rack, name, node_of["messages"], "rabbitmqctl", "-q", "list_exchanges", "name")
    assert "glance" in queues.split()
    rack.run("down", "--yes", name)
