"""The driver with a real dnsmasq on a bridge, and a real DHCP client in a namespace."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath, PurePosixPath
from typing import Protocol
from uuid import UUID, uuid4

import pytest

from nospoon.errors import Conflict, NotOurs, ProviderError
from nospoon.model.boot import BootDevice
from nospoon.model.resources.netboot import Loader, NetbootService, Reservation
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.probe.grub import find_grub
from nospoon.runtime import owned
from nospoon.runtime.owned import Process
from nospoon.runtime.runner import LocalRunner
from nospoon.runtime.users import Group, GroupOf, group_of_nobody
from nospoon.services.netboot import local_tftp, logs
from nospoon.services.netboot.driver import NetbootDriver
from nospoon.services.netboot.http import create_app
from nospoon.services.netboot.peers import Peers
from nospoon.services.netboot.ports import BootAnswer, ServedFile, ServedProfile
from nospoon.services.netboot.remote import Place, RemoteNetbootDriver
from nospoon.services.netboot.serving import HttpListeners
from nospoon.testing.netboot import ToldAuthority

pytestmark = pytest.mark.tools

MAC = "02:00:00:aa:00:01"
NODE = UUID("11111111-2222-3333-4444-555555555555")
BIOS, X64, ARM, HTTP = "0000", "0007", "000b", "0010"


class Net(Protocol):
    name: str
    tap: str

    def host(self, number: int) -> str: ...


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


Ask = Callable[..., dict[str, str]]


@pytest.fixture
def ask(bridge: Net, tmp_path: Path) -> Iterator[Ask]:
    """A DHCP client on the bridge: asks as this MAC and architecture, returns what it was told."""
    space, inner = f"ns-{bridge.name}", f"v{bridge.name}"
    script = tmp_path / "script"
    script.write_text('#!/bin/sh\n[ "$1" = bound ] && env\nexit 0\n')
    script.chmod(0o755)

    def run(*argv: str) -> str:
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def asked(*, mac: str = MAC, arch: str = BIOS, ipxe: str = "") -> dict[str, str]:
        inside = ["ip", "netns", "exec", space]
        run(*inside, "ip", "link", "set", "eth0", "address", mac, "up")
        options = ["-x", f"0x5d:{arch}", *(["-x", f"0xaf:{ipxe}"] if ipxe else [])]
        client = ["busybox", "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "10", "-T", "1"]
        said = run(
            *inside, *client, "-s", str(script), "-O", "bootfile", "-O", "hostname", *options
        )
        return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)

    run("ip", "netns", "add", space)
    try:
        run("ip", "link", "add", inner, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", inner, "master", bridge.name, "up")
        yield asked
    finally:
        run("ip", "netns", "del", space)


def reserved(bridge: Net, number: int = 20, *, mac: str = MAC, uuid: UUID = NODE) -> Reservation:
    return Reservation(mac, bridge.host(number), f"node-{number}", uuid)


def with_reservations(service: Resource, *reservations: Reservation) -> Resource:
    assert isinstance(service.shape, NetbootService)
    return replace(service, shape=replace(service.shape, reservations=reservations))


async def only(driver: NetbootDriver, tag: OwnerTag) -> Observed:
    (found,) = await driver.observe(tag.cluster)
    return found


def alive(which: int) -> bool:
    """Whether it runs; one that waits for its parent's notice (a zombie) does not."""
    try:
        return Path(f"/proc/{which}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pid_file(state: Path) -> Path:
    (path,) = state.glob("*/*/dnsmasq.pid")
    return path


def pid(state: Path) -> int:
    return int(pid_file(state).read_text())


async def test_a_reserved_nic_gets_its_address_and_a_stranger_one_of_the_range(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, bridge: Net, ask: Ask
) -> None:
    await driver.create(with_reservations(service, reserved(bridge)), tag)
    assert ask()["ip"] == bridge.host(20)
    stranger = ask(mac="02:00:00:aa:00:99")["ip"]
    assert 100 <= int(stranger.rpartition(".")[2]) <= 150
    assert "router" not in ask()


async def test_each_kind_of_firmware_is_told_its_loader(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, bridge: Net, ask: Ask
) -> None:
    secure = replace(reserved(bridge, 21, mac="02:00:00:aa:00:02"), loader=Loader.SHIM)
    await driver.create(with_reservations(service, reserved(bridge), secure), tag)
    assert ask(arch=BIOS)["bootfile"] == "undionly.kpxe"
    assert ask(arch=X64)["bootfile"] == "snponly.efi"
    assert ask(arch=BIOS, ipxe="0101")["bootfile"] == "boot.ipxe"
    assert ask(arch=X64, ipxe="0101")["bootfile"] == "boot.ipxe"
    assert ask(arch=X64, mac=secure.mac)["bootfile"] == "shimx64.efi"
    assert ask(arch=ARM)["bootfile"] == "grubaa64.efi"
    nothing = ask(arch=HTTP)
    assert nothing["bootfile"] == f"http://{bridge.host(1)}:{driver.http_port}/nothing"
    assert ask()["siaddr"] == bridge.host(1)


@pytest.mark.parametrize("name", ["ignore", "infinite", "12h", "5"])
async def test_a_node_may_have_the_name_of_an_option(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, bridge: Net, ask: Ask, name: str
) -> None:
    """One that was called so had no address, or no name and another time."""
    called = replace(reserved(bridge), hostname=name)
    await driver.create(with_reservations(service, called), tag)
    given = ask()
    assert (given["ip"], given["hostname"], given["lease"]) == (bridge.host(20), name, "3600")


async def test_reservations_come_and_go_while_dnsmasq_runs_on(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, bridge: Net, ask: Ask, state: Path
) -> None:
    await driver.create(service, tag)
    before = pid(state)
    for number in (30, 31):
        wanted = with_reservations(service, reserved(bridge, number))
        await driver.change(await only(driver, tag), wanted, tag)
        assert (await only(driver, tag)).shape == wanted.shape
        assert told(ask, bridge.host(number))
    assert pid(state) == before
    await driver.change(await only(driver, tag), service, tag)
    assert told_otherwise(ask, bridge.host(31))


FETCH = """
import socket, sys
six = ":" in sys.argv[1]
line = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
line.setsockopt(socket.IPPROTO_IPV6 if six else 0, 25 if six else 11, 1)  # IPV6_RECVERR, IP_RECVERR
line.settimeout(10)
line.bind((sys.argv[2], 0))
try:
    line.sendto(b"\\0\\1boot.ipxe\\0octet\\0", (sys.argv[1], 69))
    print(line.recv(20))
except OSError as error:
    print(type(error).__name__)
"""
"""A transfer that is begun: from an address, as TFTP's servers answer from another port."""


def fetched(*words: str, within: str = "") -> str:
    space = ["ip", "netns", "exec", within] if within else []
    argv = [*space, sys.executable, "-c", FETCH, *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def rules(directory: PurePath) -> list[str]:
    """Those of a service."""
    said = output("sh", "-c", "iptables -w -S INPUT; ip6tables -w -S INPUT")
    name = local_tftp.name_of(directory)
    return [line for line in said.splitlines() if name in line]


async def test_files_are_for_the_machines_of_a_network_and_for_no_process_of_its_host(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, bridge: Net, ask: Ask, state: Path
) -> None:
    """Every user of the host could read the command lines of others' kernels."""
    ip("addr", "add", f"{SIX}1/64", "dev", bridge.name, "nodad")
    await driver.create(with_ipv6(service, reserved(bridge)), tag)
    directory, space = pid_file(state).parent, f"ns-{bridge.name}"
    own = {bridge.host(1): ask()["ip"], f"{SIX}1": f"{SIX}5"}
    for each, size, nodad in ((own[bridge.host(1)], 24, ()), (f"{SIX}5", 64, ("nodad",))):
        ip("-n", space, "addr", "add", f"{each}/{size}", "dev", "eth0", *nodad)
    for _ in range(2):
        for here, guest in own.items():
            assert "ipxe" in fetched(here, guest, within=space)
        for here, source in ((bridge.host(1), "127.0.0.9"), *((each, each) for each in own)):
            assert fetched(here, source) == "ConnectionRefusedError"
        await driver.change(await only(driver, tag), with_ipv6(service), tag)
        assert len(rules(directory)) == 2, "they are there once"
    (directory / "service.json").unlink()
    await driver.delete(await only(driver, tag))
    assert rules(directory) == []


async def test_nor_are_those_of_a_host_over_ssh(
    state: Path, authority: ToldAuthority, service: Resource, tag: OwnerTag, bridge: Net, ask: Ask
) -> None:
    driver = RemoteNetbootDriver(
        place=Place(state / "here", PurePosixPath(state / "there")),
        deployment="test",
        runner=LocalRunner(),
        authority=authority,
        find_grub=partial(find_grub, state),
        is_there=lambda _: True,
    )
    await driver.create(with_reservations(service, reserved(bridge)), tag)
    try:
        assert ask()["ip"] == bridge.host(20)
        ip("-n", f"ns-{bridge.name}", "addr", "add", f"{bridge.host(20)}/24", "dev", "eth0")
        assert "ipxe" in fetched(bridge.host(1), bridge.host(20), within=f"ns-{bridge.name}")
        assert fetched(bridge.host(1), "127.0.0.9") == "ConnectionRefusedError"
        assert len(rules(state / f"there/{tag.cluster}/here@provision")) == 1
    finally:
        (there,) = await driver.observe(tag.cluster)
        await driver.delete(there)
    assert rules(state / f"there/{tag.cluster}/here@provision") == []


def output(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def told(ask: Ask, address: str) -> bool:
    """dnsmasq reads a reservation when it is notified: ask until it has, for ten seconds."""
    return any(ask()["ip"] == address for _ in range(10))


def told_otherwise(ask: Ask, address: str) -> bool:
    return any(ask()["ip"] != address for _ in range(10))


async def test_a_nic_has_its_address_by_its_old_mac_and_then_by_its_new_one(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, bridge: Net, ask: Ask
) -> None:
    await driver.create(with_reservations(service, reserved(bridge)), tag)
    assert ask()["ip"] == bridge.host(20)
    new = "02:00:00:aa:00:03"
    both = replace(reserved(bridge, mac=new), also=(MAC,))
    await driver.change(await only(driver, tag), with_reservations(service, both), tag)
    assert told(ask, bridge.host(20)), "its machine runs on, and renews it"
    assert told(partial(ask, mac=new), bridge.host(20)), "it takes over what the other had leased"


async def test_who_is_given_the_address_of_one_that_left_gets_it_at_once(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, bridge: Net, ask: Ask
) -> None:
    await driver.create(with_reservations(service, reserved(bridge)), tag)
    assert ask()["ip"] == bridge.host(20)
    await driver.change(await only(driver, tag), with_reservations(service), tag)
    new = "02:00:00:aa:00:04"
    other = replace(reserved(bridge, mac=new), hostname="other")
    await driver.change(await only(driver, tag), with_reservations(service, other), tag)
    assert ask(mac=new)["ip"] == bridge.host(20)


FIRMWARE, SYSTEM = "0004" + NODE.hex, "00030001" + MAC.replace(":", "")


SIX = "fd00:5eed::"


def with_ipv6(service: Resource, *reservations: Reservation) -> Resource:
    made = with_reservations(service, *reservations)
    assert isinstance(made.shape, NetbootService)
    return replace(made, shape=replace(made.shape, address6=f"{SIX}1/64"))


@pytest.fixture
def ask6(bridge: Net, ask: Ask) -> Callable[[str, str], str]:
    """A DHCPv6 client where `ask` is: asks as this MAC and DUID, returns the address."""
    del ask

    def asked(mac: str, duid: str) -> str:
        link = ("-n", f"ns-{bridge.name}", "link", "set", "eth0")
        ip(*link, "down")  # the server knows a client's MAC by its link-local address
        ip(*link, "address", mac, "up")
        client = [sys.executable, "-m", "nospoon.testing.dhcp6", "eth0", duid]
        argv = ["ip", "netns", "exec", f"ns-{bridge.name}", *client]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    return asked


async def test_a_nics_clients_have_ipv6_addresses_of_its_own_and_they_go_with_it(
    driver: NetbootDriver,
    service: Resource,
    tag: OwnerTag,
    bridge: Net,
    ask6: Callable[[str, str], str],
) -> None:
    """Firmware and operating system are two clients; nobody gives a lease back."""
    assert isinstance(service.shape, NetbootService)
    add_address("fd00:5eed::1/64", service.shape.bridge)
    two = (
        replace(reserved(bridge), address6="fd00:5eed::1000"),
        replace(reserved(bridge, 21, mac="02:00:00:aa:00:02"), address6="fd00:5eed::1001"),
    )
    of_one_node = tuple(replace(each, hostname="n") for each in two)
    await driver.create(with_ipv6(service, *of_one_node), tag)
    assert ask6(MAC, FIRMWARE) == "fd00:5eed::1000"
    assert ask6(MAC, SYSTEM) == "fd00:5eed::1:0:1000"
    assert ask6(MAC, FIRMWARE) == "fd00:5eed::1000"
    assert ask6(two[1].mac, SYSTEM[:-1] + "2") == "fd00:5eed::1001"
    later = replace(two[0], mac="02:00:00:aa:00:04", hostname="later")
    await driver.change(await only(driver, tag), with_ipv6(service, of_one_node[1]), tag)
    await driver.change(await only(driver, tag), with_ipv6(service, of_one_node[1], later), tag)
    assert ask6(later.mac, SYSTEM[:-1] + "4") == "fd00:5eed::1000"
    moved = replace(later, mac="02:00:00:aa:00:05")
    await driver.change(await only(driver, tag), with_ipv6(service, of_one_node[1], moved), tag)
    assert ask6(moved.mac, SYSTEM[:-1] + "5") == "fd00:5eed::1000"


async def test_another_range_starts_dnsmasq_anew(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, bridge: Net, ask: Ask, state: Path
) -> None:
    await driver.create(service, tag)
    before = pid(state)
    assert isinstance(service.shape, NetbootService)
    shape = replace(service.shape, range=(bridge.host(200), bridge.host(201)))
    await driver.change(await only(driver, tag), replace(service, shape=shape), tag)
    assert pid(state) != before
    assert int(ask()["ip"].rpartition(".")[2]) >= 200
    assert (await only(driver, tag)).fault == ""


def add_address(address: str, device: str) -> None:
    subprocess.run(["ip", "addr", "add", address, "dev", device, "nodad"], check=True)


async def test_another_address_is_served_and_the_one_before_no_more(
    driver: NetbootDriver, service: Resource, bridge: Net, tag: OwnerTag
) -> None:
    six = f"fd{uuid4().hex[:2]}:{uuid4().hex[:4]}::1"
    await driver.create(service, tag)
    (observed,) = await driver.observe(tag.cluster)
    assert isinstance(service.shape, NetbootService)
    other = replace(service.shape, address="", range=("", ""), address6=f"{six}/64")
    add_address(f"{six}/64", service.shape.bridge)
    await driver.change(observed, replace(service, shape=other), tag)
    socket.create_connection((six, driver.http_port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((bridge.host(1), driver.http_port), timeout=5)
    (observed,) = await driver.observe(tag.cluster)
    assert (observed.fault, observed.shape) == ("", other)


async def test_a_second_create_disturbs_nothing(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path
) -> None:
    await driver.create(service, tag)
    before = pid(state)
    await driver.create(service, replace(tag, token="again"))
    assert pid(state) == before
    found = await only(driver, tag)
    assert (found.shape, found.tag.token, found.fault) == (service.shape, "again", "")


async def test_a_dead_dnsmasq_is_a_fault_and_create_mends_it(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path
) -> None:
    await driver.create(service, tag)
    await end(pid(state))
    assert (await only(driver, tag)).fault == "its dnsmasq does not run"
    await driver.create(service, tag)
    assert (await only(driver, tag)).fault == ""


async def end(which: int) -> None:
    handle = os.pidfd_open(which)
    os.kill(which, signal.SIGKILL)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(handle, ended.set)
    await ended.wait()
    asyncio.get_running_loop().remove_reader(handle)
    os.close(handle)


async def test_dnsmasq_outlives_the_daemon_and_the_next_one_finds_it(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path, ask: Ask, bridge: Net
) -> None:
    await driver.create(with_reservations(service, reserved(bridge)), tag)
    before = pid(state)
    await driver.close()
    assert ask()["ip"] == bridge.host(20)
    later = another(state, driver.http_port)
    await later.start()
    try:
        assert pid(state) == before
        assert (await only(later, tag)).fault == ""
        await later.delete(await only(later, tag))
    finally:
        await later.close()
    assert list(state.iterdir()) == []
    assert not alive(before)


def another(
    state: Path, port: int, *, deployment: str = "test", group: GroupOf = group_of_nobody
) -> NetbootDriver:
    authority, peers = ToldAuthority(), Peers(lambda _: None)
    http = HttpListeners(create_app(authority, peers, ready=lambda: True), port=port)
    return NetbootDriver(
        state=state,
        deployment=deployment,
        http=http,
        authority=authority,
        peers=peers,
        find_grub=partial(find_grub, state),
        group=group,
    )


async def test_the_group_of_nobody_is_looked_up_off_the_event_loop(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path
) -> None:
    where: list[threading.Thread] = []

    def group() -> Group:
        where.append(threading.current_thread())
        return group_of_nobody()

    await driver.close()
    looking = another(state, driver.http_port, group=group)
    await looking.create(service, tag)
    await looking.close()
    assert where
    assert threading.main_thread() not in where


async def test_a_log_that_guests_make_long_keeps_its_last_lines_and_goes_on(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path
) -> None:
    await driver.create(service, tag)
    (log,) = state.glob(f"*/*/{logs.LOG}")
    lines = [b"%d: a packet of a guest\n" % number for number in range(logs.MOST // 24)]
    with log.open("ab") as file:
        file.writelines(lines)
    later = another(state, driver.http_port)
    await driver.close()
    await later.start()
    async with asyncio.timeout(60):
        while log.stat().st_size > logs.KEPT:  # noqa: ASYNC110  (a file has no event)
            await asyncio.sleep(0.05)
    kept = log.read_bytes().splitlines(keepends=True)
    assert kept == lines[-len(kept) :]
    os.kill(pid(state), signal.SIGTERM)  # it logs that
    async with asyncio.timeout(60):
        while b"SIGTERM" not in log.read_bytes():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert log.stat().st_size < logs.MOST
    await later.delete(await only(later, tag))
    await later.close()


def test_a_log_that_cannot_be_cut_keeps_no_other_long(tmp_path: Path) -> None:
    (tmp_path / "a/broken" / logs.LOG).mkdir(parents=True)
    long = tmp_path / "a/long" / logs.LOG
    long.parent.mkdir()
    long.write_bytes(b"a packet\n" * logs.MOST)
    logs.cut(tmp_path)
    assert 0 < long.stat().st_size <= logs.KEPT


async def test_a_dnsmasq_whose_files_are_lost_is_observed_and_removed(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path
) -> None:
    await driver.create(service, tag)
    before = pid(state)
    for path in state.glob("*"):
        shutil.rmtree(path)
    found = await only(driver, tag)
    assert (found.key, found.tag.cluster) == (service.key, tag.cluster)
    assert found.fault == "its files are lost"
    assert await driver.observe(uuid4()) == []
    await driver.delete(found)
    assert not alive(before)
    assert await driver.observe(tag.cluster) == []


async def test_a_dnsmasq_whose_files_are_lost_is_replaced_by_the_next_one(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path
) -> None:
    await driver.create(service, tag)
    before = pid(state)
    for path in state.glob("*"):
        shutil.rmtree(path)
    await driver.change(await only(driver, tag), service, tag)
    assert not alive(before)
    assert alive(pid(state))
    assert (await only(driver, tag)).fault == ""


async def test_start_revives_a_dnsmasq_that_died_meanwhile(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path
) -> None:
    await driver.create(service, tag)
    await driver.close()
    await end(pid(state))
    later = another(state, driver.http_port)
    await later.start()
    assert (await only(later, tag)).fault == ""
    await later.close()


async def test_delete_is_idempotent_and_leaves_nothing(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path
) -> None:
    await driver.create(service, tag)
    found = await only(driver, tag)
    running = pid(state)
    await driver.delete(found)
    await driver.delete(found)
    assert await driver.observe(tag.cluster) == []
    assert list(state.iterdir()) == []
    assert not alive(running)


async def test_a_stranger_who_got_the_pid_is_not_stopped(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path
) -> None:
    await driver.create(service, tag)
    await end(pid(state))
    stranger = await asyncio.create_subprocess_exec("sleep", "60")
    (path,) = state.glob("*/*/dnsmasq.pid")
    path.write_text(f"{stranger.pid}\n")
    await driver.delete(await only(driver, tag))
    assert stranger.returncode is None
    stranger.kill()
    await stranger.wait()


async def test_a_process_of_another_start_time_is_let_be() -> None:
    stranger = await asyncio.create_subprocess_exec("sleep", "60")
    await owned.stop(Process(stranger.pid, started=1), patience=1)
    assert stranger.returncode is None
    stranger.kill()
    await stranger.wait()


async def test_a_bridge_made_anew_is_a_fault(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, bridge: Net
) -> None:
    await driver.create(service, tag)
    ip("link", "del", bridge.name)
    assert "no bridge" in (await only(driver, tag)).fault
    ip("link", "add", bridge.name, "type", "bridge")
    assert "recreated" in (await only(driver, tag)).fault
    ip("addr", "add", f"{bridge.host(1)}/24", "dev", bridge.name)
    ip("link", "set", bridge.name, "up")
    await driver.create(service, tag)
    assert (await only(driver, tag)).fault == ""


async def test_without_its_bridge_nothing_is_made(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path
) -> None:
    assert isinstance(service.shape, NetbootService)
    wanted = replace(service, shape=replace(service.shape, bridge="nosuchbridge"))
    with pytest.raises(ProviderError, match="there is no bridge nosuchbridge"):
        await driver.create(wanted, tag)
    assert list(state.iterdir()) == []


async def test_a_tftp_server_in_the_way_is_named_and_all_is_undone(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path, bridge: Net
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((bridge.host(1), 69))
        with pytest.raises(Conflict, match="another DHCP or TFTP server"):
            await driver.create(service, tag)
    assert list(state.iterdir()) == []
    await driver.create(service, tag)


async def test_a_taken_http_port_is_named_and_all_is_undone(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path, bridge: Net
) -> None:
    with socket.socket() as other:
        other.bind((bridge.host(1), driver.http_port))
        other.listen()
        with pytest.raises(Conflict, match="another process listens") as refused:
            await driver.create(service, tag)
    assert f"TCP port {driver.http_port}, " in str(refused.value)
    assert f"(pid {os.getpid()}): boot files" in str(refused.value)
    assert list(state.iterdir()) == []


async def test_what_another_deployment_made_is_left_alone(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path
) -> None:
    await driver.create(service, tag)
    other = another(state, driver.http_port, deployment="other")
    assert await other.observe(tag.cluster) == []
    with pytest.raises(NotOurs, match="belongs to the deployment test"):
        await other.create(service, tag)
    with pytest.raises(NotOurs):
        await other.delete(await only(driver, tag))
    assert (await only(driver, tag)).fault == ""


async def test_a_place_that_nobody_can_enter_is_refused(
    driver: NetbootDriver, service: Resource, tag: OwnerTag, state: Path
) -> None:
    state.chmod(0o700)
    with pytest.raises(ProviderError, match="cannot enter"):
        await driver.create(service, tag)
    state.chmod(0o755)


async def test_instructions_for_signed_loaders_follow_the_authority(
    driver: NetbootDriver,
    service: Resource,
    tag: OwnerTag,
    state: Path,
    bridge: Net,
    authority: ToldAuthority,
    tmp_path: Path,
) -> None:
    kernel = tmp_path / "vmlinuz"
    kernel.write_bytes(b"a kernel")
    kernel.chmod(0o600)
    profile = ServedProfile("p", ServedFile(str(kernel), "k"), (), "quiet")
    secure = replace(reserved(bridge), loader=Loader.SHIM)
    await driver.create(with_reservations(service, secure), tag)
    assert list(state.glob("**/machines/*")) == []
    authority.answers[NODE] = BootAnswer(NODE, BootDevice.NETWORK, profile)
    await driver.publish(NODE)
    (file,) = state.glob("**/tftp/files/*")
    (machine,) = state.glob(f"**/machines/{MAC}.cfg")
    assert file.read_bytes() == b"a kernel"
    assert file.stat().st_mode & 0o004
    place = f"(tftp,{bridge.host(1)})/files/{file.name}"
    assert f"if linux '{place}' 'quiet'; then" in machine.read_text()
    authority.answers[NODE] = BootAnswer(NODE, BootDevice.NETWORK)
    await driver.publish(NODE)
    assert "nothing to boot from the network" in machine.read_text()
    assert not file.exists()
    authority.answers.clear()
    await driver.publish(uuid4())
    assert machine.exists()
    await driver.publish(NODE)
    assert not machine.exists()


async def test_instructions_are_there_under_each_mac_of_a_nic(
    driver: NetbootDriver,
    service: Resource,
    tag: OwnerTag,
    bridge: Net,
    state: Path,
    authority: ToldAuthority,
) -> None:
    authority.answers[NODE] = BootAnswer(NODE, BootDevice.NETWORK)
    both = replace(reserved(bridge), loader=Loader.SHIM, also=("02:00:00:aa:00:03",))
    await driver.create(with_reservations(service, both), tag)
    texts = {path.name: path.read_text() for path in state.glob("**/machines/*")}
    assert texts.keys() == {f"{MAC}.cfg", "02:00:00:aa:00:03.cfg"}
    assert len({*texts.values()}) == 1


async def test_a_url_that_signed_loaders_cannot_fetch_is_told_on_the_console(
    driver: NetbootDriver,
    service: Resource,
    tag: OwnerTag,
    state: Path,
    bridge: Net,
    authority: ToldAuthority,
) -> None:
    profile = ServedProfile("p", "http://deb.example/linux", (), "")
    authority.answers[NODE] = BootAnswer(NODE, BootDevice.NETWORK, profile)
    secure = replace(reserved(bridge), loader=Loader.SHIM)
    await driver.create(with_reservations(service, secure), tag)
    (machine,) = state.glob(f"**/machines/{MAC}.cfg")
    assert "signed loaders fetch no URL" in machine.read_text()
