"""Outlets are given out once and then kept."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network

from nospoon.model.cluster import BmcAddressing, BmcProtocol, Cluster, Node, PduAddressing
from nospoon.plan.addresses.pdus import Socket, plug

FED = (BmcProtocol.PDU,)


def cluster(*names: str, ports: tuple[int, int] = (5001, 5002), outlets: int = 2) -> Cluster:
    addressing = BmcAddressing(pdu=PduAddressing(outlets=outlets, ports=ports))
    nodes = tuple(Node(name=name, bmc=FED) for name in names)
    return Cluster("c", (), (), (), nodes, addressing)


def test_nodes_fill_one_pdu_after_the_other() -> None:
    found = dict(plug(cluster("a", "b", "c"), {}, (), []))
    assert found == {
        "a": Socket(1, 1, "127.0.0.1", 5001),
        "b": Socket(1, 2, "127.0.0.1", 5001),
        "c": Socket(2, 1, "127.0.0.1", 5002),
    }


def test_an_outlet_is_kept_when_others_leave_and_come() -> None:
    before = dict(plug(cluster("a", "b", "c"), {}, (), []))
    after = dict(plug(cluster("x", "b", "c"), before, {("127.0.0.1", 5001)}, []))
    assert (after["b"], after["c"]) == (before["b"], before["c"])
    assert after["x"] == before["a"]


def test_a_port_that_somebody_has_is_passed_over() -> None:
    found = dict(plug(cluster("a"), {}, {("127.0.0.1", 5001)}, []))
    assert found["a"] == Socket(2, 1, "127.0.0.1", 5002)


def test_a_port_that_somebody_has_of_all_addresses_is_passed_over() -> None:
    found = dict(plug(cluster("a"), {}, {("0.0.0.0", 5001)}, []))
    assert found["a"] == Socket(2, 1, "127.0.0.1", 5002)


def test_outlets_that_the_file_no_longer_has_are_given_up() -> None:
    before = dict(plug(cluster("a", "b"), {}, (), []))
    after = dict(plug(cluster("a", "b", outlets=1), before, (), []))
    assert after["b"] == Socket(2, 1, "127.0.0.1", 5002)


def test_without_a_free_port_the_reason_is_told() -> None:
    reasons: list[str] = []
    assert len(dict(plug(cluster(*"abcde"), {}, (), reasons))) == 4
    assert "node e" in reasons[0]
    assert "bmc.pdu.ports" in reasons[0]


def test_with_a_pool_a_pdu_answers_on_port_161_of_an_address() -> None:
    made = cluster("a")
    pool = IPv4Network("127.9.0.0/24")
    made = replace(made, addressing=replace(made.addressing, pool=pool))
    assert dict(plug(made, {}, (), []))["a"] == Socket(1, 1, "127.9.0.1", 161)
