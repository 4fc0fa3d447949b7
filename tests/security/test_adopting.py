"""Members adopt the machines that root's list names, and hear of no others."""

from __future__ import annotations

from uuid import UUID

from nospoon.control.access import Access
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.connections import ConnectionKind
from nospoon.model.grants import DEFAULTS
from nospoon.model.host_facts import Adoptable
from nospoon.model.resources import Machine
from nospoon.spec.grants import load_grants

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
