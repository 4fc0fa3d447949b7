"""Tenks's documented override example: imported, planned, brought up on libvirt, and powered; and
its inventory, as Ansible reads it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack

OVERRIDE = """---
node_types:
  type0:
    memory_mb: 1024
    vcpus: 1
    volumes:
      - capacity: 2GB
    physical_networks:
      - physnet0
specs:
  - type: type0
    count: 3
    ironic_config:
      resource_class: my_rc
physnet_mappings:
  physnet0: {bridge}
ipmi_port_range_start: {port}
ipmi_port_range_end: {port}
"""


@pytest.fixture
def bridge() -> Iterator[str]:
    """A bridge of the user's own."""
    name = f"nst-{uuid4().hex[:8]}"
    subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
    yield name
    subprocess.run(["ip", "link", "delete", name], check=True)


@pytest.mark.libvirt
def test_a_tenks_override_comes_up_on_the_users_bridge(rack: Rack, bridge: str) -> None:
    port = rack.bmc().partition("ports: ")[2].split("-")[0]
    override = rack.file(OVERRIDE.format(bridge=bridge, port=port), "override.yml")
    name, made = rack.name(), str(rack.directory / "cluster.yaml")
    said = rack.run("import", "--from", "tenks", override, "--name", name, "-o", made).stderr
    assert "Not carried over: enrollment in Ironic: name the cloud with --cloud" in said
    again = rack.run("import", "--from", "tenks", override, "-o", made, status=2).stderr
    assert f"{made} is there already" in again
    rack.run("up", "--yes", made)
    bmcs = rack.bmcs(name)
    assert set(bmcs) == {"tk0", "tk1", "tk2"}
    local = {**bmcs["tk1"], "ipmi": bmcs["tk1"]["ipmi"].replace("0.0.0.0", "127.0.0.1")}
    assert (local["username"], local["password"]) == ("username", "password")
    assert "off" in rack.ipmitool(local, "chassis", "power", "status")
    rack.ipmitool(local, "chassis", "power", "on")
    until(lambda: "Power is on" in rack.ipmitool(local, "chassis", "power", "status"))
    ports = subprocess.run(
        ["ip", "-br", "link", "show", "master", bridge], capture_output=True, text=True, check=True
    ).stdout
    assert len(ports.splitlines()) == 1
    rack.run("down", "--yes", "--purge", name)
    assert not Path(f"/sys/class/net/{bridge}/brif").exists() or not list(
        Path(f"/sys/class/net/{bridge}/brif").iterdir()
    )


INVENTORY = """
[hypervisors:children]
libvirt
[libvirt]
hv1 ansible_host=192.0.2.10 ansible_port=2222 ansible_user=stack
hv2 ansible_host=192.0.2.11 libvirt_local_uri=qemu:///system
"""


@pytest.mark.parametrize("inventory", ["inventory", "inventory/hosts"])
def test_variables_of_hosts_are_read_where_tenks_has_them(
    shared: Rack, tmp_path: Path, inventory: str
) -> None:
    ansible = tmp_path / "ansible"
    for each in ("inventory", "host_vars", "group_vars"):
        (ansible / each).mkdir(parents=True)
    (ansible / "inventory" / "hosts").write_text(INVENTORY)
    (ansible / "host_vars" / "hv1").write_text("physnet_mappings: {physnet0: em1}\n")
    (ansible / "group_vars" / "libvirt").write_text("libvirt_pool_path: /srv/x\n")
    override = shared.file(OVERRIDE.format(bridge="br0", port=6230), "override.yml")
    options = ("--inventory", str(ansible / inventory))
    made = shared.run("import", "--from", "tenks", override, *options)
    assert "Not carried over: inventory: libvirt_pool_path of hv1, hv2\n" in made.stderr
    assert 'ssh: "ssh://stack@192.0.2.10:2222"' in made.stdout
    assert "physnets: {physnet0: em1}" in made.stdout
    assert "physnets: {physnet0: br0}" in made.stdout
    assert 'libvirt: "qemu+ssh://root@192.0.2.11/system"' in made.stdout
