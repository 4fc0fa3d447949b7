"""The cluster of a set: a value that is made of the one that the lab's file describes."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from ipaddress import IPv4Network

import pytest

from nospoon.clusterfile.load import load
from nospoon.lab.set_cluster import cluster_of, violations
from nospoon.lab.work import Asked, RecipeSet, Run, Size
from nospoon.model.cluster import Cluster
from nospoon.model.lab import Distro, Lab

ANACONDA = Distro("fedora", "http://m/vmlinuz", "http://m/initrd", "http://m/", "inst.text")
DEBIAN = replace(ANACONDA, name="debian", cmdline="url={{ kickstart }}")
IMAGE = Distro(
    "cloud", image="https://m/c.qcow2", checksum="sha256:" + "0" * 64,
    user_data="#!/bin/sh\nwget {{install_done}} # {{owner}}\n",
)  # fmt: skip
FILE = """
cluster: east
hosts: {here: {libvirt: "qemu:///system", simulated: true}}
networks: {lan: {netboot: builtin, cidr: 10.1.0.0/24, nat: true}, b: {bridge: br0}}
flavors:
  small:
    cpus: 2
    memory: 2GiB
    firmware: bios
    boot_order: [network, disk]
    ironic: {resource_class: x}
    nics: [{network: lan, pxe: true}]
    disks: [{size: 20GiB, bus: sata}, 1GiB]
    bmc: [ipmi]
labs: {dev: {host: "here:simulated"}}
nodes: [{name: own, flavor: small, count: 1}]
"""


def file(text: str = FILE) -> Cluster:
    return load(text, file="x")


def recipe_set(*asked: Asked, flavor: str = "small") -> RecipeSet:
    runs = tuple(
        Run(each, {}, size=Size(flavor, 1, 1), node=f"recipe-{n}", secret=f"s{n}")
        for n, each in enumerate(asked)
    )
    return RecipeSet("3.1", 9, 0, "ada", runs, lab="0:east/dev")


def lab_of(base: Cluster, *distros: Distro) -> Lab:
    return replace(base.labs[0], distros=distros)


def test_it_has_the_hosts_and_flavors_of_the_file_and_a_node_a_recipe() -> None:
    base = file()
    found = recipe_set(Asked("r", distro="debian"), Asked("r"))
    made = cluster_of(found, lab_of(base, DEBIAN), base)
    assert (made.name, made.hosts, made.addressing) == ("lab-dev-3-1", base.hosts, base.addressing)
    lan, bridge = made.networks
    assert (lan.cidr, lan.nat, bridge) == (None, True, base.networks[1]), "each set has a free one"
    assert base.networks[0].cidr == IPv4Network("10.1.0.0/24")
    first, second = made.nodes
    assert (first.name, first.host, first.boot) == ("recipe-0", "here:simulated", "recipe-0")
    assert (second.boot, second.labels) == ("", (("nospoon/recipe", "3.1.1"),))
    own = base.nodes[0]
    assert replace(second, name="own", host="", labels=()) == own, "as a node of its flavor"
    (profile,) = made.profiles
    assert profile.cmdline.endswith("url={{boot}}/lab/s0/ks")
    assert not made.labs
    assert not list(violations(found, lab_of(base, DEBIAN), base))


def test_a_file_without_networks_has_the_usual_one_for_each_set() -> None:
    base = file("cluster: e\nflavors: {small: {}}\nlabs: {dev: {}}\nnodes: []\n")
    assert base.networks == ()
    made = cluster_of(recipe_set(Asked("r")), base.labs[0], base)
    assert [each.name for each in made.networks] == ["provision"]
    assert [nic.network for nic in made.nodes[0].nics] == ["provision"]


def test_a_machine_of_an_image_is_a_vm_of_the_same_size_with_its_callback_in_user_data() -> None:
    base = file()
    found = recipe_set(Asked("r", distro="cloud"), Asked("s", distro="debian"))
    vm, metal = cluster_of(found, lab_of(base, DEBIAN, IMAGE), base).nodes
    assert (vm.kind, vm.cpus, vm.memory, vm.firmware, vm.bmc) == ("vm", 2, 2 << 30, "bios", ())
    root, data = vm.disks
    assert (root.source, root.size >> 30, root.bus) == (IMAGE.source, 20, "sata")
    assert (data.image, data.size >> 30) == ("", 1)
    assert [(nic.network, nic.pxe) for nic in vm.nics] == [("lan", None)]
    assert vm.cloud_init.user_data == "#!/bin/sh\nwget {{boot}}/lab/s0/install_done # ada\n"
    assert (metal.kind, metal.flavor, metal.boot) == ("baremetal", "small", "recipe-1")


def test_the_first_disk_has_the_size_that_was_asked_for() -> None:
    base = file()
    found = recipe_set(Asked("r"), Asked("s", distro="cloud"))
    sized = (replace(run, size=Size("small", 1, 1, 47 << 30)) for run in found.runs)
    found = replace(found, runs=tuple(sized))
    for node in cluster_of(found, lab_of(base, IMAGE), base).nodes:
        assert [disk.size >> 30 for disk in node.disks] == [47, 1]
        assert node.disks[0].bus == "sata"


def test_texts_that_become_longer_than_a_file_may_have_them_are_refused() -> None:
    """A tree's URL of 8,000 characters made two megabytes of user data for each recipe."""
    base = file()
    image = replace(IMAGE, tree=f"http://m/{'t' * 8000}", user_data="#!/bin/sh\n" + "{{tree}}" * 9)
    long = replace(DEBIAN, cmdline="{{kickstart}} " * 120)
    lab = lab_of(base, image, long, replace(long, name="ipxe", script="http://m/s"))
    found = recipe_set(*(Asked("r", distro=each) for each in ("cloud", "debian", "ipxe")))
    image_why, kernel_why = violations(found, lab, base)
    assert image_why == (
        "at most 65536 characters of user data are taken, and recipe 0 has 72091 of distribution "
        "cloud"
    )
    assert kernel_why == (
        "Linux takes at most 2048 characters of a command line, and recipe 1 has 2316 of "
        "distribution debian"
    )


