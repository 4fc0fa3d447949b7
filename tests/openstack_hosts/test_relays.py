"""Relays of a cloud in memory: real ssh servers, made by their own user data, and real tunnels."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import PlainTextResponse

from nospoon.errors import ProviderError
from nospoon.model.cluster import Host
from nospoon.model.connections import OpenStack, RelaySpec
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import FloatingIp, Link, Port
from nospoon.model.resources.relays import RELAY, Relay, relay_of
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.networks import given_by
from nospoon.providers.openstack.relays import RelayDriver
from nospoon.providers.tunnels import READY, RelayId, RelayPlace
from nospoon.runtime.tasks import Tasks
from nospoon.services.netboot import relays
from nospoon.services.netboot.relayed import RelayNetbootDriver
from nospoon.services.netboot.relays import (
    BMCS,
    MEMORY,
    NETBOOT,
    Pauses,
    RelayTunnels,
    command,
)
from nospoon.services.relayed.bmcs import RelayedBmcs
from nospoon.testing.cloud_connection import connected
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.fake_neutron import PROJECT
from nospoon.testing.relay import RelayMachines, free_place, relay_machines

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
CLUSTER = UUID(int=7)
TAG = OwnerTag("kit", CLUSTER, token="t", name="rack")
MAC = "02:00:00:00:00:99"
SOCKETS = ("boot", "bmcs", "netboot")
AT_THE_DOOR = 1000
"""Connections of who has no key. OpenSSH takes 100 by default, and refuses some of those beyond 10
by chance (sshd_config(5), MaxStartups).
"""


@pytest.fixture
def machines() -> Iterator[RelayMachines]:
    with relay_machines() as made:
        yield made


@pytest.fixture
def cloud(cloud: FakeCloud, machines: RelayMachines) -> FakeCloud:
    cloud.networks["n0"]["project_id"] = PROJECT
    cloud.images["i"] = {"id": "i", "name": "debian-12", "status": "active"}
    cloud.boots, cloud.ends = machines.boot, machines.end
    return cloud


@pytest.fixture
def resources() -> tuple[Resource, Resource]:
    """Its port and itself, on an address of loopback that no other test has."""
    address, ssh = free_place()
    port = Resource(
        Key(Kind.PORT, "cloud", RELAY), Port("external", MAC, guarded=False, address=address)
    )
    shape = Relay("debian-12", "metal.512", MAC, address, 8069, ssh=ssh, key="k")
    return port, Resource(relay_of("cloud"), shape, (port.key,))


@pytest.fixture
async def connection(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[OpenStackConnection]:
    async with connected(cloud, tmp_path, pause=0.05) as made:
        yield made


async def make(connection: OpenStackConnection, *resources: Resource) -> None:
    for each in resources:
        await connection.drivers[each.key.kind].create(each, TAG)


async def asked(resource: Resource) -> str:
    """What a guest gets there."""
    shape = resource.shape
    assert isinstance(shape, Relay)
    reader, writer = await asyncio.open_connection(shape.address, shape.listens)
    writer.write(b"GET /boot HTTP/1.0\r\n\r\n")
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer.rpartition(b"\r\n\r\n")[2].decode()


def relays_of(connection: OpenStackConnection) -> RelayDriver:
    driver = connection.drivers[Kind.RELAY]
    assert isinstance(driver, RelayDriver)
    return driver


async def answer_of(resource: Resource) -> str:
    """The same, "" while nothing answers there."""
    try:
        return await asked(resource)
    except ConnectionError:
        return ""


async def until_fault(connection: OpenStackConnection, wanted: str) -> None:
    async with asyncio.timeout(60):
        while not re.search(wanted, " ".join(await faults(connection))):  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # it changes as ssh tries


async def faults(connection: OpenStackConnection) -> list[str]:
    return [each.fault for each in await connection.drivers[Kind.RELAY].observe(CLUSTER)]


async def test_guests_reach_the_boot_server_through_a_relay_until_it_goes(
    cloud: FakeCloud, connection: OpenStackConnection, resources: tuple[Resource, Resource]
) -> None:
    port, relay = resources
    before = cloud.everything()
    await make(connection, port, relay)
    assert await asked(relay) == "answered"
    (seen,) = await connection.drivers[Kind.RELAY].observe(CLUSTER)
    assert (seen.key, seen.shape, seen.fault) == (relay.key, relay.shape, "")
    (plug,) = await connection.drivers[Kind.PORT].observe(CLUSTER)
    assert plug.shape == port.shape
    await make(connection, relay)
    assert len(cloud.servers) == 1, "what is there is not made again"
    await connection.drivers[Kind.RELAY].delete(seen)
    await connection.drivers[Kind.PORT].delete(plug)
    assert cloud.everything() == before
    assert await answer_of(relay) == ""


async def test_a_tunnel_that_breaks_is_drift_and_is_opened_again(
    cloud: FakeCloud,
    connection: OpenStackConnection,
    machines: RelayMachines,
    resources: tuple[Resource, Resource],
) -> None:
    port, relay = resources
    await make(connection, port, relay)
    ((id_, server),) = cloud.servers.items()
    machines.end(id_)
    await until_fault(connection, "no tunnel leads to it: .*Connection refused")
    server["status"] = "SHUTOFF"
    assert await faults(connection) == ["its server is SHUTOFF"]
    machines.boot(id_, machines.user_data[id_])
    (seen,) = await connection.drivers[Kind.RELAY].observe(CLUSTER)
    await connection.drivers[Kind.RELAY].change(seen, relay, TAG)
    assert cloud.acted == ["os-start"]
    assert await asked(relay) == "answered"
    assert await faults(connection) == [""]


async def test_a_server_without_its_port_is_plugged_in_again(
    cloud: FakeCloud, connection: OpenStackConnection, resources: tuple[Resource, Resource]
) -> None:
    port, relay = resources
    await make(connection, port, relay)
    cloud.ports.clear()
    await make(connection, port)
    (seen,) = await connection.drivers[Kind.RELAY].observe(CLUSTER)
    assert seen.fault == "its server is not on its network"
    await connection.drivers[Kind.RELAY].change(seen, relay, TAG)
    assert await faults(connection) == [""]
    ((plug,), (server,)) = cloud.ports.values(), cloud.servers
    assert plug["device_id"] == server


async def test_a_server_that_nova_cannot_build_is_made_again(
    cloud: FakeCloud, connection: OpenStackConnection, resources: tuple[Resource, Resource]
) -> None:
    port, relay = resources
    await make(connection, port, relay)
    (server,) = cloud.servers.values()
    server |= {"status": "ERROR", "fault": {"message": "No valid host was found."}}
    (seen,) = await connection.drivers[Kind.RELAY].observe(CLUSTER)
    assert seen.fault == "its server is ERROR: No valid host was found."
    await connection.drivers[Kind.RELAY].change(seen, relay, TAG)
    assert server["id"] not in cloud.servers
    assert await asked(relay) == "answered"


async def test_a_machine_with_another_host_key_is_not_let_near(
    cloud: FakeCloud,
    connection: OpenStackConnection,
    machines: RelayMachines,
    resources: tuple[Resource, Resource],
) -> None:
    """Another machine took the relay's address: it lets anyone in, and has a key of its own."""
    port, relay = resources
    key = Ed25519PrivateKey.generate()
    other = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()

    def boot(id_: str, user_data: str) -> None:
        begin, end = user_data.index("-----BEGIN"), user_data.index("END\ncat >/etc/nospoon/auth")
        machines.boot(id_, user_data[:begin] + other + user_data[end:])

    cloud.boots = boot
    async with Tasks("test") as tasks:
        tasks.start(make(connection, port, relay), name="make")
        await until_fault(connection, "Host key verification failed")
        assert await answer_of(relay) == ""


