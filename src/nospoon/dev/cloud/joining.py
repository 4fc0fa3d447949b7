"""Compute hosts join a cloud that runs, and leave it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from nospoon.dev.alone import alone
from nospoon.dev.cloud import computes, preparation, programs, start
from nospoon.dev.cloud.client import Client, logged_in
from nospoon.dev.cloud.computes import LXC_DRIVER, Compute, Virt
from nospoon.dev.cloud.namespaces import Namespaces
from nospoon.dev.cloud.wanted import Api, Wanted
from nospoon.errors import Conflict, MissingTool, NotFound
from nospoon.runtime import process

SHOWN = 5
"""Servers that a refusal names."""


def need_driver(virt: Virt) -> None:
    """Raises `MissingTool` where libvirt has no driver for it."""
    program, package = LXC_DRIVER
    if virt is Virt.LXC and not program.exists():
        raise MissingTool(
            f"a compute host of containers needs {package}", hint=f"apt-get install -y {package}"
        )


async def join(wanted: Wanted, where: Namespaces, made: Path, added: Compute) -> None:
    """Have it in the cloud: started, repaired, or found. `made`: the Python environment.

    Raises `Conflict` where another one has the name, `ProviderError` with the end of a log.
    """
    need_driver(added.virt)
    with alone(where.state):
        known = {each.name: each for each in computes.recorded(where.state)}
        if known.get(added.name, added) != added:
            raise Conflict(
                f"the cloud has a compute host {added.name!r} of {known[added.name].virt}",
                hint="Choose another --name.",
            )
        passwords = preparation.passwords(where.state)
        computes.prepare(wanted, passwords, added, state=where.state)
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
        await _refuse_servers(client, name, services)
        await _end(where, made, known[name])
        for each in services:
            await client.call("DELETE", Api.NOVA, f"/v2.1/os-services/{each['id']}")
        computes.record(where.state, [each for each in known.values() if each.name != name])
        computes.remove_files(known[name], state=where.state)


async def _end(where: Namespaces, made: Path, gone: Compute) -> None:
    names = [each.name for each in computes.programs_of(made, gone)]
    await where.run(computes.end(gone), programs.environment(made))
    await where.forget(names)
    await _clear(where.state, gone)


async def _services(client: Client, name: str) -> list[dict[str, object]]:
    """Its service in Nova; none where it never came up."""
    path = f"/v2.1/os-services?binary=nova-compute&host={name}"
    found: list[dict[str, object]] = (await client.call("GET", Api.NOVA, path))["services"]
    return found


async def _refuse_servers(client: Client, name: str, services: list[dict[str, object]]) -> None:
    """Nothing is scheduled to it any more; but what it has may not be lost."""
    await _set_status(client, services, "disabled")
    path = f"/v2.1/servers?all_tenants=1&host={name}"
    servers = [each["name"] for each in (await client.call("GET", Api.NOVA, path))["servers"]]
    if servers:
        await _set_status(client, services, "enabled")
        more = f" and {len(servers) - SHOWN} more" if len(servers) > SHOWN else ""
        raise Conflict(
            f"compute host {name!r} has servers: {', '.join(servers[:SHOWN])}{more}",
            hint="Delete them first.",
        )


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
