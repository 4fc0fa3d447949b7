"""Members adopt the machines that root's list names, and hear of no others."""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.security.asked import OWNER, a_daemon

from nospoon.clusterfile.grants import load_grants
from nospoon.control.planning.access import Access
from nospoon.errors import HostUnreachable
from nospoon.model.boot import BootMethod
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.connections import Libvirt, Simulated
from nospoon.model.grants import DEFAULTS
from nospoon.model.host_facts import Adoptable
from nospoon.model.principal import Administrators, Principal
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.libvirt_rights import acting_as, may_manage
from nospoon.runtime import process
from nospoon.runtime.users import Account
from nospoon.store import nodes as node_rows
from nospoon.testing.libvirtd import OwnLibvirt, a_libvirt_of_ones_own

MEMBER, ROOT = 1000, 0
HERE = Host("here")
MACHINES = tuple(
    Adoptable(
        Machine(
            uuid=UUID(int=number), cpus=1, memory=1 << 20, arch=Arch.X86_64,
            firmware=Firmware.BIOS, tpm=False, disks=(), nics=(), boot_order=(),
            boot=BootMethod.NATIVE, adopted=name,
        )
    )
    for number, name in enumerate(("lab-1", "lab-2", "payroll"))
)  # fmt: skip


@pytest.fixture(scope="module")
def own_libvirt() -> Iterator[OwnLibvirt]:
    with a_libvirt_of_ones_own() as made:
        yield made


async def seen(access: Access, uid: int, host: Host = HERE) -> list[str]:
    return [
        each.name for each in await access.adoptable(access.principal(uid), host, MACHINES) or ()
    ]


async def test_a_member_sees_no_machine_of_others_by_default() -> None:
    access = Access(Administrators(), read=lambda: DEFAULTS)
    assert await seen(access, MEMBER) == []
    assert "Ask an administrator to list it" in access.unseen(Principal(MEMBER))
    assert await seen(access, ROOT) == ["lab-1", "lab-2", "payroll"]
    assert access.unseen(Administrators().principal(ROOT)) == ""


async def test_a_member_sees_those_that_are_listed() -> None:
    grants = load_grants("machines: ['lab-*']\n", file="g")
    access = Access(Administrators(), read=lambda: grants)
    assert await seen(access, MEMBER) == ["lab-1", "lab-2"]


async def test_simulated_machines_are_everybodys() -> None:
    access = Access(Administrators(), read=lambda: DEFAULTS)
    host = Host("sim", Simulated())
    assert await seen(access, MEMBER, host) == ["lab-1", "lab-2", "payroll"]


async def test_a_member_hears_of_no_nodes_of_other_users() -> None:
    grants = load_grants("machines: ['*']\n", file="g")
    access = Access(Administrators(), read=lambda: grants)
    own, other = (OwnerTag("d", UUID(int=9), uid=uid) for uid in (MEMBER, MEMBER + 1))
    tags = (own, other, None)
    made = tuple(replace(e, tag=t, made=True) for e, t in zip(MACHINES, tags, strict=True))
    for host in (HERE, Host("sim", Simulated())):
        found = await access.adoptable(Principal(MEMBER), host, made)
        assert [each.name for each in found or ()] == ["lab-1"]
        assert await access.adoptable(Administrators().principal(ROOT), host, made) == made


async def judged(access: Access, uid: int, machine: Machine, host: Host = HERE) -> str:
    return (await access.reached([(uid, host, machine)]))(uid, host, machine)


async def test_an_adopted_machine_that_is_no_longer_listed_is_not_reached() -> None:
    lab, payroll = MACHINES[0].machine, MACHINES[2].machine
    access = Access(Administrators(), read=lambda: load_grants("machines: ['lab-*']\n", file="g"))
    assert await judged(access, MEMBER, lab) == ""
    assert (
        await judged(access, MEMBER, payroll)
        == "machine payroll on host here is not listed for members"
    )
    assert await judged(access, MEMBER, replace(payroll, adopted="")) == ""
    assert await judged(access, ROOT, payroll) == ""
    far = Host("far", Libvirt("qemu+ssh://kvm1/system"))
    assert "members may not use host far" in await judged(access, MEMBER, lab, far)


async def test_whom_libvirt_lets_manage_machines_adopts_all_of_this_machine_and_no_others() -> None:
    async def manages(uid: int) -> bool:
        return uid == MEMBER

    access = Access(Administrators(), manages=manages)
    assert await seen(access, MEMBER) == ["lab-1", "lab-2", "payroll"]
    assert await seen(access, MEMBER + 1) == []
    far = Host("far", Libvirt("qemu+ssh://kvm1/system"))
    assert await seen(access, MEMBER, far) == [], "there root's keys would be used"
    payroll = MACHINES[2].machine
    assert await judged(access, MEMBER, payroll) == ""
    assert "not listed" in await judged(access, MEMBER + 1, payroll)


async def test_no_machine_is_adopted_by_rules_of_libvirt_that_cannot_be_asked() -> None:
    async def manages(uid: int) -> bool:
        raise HostUnreachable(f"cannot ask for {uid}")

    access = Access(Administrators(), manages=manages)
    with pytest.raises(HostUnreachable):
        await seen(access, MEMBER)
    assert "not listed" in await judged(access, MEMBER, MACHINES[0].machine)


