"""Sockets of BMCs while they change: what cannot be opened costs nothing that was open."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nospoon.errors import Conflict, ProviderError
from nospoon.model.addresses import same_place
from nospoon.model.resources.bmcs import Outlet
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.certificates import Certificates
from nospoon.services.bmcs.needs import Need
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.service import BmcService
from nospoon.testing.bench import MemoryMachines, MemoryStore, config, free_port

UDP, TCP = socket.SOCK_DGRAM, socket.SOCK_STREAM


@asynccontextmanager
async def service(directory: Path) -> AsyncIterator[BmcService]:
    async with Tasks("test") as tasks:
        made = BmcService(
            MemoryMachines(), MemoryStore(), tasks, certificates=Certificates(directory)
        )
        try:
            yield made
        finally:
            await made.close()


async def test_a_socket_that_is_closed_leaves_nothing_for_the_garbage_collector(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as served:
        (one,) = bmcs(1)
        await served.put(one)
        sockets = [each.udp for each in served.listeners._open.values() if each.udp is not None]
        gone = [weakref.ref(each) for each in sockets]
        del sockets
        gc.disable()
        try:
            await served.remove(one.bmc.uuid)
            await asyncio.sleep(0)
            left = [each() for each in gone]
        finally:
            gc.enable()
        assert gone
        assert left == [None] * len(gone)


async def test_who_needs_no_socket_but_what_is_open_waits_for_no_other(tmp_path: Path) -> None:
    first, second = (changed(each, ipmi_port=0) for each in bmcs(2))
    async with service(tmp_path) as s:
        await s.put(first)
        async with s.listeners._lock:  # another one's are being opened
            async with asyncio.timeout(20):
                await s.put(second)
        await s.remove(first.bmc.uuid)
        assert s.is_served(second.bmc)


def bmcs(count: int) -> list[BmcConfig]:
    port = free_port(TCP)
    return [config(number, redfish_port=port) for number in range(count)]


def changed(each: BmcConfig, **fields: object) -> BmcConfig:
    return replace(each, bmc=replace(each.bmc, **fields))  # type: ignore[arg-type]


def pooled(each: BmcConfig) -> BmcConfig:
    """With an address of its own, at the same ports."""
    third = os.getpid() % 250
    address = f"127.98.{third}.{each.bmc.ipmi_port % 250 + 1}"
    return changed(each, address=address, pool=f"127.98.{third}.0/24")


async def answers(each: BmcConfig) -> bool:
    """Whether Redfish does, as it should (with TLS or without), and IPMI's port is held."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, UDP) as probe:
        try:
            probe.bind((each.bmc.address, each.bmc.ipmi_port))
        except OSError:
            pass
        else:
            return False
    hello = b"\x16\x03\x01" if each.bmc.tls else b"GET /redfish HTTP/1.0\r\n\r\n"
    with socket.socket(socket.AF_INET, TCP) as client:
        client.settimeout(0)
        try:
            await loop.sock_connect(client, (each.bmc.address, each.bmc.redfish_port))
        except OSError:
            return False
        await loop.sock_sendall(client, hello)
        if each.bmc.tls:  # only a part of a handshake: what speaks TLS says nothing to it
            client.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(20):
            first = await loop.sock_recv(client, 100)
    return first.startswith(b"HTTP/") is not each.bmc.tls


