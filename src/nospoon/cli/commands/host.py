"""nospoon host."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from nospoon.cli import connect
from nospoon.cli.completion import files
from nospoon.cli.files import read_cluster, read_request
from nospoon.cli.output import output_options, print_rows
from nospoon.errors import UsageError
from nospoon.model.rest.hosts import HostFinding, HostSummary, Verdict
from nospoon.model.sizes import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nospoon.model.cluster import Cluster
    from nospoon.model.declared import Declared

COLUMNS = ("host", "what", "verdict", "detail")
NOT_PREPARED = "Simulated hosts and clouds need no preparation."
OF_LIST = ("host", "cluster", "where", "nodes", "cpus", "memory", "drained", "away")


@click.group("host")
def command() -> None:
    """Hosts: list them, check what they have of what is needed there, and prepare them."""


@command.command("list")
@output_options
def list_(format_: str, columns: tuple[str, ...]) -> None:
    """List the hosts of your clusters: place, use by nodes, reachability."""
    hosts = connect.client().ask(list[HostSummary], "GET", "/v1/hosts")
    rows = [asdict(each) for each in hosts]
    if format_ == "table":
        rows = [row | {"memory": size(row["memory"])} for row in rows]
    print_rows(rows, format_=format_, columns=columns, names=OF_LIST)


@command.command("check")
@click.argument("file", shell_complete=files)
@output_options
def check(file: str, format_: str, columns: tuple[str, ...]) -> None:
    """Look at the hosts of FILE: programs, KVM, capacity, bridges, clock. Changes nothing.

    Fails when something that FILE needs is missing.
    """
    body = read_request(None, file)
    rows = connect.client().ask(list[HostFinding], "POST", "/v1/hosts/check", body)
    print_rows(rows, format_=format_, columns=columns, names=COLUMNS)
    if any(row.verdict is Verdict.MISSING for row in rows):
        raise click.exceptions.Exit(1)


@command.command("setup")
@click.argument("file", shell_complete=files)
@click.option("--undo", is_flag=True, help="Put back what an earlier setup changed.")
@click.option("-H", "--host", "chosen", multiple=True, help="Only this host; again for more.")
@click.option("--package", "packages", multiple=True, help="Install this Debian package, too.")
@click.option("--volume-group", help="Put pools on a logical volume, created in this volume group.")
@click.option("--volume-size", default="", help="Its size, such as 200g; default: all free space.")
@click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for sudo's password there.")
@output_options
def setup(
    file: str,
    undo: bool,  # noqa: FBT001  (click passes options by name)
    chosen: tuple[str, ...],
    packages: tuple[str, ...],
    volume_group: str | None,
    volume_size: str,
    ask_become_pass: bool,  # noqa: FBT001
    format_: str,
    columns: tuple[str, ...],
) -> None:
    """Prepare the hosts of FILE: packages, libvirt, Open vSwitch for files that have networks on
    it, liblxc and its ids for hosts with `lxc`, Podman and its ids for hosts with `docker` that
    names no other engine's socket, the directory of pools, bridges.

    Ansible does it, as you: by your ssh, with your sudo. A second run changes nothing.
    """
    cluster = read_cluster(file)
    hosts = _to_prepare(cluster, file, chosen)
    asked = ["--ask-become-pass"] if ask_become_pass else []
    reached = {host.name: host.ssh for host in cluster.hosts}
    for name, variables in hosts.items():
        more = more_packages(cluster, volume_group, reached[name])
        variables["nospoon_more_packages"] = [*packages, *more]
        variables.update(preparations(cluster, reached[name]))
        if volume_group:
            variables["nospoon_volume_group"] = volume_group
            variables["nospoon_volume_size"] = volume_size
    from nospoon.cli import ansible  # noqa: PLC0415  (imports pydantic)

    rows = ansible.play("undo" if undo else "setup", hosts, asked)
    print_rows(rows, format_=format_, columns=columns, names=("host", *ansible.COUNTS))
    if any(row["failed"] or row["unreachable"] for row in rows):
        raise click.exceptions.Exit(1)


def more_packages(cluster: Cluster, volume_group: str | None, ssh: str = "") -> list[str]:
    """What is wanted only by those who use it. `ssh`: how the machine is reached."""
    ovs = any(network.switch == "ovs" for network in cluster.networks)
    of_connections = dict.fromkeys(name for of in _declared(cluster, ssh) for name in of.packages)
    return ["openvswitch-switch"] * ovs + ["lvm2"] * bool(volume_group) + [*of_connections]


def preparations(cluster: Cluster, ssh: str = "") -> dict[str, bool]:
    """Variables of the collection nospoon.host, by what connections of a machine declare."""
    return {of.preparation: True for of in _declared(cluster, ssh) if of.preparation}


def _declared(cluster: Cluster, ssh: str) -> Iterator[Declared]:
    return (host.declares for host in cluster.hosts if host.ssh == ssh)


def _to_prepare(
    cluster: Cluster, file: str, chosen: tuple[str, ...]
) -> dict[str, dict[str, object]]:
    """Name -> Ansible's variables; a machine with several connections once."""
    from nospoon.plan.identity import physnet_bridge  # noqa: PLC0415  (not needed to check)

    real = (h for h in cluster.hosts if h.runs_commands and h.declares.is_real)
    hosts = {h.name: h for h in real if not h.declares.shares_networks}
    unknown = sorted(set(chosen) - set(hosts))
    if unknown or not hosts:
        wanted = f"host {', '.join(unknown)}" if unknown else "libvirt host"
        others = f"Its hosts: {', '.join(hosts)}." if hosts else NOT_PREPARED
        raise UsageError(f"{file} has no {wanted}", hint=others)
    found: dict[str, dict[str, Any]] = {}
    for host in hosts.values():
        if chosen and host.name not in chosen:
            continue
        same = next((name for name in found if hosts[name].ssh == host.ssh), host.name)
        variables = found.setdefault(same, _reached(host.ssh) | {"nospoon_bridges": []})
        variables["nospoon_bridges"] += [
            {"name": physnet_bridge(link), "uplink": link} for _, link in host.physnets
        ]
    return found


def _reached(ssh: str) -> dict[str, object]:
    """How Ansible gets there, as ssh(1) would."""
    python = {"ansible_python_interpreter": "auto_silent"}
    if not ssh:
        return {"ansible_connection": "local", **python}
    return {"ansible_host": ssh, **python}
