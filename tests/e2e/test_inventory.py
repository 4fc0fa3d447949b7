"""An Ansible inventory in place of `hosts`: groups give hosts, their variables give settings."""

from __future__ import annotations

import json

from nospoon.testing.rack import Rack

INVENTORY = """
[compute]
sim-[1:2]
[compute:vars]
nospoon_simulated=true
[storage]
Far.Example.ORG ansible_host=192.0.2.7 ansible_user=stack ansible_port=2222
[racks:children]
compute
storage
"""


def with_hosts(rack: Rack, hosts: str, nodes: str = "{count: 4}") -> tuple[str, str]:
    name = rack.name()
    rack.file(INVENTORY, "racks.ini")
    text = f"cluster: {name}\nhosts: {hosts}\n{rack.bmc()}nodes: [{nodes}]\n"
    return name, rack.file(text, f"{name}.yaml")


def test_a_group_of_an_inventory_gives_the_hosts(shared: Rack) -> None:
    name, file = with_hosts(shared, "racks.ini#compute")
    shared.run("up", "--yes", file)
    assert {row["host"] for row in shared.json("status", name)} == {"sim-1", "sim-2"}
    assert "Nothing to do" in shared.run("up", "--yes", file).stderr


def test_how_ansible_gets_there_is_how_nospoon_does(shared: Rack) -> None:
    _, file = with_hosts(shared, "racks.ini#storage", "{host: far-example-org}")
    shared.environment["PATH"] = f"{shared.directory}/bin:{shared.environment['PATH']}"
    ssh = shared.directory / "bin" / "ssh"
    ssh.parent.mkdir(exist_ok=True)
    ssh.write_text('#!/bin/sh\necho "asked: $*" >&2\nexit 255\n')
    ssh.chmod(0o755)
    checked = {row["what"]: row["detail"] for row in checks(shared, file)}
    assert "stack@192.0.2.7:2222" in checked["commands"]


def checks(rack: Rack, file: str) -> list[dict[str, str]]:
    return list(json.loads(rack.run("host", "check", file, "-f", "json", status=1).stdout))


def test_what_is_wrong_with_an_inventory_is_told_where_the_file_names_it(shared: Rack) -> None:
    _, file = with_hosts(shared, "nothing.ini")
    missing = shared.run("plan", file, status=2).stderr
    assert f"{file}:2:8: hosts: cannot read the inventory" in missing
    assert "{here:" not in missing
    for meant, wanted in (
        ("simulated", "simulated"),
        ("'qemu:///session'", "{libvirt: 'qemu:///session'}"),
    ):
        _, file = with_hosts(shared, meant)
        said = shared.run("plan", file, status=2).stderr
        assert f"Write `hosts: {{here: {wanted}}}`" in said
    _, file = with_hosts(shared, "racks.ini#nobody")
    assert "no group 'nobody'. It has" in shared.run("plan", file, status=2).stderr.replace(
        " in the inventory", ""
    )
    shared.file("[twins]\nhv_1 ansible_host=192.0.2.1\nhv-1 ansible_host=192.0.2.2\n", "twins.ini")
    _, file = with_hosts(shared, "twins.ini")
    refused = shared.run("plan", file, status=2).stderr
    assert "hosts hv-1 and hv_1 of the inventory are both hv-1 in a cluster" in refused
