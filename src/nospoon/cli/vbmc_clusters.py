"""The clusters that serve what virtualbmc's configuration says.

One for each address and libvirtd, `vbmc` for all addresses and this machine's.
A BMC does not wait for others: a machine that is not there, or is not available, is left out of its
cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from nospoon.api.client import Client
from nospoon.cli import connect
from nospoon.cli.addresses import resolved
from nospoon.cli.adoptions import refused
from nospoon.cli.echo import echo
from nospoon.cli.follow import finish, follow
from nospoon.cli.vbmc_files import (
    alone,
    config_path,
    configurations,
    directory,
    no_such,
    read_config,
    reported,
    write_config,
)
from nospoon.errors import NospoonError, PlanRefused, UsageError
from nospoon.model.rest.clusters import ClusterSummary
from nospoon.model.rest.nodes import BmcAccess
from nospoon.model.rest.operations import OperationDetails
from nospoon.model.rest.plans import BegunPlan

Served = tuple[str, str, str]
"""Cluster, node and IPMI port of a BMC."""


def switch(names: Iterable[str], *, active: bool) -> dict[str, NospoonError]:
    """Configure BMCs to be on or off, and bring them there; the names of those that stayed as they
    were, and why.
    """
    before: dict[str, dict[str, str]] = {}
    failed: dict[str, NospoonError] = {}
    for name in names:
        try:
            settings = read_config(config_path(name))
        except UsageError as error:
            failed[name] = error
        else:
            if settings is None:
                failed[name] = no_such(name)
            else:
                before[name] = settings
    if before:
        reported(besides=failed)
    for name, settings in before.items():
        write_config(config_path(name), {**settings, "active": str(active)})
    for cluster in dict.fromkeys(map(cluster_of, before.values())):
        try:
            left_out = _bring(cluster, before)
        except NospoonError as error:
            left_out = {name: error for name in before if cluster_of(before[name]) == cluster}
        for name, why in left_out.items():
            if name in before:
                failed[name] = why
            else:
                echo(f"The BMC of {name} is not served: {why}", err=True)
    for name in failed.keys() & before.keys():
        write_config(config_path(name), before[name])
    return failed


def _bring(cluster: str, named: Collection[str]) -> dict[str, NospoonError]:
    """The cluster is what the configuration says, but for BMCs that cannot be served: those, and
    why. `named`: domains of the command, behind which the others stand. Raises `NospoonError`.
    """
    client = connect.client()
    configured = [
        each for each in configurations() if should_run(each) and cluster_of(each) == cluster
    ]
    active, left_out = servable(sorted(configured, key=lambda each: each["domain_name"] in named))
    while active:
        try:
            answer = client.ask(
                BegunPlan, "POST", "/v1/clusters", request_for(cluster, active.values())
            )
        except PlanRefused as error:
            for name, why in refused(error, active, nodes=_nodes(active)).items():
                left_out[name] = NospoonError(why)
                del active[name]
        else:
            _wait(client, answer.operation)
            return left_out
    if cluster in {each.name for each in client.ask(list[ClusterSummary], "GET", "/v1/clusters")}:
        how = {"purge": False, "force": False, "enrolment": "remove"}
        path = f"/v1/clusters/{cluster}/down"
        _wait(client, client.ask(OperationDetails, "POST", path, how))
    return left_out


def servable(
    configured: Iterable[dict[str, str]],
) -> tuple[dict[str, dict[str, str]], dict[str, NospoonError]]:
    """Domain -> settings, and those whose port or node is that of one before, as vbmcd's process
    for them would end: why.
    """
    active: dict[str, dict[str, str]] = {}
    left_out: dict[str, NospoonError] = {}
    ports: dict[tuple[str, str], str] = {}
    for each in configured:
        name, port = each["domain_name"], (each["address"], each["port"])
        node = node_of(name)
        if port in ports:
            left_out[name] = NospoonError(f"port {each['port']} is that of {ports[port]}'s BMC")
        elif node in (nodes := _nodes(active)):
            left_out[name] = NospoonError(f"it would be node {node}, as {nodes[node]} is")
        else:
            active[name], ports[port] = each, name
    return active, left_out


def request_for(cluster: str, active: Iterable[dict[str, str]]) -> dict[str, object]:
    from nospoon.importers import READERS, Source  # noqa: PLC0415  (imports pydantic)
    from nospoon.importers.virtualbmc import text_of  # noqa: PLC0415  (pydantic)

    files = {
        f"{each['domain_name']}/config": text_of({**each, "active": "True"}) for each in active
    }
    place = str(directory())
    made = READERS["virtualbmc"](Source(place, "", cluster, files=files, resolve=resolved))
    for line in made.left_out:
        echo(f"Not carried over: {line}", err=True)
    return {"file": place, "text": made.text, "uploads": {}}


def should_run(settings: dict[str, str]) -> bool:
    from nospoon.importers.virtualbmc import (  # noqa: PLC0415  (imports pydantic)
        is_active,
    )

    return is_active(settings)


def cluster_of(settings: dict[str, str]) -> str:
    """The name of the cluster that a BMC is in."""
    from nospoon.clusterfile.written import name_of  # noqa: PLC0415
    from nospoon.importers.libvirt_uris import (  # noqa: PLC0415  (imports pydantic)
        without_query,
    )

    address, (uri, _) = settings["address"], without_query(settings["libvirt_uri"])
    parts = (address if address != "::" else "", uri if uri != "qemu:///system" else "")
    return "-".join(["vbmc", *(name_of(each) for each in parts if each)])[:63].rstrip("-")


def node_of(domain: str) -> str:
    from nospoon.clusterfile.written import name_of  # noqa: PLC0415  (imports pydantic)

    return name_of(domain)


def _nodes(domains: Iterable[str]) -> dict[str, str]:
    """Name of the node -> domain."""
    return {node_of(each): each for each in domains}


def revive(configured: Iterable[dict[str, str]]) -> None:
    """vbmcd starts what should run and does not whenever it looks. Here that is a BMC whose machine
    its owner made again; other hosts than this are not waited for.
    """
    client = connect.running_client()
    if client is None:
        return
    rows = client.ask(list[BmcAccess], "GET", "/v1/bmcs")
    alive = {_served_at(row) for row in rows if row.power not in {"absent", "unknown"}}
    lost: dict[str, list[str]] = {}
    for each in configured:
        here = should_run(each) and each["libvirt_uri"].startswith("qemu:///")
        if here and _to_be_served(each) not in alive:
            lost.setdefault(cluster_of(each), []).append(each["domain_name"])
    for cluster, names in lost.items():
        try:
            with alone():
                _bring(cluster, names)
        except NospoonError as error:
            echo(f"Cluster {cluster}: {error}", err=True)


def _wait(client: Client, operation: OperationDetails | None) -> None:
    if operation is not None:
        finish(follow(client, operation.id))


def served_now() -> set[Served]:
    """The BMCs that answer; none while no daemon runs."""
    client = connect.running_client()
    rows = client.ask(list[BmcAccess], "GET", "/v1/bmcs") if client is not None else ()
    return {_served_at(row) for row in rows}


def _served_at(row: BmcAccess) -> Served:
    return row.cluster, row.node, row.ipmi.rpartition(":")[2]


def _to_be_served(settings: dict[str, str]) -> Served:
    return cluster_of(settings), node_of(settings["domain_name"]), settings["port"]


def status_of(settings: dict[str, str], served: set[Served]) -> str:
    runs = _to_be_served(settings) in served
    return "running" if runs else "error" if should_run(settings) else "down"