async def test_a_change_to_a_redfish_port_in_use_leaves_the_bmc_where_it_was(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as s:
        [each] = bmcs(1)
        await s.put(each)
        port = free_port(TCP)  # the kernel gives it to no connection meanwhile
        with socket.create_server(("127.0.0.1", port)):
            moved = changed(each, redfish_port=port, ipmi_port=free_port(UDP))
            with pytest.raises(ProviderError, match="cannot serve Redfish"):
                await s.put(moved)
            with socket.socket(socket.AF_INET, UDP) as probe:
                probe.bind(("127.0.0.1", moved.bmc.ipmi_port))
        assert await answers(each)
        assert s.is_served(each.bmc)
        assert s.registry.at((each.bmc.address, each.bmc.ipmi_port)) is not None
        assert each.bmc.uuid in s.registry.redfish_at((each.bmc.address, each.bmc.redfish_port))
        await s.put(moved)
        assert await answers(moved)
        assert not await answers(each)


async def test_a_port_that_two_nodes_share_stays_when_the_change_of_one_fails(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as s:
        one, other = bmcs(2)
        await s.put(one)
        await s.put(other)
        with socket.create_server(("127.0.0.1", 0)) as stranger, pytest.raises(ProviderError):
            await s.put(changed(one, redfish_port=stranger.getsockname()[1]))
        await s.remove(other.bmc.uuid)
        assert await answers(one)


async def test_what_had_to_be_closed_first_is_opened_again_when_the_change_fails(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as s:
        [each] = bmcs(1)
        await s.put(each)
        (tmp_path / "127.0.0.1.pem").write_text("no certificate")
        with pytest.raises(ProviderError, match="cannot serve Redfish"):
            await s.put(changed(each, tls=True))
        assert await answers(each)
        assert s.is_served(each.bmc)


async def test_what_cannot_be_opened_again_is_told_and_mended_by_the_next_put(
    tmp_path: Path,
) -> None:
    async with service(tmp_path) as s:
        [each] = bmcs(1)
        with socket.socket(socket.AF_INET, UDP) as stranger:
            stranger.bind(("127.0.0.2", each.bmc.ipmi_port))
            await s.put(changed(each, tls=True))
            (tmp_path / "127.0.0.1.pem").write_text("no certificate")
            with pytest.raises(ProviderError, match=r"cannot serve UDP 0\.0\.0\.0"):
                await s.put(pooled(changed(each, tls=True)))
        assert not s.is_served(changed(each, tls=True).bmc)
        (tmp_path / "127.0.0.1.pem").unlink()
        await s.put(changed(each, tls=True))
        assert s.is_served(changed(each, tls=True).bmc)
        assert await answers(changed(each, tls=True))


@pytest.mark.parametrize("change", [pooled, lambda each: changed(each, tls=True)])
async def test_all_nodes_of_a_port_go_over_to_what_excludes_the_old_and_back(
    tmp_path: Path, change: Callable[[BmcConfig], BmcConfig]
) -> None:
    before = bmcs(3)
    after = [change(each) for each in before]
    async with service(tmp_path) as s:
        for step in (before, after, before):
            for each in step:
                await s.put(each)
            assert [await answers(each) for each in step] == [True] * 3
            assert all(s.is_served(each.bmc) for each in step)


async def test_who_joins_a_service_that_then_fails_to_start_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "127.0.0.1.pem").write_text("no certificate")
    async with service(tmp_path) as s:
        pair = [changed(each, tls=True) for each in bmcs(2)]
        told = await asyncio.gather(*(s.put(each) for each in pair), return_exceptions=True)
        assert [type(each) for each in told] == [ProviderError] * 2
        assert [s.status(each.bmc.uuid) for each in pair] == [None] * 2
        (tmp_path / "127.0.0.1.pem").unlink()
        await asyncio.gather(*(s.put(each) for each in pair))
        assert [await answers(each) for each in pair] == [True] * 2


async def test_who_comes_anew_may_not_change_how_a_port_is_served(tmp_path: Path) -> None:
    async with service(tmp_path) as s:
        one, other = bmcs(2)
        await s.put(one)
        with pytest.raises(Conflict, match="served without TLS for other nodes"):
            await s.put(changed(other, tls=True))
        with pytest.raises(Conflict, match=r"nospoon serves Redfish on 127\.0\.0\.1") as refused:
            await s.put(pooled(other))
        assert "Stop" not in refused.value.hint
        assert await answers(one)


async def test_a_pdu_does_not_answer_where_a_bmc_does(tmp_path: Path) -> None:
    async with service(tmp_path) as s:
        one, other = bmcs(2)
        await s.put(one)
        outlet = Outlet(other.bmc.uuid, "pdu", "127.0.0.1", one.bmc.ipmi_port, 1)
        with pytest.raises(Conflict, match=r"SNMP.*IPMI.*other nodes"):
            await s.put(changed(other, outlet=outlet))


async def test_nobody_is_told_to_stop_the_process_that_tells(tmp_path: Path) -> None:
    async with service(tmp_path) as s:
        with socket.create_server(("127.0.0.1", 0)) as own:
            [each] = bmcs(1)
            with pytest.raises(ProviderError) as refused:
                await s.put(changed(each, redfish_port=own.getsockname()[1]))
    assert refused.value.hint == "Choose another `bmc.redfish_port` in the cluster file."


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("0.0.0.0", "127.0.0.1", True),
        ("0.0.0.0", "::1", False),
        ("0.0.0.0", "::", True),
        ("::", "127.0.0.1", True),
        ("::", "::1", True),
        ("::1", "127.0.0.1", False),
    ],
)
def test_addresses_hinder_each_other_as_the_kernel_says(
    one: str, other: str, *, same: bool
) -> None:
    assert same_place(one, other) is same_place(other, one) is same
    with socket.socket(_family(one), TCP) as first, socket.socket(_family(other), TCP) as second:
        port = free_port(TCP)  # at the other address, too
        first.bind((one, port))
        first.listen()
        try:
            second.bind((other, port))
        except OSError:
            assert same
        else:
            assert not same


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@pytest.mark.parametrize("away", [False, True], ids=["of another program", "not of this machine"])
@pytest.mark.parametrize("kind", [UDP, TCP])
async def test_what_cannot_be_opened_is_known_before_in_the_same_words(
    tmp_path: Path, kind: socket.SocketKind, *, away: bool
) -> None:
    [each] = bmcs(1)
    port = {UDP: each.bmc.ipmi_port, TCP: each.bmc.redfish_port}[kind]
    if kind is TCP:
        each = changed(each, ipmi_port=0)
    if away:
        each = changed(each, address="192.0.2.1")  # RFC 5737: of nobody
    async with service(tmp_path) as s:
        with socket.socket(socket.AF_INET, kind) as stranger:
            stranger.bind(("127.0.0.1", port))
            if kind is TCP:
                stranger.listen()
            with pytest.raises(ProviderError) as refused:
                await s.put(each)
            found = s.listeners.violations([each.bmc])
            assert str(refused.value) in found
            if away:
                assert "does not have the address 192.0.2.1: set `bmc.address`" in found[0]
                assert s.listeners.violations([each.bmc], coming=["192.0.2.1"]) == []
            else:
                assert f"(pid {os.getpid()}). Choose" in found[0]
        here = changed(each, address="127.0.0.1")
        assert s.listeners.violations([here.bmc]) == []
        await s.put(here)
        assert s.listeners.violations([here.bmc, changed(here, tls=True).bmc]) == []


