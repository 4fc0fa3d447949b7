"""A root file system of Debian, as a tar: what all images of a build begin with.

mmdebstrap(1) writes the same bytes again where SOURCE_DATE_EPOCH, packages and options are the
same. An ordinary user gets a user namespace of it, for which /etc/subuid has ids.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nospoon.runtime import process

PACKAGES = (
    "systemd-sysv", "systemd-resolved", "dbus", "cloud-init", "openssh-server", "sudo", "iproute2",
    "udev",
)  # fmt: skip
"""So that cloud-init, ssh and names work in every kind of node. The user that cloud-init makes
restarts services by sudo(8) in a VM. In containers it gains no rights: root has ssh, by its keys.
"""
KERNEL = ("linux-image-cloud-amd64", "cloud-guest-utils", "fdisk", "e2fsprogs")
"""What a disk needs besides: cloud-init grows its file system by them."""
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
LONGEST = 1800.0
"""Seconds for a slow mirror."""
CLEANING = 180.0
"""Seconds in which mmdebstrap unmounts and removes what it made, when it is interrupted."""
SETTINGS = (
    "{datasource_list: [NoCloud, ConfigDrive, OpenStack, None], locale: false, disable_root: false}"
)
SERVERS = "../run/systemd/resolve/resolv.conf"
"""Its stub asks no server for names of one word, which those of nodes are (resolved.conf(5))."""
LOCAL = r"127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
"""Debian's installer writes it: no package has it."""
HOOKS = (
    f'[ ! -d "$1/etc/cloud" ] || echo \'{SETTINGS}\' >"$1/etc/cloud/cloud.cfg.d/90_nospoon.cfg"',
    '[ ! -e "$1/bin/systemctl" ] || chroot "$1" systemctl enable systemd-networkd',
    '[ ! -e "$1/bin/systemctl" ] || chroot "$1" systemctl mask sys-kernel-debug.mount',
    # of this machine, or of this build alone: the first boot makes them
    'rm -f "$1"/etc/ssh/ssh_host_* "$1/etc/resolv.conf" "$1/etc/hostname" "$1/etc/machine-id"',
    '[ ! -d "$1/etc" ] || : >"$1/etc/machine-id"',
    f'[ ! -e "$1/lib/systemd/systemd-resolved" ] || ln -s {SERVERS} "$1/etc/resolv.conf"',
    f'[ ! -d "$1/etc" ] || [ -e "$1/etc/hosts" ] || printf "{LOCAL}" >"$1/etc/hosts"',
    'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1/var/cache/ldconfig"',
    '[ ! -d "$1/var/log" ] || find "$1/var/log" -type f -delete',  # not what services log to
)


@dataclass(frozen=True, slots=True)
class Root:
    """What is in it. `mirror` "" for the machine's own sources; `variant`: mmdebstrap's. `copies`:
    files of this machine, each with the directory of the root that it is copied to; `commands` of a
    shell run in the root after that, in this order.
    """

    suite: str = "bookworm"
    mirror: str = ""
    packages: Sequence[str] = PACKAGES
    variant: str = "minbase"
    copies: Sequence[tuple[Path, str]] = ()
    commands: Sequence[str] = ()


async def build(root: Root, tar: Path) -> None:
    """Write it. Raises `MissingTool` or `ProviderError`."""
    argv = ["mmdebstrap", "--quiet", "--format=tar", f"--variant={root.variant}"]
    argv += [f"--include={','.join(root.packages)}"]
    argv += [f"--dpkgopt=path-exclude={each}" for each in LEFT_OUT]
    argv += ["--dpkgopt=force-unsafe-io"]
    argv += [f"--customize-hook={each}" for each in (*_own_hooks(root), *HOOKS)]
    argv += [root.suite, str(tar), *filter(None, [root.mirror])]
    await process.run(argv, timeout=LONGEST, cleaning=CLEANING)


def _own_hooks(root: Root) -> list[str]:
    """mmdebstrap(1), HOOKS and SPECIAL HOOKS."""
    copies = [shlex.join(["copy-in", str(file.absolute()), to]) for file, to in root.copies]
    return copies + [f'chroot "$1" sh -ec {shlex.quote(each)}' for each in root.commands]
