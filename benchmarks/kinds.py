"""Seconds until systemd runs in containers, a VM and bare metal of one root of Debian.

From `nospoon up`, and again from a power cycle, to the login prompt on the console; bare metal is
powered on by its BMC's command. Containers are liblxc's, which are the reference of all others, and
those of each engine that runs.

usage: kinds.py [--images DIRECTORY] [--podman SOCKET] [--docker SOCKET] [--only NAME,…]
(images that were built before; needs root, libvirt and lxc)
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from measure import NOSPOON, asked, engines_of, private_daemon, report, timed

LONGEST = 900.0
"""Seconds for a guest that is emulated."""
IMAGES = {"container": "root.tar.zst", "vm": "root.qcow2", "baremetal": "root.qcow2"}
FILE = """
cluster: kinds-{name}
hosts: {{here: {{libvirt: 'qemu:///system', {connection}}}}}
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


def measure(
    env: Mapping[str, str], images: Path, kind: str, name: str, connection: str
) -> tuple[float, float]:
    """Seconds of the first start, with its `up`, and of a power cycle."""
    node = f"kinds-{name}/n"
    file = Path(env["NOSPOON_STATE_DIR"]).parent / f"{name}.yaml"
    image = images / IMAGES[kind]
    file.write_text(FILE.format(name=name, kind=kind, image=image, connection=connection))
    began = time.perf_counter()
    timed("up", "--yes", str(file), env=env)
    if asked(env, "node", "show", node)["power"] != "on":
        timed("node", "power", node, "on", env=env)
    first = until_prompt(env, node, 0, began)
    before, began = prompts(env, node), time.perf_counter()
    timed("node", "power", node, "cycle", env=env)
    again = until_prompt(env, node, before, began)
    timed("down", "--yes", "--purge", f"kinds-{name}", env=env)
    return first, again


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, help="directory with root.tar.zst and root.qcow2")
    parser.add_argument("--only", help="of liblxc (always), podman, docker, vm, baremetal")
    engines = engines_of(parser)
    given: Path | None = parser.parse_args().images
    only: str | None = parser.parse_args().only
    rows = {
        "liblxc": ("container", "lxc: true"),
        **{engine: ("container", connection) for engine, connection in engines.items()},
        "vm": ("vm", "lxc: true"),
        "baremetal": ("baremetal", "lxc: true"),
    }
    with private_daemon() as env:
        images = given or Path(env["NOSPOON_STATE_DIR"]).parent / "images"
        if given is None:
            build(images, env)
        reference: tuple[float, float] | None = None
        for name, (kind, connection) in rows.items():
            if only and reference and name not in only.split(","):
                continue
            first, again = measure(env, images, kind, name, connection)
            reference = reference or (first, again)
            report(f"{name}: up to login", first, reference=reference[0], of="liblxc's")
            report(f"{name}: cycle to login", again, reference=reference[1], of="liblxc's")


if __name__ == "__main__":
    main()