def test_a_recipes_own_text_is_the_user_data_of_an_image() -> None:
    own = "#cloud-config\nhostname: {{recipe}}\n"
    base = file("cluster: e\nflavors: {small: {}}\nlabs: {dev: {}}\nnodes: []\n")
    lab = lab_of(base, replace(IMAGE, user_data=""))
    found = recipe_set(Asked("r", distro="cloud", kickstart=own), Asked("r", distro="cloud"))
    first, second = cluster_of(found, lab, base).nodes
    assert first.cloud_init.user_data == "#cloud-config\nhostname: 3.1.0\n"
    assert second.cloud_init.user_data == "#cloud-config\n"
    assert first.disks[0].size == 10 << 30


def test_a_boot_image_is_a_root_and_its_arguments_are_beside_it() -> None:
    distro = replace(ANACONDA, cmdline="inst.text title='a b'", has_boot_image=True)
    base = file("cluster: e\nflavors: {small: {}}\nlabs: {dev: {}}\nnodes: []\n")
    found = recipe_set(Asked("r", distro="fedora", cmdline="quiet"))
    (node,) = cluster_of(found, lab_of(base, distro), base).nodes
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


@pytest.mark.parametrize(
    ("flavor", "distro", "why"),
    [
        ("{nics: [{network: lan, mac: '52:54:00:00:00:01'}]}", DEBIAN, "2 machines of the set"),
        ("{nics: [{network: lan, trunk: [7]}]}", DEBIAN, "a trunk needs Open vSwitch"),
        ("{nics: [{network: lan, portgroup: bond}]}", DEBIAN, "is in no known portgroup 'bond'"),
        ("{nics: [{network: lan, address: 10.1.0.5/24}]}", IMAGE, "has the address 10.1.0.5/24"),
        ("{firmware: uefi-secure}", Distro("s", script="http://m/s"), "runs no script"),
    ],
)
def test_what_no_set_may_have_is_a_reason(flavor: str, distro: Distro, why: str) -> None:
    flavors = f"flavors: {{small: {flavor}}}\n"
    base = file(f"cluster: e\nnetworks: {{lan: {{}}}}\n{flavors}labs: {{dev: {{}}}}\nnodes: []\n")
    found = recipe_set(*(Asked("r", distro=distro.name) for _ in range(2)))
    reasons = list(violations(found, lab_of(base, distro), base))
    assert any(why in each for each in reasons), reasons


def test_a_flavor_that_left_the_file_is_a_reason() -> None:
    base = file()
    found = recipe_set(Asked("r"), flavor="gone")
    assert list(violations(found, base.labs[0], base)) == ["lab dev has no flavor gone any more"]
