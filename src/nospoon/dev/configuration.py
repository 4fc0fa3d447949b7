"""What Ironic and its clients are told: ironic.conf and clouds.yaml, as text.

One process is API and conductor (`rpc_transport = none`), without Keystone, Neutron and Glance.
Options: https://docs.openstack.org/ironic/latest/configuration/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any

from nospoon.dev.options import Sections, rendered

CLOUD = "nospoon-dev"
"""The cloud's name in clouds.yaml."""
USER = "admin"


class Auth(StrEnum):
    """How callers of the API are known."""

    NONE = "none"
    HTTP_BASIC = "http_basic"


@dataclass(frozen=True, slots=True)
class Wanted:
    """An Ironic: where its API listens, and its database ("": SQLite beside its other files).

    `files_port`: where nodes fetch boot scripts, media and images; 0: the port after its API's.
    `options`: more of ironic.conf, as `SECTION.OPTION=VALUE`.
    `advertised`: the address that nodes use; "": `address`. `media`: the path of the loader on
    virtual media; "": media boot no UEFI machine. `shelf`: the directory whose files it may take.
    """

    address: str = "127.0.0.1"
    port: int = 6385
    auth: Auth = Auth.NONE
    database: str = ""
    files_port: int = 0
    options: tuple[str, ...] = ()
    advertised: str = ""
    media: str = ""
    shelf: str = ""

    @property
    def files(self) -> int:
        """The port of the files."""
        return self.files_port or self.port + 1

    @property
    def files_url(self) -> str:
        """Where the files are."""
        return self._url(self.files)

    def _url(self, port: int) -> str:
        """IPv6 addresses go in brackets (RFC 3986 §3.2.2)."""
        told = self.advertised or self.address
        host = f"[{told}]" if ":" in told else told
        return f"http://{host}:{port}"

    @property
    def endpoint(self) -> str:
        """Where the API answers."""
        return self._url(self.port)


KERNEL = "nofb vga=normal no_timer_check console=tty0 console=ttyS0,115200"
"""Of ramdisks: their console is the serial port, whose record nospoon keeps. Linux
panics ("IO-APIC + timer doesn't work!") where a busy host delays a VM's first ticks. On KVM it does
not check them (paravirt_ops_setup of arch/x86/kernel/kvm.c), and is not to do so on QEMU alone.
"""
INTERFACES: Mapping[str, str] = {
    "hardware_types": "ipmi,redfish,manual-management",
    "bios_interfaces": "no-bios,redfish",
    "boot_interfaces": "ipxe,pxe,redfish-virtual-media,redfish-https",
    "console_interfaces": "no-console",
    "deploy_interfaces": "direct,ramdisk",
    "firmware_interfaces": "no-firmware,redfish",
    "inspect_interfaces": "agent,redfish,no-inspect",
    "management_interfaces": "ipmitool,redfish,noop",
    "network_interfaces": "noop",
    "power_interfaces": "ipmitool,redfish,agent",
    "raid_interfaces": "no-raid,agent,redfish",
    "rescue_interfaces": "no-rescue,agent",
    "storage_interfaces": "noop,external",
    "vendor_interfaces": "no-vendor,ipmitool,redfish",
}
"""Every interface of IPMI, Redfish and the agent that needs no other service."""


def ironic_conf(wanted: Wanted, *, state: Path) -> str:
    """ironic.conf of a standalone Ironic."""
    return rendered(ironic_sections(wanted, state=state))


def ironic_sections(wanted: Wanted, *, state: Path) -> Sections:
    """What ironic.conf has, with everything of it below `state`."""
    strategy = {Auth.NONE: "noauth", Auth.HTTP_BASIC: "http_basic"}[wanted.auth]
    sections: dict[str, dict[str, object]] = {
        "DEFAULT": {
            "auth_strategy": strategy,
            "http_basic_auth_user_file": state / "htpasswd",
            "rpc_transport": "none",
            "host": CLOUD,  # the same at each start, so that its nodes are its own again
            "my_ip": wanted.advertised or wanted.address,
            "state_path": state,
            "tempdir": state / "tmp",
            "use_stderr": "true",
            "graceful_shutdown_timeout": 5,
            "default_network_interface": "noop",
            **{f"enabled_{kind}": names for kind, names in INTERFACES.items()},
        },
        "api": {
            "host_ip": wanted.address,
            "port": wanted.port,
            "public_endpoint": wanted.endpoint,
        },
        "database": {
            "connection": wanted.database or f"sqlite:///{state}/ironic.sqlite?timeout=30"
        },
        "auto_discovery": {"enabled": "true", "driver": "ipmi"},
        "conductor": {
            "automated_clean": "false",
            "bootloader": f"file://{wanted.media}" if wanted.media else "",
            "file_url_allowed_paths": ",".join(filter(None, (str(state), wanted.shelf))),
        },
        "redfish": {"kernel_append_params": KERNEL},
        "agent": {
            "certificates_path": state / "certificates",
            "deploy_logs_local_path": state / "ramdisk-logs",
        },
        "dhcp": {"dhcp_provider": "none"},
        "ipmi": {"min_command_interval": 1},
        "deploy": {"http_root": state / "http", "http_url": wanted.files_url},
        "pxe": {
            "kernel_append_params": KERNEL,
            "tftp_root": state / "tftp",
            "tftp_master_path": state / "tftp-master",
            "images_path": state / "images",
            "instance_master_path": state / "master",
        },
        "oslo_concurrency": {"lock_path": state / "locks"},
        "service_catalog": {"auth_type": "none", "endpoint_override": wanted.endpoint},
    }
    for each in wanted.options:
        place, _, value = each.partition("=")
        section, _, option = place.rpartition(".")
        sections.setdefault(section or "DEFAULT", {})[option] = value
    return sections


def clouds(wanted: Wanted, password: str) -> dict[str, Any]:
    """clouds.yaml as a value, as openstacksdk and the `baremetal` command read it."""
    here = ip_address(wanted.address)  # not what nodes are told, which they alone may reach
    if here.is_unspecified:  # it listens everywhere: here it is reached by loopback
        here = ip_address("::1" if isinstance(here, IPv6Address) else "127.0.0.1")
    reached = Wanted(str(here), wanted.port)
    auth: dict[str, object] = {"endpoint": reached.endpoint}
    if wanted.auth is Auth.HTTP_BASIC:
        auth |= {"username": USER, "password": password}
    cloud = {
        "auth_type": str(wanted.auth),
        "auth": auth,
        "baremetal_endpoint_override": reached.endpoint,
    }
    return {"clouds": {CLOUD: cloud}}