async def test_libvirt_is_asked_as_the_user_who_wants_to_adopt(
    own_libvirt: OwnLibvirt,
) -> None:
    """Here its rules are the permissions of its socket."""
    user = pwd.getpwnam("nobody")
    socket = own_libvirt.place / "libvirt-sock"
    own_libvirt.place.chmod(0o711)
    os.chown(socket, 0, user.pw_gid)
    socket.chmod(0o770)
    assert await may_manage(user.pw_uid, own_libvirt.uri)
    socket.chmod(0o700)
    assert not await may_manage(user.pw_uid, own_libvirt.uri)
    assert await may_manage(0, own_libvirt.uri)
    assert not await may_manage(4_000_000, own_libvirt.uri), "no such user"
    with pytest.raises(HostUnreachable, match="what user 0 may do"):
        await may_manage(0, f"{own_libvirt.uri}-gone")


POLKIT = """
set -e
mkdir -p /run/dbus /etc/polkit-1/rules.d
mount -t tmpfs -o mode=755 tmpfs /run/dbus
mount -t tmpfs -o mode=755 tmpfs /etc/polkit-1/rules.d
cat >/etc/polkit-1/rules.d/10-test.rules <<END
polkit.addRule(function(action, subject) {
    if (action.id == "org.libvirt.unix.manage") {
        return subject.user == "nobody" ? polkit.Result.YES : polkit.Result.NO;
    }
});
END
dbus-daemon --system --nofork --nopidfile &
bus=$!
until [ -S /run/dbus/system_bus_socket ]; do sleep 0.05; done
/usr/lib/polkit-1/polkitd --no-debug &
polkit=$!
until dbus-send --system --print-reply --dest=org.freedesktop.DBus / \
  org.freedesktop.DBus.NameHasOwner string:org.freedesktop.PolicyKit1 | grep -q true
do sleep 0.05; done
echo there
cat
kill $polkit $bus
"""
"""Shell: a bus and a polkit of one's own, until standard input ends."""


@pytest.fixture
def under_polkit(own_libvirt: OwnLibvirt) -> Iterator[OwnLibvirt]:
    """polkit lets `nobody` manage machines, and no other user."""
    argv = [*own_libvirt.enter, "sh", "-c", POLKIT]
    own_libvirt.stop()
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as polkit:
        assert polkit.stdin is not None
        assert polkit.stdout is not None
        assert polkit.stdout.readline() == b"there\n"
        own_libvirt.start(auth="polkit")
        yield own_libvirt
        own_libvirt.stop()
        polkit.stdin.close()
    own_libvirt.start()


async def test_libvirt_asks_polkit_whether_a_user_may_adopt(under_polkit: OwnLibvirt) -> None:
    under_polkit.place.chmod(0o711)
    assert await may_manage(pwd.getpwnam("nobody").pw_uid, under_polkit.uri)
    assert not await may_manage(pwd.getpwnam("daemon").pw_uid, under_polkit.uri)


async def test_whom_libvirt_is_asked_for_has_no_power_over_the_process_that_asks() -> None:
    """Of one with all user ids theirs, they write the exit status (ptrace)."""
    user = pwd.getpwnam("nobody")
    show = "print(open('/proc/self/status').read())"
    argv = acting_as(Account(user.pw_uid, user.pw_gid, ()), show)
    told = (await process.run(argv)).stdout.splitlines()
    ids = dict(line.split(":\t", 1) for line in told if ":\t" in line)
    assert ids["Uid"].split()[:3] == [str(user.pw_uid), str(user.pw_uid), "0"]
    assert set(ids["Gid"].split()) == {str(user.pw_gid)}
    assert (ids["Groups"].strip(), int(ids["CapEff"], 16)) == ("", 0)


async def test_a_list_that_is_read_again_takes_an_adopted_machine_away(tmp_path: Path) -> None:
    text = "cluster: c\nhosts: {s: {simulated: {machines: [lab-a]}}}\nnodes: [{adopt: lab-a}]\n"
    grants = tmp_path / "grants.yaml"
    grants.write_text("machines: ['lab-*']\n")
    grants.chmod(0o644)
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, text)).status == 202
        (row,) = await asked.daemon.parts.database.call(node_rows.all_nodes)
        await asked.daemon.parts.database.call(node_rows.settle, row.uuid, Host("here"))
    async with a_daemon(tmp_path) as asked:
        assert asked.daemon.parts.hosts.logged_at("") == {row.uuid}
        grants.write_text("machines: [other]\n")
        await asked.daemon.control.work.use_grants()
        assert asked.daemon.parts.hosts.logged_at("") == set()
    async with a_daemon(tmp_path) as asked:
        assert asked.daemon.parts.hosts.logged_at("") == set()


async def test_all_members_are_asked_for_at_once() -> None:
    """One may have the question take its longest time; others need not wait for the next."""
    asked, all_asked = list[int](), asyncio.Event()

    async def manages(uid: int) -> bool:
        asked.append(uid)
        if len(asked) == 3:
            all_asked.set()
        await all_asked.wait()
        return uid == 1001

    access = Access(Administrators(), read=lambda: DEFAULTS, manages=manages)
    machine = MACHINES[0].machine
    async with asyncio.timeout(20):
        why = await access.reached([(uid, HERE, machine) for uid in (1000, 1001, 1002)])
    assert sorted(asked) == [1000, 1001, 1002]
    assert why(1001, HERE, machine) == ""
    assert "is not listed for members" in why(1000, HERE, machine)
