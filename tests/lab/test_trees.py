"""Installation trees, as distributions publish them."""

from __future__ import annotations

import socket
import threading

import pytest
from click.testing import CliRunner

from nospoon.cli.commands import distro
from nospoon.cli.commands.distro import found_at
from nospoon.errors import NotFound
from nospoon.lab.trees import NoTree, name_of, of_treeinfo

FEDORA = """
[general]
arch = x86_64
family = Fedora
version = 41
[release]
name = Fedora
short = Fedora
version = 41
[tree]
arch = x86_64
platforms = x86_64,xen
[images-x86_64]
boot.iso = images/boot.iso
initrd = images/pxeboot/initrd.img
kernel = images/pxeboot/vmlinuz
"""
RHEL5 = """
[general]
family = Red Hat Enterprise Linux Server
version = 5.11
arch = i386
[images-i386]
kernel = images/pxeboot/vmlinuz
initrd = images/pxeboot/initrd.img
"""
COMPOSE = """
[product]
name = Fedora-41
[variant-Server]
id = Server
variants =
[variant-Server.x86_64]
os_dir = compose/Server/x86_64/os
"""
BASE = "http://mirror.example/fedora/"


def served(**files: str):  # type: ignore[no-untyped-def]
    """A mirror with these files and no other."""
    known = {f"{BASE}{name}": text for name, text in files.items()}
    return known.get


def test_a_tree_of_fedora() -> None:
    found = found_at(BASE, "x86_64", "", served(**{".treeinfo": FEDORA}))
    distro = found.distro
    assert distro.name == "fedora-41-x86-64"
    assert distro.kernel == f"{BASE}images/pxeboot/vmlinuz"
    assert distro.initrd == f"{BASE}images/pxeboot/initrd.img"
    assert distro.cmdline == f"inst.repo={BASE} inst.ks={{{{kickstart}}}}"


def test_an_old_treeinfo_has_the_architecture_of_its_tree() -> None:
    found = found_at(BASE, "x86_64", "", served(treeinfo=RHEL5))
    assert (found.arch, found.distro.name) == (
        "i386", "red-hat-enterprise-linux-server-5-11-i386",
    )  # fmt: skip


def test_a_compose_leads_to_its_tree() -> None:
    files = {".composeinfo": COMPOSE, "compose/Server/x86_64/os/.treeinfo": FEDORA}
    found = found_at(BASE, "x86_64", "", served(**files))
    assert found.distro.kernel == f"{BASE}compose/Server/x86_64/os/images/pxeboot/vmlinuz"


def test_debians_installer() -> None:
    url = "http://deb.example/debian/dists/bookworm/main/installer-amd64/"
    place = "current/images/netboot/debian-installer/amd64"
    found = found_at(url, "x86_64", "", {f"{url}{place}/linux": "kernel"}.get)
    distro = found.distro
    assert distro.name == "debian-bookworm-x86-64"
    assert distro.initrd == f"{url}{place}/initrd.gz"
    assert distro.tree == "http://deb.example/debian/"
    assert "url={{kickstart}}" in distro.cmdline


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "no installation tree"),
        ({".treeinfo": "no ini"}, "not in INI format"),
        ({".treeinfo": "[general]\narch = s390x\n"}, "expected kernel and initrd in"),
        ({".composeinfo": "[product]\n"}, "expected a variant with an os_tree for x86_64"),
    ],
)
def test_what_is_no_tree_is_refused_with_the_reason(files: dict[str, str], why: str) -> None:
    with pytest.raises(NotFound, match=why):
        found_at(BASE, "x86_64", "", served(**files))


def test_any_text_becomes_a_name() -> None:
    assert name_of("CentOS Stream 10 / x86_64") == "centos-stream-10-x86-64"
    assert name_of("…") == "distro"
    assert len(name_of("x" * 100)) == 63


def test_a_line_without_an_end_is_refused_at_once() -> None:
    """It took hours."""
    with pytest.raises(NoTree, match="lines of more than"):
        of_treeinfo("[tree]\na" + " " * 1_000_000, "http://x/")


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200])
def test_a_server_that_speaks_no_http_is_an_error_of_its_url(answer: bytes) -> None:
    """It was one of the command, with a traceback."""

    def serve() -> None:
        line, _ = listener.accept()
        with line:
            line.recv(1 << 16)
            line.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(NotFound, match="does not answer: its answer is not HTTP"):
            distro._fetched(f"http://127.0.0.1:{listener.getsockname()[1]}/.treeinfo")
        serving.join()


@pytest.mark.parametrize("url", ["http://mirror.example/fedora?a=b", "http://mirror.example/#f"])
def test_a_query_is_no_part_of_a_trees_url(url: str) -> None:
    """What is below it was looked for at `?a=b/.treeinfo`."""
    refused = CliRunner().invoke(distro.command, ["import", url])
    assert "expected the URL of a directory, without ? and #" in str(refused.exception)
