"""What nospoon needs of a machine, as a table; `doctor` looks, and says what fixes it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from nospoon.settings import settings_for


class Level(StrEnum):
    """How much a thing is missed."""

    NEEDED = "needed"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report, and what fixes it: packages, a command of root's, or one of
    the user's own.
    """

    name: str
    present: bool
    detail: str
    level: Level = Level.NEEDED
    packages: tuple[str, ...] = ()
    command: str = ""
    own_command: str = ""

    @property
    def verdict(self) -> str:
        return "ok" if self.present else "missing" if self.level is Level.NEEDED else "without"


@dataclass(frozen=True, slots=True)
class Tool:
    """A program or file, the Debian package that has it, and what it is for."""

    where: tuple[str, ...]
    package: str
    purpose: str
    level: Level = Level.NEEDED


TOOLS = (
    Tool(("qemu-system-x86_64",), "qemu-system-x86", "runs x86_64 machines"),
    Tool(("qemu-img",), "qemu-utils", "reads disk images"),
    Tool(("libvirtd",), "libvirt-daemon-system", "looks after machines"),
    Tool(("virsh",), "libvirt-clients", "lets you look at them by hand"),
    Tool(("dnsmasq",), "dnsmasq-base", "DHCP and TFTP for network boot"),
    Tool(("ip",), "iproute2", "reads routes and bridges"),
    Tool(("iptables", "nft"), "iptables", "isolates networks, and leads out by NAT"),
    Tool(("/usr/share/OVMF/OVMF_CODE_4M.fd",), "ovmf", "UEFI firmware"),
    Tool(("/usr/lib/ipxe/undionly.kpxe",), "ipxe", "network boot for BIOS and UEFI"),
    Tool(("/usr/lib/ipxe/qemu/pxe-virtio.rom", "/usr/share/qemu/pxe-virtio.rom"),
         "ipxe-qemu", "network boot ROMs of NICs"),
    Tool(("/usr/lib/shim/shimx64.efi.signed",), "shim-signed", "network boot with secure boot"),
    Tool(("/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed",),
         "grub-efi-amd64-signed", "network boot with secure boot"),
    Tool(("grub-mkstandalone",), "grub-common", "boot ISOs for UEFI"),
    Tool(("/usr/lib/grub/x86_64-efi/http.mod",), "grub-efi-amd64-bin", "boot ISOs for UEFI"),
    Tool(("xorriso",), "xorriso", "boot ISOs"),
    Tool(("mcopy",), "mtools", "boot ISOs for UEFI"),
    Tool(("/usr/lib/ISOLINUX/isolinux.bin",), "isolinux", "boot ISOs for BIOS"),
    Tool(("/usr/lib/syslinux/modules/bios/ldlinux.c32",), "syslinux-common", "boot ISOs for BIOS"),
    Tool(("ovs-vsctl",), "openvswitch-switch", "networks with `switch: ovs`", Level.OPTIONAL),
    Tool(("/etc/libvirt/nwfilter/clean-traffic.xml",), "libvirt-daemon-config-nwfilter",
         "networks with `anti_spoofing`", Level.OPTIONAL),
    Tool(("lxc-start",), "lxc", "containers (`lxc: true`)", Level.OPTIONAL),
    Tool(("newuidmap",), "uidmap", "containers (`lxc: true`)", Level.OPTIONAL),
    Tool(("podman",), "podman", "containers (`docker: true`)", Level.OPTIONAL),
    Tool(("swtpm",), "swtpm", "TPM 2.0", Level.OPTIONAL),
    Tool(("swtpm_setup",), "swtpm-tools", "TPM 2.0", Level.OPTIONAL),
    Tool(("qemu-system-aarch64",), "qemu-system-arm", "runs aarch64 machines", Level.OPTIONAL),
    Tool(("/usr/share/AAVMF/AAVMF_CODE.fd",), "qemu-efi-aarch64",
         "UEFI firmware for aarch64", Level.OPTIONAL),
    Tool(("ipmitool",), "ipmitool", "power and consoles of labs' machines", Level.OPTIONAL),
)  # fmt: skip


def findings(*, privileged: bool) -> list[Finding]:
    """Everything that was looked for, in the order of the table."""
    return [
        *(_tool(tool) for tool in TOOLS),
        _module(),
        *_libvirt(privileged=privileged),
        kvm(settings_for(os.environ, uid=os.geteuid()).cache),
        *_kvm_group(privileged=privileged),
        _ready_space(settings_for(os.environ, uid=os.geteuid()).pools),
    ]


def has_apt() -> bool:
    """Whether Debian's packages can be installed here."""
    return shutil.which("apt-get") is not None


