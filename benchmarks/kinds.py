"""Seconds until systemd runs in a container, a VM and bare metal of one root of Debian.

From `nospoon up`, and again from a power cycle, to the login prompt on the console; bare metal is
powered on by its BMC's command. The container is the reference of the other two.

usage: kinds.py [--images DIRECTORY]   (where images were built before; needs root, libvirt, lxc)
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from measure import NOSPOON, asked, private_daemon, report, timed

LONGEST = 900.0
"""Seconds for a guest that is emulated."""
IMAGES = {"container": "root.tar.zst", "vm": "root.qcow2", "baremetal": "root.qcow2"}
FILE = """
cluster: kinds-{kind}
hosts: {{here: {{libvirt: 'qemu:///system', lxc: true}}}}
networks: {{lan: {{netboot: builtin}}}}
nodes:
- name: n
  kind: {kind}
  memory: 1GiB
  disks: [{{image: "{image}", size: 6GiB}}]
  nics: lan
"""


def build(directory: Path, env: Mapping[str, str]) -> None:
    """The kernel is in the disk alone."""
    for form in ("lxc", "qcow2"):
        timed("image", "build", str(directory), "--name", "root", "--as", form, env=env)


def prompts(env: Mapping[str, str], node: str) -> int:
    log = [NOSPOON, "node", "console", node, "--log"]
    said = subprocess.run(log, env=dict(env), check=True, capture_output=True).stdout
    return said.count(b"login:")


def until_prompt(env: Mapping[str, str], node: str, before: int, began: float) -> float:
    while prompts(env, node) <= before:
        if time.perf_counter() - began > LONGEST:
            raise SystemExit(f"{node} shows no login prompt within {LONGEST:.0f} s")
        time.sleep(0.2)
    return time.perf_counter() - began


def measure(env: Mapping[str, str], place: Path, kind: str) -> tuple[float, float]:
    """Seconds of the first start, with its `up`, and of a power cycle."""
    name, node = f"kinds-{kind}", f"kinds-{kind}/n"
    file = place / f"{kind}.yaml"
    file.write_text(FILE.format(kind=kind, image=place / IMAGES[kind]))
    began = time.perf_counter()
    timed("up", "--yes", str(file), env=env)
    if asked(env, "node", "show", node)["power"] != "on":
        timed("node", "power", node, "on", env=env)
    first = until_prompt(env, node, 0, began)
    before, began = prompts(env, node), time.perf_counter()
    timed("node", "power", node, "cycle", env=env)
    again = until_prompt(env, node, before, began)
    timed("down", "--yes", "--purge", name, env=env)
    return first, again


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, help="directory with root.tar.zst and root.qcow2")
    given: Path | None = parser.parse_args().images
    with private_daemon() as env:
        place = given or Path(env["NOSPOON_STATE_DIR"]).parent / "images"
        if given is None:
            build(place, env)
        container: tuple[float, float] | None = None
        for kind in IMAGES:
            first, again = measure(env, place, kind)
            container = container or (first, again)
            report(f"{kind}: up to login", first, reference=container[0], of="the container")
            report(f"{kind}: cycle to login", again, reference=container[1], of="the container")


if __name__ == "__main__":
    main()
