"""A MAC is one machine's: nobody takes over, or takes away, what another's machine boots."""

from __future__ import annotations

from dataclasses import replace
from typing import cast
from uuid import UUID, uuid4

from nospoon.control.fleet.authority import Authority, Bootable
from nospoon.control.fleet.fleet import Fleet, Member
from nospoon.control.fleet.hosts import Hosts
from nospoon.model.boot import BootPlan
from nospoon.model.cluster import Host
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.plan.addresses.macs import against_macs, against_port_names
from nospoon.testing.probed import MACHINE
from nospoon.testing.rack import private_rack

MAC = "02:aa:00:00:00:01"


def machine(mac: str = MAC) -> Machine:
    nic = replace(MACHINE.nics[0], mac=mac)
    return replace(MACHINE, uuid=uuid4(), nics=(nic,))


def authority() -> Authority:
    async def observed(uuid: UUID) -> None:
        del uuid

    return Authority(lambda _: BootPlan((), ()), lambda _: "", observed)


def answered(made: Authority, mac: str = MAC) -> UUID | None:
    answer = made.answer(mac=mac)
    return answer.uuid if answer is not None else None


def test_who_comes_later_does_not_take_over_a_mac_nor_remove_it() -> None:
    made, first, second = authority(), machine(), machine(MAC.upper())
    made.put(Bootable(first))
    made.put(Bootable(second))
    assert answered(made) == first.uuid
    made.remove(second.uuid)
    assert answered(made) == first.uuid
    made.put(Bootable(second))
    made.remove(first.uuid)
    assert answered(made) == second.uuid
    made.remove(second.uuid)
    assert answered(made) is None


def test_two_machines_on_one_bridge_have_two_macs() -> None:
    def nodes(*hosts: str) -> list[Resource]:
        return [
            Resource(Key(Kind.MACHINE, host, f"n{i}"), machine(), node=f"n{i}")
            for i, host in enumerate(hosts)
        ]

    (why,) = against_macs(nodes("a", "a"), lambda _: "")
    assert why.startswith(f"nodes n0 and n1 on host a: both have a NIC with MAC {MAC} on ")
    assert not list(against_macs(nodes("a", "b"), lambda _: ""))


def test_two_nodes_may_swap_their_macs() -> None:
    made, one, two = authority(), machine("02:00:00:00:00:01"), machine("02:00:00:00:00:02")
    for each in (one, two, replace(one, nics=two.nics), replace(two, nics=one.nics)):
        made.put(Bootable(each))
    assert answered(made, "02:00:00:00:00:01") == two.uuid
    assert answered(made, "02:00:00:00:00:02") == one.uuid


class NoHosts:
    """Fleets need to tell nobody here."""

    def settle(self, uuid: UUID, host: Host) -> None:
        del uuid, host


def test_a_plan_refuses_a_mac_that_another_cluster_has() -> None:
    fleet = Fleet(cast("Hosts", NoHosts()), authority(), lambda _: None)
    mine, other = uuid4(), uuid4()
    fleet.put(Member(1000, "theirs", other, "n", Host("here"), machine()))
    assert fleet.has_mac(MAC.upper(), but=other) is None
    found = fleet.has_mac(MAC.upper(), but=mine)
    assert found is not None
    assert found.cluster == "theirs"
    assert fleet.has_mac("02:aa:00:00:00:02", but=mine) is None
    wanted = Resource(Key(Kind.MACHINE, "here", "node-0"), machine(), node="node-0")
    (told,) = against_macs([wanted], lambda _: "another cluster")
    assert told == (
        f"node node-0: another cluster has a NIC with MAC {MAC} already. Give this one another "
        "`mac`, or none: then it gets one of its own."
    )
    assert list(against_macs([wanted], lambda _: "")) == []
    adopted = replace(wanted, shape=replace(machine(), adopted="vm"))
    (told,) = against_macs([adopted], lambda _: "another cluster")
    assert told.endswith(
        "If it is the same machine, take it out of that cluster; else change one in its definition."
    )


def test_a_plan_refuses_ports_that_have_the_names_of_another_clusters() -> None:
    """They have 40 bits of a digest of the id, which a file may choose. A container that is plugged
    in removes the link of its port's name first: it was a machine's of another user, which lost
    its network, and did not start any more.
    """
    fleet = Fleet(cast("Hosts", NoHosts()), authority(), lambda _: None)
    mine, theirs = uuid4(), uuid4()

    def with_port(name: str) -> Machine:
        made = machine("02:00:00:00:00:01")
        return replace(made, nics=(replace(made.nics[0], port=name),))

    has = with_port("nsaaaaaaaaaa-0")
    fleet.put(Member(1000, "theirs", theirs, "n", Host("here"), has))
    assert fleet.has_ports("nsaaaaaaaaaa", but=theirs) is None
    assert fleet.has_ports("nsbbbbbbbbbb", but=mine) is None
    found = fleet.has_ports("nsaaaaaaaaaa", but=mine)
    assert found is not None
    assert found.cluster == "theirs"
    wanted = Resource(Key(Kind.MACHINE, "here", "m"), with_port("nsaaaaaaaaaa-3"), node="m")
    (told,) = against_port_names([wanted], lambda _: "another cluster")
    assert told == (
        "node m: another cluster has a node with ports of the same names, nsaaaaaaaaaa-…. Choose "
        "another `id:`, or drop it, or rename the node."
    )
    assert not list(against_port_names([wanted], lambda _: ""))
    fleet.put(Member(1000, "theirs", theirs, "n", Host("here"), replace(has, nics=())))
    assert fleet.has_ports("nsaaaaaaaaaa", but=mine) is None


def test_the_daemon_refuses_the_second_cluster_with_a_mac() -> None:
    with private_rack() as rack:
        files = []
        for _ in range(2):
            name = rack.name()
            files.append(
                rack.file(
                    f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}"
                    f"networks: {{n: {{}}}}\n"
                    f"nodes: [{{name: a, nics: [{{network: n, mac: '{MAC}'}}]}}]\n",
                    f"{name}.yaml",
                )
            )
        first, second = files
        rack.run("up", "--yes", first)
        told = rack.run("plan", second, status=1).stderr
        assert f"node a: your cluster {rack.names[0]} has a NIC with MAC {MAC} already" in told
        rack.run("plan", first)
