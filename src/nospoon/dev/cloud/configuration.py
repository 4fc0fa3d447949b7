"""Configuration files of the services, as text. One function a service.

Paths are those that the services see, so nothing depends on where the state directory is.
Options: https://docs.openstack.org/PROJECT/latest/configuration/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nospoon.dev.cloud.wanted import ADMIN_CLOUD, CLOUD, INSIDE, PROJECT, REGION, Api, Wanted
from nospoon.dev.options import Sections, rendered

DATABASES = ("keystone", "placement", "glance", "neutron", "nova_api", "nova", "nova_cell0")
DATABASE_SOCKET = INSIDE / "mariadb.sock"
SWITCH = "unix:/run/openvswitch/db.sock"
BROKER = "rabbit://guest:guest@127.0.0.1:5672/"
"""RabbitMQ's own account, which it accepts from loopback alone: that of the namespace."""
HOST = "cloud"
"""The first compute host, and the host of Neutron's agents."""
PUBLIC, RACKS, EDGE = "public", "racks", "edge"
"""Physical networks: one that leads to the host, one for VLANs of the cloud's administrator, and
one that no compute node has, as of another place.
"""
VLANS = "100:999"
PHYSICAL_MTU = 1550
"""So that networks of projects, which are VXLANs, have 1500 as racks have."""


@dataclass(frozen=True, slots=True)
class Passwords:
    """Of the administrator, of the services' common account, and of the ordinary project's user."""

    admin: str
    service: str
    user: str


def database(name: str) -> str:
    """Its SQLAlchemy URL. The server asks for no password: its socket is root's."""
    return f"mysql+pymysql://root@localhost/{name}?unix_socket={DATABASE_SOCKET}"


def login(wanted: Wanted, passwords: Passwords) -> dict[str, object]:
    """How services reach one another."""
    return {
        "auth_type": "password",
        "auth_url": f"{wanted.url(Api.KEYSTONE)}/v3",
        "username": "service",
        "password": passwords.service,
        "project_name": "service",
        "user_domain_id": "default",
        "project_domain_id": "default",
        "region_name": REGION,
    }


def token(wanted: Wanted, passwords: Passwords) -> dict[str, object]:
    """How they check tokens of clients."""
    return {
        **login(wanted, passwords),
        "www_authenticate_uri": wanted.url(Api.KEYSTONE),
        "service_token_roles_required": "true",
        "service_token_roles": "service",
    }


def _keystone(wanted: Wanted, passwords: Passwords) -> Sections:
    del passwords
    return {
        "DEFAULT": {"public_endpoint": wanted.url(Api.KEYSTONE)},
        "database": {"connection": database("keystone")},
        "fernet_tokens": {"key_repository": INSIDE / "etc/keystone/fernet"},
        "fernet_receipts": {"key_repository": INSIDE / "etc/keystone/fernet"},
        "credential": {"key_repository": INSIDE / "etc/keystone/credential"},
        "cache": {"enabled": "true", "backend": "oslo_cache.dict"},  # its one process has all of it
        "identity": {"password_hash_rounds": 4},  # its 12 take a third of a second for each login
    }


def _placement(wanted: Wanted, passwords: Passwords) -> Sections:
    return {
        "placement_database": {"connection": database("placement")},
        "keystone_authtoken": token(wanted, passwords),
    }


def _glance(wanted: Wanted, passwords: Passwords) -> Sections:
    work = INSIDE / "glance"
    return {
        "DEFAULT": {"enabled_backends": "images:file", "node_staging_uri": f"file://{work}/stage"},
        "database": {"connection": database("glance")},
        "glance_store": {"default_backend": "images"},
        "images": {"filesystem_store_datadir": work / "images"},
        "os_glance_staging_store": {"filesystem_store_datadir": work / "stage"},
        "os_glance_tasks_store": {"filesystem_store_datadir": work / "tasks"},
        "keystone_authtoken": token(wanted, passwords),
        "paste_deploy": {"flavor": "keystone", "config_file": INSIDE / "etc/glance/paste.ini"},
        "oslo_concurrency": {"lock_path": INSIDE / "locks"},
    }


