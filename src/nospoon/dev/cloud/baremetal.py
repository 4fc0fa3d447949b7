"""Ironic as a compute host of the cloud: its API and conductor, its files, and a nova-compute.

Ironic has an environment of its own, that of `nospoon dev ironic`, and SQLite: all that it has is
in its directory, and goes with it. Machines, and BMCs of this machine, reach it at the second
address of the provider network.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from nospoon.dev import configuration as standalone
from nospoon.dev import disk_image, environment, ironic
from nospoon.dev.cloud.configuration import PUBLIC, Passwords, bridge, compute, login, token
from nospoon.dev.cloud.wanted import INSIDE, Api, Wanted
from nospoon.dev.options import Sections

CONFIGURATION, DATABASE, SCHEMA = "ironic.conf", "ironic.sqlite", "schema"
MAP_HOST = """
INSERT IGNORE INTO nova_api.host_mappings (created_at, host, cell_id)
SELECT NOW(), '{host}', id FROM nova_api.cell_mappings WHERE name = 'cell1'
"""
"""Nova's scheduler looks for hosts that have a node, and takes seconds for that."""
RELEASE = "dhcp_release"
"""Of Debian's package dnsmasq-utils."""
_NETWORKS = tuple(
    f"{what}_network"
    for what in ("provisioning", "cleaning", "inspection", "rescuing", "servicing")
)
"""Options of the network interface `flat`: where an agent is while it works."""
INTERVAL = 5
"""Seconds until Placement has a node that became available; a minute otherwise."""


def place(made: Path) -> Path:
    """Its environment, beside that of the cloud."""
    return environment.place(_cache(made), ironic.NAME, ironic.LOCK_FILE)


async def ensure(made: Path) -> None:
    """Have what it runs. `made`: the cloud's environment."""
    ironic.need_tools()
    await environment.ensure(_cache(made), ironic.NAME, ironic.LOCK_FILE)


def _cache(made: Path) -> Path:
    return made.parents[1]


def prepare(own: Path) -> None:
    """Directories below `own`."""
    for name in ironic.DIRECTORIES:
        (own / name).mkdir(exist_ok=True)
    ironic.name_mkisofs(own)


def sections(
    wanted: Wanted, passwords: Passwords, *, name: str, state: Path, cache: Path
) -> Sections:
    """ironic.conf. It may read files of the cache, where `nospoon dev ipa build` has its own."""
    alone = standalone.ironic_sections(
        standalone.Wanted(
            "0.0.0.0",  # noqa: S104  (of the cloud's namespace)
            wanted.port(Api.IRONIC),
            files_port=wanted.files_port,
            advertised=str(wanted.conductor),
            media=disk_image.kept_loader(cache),
            shelf=str(cache),
        ),
        state=state,
    )
    account = login(wanted, passwords)
    changed: Mapping[str, Mapping[str, object]] = {
        "DEFAULT": {
            "auth_strategy": "keystone",
            "host": name,
            "enabled_network_interfaces": ",".join(_network_interfaces()),
        },
        "api": {"public_endpoint": ""},  # as the client reaches it: there are two addresses
        "auto_discovery": {"enabled": "false"},
        "agent": {  # virtual machines are quick
            "command_wait_interval": 1,
            "post_deploy_get_power_state_retry_interval": 1,
        },
        # the administrator of a project manages nodes, as Nova wants it for its own
        "oslo_policy": {"enforce_scope": "false", "enforce_new_defaults": "false"},
        "keystone_authtoken": token(wanted, passwords),
        **dict.fromkeys(("glance", "nova"), account),
        "neutron": {**account, **dict.fromkeys(_NETWORKS, PUBLIC)},
    }
    return {part: {**alone.get(part, {}), **changed.get(part, {})} for part in {**alone, **changed}}


def _network_interfaces() -> list[str]:
    """`flat` gives Neutron's ports the MACs of nodes. Its DHCP server then answers only after the
    release of the lease that Neutron has written for the MAC before (`dhcp_release`).
    """
    return ["noop", *(["flat"] if shutil.which(RELEASE) else [])]


def nova(wanted: Wanted, passwords: Passwords, *, name: str, state: Path) -> Sections:
    """nova.conf of its compute service."""
    first = compute(wanted, passwords)
    own = {
        "host": name,
        "state_path": state,
        "compute_driver": "ironic.IronicDriver",
        "update_resources_interval": INTERVAL,
    }
    return {
        **{part: each for part, each in first.items() if part != "libvirt"},
        "DEFAULT": {**first["DEFAULT"], **own},
        "ironic": login(wanted, passwords),
        "serial_console": {"enabled": "false"},
    }


def services(wanted: Wanted, made: Path, state: Path) -> Mapping[str, tuple[str, ...]]:
    """Arguments of each, by its name. `state`: its directory as they see it."""
    python = f"{place(made)}/bin/python"
    where = ("--bind", str(wanted.conductor), "--directory", f"{state}/http")
    return {
        "files": (python, "-P", "-m", "http.server", *where, str(wanted.files_port)),
        "conductor": (
            python, "-P", ironic.SERVICE, f"--config-file={state}/{CONFIGURATION}",
        ),
    }  # fmt: skip


def variables(made: Path, state: Path) -> Mapping[str, str]:
    """Of its services: it runs programs of its own environment."""
    path = f"{INSIDE}/bin:{place(made)}/bin:/usr/sbin:/usr/bin:/sbin:/bin:{state}/bin"
    return {"PATH": path, "PYTHONPATH": ""}


def set_up(wanted: Wanted) -> list[list[str]]:
    """Commands of the cloud's namespace that give it its address, and the way to others."""
    address, device = f"{wanted.conductor}/{wanted.public.prefixlen}", bridge(PUBLIC)
    return [
        ["ip", "address", "replace", address, "dev", device],
        ["ip", "link", "set", device, "up"],
        ["ip", "route", "replace", "default", "via", str(wanted.gateway)],
    ]  # fmt: skip


def tear_down() -> list[list[str]]:
    """Commands that take that away."""
    device = bridge(PUBLIC)
    return [["ip", "address", "flush", "dev", device], ["ip", "link", "set", device, "down"]]


def migration(own: Path, made: Path, state: Path) -> list[str]:
    """The command for its tables: those that a new SQLite, or that of another version, lacks. None
    of them where they are there. See `migrated`.
    """
    done = own / SCHEMA
    if done.exists() and done.read_text() == place(made).name:
        return []
    if not done.exists():
        (own / DATABASE).unlink(missing_ok=True)  # one that was begun and not finished
    tool = [f"{place(made)}/bin/python", "-P", f"{place(made)}/bin/ironic-dbsync"]
    command = "upgrade" if done.exists() else "create_schema"
    return [*tool, f"--config-file={state}/{CONFIGURATION}", command]


def migrated(own: Path, made: Path) -> None:
    """Its tables are those of this environment."""
    (own / SCHEMA).write_text(place(made).name)
