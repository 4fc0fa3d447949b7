"""`verify` builds on what a host declares: by a script, a UUID of the host's, a log alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from nospoon.control.fleet.authority import Authority
from nospoon.control.fleet.fleet import Member
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.operations.verify import Verifier, _hopeless
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Host
from nospoon.model.connections import Simulation
from nospoon.model.machine import Outcome, PowerCommand
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.runtime.tasks import Tasks
from nospoon.services.consoles.records import Records
from nospoon.services.consoles.service import ConsoleService
from nospoon.testing.cloud_like import NETWORK, CloudLike, CloudLikeConnection
from nospoon.testing.planned import carried_out, cluster_of, planned
from nospoon.testing.racks import Bench, observe_all

PLAN = BootPlan((BootDevice.NETWORK,), (BootDevice.DISK,))


async def nothing(*_: object) -> None:
    return None


@dataclass
class Bmcs:
    """Passes power commands on."""

    hosts: Hosts

    def status(self, machine: UUID) -> None:
        """No override."""

    async def set_override(self, machine: UUID, override: object) -> None:
        del machine, override

    async def power(self, machine: UUID, command: PowerCommand) -> Outcome:
        return await self.hosts.power(machine, command, PLAN)


async def test_a_machine_is_verified_by_what_its_host_declares(tmp_path: Path) -> None:
    authority = Authority(lambda _: PLAN, lambda _: "", nothing)
    connection = CloudLikeConnection(Simulation(), records=tmp_path, is_probed=authority.is_probed)
    place = Host("cloudlike", CloudLike())
    bench = Bench(
        connection, place, "kit", str(tmp_path), Image("", "", "", 0), nothing, nothing,
        network=NETWORK,
    )  # fmt: skip
    outcome = await carried_out(bench, await planned(bench, cluster_of(bench)))
    assert outcome.complete
    seen = await observe_all(bench)
    (machine,) = (each.shape for each in seen.values() if isinstance(each.shape, Machine))
    member = Member(0, "kit", bench.cluster, "m1", place, machine)
    assert not _hopeless(member, ()), "it asks, wherever it is plugged in"
    async with Tasks("test") as tasks:
        hosts = Hosts(lambda _: connection, tasks, lambda _: None, sockets=tmp_path)
        hosts.settle(machine.uuid, place)
        await hosts.look(place)
        consoles = ConsoleService(hosts.console, Records(tmp_path))
        consoles.start()
        await consoles.keep({machine.uuid: "m1"}, group="0/kit")
        verifier = Verifier(
            hosts=hosts, bmcs=cast("Any", Bmcs(hosts)), authority=authority, consoles=consoles,
            build_probe=cast("Any", None), publish=nothing, clock=lambda: 0.0,
        )  # fmt: skip
        ended = await verifier.verify(
            cast("Any", SimpleNamespace(note=print, emit=print)),
            [member],
            {key: Resource(key, each.shape) for key, each in seen.items()
             if key.kind is not Kind.POOL},
            reboot_running=False,
            timeout=60,
        )  # fmt: skip
        await consoles.close()
    await connection.close()
    (row,) = cast("list[dict[str, Any]]", ended.result["nodes"])
    assert row["problems"] == ""
    assert row["verdict"] == "as declared"
