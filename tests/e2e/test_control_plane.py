"""The example of a control plane: MariaDB, RabbitMQ, Keystone, Glance and Ironic in containers.

NOSPOON_CONTROL_PLANE is the file of an image that was built before, or 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nospoon.dev import ironic
from nospoon.dev.cloud import cloud
from nospoon.testing.rack import Rack, private_rack

pytestmark = [
    pytest.mark.lxc,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        not os.environ.get("NOSPOON_CONTROL_PLANE"),
        reason="takes both processors of CI for six minutes: make test-control-plane",
    ),
]
ENROLLED = "ironic: {cloud: control-plane, driver: redfish, state: available}\n"
EXAMPLES = Path(__file__).parents[2] / "examples" / "control-plane"
INCLUDED = ("mariadb-server", "rabbitmq-server", "python3-openstackclient", "python3-venv")
LOCKED = {"cloud": cloud.LOCK_FILE, "ironic": ironic.LOCK_FILE}
VERSIONS = """
export PIP_DISABLE_PIP_VERSION_CHECK=1
/opt/openstack/bin/pip list --format freeze | grep -E "^(keystone|glance)=="
/opt/ironic/bin/pip list --format freeze | grep "^ironic=="
"""
SERVICES = ("database", "messages", "identity", "images", "baremetal")
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
NODES = """
set -e
export OS_AUTH_URL=http://$1:5000/v3 OS_USERNAME=admin OS_PASSWORD=secret OS_PROJECT_NAME=admin
export OS_USER_DOMAIN_ID=default OS_PROJECT_DOMAIN_ID=default HOME=/root
token=$(openstack token issue -f value -c id)
url=$(openstack endpoint list --service baremetal -f value -c URL)
python3 -c 'import sys, urllib.request as u
headers = {"X-Auth-Token": sys.argv[2], "X-OpenStack-Ironic-API-Version": "1.82"}
print(u.urlopen(u.Request(sys.argv[1] + "/v1/nodes/detail", headers=headers)).read().decode())
' "$url" "$token"
"""


def pack_wheels(directory: Path) -> Path:
    """A tar of what `nospoon dev cloud` and `nospoon dev ironic` run."""
    wheels, packed = directory / "wheels", directory / "wheels.tar"
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--require-hashes"]
    for name, lock in LOCKED.items():
        argv = [*pip, "-r", str(lock), "-w", str(wheels / name)]
        subprocess.run(argv, check=True, timeout=600)
    subprocess.run(["tar", "-C", str(wheels), "-cf", str(packed), "."], check=True, timeout=60)
    return packed


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with private_rack() as made:
        image = os.environ["NOSPOON_CONTROL_PLANE"]
        if not Path(image).is_file():
            image = built(made)
        made.run("image", "load", image, "--hypervisor-type", "lxc", "--name", "control-plane")
        yield made


def built(rack: Rack) -> str:
    """The image, which takes most of the time."""
    wheels = pack_wheels(rack.directory)
    included = [word for each in INCLUDED for word in ("--include", each)]
    build = ["image", "build", "images", "--name", "control-plane", "--as", "lxc", *included]
    build += ["--copy", f"{EXAMPLES / 'control-plane'}:/usr/local/sbin"]
    build += ["--copy", f"{wheels}:/opt", "--run", f"control-plane install /opt/{wheels.name}"]
    rack.run(*build, seconds=2000)
    return str(rack.directory / "images" / "control-plane.tar.zst")


def inside(rack: Rack, name: str, node: str, *argv: str) -> str:
    (where,) = (rack.directory / "pool" / "lxc").glob(f"nospoon-{name}-*/{name}-*-{node}")
    return subprocess.run(
        ["lxc-attach", "-P", str(where.parent), "-n", where.name, "--clear-env", "--", *argv],
        text=True, capture_output=True, check=True, timeout=120,
    ).stdout  # fmt: skip


def expect_locked_versions(installed: str) -> None:
    lines = [line for lock in LOCKED.values() for line in lock.read_text().splitlines()]
    locked = {line.split(" ")[0] for line in lines}
    assert len(installed.split()) == 3
    assert set(installed.split()) <= locked


def cloud_of(rack: Rack, addresses: dict[str, str]) -> None:
    """The administrator's clouds.yaml, by addresses: names of nodes are those of their network."""
    cloud = {
        "auth": {
            "auth_url": f"http://{addresses['identity']}:5000/v3",
            "username": "admin", "password": "secret", "project_name": "admin",
            "user_domain_id": "default", "project_domain_id": "default",
        },
        "region_name": "RegionOne",
        "baremetal_endpoint_override": f"http://{addresses['baremetal']}:6385",
    }  # fmt: skip
    rack.file(json.dumps({"clouds": {"control-plane": cloud}}), "clouds.yaml")


@pytest.mark.parametrize("example", ["each-in-its-own", "all-in-one"])
def test_a_control_plane_gives_tokens_takes_images_and_enrolls_bare_metal(
    rack: Rack, example: str
) -> None:
    name = rack.name()
    text = (EXAMPLES / f"{example}.yaml").read_text()
    address = yaml.safe_load(text)["bmc"]["address"]
    own = text.replace("\ncluster: ", f"\ncluster: {name}\n# ", 1)
    own = own.replace("\nbmc: ", f"\n{rack.bmc(address=address)}# ", 1)
    rack.run("up", "--yes", rack.file(own), seconds=900)
    services = {row["service"]: row for row in rack.json("service", "list")}
    assert {each: row["health"] for each, row in services.items()} == dict.fromkeys(
        SERVICES, "healthy"
    )
    node_of = {each: row["node"] for each, row in services.items()}
    identity, images = node_of["identity"], node_of["images"]
    got = inside(rack, name, images, "sh", "-c", USE, "use", identity)
    assert got == f"an image of {identity}\n"
    expect_locked_versions(inside(rack, name, images, "sh", "-c", VERSIONS))
    queues = inside(rack, name, node_of["messages"], "rabbitmqctl", "-q", "list_exchanges", "name")
    assert "glance" in queues.split()

    cloud_of(rack, {each: row["address"] for each, row in services.items()})
    rack.run("up", "--yes", rack.file(own + ENROLLED), seconds=300)
    listed = inside(rack, name, images, "sh", "-c", NODES, "nodes", identity)
    (node,) = json.loads(listed)["nodes"]
    bmc = rack.bmcs(name)["metal"]
    assert (node["uuid"], node["driver"]) == (bmc["uuid"], "redfish")
    assert (node["provision_state"], node["power_state"]) == ("available", "power off")
    assert node["driver_info"]["redfish_address"].startswith(f"http://{address}:")
    rack.run("down", "--yes", name)