async def test_the_key_of_the_daemon_opens_nothing_but_the_port_of_its_relay(
    connection: OpenStackConnection, resources: tuple[Resource, Resource], tmp_path: Path
) -> None:
    port, relay = resources
    await make(connection, port, relay)
    shape = relay.shape
    assert isinstance(shape, Relay)
    (key,) = tmp_path.glob("relays/*/key")

    def ssh(*argv: str) -> subprocess.CompletedProcess[bytes]:
        usual = ["-F", "none", "-i", str(key), "-o", "StrictHostKeyChecking=no", "-o",
                 "UserKnownHostsFile=/dev/null", "-o", "ExitOnForwardFailure=yes"]  # fmt: skip
        place = ["-p", str(shape.ssh), "-l", "nospoon"]
        line = ["ssh", *usual, *place, *argv[:-1], "--", shape.address, argv[-1]]
        return subprocess.run(
            line, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=60
        )

    def run(*argv: str) -> subprocess.CompletedProcess[bytes]:
        return ssh(*argv, "id")

    said = await asyncio.to_thread(run)
    assert said.stdout == b"nospoon: ready\n", "no command of its own runs"
    refused = await asyncio.to_thread(run, "-R", f"{shape.address}:8070:127.0.0.1:1")
    assert b"remote port forwarding failed" in refused.stderr
    refused = await asyncio.to_thread(run, "-W", "127.0.0.1:22")
    assert b"administratively prohibited" in refused.stderr
    assert await asked(relay) == "answered", "its own tunnel goes on"


