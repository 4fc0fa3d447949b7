"""Members adopt the machines that root's list names, and hear of no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

from tests.security.asked import OWNER, a_daemon

from nospoon.control.access import Access
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.connections import ConnectionKind
from nospoon.model.grants import DEFAULTS
from nospoon.model.host_facts import Adoptable
from nospoon.model.resources import Machine
from nospoon.spec.grants import load_grants
from nospoon.store import clusters as stored

MEMBER, ROOT = 1000, 0
HERE = Host("here")
MACHINES = tuple(
    Adoptable(
        Machine(
            uuid=UUID(int=number), cpus=1, memory=1 << 20, arch=Arch.X86_64,
            firmware=Firmware.BIOS, tpm=False, pool="", disks=(), nics=(), boot_order=(),
            adopted=name,
        )
    )
    for number, name in enumerate(("lab-1", "lab-2", "payroll"))
)  # fmt: skip


def seen(access: Access, uid: int, host: Host = HERE) -> list[str]:
    return [each.name for each in access.adoptable(uid, host, MACHINES) or ()]


def test_a_member_sees_no_machine_of_others_by_default() -> None:
    access = Access(frozenset({ROOT}), read=lambda: DEFAULTS)
    assert seen(access, MEMBER) == []
    assert "Ask an administrator to list it" in access.unseen(MEMBER)
    assert seen(access, ROOT) == ["lab-1", "lab-2", "payroll"]
    assert access.unseen(ROOT) == ""


def test_a_member_sees_those_that_are_listed() -> None:
    grants = load_grants("machines: ['lab-*']\n", file="g")
    access = Access(frozenset({ROOT}), read=lambda: grants)
    assert seen(access, MEMBER) == ["lab-1", "lab-2"]


def test_simulated_machines_are_everybodys() -> None:
    access = Access(frozenset({ROOT}), read=lambda: DEFAULTS)
    host = Host("sim", kind=ConnectionKind.SIMULATED, uri="")
    assert seen(access, MEMBER, host) == ["lab-1", "lab-2", "payroll"]


def judged(access: Access, uid: int, machine: Machine, host: Host = HERE) -> str:
    return access.reached()(uid, host, machine)


def test_an_adopted_machine_that_is_no_longer_listed_is_not_reached() -> None:
    lab, payroll = MACHINES[0].machine, MACHINES[2].machine
    access = Access(frozenset({ROOT}), read=lambda: load_grants("machines: ['lab-*']\n", file="g"))
    assert judged(access, MEMBER, lab) == ""
    assert (
        judged(access, MEMBER, payroll) == "machine payroll on host here is not listed for members"
    )
    assert judged(access, MEMBER, replace(payroll, adopted="")) == ""
    assert judged(access, ROOT, payroll) == ""
    far = Host("far", uri="qemu+ssh://kvm1/system")
    assert "members may not use host far" in judged(access, MEMBER, lab, far)


async def test_a_list_that_is_read_again_takes_an_adopted_machine_away(tmp_path: Path) -> None:
    text = "cluster: c\nhosts: {s: {simulated: {machines: [lab-a]}}}\nnodes: [{adopt: lab-a}]\n"
    grants = tmp_path / "grants.yaml"
    grants.write_text("machines: ['lab-*']\n")
    grants.chmod(0o644)
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, text)).status == 202
        (row,) = await asked.daemon.database.call(stored.all_nodes)
        await asked.daemon.database.call(stored.settle, row.uuid, Host("here"))
    async with a_daemon(tmp_path) as asked:
        assert asked.daemon.hosts.on("") == {row.uuid}
        grants.write_text("machines: [other]\n")
        asked.daemon.work.use_grants()
        assert asked.daemon.hosts.on("") == set()
    async with a_daemon(tmp_path) as asked:
        assert asked.daemon.hosts.on("") == set()
