"""Upgrade and rollback of containers and of a VM beside the first `up`, a power cycle and the same
of bare metal, whose disk is made again each time. Containers are liblxc's and those of each engine
that runs.

Each node is made from an image, gets another one, and returns to the first. Measured: seconds until
it runs, and how long it was off meanwhile, by its power as `node show` says it.

usage: upgrade.py [--size MIB] [--podman SOCKET] [--docker SOCKET]
(MiB of random data in each image; needs root, libvirt and lxc)
"""

from __future__ import annotations

import argparse
import io
import os
import tarfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from measure import asked, engines_of, private_daemon, report, timed
from nospoon.testing.container_root import busybox_root

REFERENCE = "baremetal"


def container(size: int, version: str) -> bytes:
    """A root file system with so many bytes of data."""
    written = io.BytesIO(busybox_root())
    with tarfile.open(fileobj=written, mode="a") as archive:
        data = tarfile.TarInfo(f"data-{version}")
        data.size = size
        archive.addfile(data, io.BytesIO(os.urandom(size)))
    return written.getvalue()


def vm(size: int, version: str) -> bytes:
    """A disk with so many bytes of data; its firmware finds nothing to boot on it."""
    return version.encode().ljust(512, b"\0") + os.urandom(size)


MADE: Mapping[str, Callable[[int, str], bytes]] = {
    "baremetal": vm,
    "container": container,
    "vm": vm,
}


class Watch:
    """How long a node is off while something is done."""

    def __init__(self, env: Mapping[str, str], node: str) -> None:
        self._env, self._node = env, node
        self._over, self.off = threading.Event(), 0.0

    def _look(self) -> None:
        last = time.perf_counter()
        while not self._over.is_set():
            on = asked(self._env, "node", "show", self._node)["power"] == "on"
            now = time.perf_counter()
            self.off += 0.0 if on else now - last
            last = now

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def measure(
    env: Mapping[str, str], kind: str, size: int, *, what: str, connection: str
) -> dict[str, float]:
    """One row, from its first `up` to its end: seconds of each change."""
    place = Path(env["NOSPOON_STATE_DIR"]).parent
    name, node = f"upgrade-{what}", f"upgrade-{what}/n"
    images = {each: MADE[kind](size, each) for each in ("a", "b")}
    file = place / f"{what}.yaml"
    file.write_text(
        f"cluster: {name}\nhosts: {{here: {{libvirt: 'qemu:///system', {connection}}}}}\n"
        f"networks: {{lan: {{}}}}\nnodes: [{{name: n, kind: {kind}, nics: lan, "
        f"disks: [{{image: {what}.image, size: 1GiB}}], memory: 128MiB}}]\n"
    )

    def up(image: str) -> float:
        (place / f"{what}.image").write_bytes(images[image])
        seconds = timed("up", "--yes", str(file), env=env)
        if kind == "baremetal":  # its deployer powers it on
            seconds += timed("node", "power", node, "on", env=env)
        return seconds

    made = up("a")
    report(f"{what}: first up", made)
    cycle = timed("node", "power", node, "cycle", env=env)
    report(f"{what}: power cycle", cycle)
    found: dict[str, float] = {}
    for change, image in (("upgrade", "b"), ("rollback", "a")):
        with Watch(env, node) as watch:
            found[change] = up(image)
        report(f"{what}: {change}", found[change], reference=made, of="the first up")
        report(f"{what}: off meanwhile", watch.off)
    timed("down", "--yes", "--purge", name, env=env)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=200, help="MiB of data in an image")
    engines = engines_of(parser)
    size = parser.parse_args().size << 20
    rows = {
        REFERENCE: ("baremetal", "lxc: true"),
        "liblxc": ("container", "lxc: true"),
        **{engine: ("container", connection) for engine, connection in engines.items()},
        "vm": ("vm", "lxc: true"),
    }
    with private_daemon() as env:
        found = {
            what: measure(env, kind, size, what=what, connection=connection)
            for what, (kind, connection) in rows.items()
        }
        first = found.pop(REFERENCE)
        for what, changes in found.items():
            for change, seconds in changes.items():
                report(f"{what}: {change}", seconds, reference=first[change], of="bare metal's")


if __name__ == "__main__":
    main()
