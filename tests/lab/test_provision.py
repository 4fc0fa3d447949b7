"""Kickstarts, command lines and the cluster of a set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nospoon.lab.provision import cluster_name, cmdline, kickstart
from nospoon.lab.work import Asked, RecipeSet, Run, Size
from nospoon.model.lab import Distro, Lab, LabFlavor, Registered

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


@pytest.mark.parametrize("option", ["inst.ks=http://mine/ks.cfg", "ks=http://mine/ks.cfg"])
def test_a_kickstart_that_a_request_names_by_its_url_is_used_as_it_is(option: str) -> None:
    """Anaconda takes the last one, which was nospoon's."""
    run = recipe_set(Asked("r", distro="fedora", cmdline=f"quiet {option}")).runs[0]
    assert cmdline(ANACONDA, run, base=BASE).endswith(f" inst.text quiet {option}")
    of_distro = replace(ANACONDA, cmdline=option)
    assert cmdline(of_distro, recipe_set(Asked("r")).runs[0], base=BASE).endswith(f" {option}")
    other = recipe_set(Asked("r", distro="fedora", cmdline="tasks=4")).runs[0]
    assert cmdline(ANACONDA, other, base=BASE).endswith(f" inst.ks={BASE}/lab/s0/ks")


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


@pytest.mark.parametrize(
    ("arch", "console"),
    [("x86_64", "console=tty0 console=ttyS0,115200n8"),
     ("aarch64", "console=tty0 console=ttyAMA0,115200n8"), ("ppc64le", "")],
)  # fmt: skip
def test_the_serial_console_is_that_of_the_machines_architecture(arch: str, console: str) -> None:
    flavor = LabFlavor("small", 1, 1, 1, arch=arch)
    lab = replace(LAB, flavors=(flavor,), machines=(Registered("m", arch=arch),))
    asked = Asked("r", distro="debian", kickstart="<{{console}}>")
    found = recipe_set(asked)
    assert "".join(kickstart(found, 0, lab, BASE)) == f"<{console}>"
    loaned = found.with_run(0, replace(found.runs[0], size=None, machine="m"))
    assert "".join(kickstart(loaned, 0, lab, BASE)) == f"<{console}>"
    assert cmdline(DEBIAN, found.runs[0], arch=arch).startswith(f"{console} url=".lstrip())


def test_names_of_clusters_fit() -> None:
    assert len(cluster_name("x" * 63, "123456789.123456")) <= 63
