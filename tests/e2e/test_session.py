"""Servers without root: qemu:///session, user-mode networks, and a boot ISO that asks."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nospoon.testing.rack import CACHE, Rack
from nospoon.testing.trees import remove_tree

pytestmark = [pytest.mark.libvirt, pytest.mark.boots]

NOBODY = 65534
# The interpreter may lie in root's home; reading it is the one thing more that this user may.
AS_NOBODY = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups",
             "--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]  # fmt: skip


@pytest.fixture
def session() -> Iterator[Rack]:
    """A daemon of an unprivileged user with a home of its own."""
    home = Path(tempfile.mkdtemp(prefix="nospoon-session-"))
    for directory in (home, home / "run"):
        directory.mkdir(exist_ok=True)
        os.chown(directory, NOBODY, NOBODY)
        directory.chmod(0o700)
    _lend_probe(home)
    rack = Rack.at(home, HOME=str(home), XDG_RUNTIME_DIR=str(home / "run"))
    rack.environment["NOSPOON_CACHE_DIR"] = str(home / "cache")
    rack.prefix = AS_NOBODY
    try:
        yield rack
        rack.close()
    finally:
        rack.kill()
        _end_libvirt_of(home)
    remove_tree(home)


def _lend_probe(home: Path) -> None:
    """The probe that root's tests built, so that it is built once a machine. Other parts of that
    cache are a gigabyte of other services.
    """
    cache = home / "cache"
    cache.mkdir()
    for probe in CACHE.glob("probe-*"):
        if (CACHE / probe.name).is_dir():
            shutil.copytree(probe, cache / probe.name)
    for path in [cache, *cache.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)


def _end_libvirt_of(home: Path) -> None:
    """The session's own libvirtd and virtlogd would end by themselves, but later."""
    for directory, _, files in os.walk(home / "run"):
        for name in files:
            if name.endswith(".pid"):
                with contextlib.suppress(FileNotFoundError):  # it ended meanwhile
                    pid = Path(directory, name).read_text().strip()
                    subprocess.run(["kill", pid], check=False)


def test_an_unprivileged_user_has_servers_that_boot_what_their_bmcs_say(session: Rack) -> None:
    name = session.name()
    file = session.file(
        f"cluster: {name}\n{session.bmc()}"
        "nodes:\n"
        "  - {name: b, firmware: bios, memory: 256MiB, disks: [64MiB]}\n"
        "  - {name: u, firmware: uefi, memory: 320MiB, disks: [64MiB]}\n"
    )
    session.run("up", "--yes", file)
    assert "Power is off" in session.ipmitool(session.bmcs(name)["b"], "power", "status")
    rows = {row["node"]: row for row in session.json("verify", name)}
    assert {n: (row["verdict"], row["firmware"]) for n, row in rows.items()} == {
        "b": ("as declared", "bios"),
        "u": ("as declared", "uefi"),
    }
    assert {row["boot"] for row in session.json("node", "list")} == {"as configured"}
    session.run("down", "--yes", "--purge", name)
    assert not list((session.directory / "pool").iterdir())


def test_what_a_session_cannot_do_is_refused_with_reasons(session: Rack) -> None:
    file = session.file(
        "cluster: x\nnetworks: {a: {cidr: 172.31.9.0/24}, b: {bridge: br0}}\n"
        "nodes: [{nics: [a, b]}]\n"
    )
    refused = session.run("up", "--yes", file, status=1)
    assert refused.stderr.count("qemu:///session") == 2