async def test_a_port_that_other_nodes_have_otherwise_is_known_before(tmp_path: Path) -> None:
    one, other = bmcs(2)
    async with service(tmp_path) as s:
        await s.put(one)
        with pytest.raises(Conflict) as refused:
            await s.put(changed(other, tls=True))
        assert s.listeners.violations([changed(other, tls=True).bmc]) == [str(refused.value)]


async def test_the_holder_of_a_port_is_named_by_its_ipv6_socket(tmp_path: Path) -> None:
    [each] = bmcs(1)
    async with service(tmp_path) as s:
        six = {"family": socket.AF_INET6, "dualstack_ipv6": True}
        with socket.create_server(("::", each.bmc.redfish_port), **six):  # type: ignore[arg-type]
            (found,) = s.listeners.violations([each.bmc])
    assert f"(pid {os.getpid()})" in found


async def test_a_pool_whose_port_is_taken_is_told_how_to_do_without(tmp_path: Path) -> None:
    [each] = bmcs(1)
    pool = pooled(each)
    async with service(tmp_path) as s:
        with socket.socket(socket.AF_INET, UDP) as stranger:
            stranger.bind(("0.0.0.0", each.bmc.ipmi_port))
            (found,) = s.listeners.violations([pool.bmc])
    assert "hoose one `bmc.address` and `bmc.ports` in place of `bmc.pool` in the" in found


async def test_the_sockets_of_a_bmc_are_compared_with_those_at_their_ports_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    hinders = Need.hinders

    def counted(one: Need, other: Need) -> bool:
        compared.append((one, other))
        return hinders(one, other)

    monkeypatch.setattr(Need, "hinders", counted)
    async with service(tmp_path) as s:
        for each in bmcs(50):
            await s.put(each)
            assert await asyncio.to_thread(s.listeners.violations, [each.bmc]) == []
            await s.remove(each.bmc.uuid)
            await s.put(each)
    assert compared == []
