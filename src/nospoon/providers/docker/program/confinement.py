"""AppArmor's profile of an engine's containers, where the kernel has it.

The engines' own profiles refuse every mount(2), and systemd starts no unit that has mounts of its
own then: networkd and logind are among them, so that a container has no addresses. A container of
nospoon's has a user namespace, in which it mounts what harms no one else, as those of liblxc do.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from nospoon.providers.docker.program.processes import content, run

NAME = "nospoon-container-1"
"""With another number for other rules: those that are loaded stay until the host's reboot."""
ENABLED = Path("/sys/module/apparmor/parameters/enabled")
LOADED = Path("/sys/kernel/security/apparmor/profiles")
PROFILE = f"""
profile {NAME} flags=(attach_disconnected,mediate_deleted) {{
  capability,
  dbus,
  file,
  mount,
  network,
  pivot_root,
  remount,
  umount,
  unix,
  signal (receive),
  signal peer={NAME},
  ptrace (readby, tracedby),
  ptrace peer={NAME},
  deny /proc/kcore rwklx,
  deny /proc/sysrq-trigger rwklx,
  deny /sys/firmware/** rwklx,
  deny /sys/kernel/debug/** rwklx,
  deny /sys/kernel/security/** rwklx,
}}
"""
"""apparmor.d(5). What user and group of a container may not do, and seccomp, is refused besides."""


def settings(*, new_privileges: bool) -> list[str]:
    """`SecurityOpt` of a container that is created. `new_privileges`: programs may gain rights by
    their files, as sudo(8) does.
    """
    found = [] if new_privileges else ["no-new-privileges"]
    return [*found, *([f"apparmor={NAME}"] if load() else [])]


def load() -> bool:
    """Before each start: it is not there after a reboot of the host. Returns whether AppArmor is
    there at all. Raises `EngineError`.
    """
    if content(ENABLED) != b"Y" or shutil.which("apparmor_parser") is None:
        return False
    if f"{NAME} (enforce)" not in content(LOADED).decode().splitlines():
        run("apparmor_parser", "--replace", "--skip-cache", stdin=PROFILE.encode())
    return True