def fix_command(found: Iterable[Finding], *, privileged: bool, apt: bool) -> str:
    """The one command that fixes what is missing, "" when nothing is, or when no command is known
    that does: where there is no `apt`, packages have other names.
    """
    missing = [each for each in found if not each.present and each.level is Level.NEEDED]
    packages = sorted({name for each in missing for name in each.packages})
    if packages and not apt:
        return ""
    sudo = "" if privileged else "sudo "
    commands = [f"{sudo}apt-get install -y {' '.join(packages)}"] if packages else []
    commands += dict.fromkeys(f"{sudo}{each.command}" for each in missing if each.command)
    commands += [each.own_command for each in missing if each.own_command]
    return " && ".join(commands)


def _tool(tool: Tool) -> Finding:
    found = next((place for name in tool.where if (place := _find(name))), "")
    detail = found or f"{tool.purpose}: package {tool.package}"
    return Finding(Path(tool.where[0]).name, bool(found), detail, tool.level, (tool.package,))


def _find(name: str) -> str:
    if name.startswith("/"):
        return name if Path(name).exists() else ""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    return shutil.which(name, path=path) or ""


def _module() -> Finding:
    present = importlib.util.find_spec("libvirt") is not None
    return Finding(
        "libvirt-python",
        present,
        "libvirt's Python module" if present else "pip install 'nospoon[libvirt]'",
        packages=() if present else ("libvirt-dev", "pkg-config", "gcc", "python3-dev"),
        own_command=f"{sys.executable} -m pip install 'nospoon[libvirt]'",
    )


_SOCKETS = {
    "libvirtd": ("/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"),
    "virtlogd": ("/run/libvirt/virtlogd-sock",),
}


def _libvirt(*, privileged: bool) -> Iterable[Finding]:
    """System daemons; a user's own are started by libvirt itself."""
    for name, sockets in _SOCKETS.items():
        listening = next((path for path in sockets if _listens(path)), "")
        yield Finding(
            f"{name} running",
            bool(listening),
            listening or "needed for qemu:///system; qemu:///session goes without",
            Level.NEEDED if privileged else Level.OPTIONAL,
            command=_start_command(name),
        )


def _start_command(name: str) -> str:
    systemd = Path("/run/systemd/system").is_dir()
    return f"systemctl start {name}" if systemd else f"{name} -d"


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except PermissionError:
            return True
        except OSError:
            return False
    return True


def kvm(cache: Path, device: Path = Path("/dev/kvm")) -> Finding:
    """As the daemon found it when it tried, if it ever did. `cache`: where its verdicts are."""
    usable = device.exists() and os.access(device, os.R_OK | os.W_OK)
    tried = sorted(cache.glob("kvm-*.json"), key=lambda file: file.stat().st_mtime)
    verdict = _verdict(tried[-1]) if tried else {}
    if usable and verdict.get("accelerator") == "tcg":
        detail = f"{verdict.get('note', '')}; machines are emulated, slowly"
        return Finding("KVM", False, detail, Level.OPTIONAL)  # noqa: FBT003
    detail = (
        "usable by you; tried with a Linux guest before it is used"
        if usable
        else ("no /dev/kvm" if not device.exists() else "you may not open it: join group kvm")
    )
    return Finding("KVM", usable, f"{detail}{'' if usable else '; machines are emulated, slowly'}",
                   Level.OPTIONAL)  # fmt: skip


def _verdict(path: Path) -> dict[str, str]:
    """Nothing for one that cannot be read: the daemon tries again."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, TypeError, ValueError):
        return {}


def _kvm_group(*, privileged: bool) -> Iterable[Finding]:
    """Where udev did not run, libvirt finds /dev/kvm closed and probes QEMU at every call."""
    device = Path("/dev/kvm")
    if not privileged or not device.exists():
        return
    status = device.stat()
    open_ = bool(status.st_mode & stat.S_IRGRP) and status.st_gid != 0
    yield Finding(
        "KVM for libvirt",
        open_,
        "open to its group" if open_ else "closed to group kvm: each machine takes minutes to make",
        command="chgrp kvm /dev/kvm && chmod 660 /dev/kvm",
    )


def _ready_space(path: Path, *, needed: int = 5 << 30) -> Finding:
    place = next(each for each in (path, *path.parents) if each.exists())
    free = shutil.disk_usage(place).free
    told = f"{free >> 30} GiB free for {path}"
    short = f"{told}, {needed >> 30} wanted: remove something there, or set NOSPOON_POOL_DIR"
    return Finding("disk space", free >= needed, told if free >= needed else short)
