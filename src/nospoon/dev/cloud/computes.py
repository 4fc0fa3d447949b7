"""Compute hosts beside the first one: which there are, and what each has of its own.

Each has a libvirtd in mount, host name and control group namespaces, which files hold. Nova wants
that: it refuses a libvirt with foreign domains, and a resource provider has the name of its host.
Neutron's agent, switch, database and broker are the cloud's.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from nospoon.dev.cloud import baremetal
from nospoon.dev.cloud.configuration import HOST, Passwords, compute
from nospoon.dev.cloud.preparation import QEMU_CONFIGURATION, write
from nospoon.dev.cloud.programs import COMPUTE, Program
from nospoon.dev.cloud.wanted import INSIDE, Wanted
from nospoon.dev.options import Sections, rendered
from nospoon.errors import UsageError

RECORD = "computes.json"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}\Z")


class Virt(StrEnum):
    """What a compute host runs: libvirt's with this `virt_type`, or Ironic."""

    LXC = "lxc"
    QEMU = "qemu"
    IRONIC = "ironic"


STATE = Path("/run/compute")
"""Its directory as its own services see it: the root user of a container must come through."""
SCRIPT = Path(__file__).with_name("compute_host.sh")
NETWORK_HOST = "NOSPOON_NETWORK_HOST"
"""Variable of nova_compute.py: the host of the Neutron agent that serves its ports."""
LXC_DRIVER = Path("/usr/lib/libvirt/libvirt_lxc"), "libvirt-daemon-driver-lxc"
"""A program of libvirt's LXC driver, and Debian's package of it."""


@dataclass(frozen=True, slots=True)
class Compute:
    """A compute host. `name`: its `host` in Nova, and its host name."""

    name: str
    virt: Virt

    @property
    def own(self) -> Path:
        """What it has, as the services see it."""
        return INSIDE / "computes" / self.name

    @property
    def queue(self) -> str:
        """What its nova-compute takes messages from."""
        return f"compute.{self.name}"


def chosen(virt: Virt, name: str = "") -> Compute:
    """One of this kind. Raises `UsageError` for a name that a host cannot have."""
    name = name or f"{HOST}-{virt}"
    if name == HOST or not _NAME.match(name):
        raise UsageError(
            f"expected a name of at most 31 letters, digits and hyphens for the compute host, and "
            f"not {HOST!r}, which is the first one's; got {name!r}"
        )
    return Compute(name, virt)


def recorded(state: Path) -> list[Compute]:
    """Those that joined the cloud."""
    try:
        kept = json.loads((state / RECORD).read_text())
    except FileNotFoundError:
        return []
    return [Compute(name, Virt(virt)) for name, virt in kept.items()]


def record(state: Path, all_of_them: list[Compute]) -> None:
    write(state / RECORD, json.dumps({each.name: each.virt for each in all_of_them}))


def directory(state: Path, added: Compute) -> Path:
    """What it has, as this machine sees it."""
    return state / "computes" / added.name


def prepare(
    wanted: Wanted, passwords: Passwords, added: Compute, *, state: Path, cache: Path
) -> None:
    """Write its configuration."""
    own = directory(state, added)
    for each in ("instances", "etc/libvirt", "ns"):
        (own / each).mkdir(parents=True, exist_ok=True)
    write(own / "etc/libvirt/qemu.conf", QEMU_CONFIGURATION)
    write(own / "etc/libvirt/lxc.conf", 'security_driver = "none"\n')
    if added.virt is Virt.IRONIC:
        baremetal.prepare(own)
        more = baremetal.sections(wanted, passwords, name=added.name, state=STATE, cache=cache)
        write(own / baremetal.CONFIGURATION, rendered(more))
        settings = baremetal.nova(wanted, passwords, name=added.name, state=STATE)
    else:
        settings = _of_libvirt(wanted, passwords, added)
    write(own / "nova.conf", rendered(settings))


def _of_libvirt(wanted: Wanted, passwords: Passwords, added: Compute) -> Sections:
    sections = compute(wanted, passwords)
    settings = {
        **sections,
        "DEFAULT": {**sections["DEFAULT"], "host": added.name, "state_path": STATE},
        "libvirt": {**sections["libvirt"], **_OPTIONS[added.virt]},
    }
    if added.virt is Virt.LXC:  # Nova gives containers no serial ports
        settings["serial_console"] = {"enabled": "false"}
    return settings


_IDS = "0:100000:65536"
_OPTIONS: Mapping[Virt, Mapping[str, object]] = {
    # qcow2 would need NBD; a raw image is mounted by a loop device
    Virt.LXC: {
        "virt_type": "lxc",
        "images_type": "raw",
        "uid_maps": _IDS,
        "gid_maps": _IDS,
    },
    Virt.QEMU: {"virt_type": "qemu"},
}


def set_up(wanted: Wanted, added: Compute) -> list[str]:
    """What makes its namespaces, or finds them."""
    return [*_script("set-up", added), group(wanted, added)]


def end(added: Compute) -> list[str]:
    """What kills all that runs on it, and lets its namespaces go."""
    return _script("end", added)


def programs_of(wanted: Wanted, made: Path, added: Compute) -> tuple[Program, ...]:
    """Its services, nova-compute last. `made`: the cloud's Python environment."""
    script = str(Path(__file__).with_name("nova_compute.py"))
    config = f"--config-file={STATE}/nova.conf"
    argv = _LIBVIRT
    env: Mapping[str, str] = {}
    if added.virt is Virt.IRONIC:
        argv, env = baremetal.services(wanted, made, STATE), baremetal.variables(made, STATE)
    of = {COMPUTE: {NETWORK_HOST: HOST}}
    argv = {**argv, COMPUTE: (f"{made}/bin/python", "-P", script, config)}
    return tuple(
        Program(f"{added.name}-{name}", (*run(added), *each), of.get(name, env))
        for name, each in argv.items()
    )


_LIBVIRT: Mapping[str, tuple[str, ...]] = {
    "virtlogd": ("virtlogd", "--pid-file=/run/libvirt/virtlogd.pid"),
    "libvirtd": ("libvirtd", "--pid-file=/run/libvirt/libvirtd.pid"),
}


def run(added: Compute) -> tuple[str, ...]:
    """What comes before a command that runs there."""
    return tuple(_script("run", added))


def group(wanted: Wanted, added: Compute) -> str:
    """The name of its control groups. Two clouds differ in their ports."""
    return f"nospoon-cloud-{wanted.port_base}-{added.name}"


def _script(command: str, added: Compute) -> list[str]:
    return ["sh", str(SCRIPT), command, added.name, str(added.own)]


def remove_files(gone: Compute, *, state: Path) -> None:
    """All that it has."""
    shutil.rmtree(directory(state, gone))
