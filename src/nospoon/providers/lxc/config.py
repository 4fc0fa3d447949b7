"""lxc.container.conf(5) of a container, from its shape.

It is never privileged: its root is a user of the host that no one is. liblxc's own common settings
give it a filter of system calls, devices and mounts. What it drops besides are capabilities that
act on the kernel, and that no service in a container needs.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from nospoon.model.cluster import Switch
from nospoon.model.resources.machines import Machine, MachineNic
from nospoon.providers import openvswitch
from nospoon.providers.containers import filters

DROPPED = (
    "audit_control", "audit_read", "block_suspend", "mac_admin", "mac_override", "sys_module",
    "sys_rawio", "sys_time", "syslog", "wake_alarm",
)  # fmt: skip
VOLUMES = ("attaching.py", "volumes.json", "said/failed")
"""In the directory of a container: the program that mounts volumes, which ones, and why not."""
PIDS = 4096
"""Processes and threads of a container: the kernel has some 32,000 for all."""
GENERATED = (("apparmor.profile", "generated"), ("apparmor.allow_nesting", "1"))
"""liblxc's profile for unprivileged containers, in which units of systemd have mounts of their own.
With the one that it takes otherwise, networkd and logind do not start.
"""
PERIOD = 100_000
"""Microseconds over which a share of CPUs is given (sched-bwc.rst)."""
REBOOTS = "reboots"
"""In the directory of a container: how many came early, one after the other, and when it began."""
PAUSED = (
    'read -r now _ </proc/uptime; read -r early last 2>/dev/null <"$0" || { early=0; last=-99; }; '
    "early=$((${now%.*} - last < 30 ? early + 1 : 0)); "
    "case $early in [012]) ;; 3) sleep 1 ;; *) sleep 2 ;; esac; "
    'read -r now _ </proc/uptime; echo "$early ${now%.*}" >"$0"'
)
"""Shell, of that file: a guest that reboots as soon as it runs is started again after a while. Each
time costs its host a part of a processor that no limit of the container counts. liblxc takes no
commands meanwhile, so that it is not long.
"""
RECORD = 2 << 20
"""Bytes of a console's log, as virtlogd's files have; the one before is kept as .1."""


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids of the host that stand for those of containers, from 0 on."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Controllers of the host. `unified`: in the one hierarchy of version 2."""

    unified: bool = False
    controllers: Collection[str] = field(default_factory=frozenset)


def render(
    machine: Machine,
    name: str,
    *,
    directory: str,
    log: str,
    ids: Ids,
    cgroups: Cgroups,
    apparmor: bool = False,
    new_privileges: bool = False,
) -> str:
    """The configuration. `name`: of the node; `directory`: its own; `log`: its console's.
    `new_privileges`: programs may gain rights by their files.
    """
    lines = [
        ("include", "/usr/share/lxc/config/common.conf"),
        ("include", "/usr/share/lxc/config/userns.conf"),
        ("uts.name", name),
        ("rootfs.path", f"dir:{directory}/rootfs"),
        ("idmap", f"u 0 {ids.first} {ids.count}"),
        ("idmap", f"g 0 {ids.first} {ids.count}"),
        ("mount.auto", ""),  # those of userns.conf let it write all of /sys
        ("mount.auto", "cgroup:mixed proc:mixed sys:mixed"),
        ("cap.drop", " ".join(DROPPED)),
        ("no_new_privs", "0" if new_privileges else "1"),
        ("hook.pre-start", f"sh -c {shlex.quote(PAUSED)} {shlex.quote(f'{directory}/{REBOOTS}')}"),
        ("console.logfile", log),
        ("console.size", str(RECORD)),
        ("console.rotate", "1"),
        *(GENERATED if apparmor else ()),
        *_limits(machine, cgroups),
        *_nics(machine, directory),
        *_volumes(machine, directory),
    ]
    return "".join(f"lxc.{key} = {value}\n" for key, value in lines)


def _limits(machine: Machine, cgroups: Cgroups) -> Iterator[tuple[str, str]]:
    """cgroup-v2.rst, and memory.rst and pids.rst of version 1."""
    if cgroups.unified:
        known = {
            "cpu": [("cpu.max", f"{machine.cpus * PERIOD} {PERIOD}")],
            "memory": [("memory.max", str(machine.memory)), ("memory.swap.max", "0")],
            "pids": [("pids.max", str(PIDS))],
        }
    else:
        known = {
            "cpu": [
                ("cpu.cfs_period_us", str(PERIOD)),
                ("cpu.cfs_quota_us", str(machine.cpus * PERIOD)),
            ],
            "memory": [("memory.limit_in_bytes", str(machine.memory))],
            "pids": [("pids.max", str(PIDS))],
        }
    for controller, settings in known.items():
        if controller in cgroups.controllers:
            version = "cgroup2" if cgroups.unified else "cgroup"
            yield from ((f"{version}.{key}", value) for key, value in settings)


def _nics(machine: Machine, directory: str) -> Iterator[tuple[str, str]]:
    """One without NICs has a network namespace all the same: it would have its host's."""
    if not machine.nics:
        yield "net.0.type", "empty"
    for number, nic in enumerate(machine.nics):
        prefix = f"net.{number}"
        if not nic.network:
            yield f"{prefix}.type", "empty"
            continue
        yield f"{prefix}.type", "veth"
        yield f"{prefix}.link", nic.network
        yield f"{prefix}.veth.pair", nic.port
        yield f"{prefix}.hwaddr", nic.mac
        yield f"{prefix}.name", f"eth{number}"
        yield f"{prefix}.flags", "up"
        if nic.switch is Switch.OVS:
            yield from _vlans(prefix, nic)
        if nic in filters.filtered(machine):
            for key, value in filters.settings(directory, nic):
                yield f"{prefix}.{key}", value


def _volumes(machine: Machine, directory: str) -> Iterator[tuple[str, str]]:
    """Mounted when its init is there and runs nothing yet. liblxc hands the command to sh(1), and
    adds words of its own.
    """
    if machine.disks[1:]:
        program, volumes, said = (shlex.quote(f"{directory}/{each}") for each in VOLUMES)
        yield "hook.start-host", f'python3 -I -S {program} "$LXC_PID" {volumes} 2>{said}'


def _vlans(prefix: str, nic: MachineNic) -> Iterator[tuple[str, str]]:
    place = openvswitch.wanted(nic)
    if place.tag is not None or place.trunks:
        yield f"{prefix}.veth.vlan.id", "none" if place.tag is None else str(place.tag)
    for vlan in sorted(place.trunks - {place.tag}):  # liblxc refuses it there
        yield f"{prefix}.veth.vlan.tagged.id", str(vlan)
