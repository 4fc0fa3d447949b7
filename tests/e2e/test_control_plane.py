"""The example of a control plane: MariaDB, RabbitMQ, Keystone, Glance and Ironic in containers.

They are in one container, then in one each. The image is built once a machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from nospoon.dev import ironic
from nospoon.dev.cloud import cloud
from nospoon.dev.images import root
from nospoon.testing.alone import alone
from nospoon.testing.rack import CACHE, Rack, private_rack

pytestmark = [
    pytest.mark.lxc,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        not os.environ.get("NOSPOON_CONTROL_PLANE"),
        reason="a control plane takes nine minutes with its image: make test-control-plane",
    ),
]
ENROLLED = "ironic: {cloud: control-plane, driver: redfish, state: available}\n"
EXAMPLES = Path(__file__).parents[2] / "examples" / "control-plane"
INCLUDED = ("mariadb-server", "rabbitmq-server", "python3-openstackclient", "python3-venv")
LONGEST = 2000.0
"""Seconds for a build on a busy machine."""
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
    with ThreadPoolExecutor() as pool:
        commands = [
            [*pip, "-r", str(lock), "-w", str(wheels / name)] for name, lock in LOCKED.items()
        ]
        [*pool.map(lambda argv: subprocess.run(argv, check=True, timeout=LONGEST), commands)]
    subprocess.run(["tar", "-C", str(wheels), "-cf", str(packed), "."], check=True, timeout=300)
    return packed


@pytest.fixture
def rack() -> Iterator[Rack]:
    with alone("control-plane", patience=LONGEST), private_rack() as made:  # one has its network
        image = str(control_plane(made))
        made.run("image", "load", image, "--hypervisor-type", "lxc", "--name", "control-plane")
        yield made


def control_plane(rack: Rack) -> Path:
    """The image, kept in a cache by a key of what it is made of."""
    files = (EXAMPLES / "control-plane", *LOCKED.values())
    parts = (*root.PACKAGES, *root.HOOKS, *INCLUDED, *(each.read_text() for each in files))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    image = CACHE / f"control-plane-{key}.tar.zst"
    if not image.exists():
        wheels = pack_wheels(rack.directory)
        build = ["image", "build", str(CACHE), "--name", f"control-plane-{key}", "--as", "lxc"]
        build += [word for each in INCLUDED for word in ("--include", each)]
        build += ["--copy", f"{EXAMPLES / 'control-plane'}:/usr/local/sbin"]
        build += ["--copy", f"{wheels}:/opt", "--run", f"control-plane install /opt/{wheels.name}"]
        rack.run(*build, seconds=LONGEST)
    return image


def inside(rack: Rack, name: str, node: str, *argv: str) -> str:
    (where,) = (rack.directory / "pool" / "lxc").glob(f"nospoon-{name}-*/{name}-*-{node}")
    return subprocess.run(
        ["lxc-attach", "-P", str(where.parent), "-n", where.name, "--clear-env", "--", *argv],
        text=True, capture_output=True, check=True, timeout=600,
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


@pytest.mark.parametrize("example", ["all-in-one", "each-in-its-own"])
def test_a_control_plane_gives_tokens_takes_images_and_enrolls_bare_metal(
    rack: Rack, example: str
) -> None:
    name = rack.name()
    text = (EXAMPLES / f"{example}.yaml").read_text()
    address = yaml.safe_load(text)["bmc"]["address"]
    own = text.replace("\ncluster: ", f"\ncluster: {name}\n# ", 1)
    own = own.replace("\nbmc: ", f"\n{rack.bmc(address=address)}# ", 1)
    own = own.replace("timeout: 5min", "timeout: 20min")  # other tests have the processors, too
    rack.run("up", "--yes", rack.file(own), seconds=1500)
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
