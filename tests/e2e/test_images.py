"""Images that are loaded by the command and named in cluster files; hosts are simulated."""

from __future__ import annotations

import subprocess
from pathlib import Path

from nospoon.testing.container_root import busybox_root
from nospoon.testing.rack import Rack

TEXT = """
cluster: {name}
hosts: {{here: simulated, there: simulated}}
nodes:
- {{name: web, kind: container, disks: [{{image: store:service, size: 1GiB}}]}}
- {{name: vm, kind: vm, disks: [{{image: 'store:disk', size: 1GiB}}]}}
"""


def test_an_image_is_loaded_named_in_a_file_and_removed(rack: Rack) -> None:
    root = Path(rack.directory) / "Service.tar"
    root.write_bytes(busybox_root())
    disk = Path(rack.directory) / "x.raw"
    disk.write_bytes(bytes(4096))
    loaded = rack.json("image", "load", str(root), "--hypervisor-type", "lxc")
    assert (loaded["name"], loaded["hypervisor_type"]) == ("service", "lxc")
    rack.run("image", "load", str(disk), "--name", "disk")
    assert [row["name"] for row in rack.json("image", "list")] == ["disk", "service"]
    assert rack.json("image", "show", "service") == loaded
    file = rack.file(TEXT.format(name=rack.name()))
    assert "runs images for lxc" in rack.run("plan", file).stdout
    rack.run("up", "--yes", file)
    assert "Nothing to do" in rack.run("plan", file).stdout
    refused = rack.run("image", "remove", "service", status=5)
    assert "clusters use image 'service'" in refused.stderr
    root.write_bytes(busybox_root(init="#!/bin/busybox sh\n"))
    rack.run("image", "load", str(root), "--hypervisor-type", "lxc")
    assert "web" in rack.run("plan", file).stdout, "another content is another root"
    rack.down()
    rack.run("image", "remove", "service")
    missing = rack.run("up", "--yes", file, status=2)
    assert "no image 'service' was loaded" in missing.stderr


def test_what_is_no_image_for_a_machine_type_is_refused(rack: Rack) -> None:
    file = Path(rack.directory) / "x.raw"
    file.write_bytes(bytes(4096))
    refused = rack.run("image", "load", str(file), "--hypervisor-type", "lxc", status=2)
    assert "is not a root file system" in refused.stderr
    refused = rack.run("image", "load", str(file), "--name", "A b", status=2)
    assert "'A b' is not a name for an image" in refused.stderr
    assert "cannot read" in rack.run("image", "load", "nothing.raw", status=2).stderr
    assert "no image 'x'" in rack.run("image", "show", "x", status=2).stderr


def test_a_file_system_is_a_root_for_lxc_and_no_container_engine(rack: Rack) -> None:
    file = Path(rack.directory) / "root.ext4"
    argv = ["mke2fs", "-q", "-t", "ext4", str(file), "4M"]
    subprocess.run(argv, check=True, env={"PATH": "/usr/sbin:/sbin"})
    load = ("image", "load", str(file), "--name", "fs", "--hypervisor-type")
    refused = rack.run(*load, "docker", status=2)
    assert "is an ext4 file system, which no container engine begins with" in refused.stderr
    assert rack.json(*load, "lxc")["format"] == "raw"