async def test_who_has_no_key_keeps_the_daemon_out_of_no_relay(
    connection: OpenStackConnection, resources: tuple[Resource, Resource], tmp_path: Path
) -> None:
    """A guest beside it could open as many connections as its ssh server takes before a login, so
    that a tunnel that broke was never opened again.
    """
    port, relay = resources
    await make(connection, port, relay)
    shape = relay.shape
    assert isinstance(shape, Relay)
    (key,) = tmp_path.glob("relays/*/key")
    held = []
    async with asyncio.timeout(60):
        for _ in range(AT_THE_DOOR):
            guest = await asyncio.open_connection(
                shape.address, shape.ssh, local_addr=("127.66.66.66", 0)
            )
            held.append(guest)
            with contextlib.suppress(ConnectionError):
                await guest[0].readline()  # it has said who it is, or hung up
        argv = ["ssh", "-F", "none", "-i", str(key), "-o", "StrictHostKeyChecking=no", "-o",
                "UserKnownHostsFile=/dev/null", "-p", str(shape.ssh), "-l", "nospoon",
                shape.address]  # fmt: skip
        found = await asyncio.to_thread(
            subprocess.run, argv, check=False, capture_output=True, stdin=subprocess.DEVNULL
        )
    for _, writer in held:
        writer.transport.abort()
    assert found.stdout == b"nospoon: ready\n", found.stderr


async def test_a_daemon_that_starts_opens_the_tunnels_of_its_own_clusters_alone(
    cloud: FakeCloud, resources: tuple[Resource, Resource], tmp_path: Path
) -> None:
    """A cloud may say that a relay is of any cluster."""
    port, relay = resources
    async with connected(cloud, tmp_path, pause=0.05) as first:
        await make(first, port, relay)
    assert await answer_of(relay) == ""
    theirs = connected(cloud, tmp_path, pause=0.05, is_home=lambda cluster: cluster != CLUSTER)
    async with theirs as other:
        await relays_of(other).resume()
        assert await faults(other) == ["no tunnel to it is kept"]
    async with connected(cloud, tmp_path, pause=0.05) as own:
        await relays_of(own).resume()
        async with asyncio.timeout(60):
            while await answer_of(relay) != "answered":  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # until its tunnel is open


