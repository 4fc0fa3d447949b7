"""Kickstarts, command lines and the cluster of a set."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

from nospoon.clusterfile.load import load
from nospoon.lab.provision import cluster_name, cluster_of, cmdline, kickstart
from nospoon.lab.work import Asked, RecipeSet, Run, Size
from nospoon.model.lab import Distro, Lab

ANACONDA = Distro("fedora", "http://m/vmlinuz", "http://m/initrd", "http://m/", "inst.text")
DEBIAN = replace(ANACONDA, name="debian", cmdline="url={{ kickstart }}", kickstart="tree {{tree}}")
LAB = Lab("dev", host="here:simulated", distros=(ANACONDA, DEBIAN))
BASE = "http://172.30.0.1:8069"


def recipe_set(*asked: Asked) -> RecipeSet:
    runs = tuple(
        Run(each, {}, size=Size("small", 1, 1), node=f"recipe-{n}", secret=f"s{n}")
        for n, each in enumerate(asked)
    )
    return RecipeSet("3.1", 9, 0, "ada", runs, lab="0:east/dev")


def test_an_anaconda_gets_its_kickstart_by_inst_ks() -> None:
    run = recipe_set(Asked("r", distro="fedora", cmdline="quiet")).runs[0]
    assert cmdline(ANACONDA, run, base=BASE) == (
        f"console=tty0 console=ttyS0,115200n8 inst.text quiet inst.ks={BASE}/lab/s0/ks"
    )


def test_another_installer_names_it_itself() -> None:
    run = recipe_set(Asked("r", distro="debian")).runs[0]
    assert cmdline(DEBIAN, run, base=BASE).endswith(f" url={BASE}/lab/s0/ks")


def test_a_recipes_own_kickstart_goes_before_that_of_its_distribution() -> None:
    own = "{{owner}} {{recipe}} {{install_done}} {{unknown}}"
    found = recipe_set(
        Asked("r", distro="debian"),
        Asked("r", distro="debian", kickstart=own),
        Asked("r", distro="fedora"),
    )
    assert "".join(kickstart(found, 0, LAB, BASE)) == "tree http://m/"
    assert "".join(kickstart(found, 1, LAB, BASE)) == (
        f"ada 3.1.1 {BASE}/lab/s1/install_done {{{{unknown}}}}"
    )
    assert "".join(kickstart(found, 2, LAB, BASE)) == ""


def test_the_cluster_of_a_set_has_what_the_file_has_and_one_node_a_recipe() -> None:
    found = recipe_set(Asked("r", distro="debian"), Asked("r"))
    file = {
        "cluster": "east", "flavors": {"small": {}}, "labs": {"dev": {}}, "nodes": [{"count": 9}],
        "ironic": {"cloud": "x"}, "hosts": {"here": "simulated"},
        "networks": {"a": {"cidr": "10.1.0.0/24", "nat": True}, "b": {"physnet": "p"}, "c": None},
    }  # fmt: skip
    made = cluster_of(found, LAB, file)
    assert made["cluster"] == "lab-dev-3-1"
    assert made.keys() == {"cluster", "flavors", "hosts", "networks", "boot", "nodes"}
    assert made["networks"] == {"a": {"nat": True}, "b": {"physnet": "p"}, "c": None}
    first, second = made["nodes"]
    assert (first["boot"], first["host"], first["flavor"]) == (
        "recipe-0",
        "here:simulated",
        "small",
    )
    assert "boot" not in second
    assert made["boot"]["recipe-0"]["cmdline"].endswith("url={{boot}}/lab/s0/ks")


IMAGE = Distro(
    "cloud", image="https://m/c.qcow2", checksum="sha256:" + "0" * 64,
    user_data="#!/bin/sh\nwget {{install_done}} # {{owner}}\n",
)  # fmt: skip


def test_a_machine_of_an_image_is_a_vm_of_the_same_size_with_its_callback_in_user_data() -> None:
    found = recipe_set(Asked("r", distro="cloud"), Asked("s", distro="debian"))
    flavors = {
        "small": {
            "cpus": 2, "memory": "2GiB", "firmware": "bios", "boot_order": ["network", "disk"],
            "ironic": {"resource_class": "x"}, "nics": [{"network": "lan", "pxe": True}],
            "disks": [{"size": "20GiB", "bus": "sata"}, "1GiB"], "bmc": ["ipmi"],
        },
    }  # fmt: skip
    file = {
        "cluster": "east", "flavors": flavors, "hosts": {"here": "simulated"},
        "networks": {"lan": {"netboot": "builtin"}},
    }  # fmt: skip
    lab = replace(LAB, distros=(DEBIAN, IMAGE), host="here")
    made = load(json.dumps(cluster_of(found, lab, file)), file="x")
    vm, metal = made.nodes
    assert (vm.kind, vm.cpus, vm.memory, vm.firmware, vm.bmc) == ("vm", 2, 2 << 30, "bios", ())
    root, data = vm.disks
    assert (root.source, root.size >> 30, root.bus) == (IMAGE.source, 20, "sata")
    assert (data.image, data.size >> 30) == ("", 1)
    assert vm.cloud_init.user_data == "#!/bin/sh\nwget {{boot}}/lab/s0/install_done # ada\n"
    assert (metal.kind, metal.flavor, metal.boot) == ("baremetal", "small", "recipe-1")


def test_a_recipes_own_text_is_the_user_data_of_an_image() -> None:
    own = "#cloud-config\nhostname: {{recipe}}\n"
    lab = replace(LAB, distros=(replace(IMAGE, user_data=""),), host="")
    file = {"cluster": "east", "flavors": {"small": None}, "hosts": {"here": "simulated"}}
    texts = []
    for asked in (Asked("r", distro="cloud", kickstart=own), Asked("r", distro="cloud")):
        (node,) = load(json.dumps(cluster_of(recipe_set(asked), lab, file)), file="x").nodes
        texts.append(node.cloud_init.user_data)
        assert node.disks[0].size == 10 << 30
    assert texts == ["#cloud-config\nhostname: 3.1.0\n", "#cloud-config\n"]


def test_a_boot_image_is_a_root_and_its_arguments_are_beside_it() -> None:
    distro = replace(ANACONDA, cmdline="inst.text title='a b'", has_boot_image=True)
    lab = replace(LAB, distros=(distro,), host="")
    file = {"cluster": "east", "flavors": {"small": None}, "hosts": {"here": "simulated"}}
    asked = Asked("r", distro="fedora", cmdline="quiet")
    (node,) = load(json.dumps(cluster_of(recipe_set(asked), lab, file)), file="x").nodes
    assert (node.kind, node.disks[0].image, node.boot) == ("vm", "boot image of fedora", "")
    first, said = node.cloud_init.user_data.splitlines()
    assert first.startswith("# nospoon")
    shell = subprocess.run(
        ["sh", "-c", f"{said.removeprefix('set ')}; echo \"$arguments\""],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert shell.stdout == (
        "console=tty0 console=ttyS0,115200n8 inst.text title='a b' quiet "
        "inst.ks={{boot}}/lab/s0/ks\n"
    )


def test_names_of_clusters_fit() -> None:
    assert len(cluster_name("x" * 63, "123456789.123456")) <= 63