def _neutron(wanted: Wanted, passwords: Passwords) -> Sections:
    """Of the server and of its agents: sections that one of them does not know are ignored."""
    return {
        "DEFAULT": {
            "host": HOST,
            "state_path": INSIDE / "neutron",
            "transport_url": BROKER,
            "core_plugin": "ml2",
            "service_plugins": "segments,trunk,router",
            "global_physnet_mtu": PHYSICAL_MTU,
            "rpc_workers": 1,
            "rpc_state_report_workers": 0,
            "dhcp_agents_per_network": 1,
            "interface_driver": "openvswitch",
            "enable_metadata_proxy": "false",
            "dnsmasq_config_file": inside("neutron/dnsmasq.conf"),
            "api_paste_config": INSIDE / "etc/neutron/api-paste.ini",
        },
        "database": {"connection": database("neutron")},
        "keystone_authtoken": token(wanted, passwords),
        "nova": login(wanted, passwords),
        "placement": login(wanted, passwords),
        "agent": {"root_helper": "sudo", "tunnel_types": "vxlan", "report_interval": 10},
        "oslo_concurrency": {"lock_path": INSIDE / "locks"},
        "ml2": {
            "type_drivers": "flat,vlan,vxlan,local",
            "tenant_network_types": "vxlan",
            "mechanism_drivers": "openvswitch",
            "extension_drivers": "port_security",
            "path_mtu": PHYSICAL_MTU,
            "physical_network_mtus": f"{PUBLIC}:1500,{RACKS}:1500",
        },
        "ml2_type_flat": {"flat_networks": f"{PUBLIC},{RACKS}"},
        "ml2_type_vlan": {"network_vlan_ranges": f"{RACKS}:{VLANS},{EDGE}:{VLANS}"},
        "ml2_type_vxlan": {"vni_ranges": "1:65535"},
        "ovs": {
            "bridge_mappings": f"{PUBLIC}:{bridge(PUBLIC)},{RACKS}:{bridge(RACKS)}",
            "datapath_type": "netdev",
            "local_ip": "127.0.0.1",
            "ovsdb_connection": SWITCH,
        },
        "securitygroup": {"firewall_driver": "openvswitch"},
    }


def bridge(physical_network: str) -> str:
    """Its Open vSwitch bridge."""
    return f"br-{physical_network}"


def _nova(wanted: Wanted, passwords: Passwords) -> Sections:
    return {
        **compute(wanted, passwords),
        "api_database": {"connection": database("nova_api")},
        "database": {"connection": database("nova")},
    }


def compute(wanted: Wanted, passwords: Passwords) -> dict[str, Mapping[str, object]]:
    """Of the first compute host. Without databases: compute hosts ask the conductor."""
    account = login(wanted, passwords)
    proxy = wanted.port(Api.SERIAL)
    return {
        "DEFAULT": {
            "host": HOST,
            "my_ip": "127.0.0.1",
            "state_path": INSIDE / "nova",
            "transport_url": BROKER,
            "compute_driver": "libvirt.LibvirtDriver",
            "reserved_host_memory_mb": 0,
            "cpu_allocation_ratio": 32,
            "ram_allocation_ratio": 4,
            "disk_allocation_ratio": 100,
            "default_ephemeral_format": "ext4",
            "block_device_allocate_retries": 180,
            "block_device_allocate_retries_interval": 1,  # seconds; volumes are made of files soon
            "shutdown_timeout": 3,  # of guests that do not know ACPI; a minute otherwise
            "mkisofs_cmd": "xorrisofs",
        },
        "keystone_authtoken": token(wanted, passwords),
        "service_user": {**account, "send_service_user_token": "true"},
        "placement": account,
        "glance": account,
        "neutron": account,
        "cinder": account,
        "wsgi": {"api_paste_config": INSIDE / "etc/nova/api-paste.ini"},
        "conductor": {"workers": 1},
        "scheduler": {"workers": 1, "discover_hosts_in_cells_interval": 3},
        "oslo_concurrency": {"lock_path": INSIDE / "locks"},
        "libvirt": {
            "virt_type": "qemu",
            "cpu_mode": "none",
            "images_type": "qcow2",
            "inject_partition": -2,
            "live_migration_inbound_addr": "127.0.0.1",
        },
        "os_vif_ovs": {"ovsdb_connection": SWITCH},
        "vnc": {"enabled": "false"},
        "serial_console": {
            "enabled": "true",
            "base_url": f"ws://127.0.0.1:{proxy}/",
            "proxyclient_address": "127.0.0.1",
            "serialproxy_host": "127.0.0.1",
            "serialproxy_port": proxy,
        },
    }


_FILES: Mapping[str, Callable[[Wanted, Passwords], Sections]] = {
    "keystone/keystone.conf": _keystone,
    "placement/placement.conf": _placement,
    "glance/glance-api.conf": _glance,
    "neutron/neutron.conf": _neutron,
    "nova/nova.conf": _nova,
    "nova/nova-compute.conf": compute,
}
COPIED: Mapping[str, str] = {
    "glance/glance-api-paste.ini": "glance/paste.ini",
    "neutron/api-paste.ini": "neutron/api-paste.ini",
    "nova/api-paste.ini": "nova/api-paste.ini",
}
"""From the environment's `etc`, as it is."""


def files(wanted: Wanted, passwords: Passwords) -> dict[str, str]:
    """Text of each file, by its path below `etc`."""
    return {path: rendered(made(wanted, passwords)) for path, made in _FILES.items()}


def inside(path: str) -> Path:
    """Where services find a file of `etc`."""
    return INSIDE / "etc" / path


def clouds(wanted: Wanted, passwords: Passwords) -> dict[str, Any]:
    """clouds.yaml as a value, as openstacksdk reads it."""

    def told(name: str, password: str) -> dict[str, object]:
        auth = {
            "auth_url": f"{wanted.url(Api.KEYSTONE)}/v3",
            "username": name,
            "password": password,
            "project_name": name,
            "user_domain_id": "default",
            "project_domain_id": "default",
        }
        return {"auth_type": "password", "auth": auth, "region_name": REGION}

    return {
        "clouds": {
            ADMIN_CLOUD: told("admin", passwords.admin),
            CLOUD: told(PROJECT, passwords.user),
        }
    }
