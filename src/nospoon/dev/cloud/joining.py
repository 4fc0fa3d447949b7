"""Compute hosts join a cloud that runs, and leave it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from nospoon.dev import ironic
from nospoon.dev.alone import alone
from nospoon.dev.cloud import baremetal, computes, contents, preparation, programs, start
from nospoon.dev.cloud.client import Client, logged_in
from nospoon.dev.cloud.computes import LXC_DRIVER, Compute, Virt
from nospoon.dev.cloud.namespaces import Namespaces
from nospoon.dev.cloud.wanted import Api, Wanted
from nospoon.errors import Conflict, MissingTool, NotFound, UsageError
from nospoon.runtime import process

SHOWN = 5
"""Servers or nodes that a refusal names."""


def need(wanted: Wanted, virt: Virt) -> None:
    """Raises `MissingTool` for what a compute host of this kind needs, `UsageError` where the cloud
    cannot have one.
    """
    if virt is Virt.IRONIC and wanted.container:
        raise UsageError(
            "Ironic reaches BMCs of this machine by the provider network, which a cloud with "
            "--container does not share",
            hint="Leave out --container.",
        )
    if virt is Virt.IRONIC:
        ironic.need_tools()
    program, package = LXC_DRIVER
    if virt is Virt.LXC and not program.exists():
        raise MissingTool(
            f"a compute host of containers needs {package}", hint=f"apt-get install -y {package}"
        )


async def join(wanted: Wanted, where: Namespaces, made: Path, added: Compute) -> None:
    """Have it in the cloud: started, repaired, or found. `made`: the Python environment.

    Raises `Conflict` where another one has the name, `ProviderError` with the end of a log.
    """
    need(wanted, added.virt)
    with alone(where.state):
        known = {each.name: each for each in computes.recorded(where.state)}
        if known.get(added.name, added) != added:
            raise Conflict(
                f"the cloud has a compute host {added.name!r} of {known[added.name].virt}",
                hint="Choose another --name.",
            )
        if added.virt is Virt.IRONIC:
            _refuse_second(known.values(), added)
            await baremetal.ensure(made)
        passwords = preparation.passwords(where.state)
        computes.prepare(wanted, passwords, added, state=where.state, cache=made.parents[1])
        computes.record(where.state, [*(known | {added.name: added}).values()])
        await start.join(wanted, where, made, added)


async def leave(wanted: Wanted, where: Namespaces, made: Path, name: str) -> None:
    """Take it out of the cloud. Raises `NotFound`, and `Conflict` while it has servers."""
    with alone(where.state):
        known = {each.name: each for each in computes.recorded(where.state)}
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise NotFound(f"no compute host {name!r} joined the cloud; those that did: {names}")
        client = await logged_in(wanted, preparation.passwords(where.state).admin)
        services = await _services(client, name)
        await _set_status(client, services, "disabled")  # nothing is scheduled to it any more
        try:
            await _refuse_servers(client, name)
            if known[name].virt is Virt.IRONIC:
                await _refuse_nodes(client)
        except BaseException:
            await _set_status(client, services, "enabled")
            raise
        await _end(wanted, where, made, known[name])
        for each in services:
            await client.call("DELETE", Api.NOVA, f"/v2.1/os-services/{each['id']}")
        if known[name].virt is Virt.IRONIC:
            await contents.remove_nodes(client)
            await contents.remove_ironic(client)
        computes.record(where.state, [each for each in known.values() if each.name != name])
        computes.remove_files(known[name], state=where.state)


async def _end(wanted: Wanted, where: Namespaces, made: Path, gone: Compute) -> None:
    names = [each.name for each in computes.programs_of(wanted, made, gone)]
    env = programs.environment(made)
    await where.run(computes.end(gone), env)
    if gone.virt is Virt.IRONIC:
        for argv in baremetal.tear_down():
            await where.run(argv, env)
    await where.forget(names)
    await _clear(where.state, gone)


async def _services(client: Client, name: str) -> list[dict[str, object]]:
    """Its service in Nova; none where it never came up."""
    path = f"/v2.1/os-services?binary=nova-compute&host={name}"
    found: list[dict[str, object]] = (await client.call("GET", Api.NOVA, path))["services"]
    return found


async def _refuse_servers(client: Client, name: str) -> None:
    """What it has may not be lost."""
    path = f"/v2.1/servers?all_tenants=1&host={name}"
    servers = [each["name"] for each in (await client.call("GET", Api.NOVA, path))["servers"]]
    if servers:
        raise Conflict(
            f"compute host {name!r} has servers: {_named(servers)}",
            hint="Delete them first.",
        )


def _refuse_second(known: Iterable[Compute], added: Compute) -> None:
    """Nova and the catalogue have one Ironic."""
    for each in known:
        if each.virt is Virt.IRONIC and each != added:
            raise Conflict(f"the cloud has an Ironic already, compute host {each.name!r}")


async def _refuse_nodes(client: Client) -> None:
    """What was enrolled would be lost without a trace for who enrolled it."""
    nodes = (await client.call("GET", Api.IRONIC, "/v1/nodes"))["nodes"]
    if nodes:
        names = _named(each["name"] or each["uuid"] for each in nodes)
        raise Conflict(f"Ironic has nodes: {names}", hint="Delete them first.")


def _named(names: Iterable[str]) -> str:
    """The first few."""
    known = [*names]
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    return f"{', '.join(known[:SHOWN])}{more}"


async def _set_status(client: Client, services: list[dict[str, object]], status: str) -> None:
    for each in services:
        path = f"/v2.1/os-services/{each['id']}"
        await client.call("PUT", Api.NOVA, path, {"status": status})


async def clear(state: Path) -> None:
    """Remove what compute hosts of namespaces that ended have left on this machine."""
    for each in computes.recorded(state):
        await _clear(state, each)


async def _clear(state: Path, ended: Compute) -> None:
    own = state / "computes" / ended.name
    await _detach(own / "instances")
    for group in _groups(own / "groups"):
        for place, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):  # the kernel still ends a process: an empty group harms no one
                Path(place).rmdir()


def _groups(file: Path) -> Iterator[Path]:
    """Control groups that were made for it: compute_host.sh lists them."""
    with suppress(FileNotFoundError):
        for line in file.read_text().splitlines():
            yield Path(line.split()[1])


async def _detach(instances: Path) -> None:
    """Loop devices of roots of containers. What they are of is compared by its inode: its path
    is that of namespaces.
    """
    roots = {(found.st_dev, found.st_ino) for found in (p.stat() for p in instances.glob("*/disk"))}
    if not roots:
        return
    argv = ["losetup", "--list", "--json", "--output", "NAME,BACK-INO,BACK-MAJ:MIN"]
    listed = (await process.run(argv)).stdout  # nothing where there are none
    for each in json.loads(listed)["loopdevices"] if listed else ():
        major, minor = map(int, each["back-maj:min"].split(":"))
        if (os.makedev(major, minor), int(each["back-ino"])) in roots:
            await process.run(["losetup", "--detach", each["name"]], check=False)