async def test_a_cloud_that_is_away_is_asked_for_relays_by_one_task(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Its watch is begun again every two seconds."""
    spec = RelaySpec("external", "debian-12", "metal.512")
    connection.configure(Host("cloud", OpenStack("mine", "http://keystone p", relay=spec)))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        cloud.url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        for _ in range(3):
            with pytest.raises(ProviderError):
                await anext(aiter(connection.machine_driver.watch()))
        names = [each.get_name() for each in asyncio.all_tasks()]
    assert sum("tunnels to relays" in each for each in names) == 1


ONE = RelayId(CLUSTER, "cloud")


@contextlib.asynccontextmanager
async def kept_in(
    directory: Path,
    environment: Mapping[str, str] | None = None,
    owner_of: Callable[[UUID], int | None] = lambda _: None,
) -> AsyncIterator[RelayTunnels]:
    bmcs = RelayedBmcs(lambda *_: False).serve
    netboot = RelayNetbootDriver(state=directory / "netboot", deployment="kit").serve
    tunnels = RelayTunnels(
        PlainTextResponse("x"),
        directory,
        b"secret",
        bmcs=bmcs,
        netboot=netboot,
        shortest=0.05,
        environment=environment,
        owner_of=owner_of,
    )
    try:
        yield tunnels
    finally:
        await tunnels.close()


async def nowhere() -> RelayPlace:
    return RelayPlace.parse("127.0.0.1", 1, "10.0.0.2", 8069)


async def until_said(tunnels: RelayTunnels, wanted: str) -> None:
    async with asyncio.timeout(60):
        while wanted not in tunnels.fault(ONE):  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # it changes as ssh tries


async def test_a_connection_that_is_closed_ends_no_tunnel_that_another_one_keeps(
    tmp_path: Path,
) -> None:
    """After a change of the login at its cloud, for example."""

    async def moved() -> RelayPlace:
        return RelayPlace.parse("127.0.0.1", 2, "10.0.0.2", 8069)

    async with kept_in(tmp_path / "relays") as tunnels:
        tunnels.keep(ONE, nowhere)
        tunnels.keep(ONE, moved)
        await tunnels.end(ONE, nowhere)
        await until_said(tunnels, "127.0.0.1 port 2: ")
        assert tunnels.is_kept(ONE)
        await tunnels.end(ONE, moved)
        assert tunnels.fault(ONE) == "no tunnel to it is kept"
        tunnels.keep(ONE, nowhere)
        await tunnels.end(ONE)
        assert not tunnels.is_kept(ONE)


async def test_one_user_has_few_tunnels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a process, and a member's cloud may have relays without number."""
    monkeypatch.setattr(relays, "MOST_OF_OWNER", 2)
    mine, theirs = [RelayId(uuid4(), "cloud") for _ in range(3)], RelayId(uuid4(), "cloud")
    clusters = {each.cluster for each in mine}

    async with kept_in(tmp_path / "r", owner_of=lambda id_: 1 if id_ in clusters else 2) as tunnels:
        for each in (*mine[:2], mine[0], theirs):
            tunnels.keep(each, nowhere)
        with pytest.raises(ProviderError, match=r"you have 2 tunnels to relays, and members may"):
            tunnels.keep(mine[2], nowhere)
        assert not tunnels.is_kept(mine[2])
        await tunnels.end(mine[0])
        tunnels.keep(mine[2], nowhere)
        assert tunnels.is_kept(theirs)


@pytest.mark.parametrize("name", [BMCS, NETBOOT])
async def test_a_tunnel_that_ends_while_it_begins_to_listen_leaves_no_socket(
    tmp_path: Path, name: str
) -> None:
    def listening() -> list[str]:
        lines = Path("/proc/net/unix").read_text().splitlines()
        return [each for each in lines if str(tmp_path) in each]

    async with kept_in(tmp_path / "r") as tunnels:
        tunnels.keep(ONE, nowhere)
        async with asyncio.timeout(60):
            while not list(tmp_path.glob(f"r/*/{name}")):  # noqa: ASYNC110
                await asyncio.sleep(0)  # it is cancelled in the turn after the socket is bound
        assert any(each.endswith(f"/{name}") for each in listening())
        await tunnels.end(ONE)
        assert listening() == []


async def test_a_relay_without_a_tunnel_is_drift_that_up_mends(
    cloud: FakeCloud, resources: tuple[Resource, Resource], tmp_path: Path
) -> None:
    """An `up` that was interrupted left it, or another connection ended its tunnel."""
    port, relay = resources
    async with connected(cloud, tmp_path, pause=0.05) as first:
        await make(first, port, relay)
    async with connected(cloud, tmp_path, pause=0.05) as own:
        assert await faults(own) == ["no tunnel to it is kept"]
        (seen,) = await own.drivers[Kind.RELAY].observe(CLUSTER)
        await own.drivers[Kind.RELAY].change(seen, relay, TAG)
        assert await faults(own) == [""]
        assert await asked(relay) == "answered"
        await relays_of(own)._tunnels.end(ONE)
        await relays_of(own).resume()
        async with asyncio.timeout(60):
            while await answer_of(relay) != "answered":  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # until its tunnel is open


async def test_what_a_relay_says_is_short_and_moves_no_cursor(
    cloud: FakeCloud,
    connection: OpenStackConnection,
    machines: RelayMachines,
    resources: tuple[Resource, Resource],
) -> None:
    """Its owner has it say that it is ready, then what he likes, and hang up."""
    port, relay = resources
    said = "printf '%01500dA\\033]0;B\\nC\\033[2J%060000d' 0 0 >&2; exit 1"

    def boot(id_: str, user_data: str) -> None:
        machines.boot(id_, user_data.replace("exec cat\n", f"{said}\n"))

    cloud.boots = boot
    await make(connection, port, relay)
    await until_fault(connection, "no tunnel leads to it: .*000")
    (fault,) = await faults(connection)
    assert fault.isprintable()
    assert "A\\u001b]0;B / C\\u001b[2J000" in fault
    assert len(fault) < 1300


DAEMON = """
import asyncio, structlog, sys
from pathlib import Path
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
from nospoon.providers.tunnels import RelayPlace
from nospoon.runtime import process
from nospoon.services.netboot.relays import ENVIRONMENT, command

async def main(address, port, files):
    place = RelayPlace.parse(address, int(port), address, 8069)
    ssh = await process.pipe(command(place, Path(files)), env=ENVIRONMENT, errors=True)
    print(ssh.pid, (await ssh.read(100)).decode(), flush=True)
    await ssh.read(100)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_ssh_has_little_memory_and_ends_with_a_daemon_that_is_killed(
    cloud: FakeCloud,
    connection: OpenStackConnection,
    machines: RelayMachines,
    resources: tuple[Resource, Resource],
    tmp_path: Path,
) -> None:
    """Its relay's owner has that run a command that does not end with its input, and may take
    nothing of what it asks for, which ssh keeps then.
    """
    port, relay = resources
    shape = relay.shape
    assert isinstance(shape, Relay)
    cloud.boots = lambda id_, user_data: machines.boot(
        id_, user_data.replace("exec cat\n", "exec sleep 1000\n")
    )
    await make(connection, port, relay)
    (key,) = tmp_path.glob("relays/*/key")
    files = shutil.copytree(key.parent, tmp_path / "files", ignore=lambda *_: SOCKETS)
    await connection.close()
    async with asyncio.timeout(60):
        while await answer_of(relay):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # until its port is free again
    daemon = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DAEMON, shape.address, str(shape.ssh), files,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert daemon.stdout is not None
    try:
        async with asyncio.timeout(60):
            pid, _, said = (await daemon.stdout.readline()).decode().partition(" ")
        ssh = Path(f"/proc/{pid}")
        assert (ssh / "oom_score_adj").read_text().strip() == "1000"
        limits = (ssh / "limits").read_text()
        assert re.search(rf"Max address space +{MEMORY} +{MEMORY} ", limits)
    finally:
        daemon.kill()
        await daemon.wait()
    assert said.strip() == READY
    async with asyncio.timeout(60):
        while is_running(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # the kernel ends it


def is_running(pid: str) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    return "State:\tZ" not in status  # one that waits to be reaped


def test_a_relay_that_hangs_up_at_once_is_asked_ever_less() -> None:
    pauses = Pauses(1)
    found = []
    for _ in range(7):
        pauses.opened(100)
        found.append(pauses.next(101))
    assert found == [1, 2, 4, 8, 16, 30, 30]
    assert pauses.next(1000) == 30, "it was not open"
    pauses.opened(1000)
    assert [pauses.next(1060), pauses.next(1060)] == [1, 2]


async def test_one_that_is_kept_again_while_it_ends_has_its_sockets(tmp_path: Path) -> None:
    async def waiting() -> RelayPlace:
        await asyncio.Event().wait()
        return await nowhere()

    async def sockets() -> None:
        async with asyncio.timeout(60):
            while not list(tmp_path.glob("relays/*/bmcs")):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async with kept_in(tmp_path / "relays") as tunnels, Tasks("test") as tasks:
        tunnels.keep(ONE, waiting)
        await sockets()
        ending = tasks.start(tunnels.end(ONE), name="end")
        await asyncio.sleep(0)
        tunnels.keep(ONE, waiting)
        await ending
        await sockets()
        (path,) = tmp_path.glob("relays/*/boot")
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        async with asyncio.timeout(60):
            assert (await reader.read()).endswith(b"x")
        writer.close()


async def test_a_tunnel_whose_sockets_cannot_be_made_says_so_and_is_tried_again(
    tmp_path: Path,
) -> None:
    async with kept_in(tmp_path / ("x" * 90) / "relays") as tunnels:
        tunnels.keep(ONE, nowhere)
        await until_said(tunnels, "No such file or directory")
        (tmp_path / ("x" * 90)).mkdir()
        await until_said(tunnels, "is too long for a socket")
        with pytest.raises(ProviderError, match="is too long for a socket"):
            await tunnels.opened(ONE, 0.01)


async def test_a_tunnel_for_which_there_is_no_process_is_tried_again(
    tmp_path: Path,
) -> None:
    """Of files that may be open there were too many, for example."""
    tries = 0

    async def find() -> RelayPlace:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return await nowhere()

    async with kept_in(tmp_path / "relays") as tunnels:
        tunnels.keep(ONE, find)
        await until_said(tunnels, "Too many open files")
        await until_said(tunnels, "Connection refused")


async def test_a_machine_without_ssh_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/setpriv").symlink_to(shutil.which("setpriv") or "")
    bare = {"PATH": f"{tmp_path}/bin"}
    async with kept_in(tmp_path / "relays", bare) as tunnels:
        tunnels.keep(ONE, nowhere)
        await until_said(tunnels, f"there is no ssh in {tmp_path}/bin. Install openssh-client.")


async def test_a_tunnel_whose_task_ended_is_a_fault_until_it_is_kept_again(tmp_path: Path) -> None:
    async def broken() -> RelayPlace:
        raise LookupError

    async with kept_in(tmp_path / "relays") as tunnels:
        assert tunnels.fault(ONE) == "no tunnel to it is kept"
        tunnels.keep(ONE, broken)
        await until_said(tunnels, "no tunnel to it is kept")
        tunnels.keep(ONE, nowhere)
        await until_said(tunnels, "Connection refused")


async def test_it_is_reached_by_its_floating_ip_as_that_is_now(
    cloud: FakeCloud, connection: OpenStackConnection, resources: tuple[Resource, Resource]
) -> None:
    port, relay = resources
    floating = Resource(
        Key(Kind.FLOATING_IP, "cloud", RELAY), FloatingIp("external", MAC), (port.key,)
    )
    await make(connection, port, floating)
    (record,) = cloud.floatingips.values()
    record["floating_ip_address"] = "127.0.0.1; reboot"
    driver = connection.drivers[Kind.RELAY]
    async with Tasks("test") as tasks:
        making = tasks.start(make(connection, relay), name="make")
        await until_fault(connection, "a cloud has no relay at 127.0.0.1; reboot port")
        assert not making.done()
        record["floating_ip_address"] = "127.0.0.1"
        await making
    assert await asked(relay) == "answered"
    (seen,) = await driver.observe(CLUSTER)
    await driver.delete(seen)


@pytest.mark.parametrize(
    "address", ["", "x", "-oProxyCommand=id", "fe80::1%-x", "127.0.0.1 -v", "1"]
)
def test_a_place_that_is_none_is_refused(address: str) -> None:
    for addresses in ((address, "127.0.0.1"), ("::1", address)):
        with pytest.raises(ProviderError, match="a cloud has no relay at"):
            RelayPlace.parse(addresses[0], 22, addresses[1], 8069)


@pytest.mark.parametrize("port", [-1, 0, 1 << 16])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    for ports in ((port, 8069), (22, port)):
        with pytest.raises(ProviderError, match="a cloud has no relay at"):
            RelayPlace.parse("127.0.0.1", ports[0], "127.0.0.1", ports[1])


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_text_is_a_place_or_refused(address: str, on: str) -> None:
    with contextlib.suppress(ProviderError):
        place = RelayPlace.parse(address, 22, on, 8069)
        assert {str(place.address), str(place.on)} <= {str(ip_address(e)) for e in (address, on)}


def test_what_a_cloud_says_is_an_address_or_a_number_for_ssh(tmp_path: Path) -> None:
    place = RelayPlace.parse("2001:db8::1", 2222, "2001:db8::2", 8069)
    argv = command(place, tmp_path)
    assert argv[-5:] == ["2222", "-l", "nospoon", "--", "2001:db8::1"]
    assert argv[argv.index("-R") + 1] == f"[2001:db8::2]:8069:{tmp_path}/boot"
    assert argv[argv.index("--pdeathsig=KILL") + 1 :][:3] == ["ssh", "-F", "none"]


async def test_images_are_found_by_name_and_id(
    cloud: FakeCloud, connection: OpenStackConnection, resources: tuple[Resource, Resource]
) -> None:
    port, relay = resources
    shape = relay.shape
    assert isinstance(shape, Relay)
    with pytest.raises(ProviderError, match="image other in cloud mine: there is none"):
        await make(connection, port, replace(relay, shape=replace(shape, image="other")))
    id_ = str(uuid4())
    cloud.images[id_] = {"id": id_, "name": "debian-12", "status": "active"}
    with pytest.raises(ProviderError, match="several images of that name"):
        await make(connection, relay)
    await make(connection, replace(relay, shape=replace(shape, image=id_)))
    (server,) = cloud.servers.values()
    assert server["image"] == {"id": id_}


async def test_others_do_not_adopt_a_relay(
    connection: OpenStackConnection, resources: tuple[Resource, Resource]
) -> None:
    await make(connection, *resources)
    assert await connection.adoptable() == ()
    assert await connection.machine_driver.machines() == []


async def test_neutron_gives_no_addresses_of_bmcs(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Also on a network that was there before, and again once there are none."""
    driver = connection.drivers[Kind.NETWORK]
    key = Key(Kind.NETWORK, "cloud", "lan")
    spared = Link("ns-lan", "10.1.0.1/24", nat=True, spared="10.1.0.128/26")
    link = Resource(key, spared)
    await driver.create(link, TAG)
    pools = [
        {"start": "10.1.0.2", "end": "10.1.0.127"},
        {"start": "10.1.0.192", "end": "10.1.0.254"},
    ]
    (subnet,) = cloud.subnets.values()
    assert subnet["allocation_pools"] == pools
    (seen,) = await driver.observe(CLUSTER)
    assert seen.shape == spared
    without = replace(link, shape=replace(spared, spared=""))
    await driver.change(seen, without, TAG)
    assert subnet["allocation_pools"] == [{"start": "10.1.0.2", "end": "10.1.0.254"}]
    (seen,) = await driver.observe(CLUSTER)
    assert seen.shape == without.shape
    await driver.change(seen, link, TAG)
    assert subnet["allocation_pools"] == pools
    cloud.log.clear()
    await driver.change(seen, link, TAG)
    assert not [call for call in cloud.log if "PUT /network/v2.0/subnets" in call]


@pytest.mark.parametrize(
    ("address", "spared", "given"),
    [
        ("10.1.0.1/24", "", [("10.1.0.2", "10.1.0.254")]),
        ("10.1.0.254/24", "", [("10.1.0.1", "10.1.0.253")]),
        ("10.1.0.7/24", "", [("10.1.0.1", "10.1.0.6"), ("10.1.0.8", "10.1.0.254")]),
        ("10.1.0.1/24", "10.1.0.128/25", [("10.1.0.2", "10.1.0.127")]),
        ("10.1.0.254/24", "10.1.0.0/25", [("10.1.0.128", "10.1.0.253")]),
    ],
)
def test_it_gives_all_others(address: str, spared: str, given: list[tuple[str, str]]) -> None:
    assert list(given_by(Link("b", address, nat=True, spared=spared))) == given
