"""Containers of an engine that reboot, lose their keeper, or have a root that is not there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.docker.conftest import (
    REMAPPED,
    DockerService,
    Service,
    both_engines,
    cli_of,
    docker_engine,
    init_of,
    mounts_below,
)
from tests.lxc.conftest import image_of
from tests.lxc.test_machines import REBOOTS, console_of, eventually
from tests.lxc.test_roots import add, archive, runs_code

from nospoon.errors import ProviderError
from nospoon.model.cluster import Switch
from nospoon.model.connections import Docker
from nospoon.model.machine import MachineChange, Outcome, PowerCommand, PowerState
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.storage import Volume
from nospoon.providers import openvswitch
from nospoon.providers.docker import DockerConnection
from nospoon.providers.docker.program import waiting
from nospoon.providers.docker.program.processes import content
from nospoon.runtime.process import Finished
from nospoon.runtime.runner import LocalRunner
from nospoon.testing.container_root import SAYS, busybox_root
from nospoon.testing.racks import (
    MEBI,
    PLAN,
    Bench,
    Rack,
    events_of,
    found,
    make,
    observe_all,
    rack_for,
    remove_all,
    until,
)

pytestmark = pytest.mark.docker


def directory_of(bench: Bench) -> Path:
    (found,) = Path(bench.pool_root).glob("*/*-m0")
    return found


def number(path: Path) -> int:
    return int(path.read_text().split()[0])


@pytest.fixture
def switch() -> Iterator[str]:
    """A bridge of Open vSwitch on the userspace datapath, which needs no kernel module."""
    name = f"nst{uuid4().hex[:8]}"
    vsctl = ["ovs-vsctl", "--timeout=60"]
    userspace = ["--", "set", "bridge", name, "datapath_type=netdev"]
    subprocess.run([*vsctl, "add-br", name, *userspace], check=True)
    yield name
    subprocess.run([*vsctl, "del-br", name], check=True)


@pytest.fixture
def bridge() -> Iterator[str]:
    name = f"nsd{uuid4().hex[:8]}"
    subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
    yield name
    subprocess.run(["ip", "link", "del", name], check=True)


def runs(pid: int) -> bool:
    return b"tend" in content(Path(f"/proc/{pid}/cmdline"))


@both_engines
async def test_a_guest_that_reboots_keeps_its_links_and_is_reported_as_a_reset(
    bench: Bench, place: Path, images: dict[str, Path], bridge: str
) -> None:
    port = f"nse{uuid4().hex[:8]}"
    image = image_of(busybox_root(init=REBOOTS), place, images)
    rack = rack_for(replace(bench, image=image))
    assert isinstance(rack.machine.shape, Machine)
    nic = replace(rack.machine.shape.nics[0], network=bridge, port=port)
    machine = replace(rack.machine, shape=replace(rack.machine.shape, nics=(nic,)))
    await make(bench, rack.pool, rack.image, rack.blank, machine)
    async with events_of(bench, rack.uuid) as queue:
        await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
        event = await until(queue, MachineChange.RESET, bench.patience)
        assert event.power is PowerState.ON
    console = console_of(place, rack.uuid)
    await eventually(lambda: console.read_text().count("init runs") > 1)
    members = f"/sys/class/net/{bridge}/brif/{port}"
    await eventually(lambda: Path(members).exists())
    await remove_all(bench)
    assert not Path(f"/sys/class/net/{port}").exists()


def mtu_of(link: str, *enter: str) -> int:
    argv = [*enter, "ip", "-json", "link", "show", "dev", link]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)[0]["mtu"])


@both_engines
async def test_both_ends_of_a_link_have_the_mtu_of_their_bridge(bench: Bench, bridge: str) -> None:
    """Ends with less dropped what the bridge passes."""
    port = f"nse{uuid4().hex[:8]}"
    await LocalRunner().run(["ip", "link", "set", bridge, "mtu", "9000"])
    rack = rack_for(bench)
    assert isinstance(rack.machine.shape, Machine)
    nic = replace(rack.machine.shape.nics[0], network=bridge, port=port)
    machine = replace(rack.machine, shape=replace(rack.machine.shape, nics=(nic,)))
    await make(bench, *rack.all[:-1], machine)
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    assert mtu_of(port) == 9000
    assert mtu_of("eth0", "nsenter", "-t", str(init_of(bench)), "-n") == 9000


async def test_a_port_of_open_vswitch_is_plugged_in_as_that_of_a_vm_and_again_where_it_was_lost(
    bench: Bench, switch: str
) -> None:
    rack, runner = rack_for(bench), LocalRunner()
    assert isinstance(rack.machine.shape, Machine)
    (first,) = rack.machine.shape.nics
    ports = [f"nse{uuid4().hex[:8]}" for _ in range(3)]
    on = replace(first, network=switch, switch=Switch.OVS)
    nics = (
        replace(on, port=ports[0], vlan=100),
        replace(on, port=ports[1], trunk=(7, 8), mac="02:00:00:00:00:02"),
        replace(on, port=ports[2], vlan=6, trunk=(7,), mac="02:00:00:00:00:03"),
    )
    machine = replace(rack.machine, shape=replace(rack.machine.shape, nics=nics))
    await make(bench, *rack.all[:-1], machine)
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    wanted = {nic.port: openvswitch.wanted(nic) for nic in nics}
    assert (await openvswitch.look(runner)).ports.items() >= wanted.items()
    await openvswitch.unplug(runner, ports[1:])
    seen = await found(bench, machine)
    (deviation,) = seen.deviations
    assert deviation.field == "unlinked"
    assert set(deviation.found) == {nic.mac for nic in nics[1:]}
    await bench.connection.drivers[Kind.MACHINE].change(seen, machine, bench.tag)
    assert (await openvswitch.look(runner)).ports.items() >= wanted.items()
    again = await found(bench, machine)
    assert (again.shape, again.deviations) == (machine.shape, ())
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.OFF, PLAN)
    assert not (await openvswitch.look(runner)).ports.keys() & wanted.keys()


@both_engines
async def test_a_container_outlives_its_keeper_and_gets_another(bench: Bench, place: Path) -> None:
    rack = rack_for(bench)
    await make(bench, *rack.all)
    machines = bench.connection.machine_driver
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    directory = directory_of(bench)
    os.kill(number(directory / "pid"), signal.SIGKILL)
    assert (await found(bench, rack.machine)).running
    assert await machines.power(rack.uuid, PowerCommand.ON, PLAN) is Outcome.UNCHANGED
    async with events_of(bench, rack.uuid):
        await eventually(lambda: runs(number(directory / "pid")))
        console_of(place, rack.uuid).write_text("")
        await eventually(lambda: "goes on" in console_of(place, rack.uuid).read_text())
    assert await machines.power(rack.uuid, PowerCommand.OFF, PLAN) is Outcome.CHANGED
    assert not (await found(bench, rack.machine)).running
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    async with events_of(bench, rack.uuid) as queue:
        os.kill(number(directory / "init"), signal.SIGKILL)
        ended = await until(queue, MachineChange.SHUTDOWN, bench.patience)
        assert ended.power is PowerState.OFF


@both_engines
async def test_a_start_that_fails_reports_why_and_leaves_nothing(bench: Bench) -> None:
    rack = rack_for(bench)
    await make(bench, *rack.all)
    assert isinstance(rack.machine.shape, Machine)
    nic = replace(rack.machine.shape.nics[0], network="nsnot-there", port="nsx-0")
    await make(bench, replace(rack.machine, shape=replace(rack.machine.shape, nics=(nic,))))
    with pytest.raises(ProviderError, match=r"container m0 does not start: ip: .*nsnot-there"):
        await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    assert not Path("/sys/class/net/nsx-0").exists()
    assert not (await found(bench, rack.machine)).running


def ids_of(user: str) -> int:
    """The first of them (subuid(5))."""
    lines = Path("/etc/subuid").read_text().splitlines()
    return next(int(line.split(":")[1]) for line in lines if line.startswith(f"{user}:"))


def asked(engine: Path, *argv: str) -> str:
    done = subprocess.run([*cli_of(engine), *argv], check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout


def removed(engine: Path, name: str) -> None:
    """Podman 4.3 may find its /dev/shm "busy" at first, on a busy host."""
    argv = [*cli_of(engine), "rm", "-f", name]
    if subprocess.run(argv, check=False, capture_output=True).returncode != 0:
        asked(engine, "rm", "-f", name)


@both_engines
async def test_a_root_that_the_engine_lost_is_at_fault_and_made_again(
    bench: Bench, engine: Path
) -> None:
    rack = rack_for(bench)
    await make(bench, *rack.all)
    removed(engine, f"{rack.pool.key.name}.m0-0")
    assert (await found(bench, rack.blank)).fault == "the engine has lost it"
    with pytest.raises(ProviderError, match=r"its root is gone"):
        await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    await make(bench, rack.blank)
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    assert (await found(bench, rack.blank)).fault == ""


@both_engines
async def test_a_container_of_another_program_is_refused_and_left(
    bench: Bench, engine: Path
) -> None:
    rack = rack_for(bench)
    await make(bench, rack.pool, rack.image)
    name = f"{rack.pool.key.name}.m0-0"
    image = f"localhost/{rack.pool.key.name}/{rack.image.key.name}"
    asked(engine, "create", "--name", name, "--ulimit", "nofile=1024", image)
    with pytest.raises(ProviderError, match="nospoon did not make it"):
        await make(bench, rack.blank)
    asked(engine, "rm", name)


REBOOTS_LATER = f"""\
#!/bin/busybox sh
trap '/bin/busybox reboot -f' PWR
echo '{SAYS}'
while :; do /bin/busybox sleep 1 & wait $!; done
"""
"""When it is asked to shut down."""


class Killed(BaseException):
    """The daemon is no more."""


class Dying(LocalRunner):
    """Of a daemon that is killed before it writes the record with this ending."""

    def __init__(self, ending: str) -> None:
        self._ending = ending

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        if stdin is not None and any(word.endswith(self._ending) for word in argv):
            raise Killed
        return await super().run(argv, stdin=stdin, check=check)


@both_engines
@pytest.mark.parametrize("ending", [".image.json", ".volume.json"])
async def test_what_the_engine_made_for_a_daemon_that_was_killed_goes_with_the_cluster(
    bench: Bench, connection: DockerConnection, place: Path, engine: Path, ending: str
) -> None:
    rack = rack_for(bench)
    killed = DockerConnection(
        connection.host,
        "kit",
        Dying(ending),
        connection.drivers[Kind.IMAGE]._open,  # type: ignore[attr-defined]
        root=bench.pool_root,
        records=str(place / "records"),
    )
    with pytest.raises(Killed):
        await make(replace(bench, connection=killed), *rack.all)
    await killed.close()
    await remove_all(bench)
    for argv in (["ps", "-a", "--format={{.Names}}"], ["images", "--format={{.Repository}}"]):
        assert rack.pool.key.name not in asked(engine, *argv)


@both_engines
async def test_images_that_are_no_roots_are_refused_and_leave_nothing(
    bench: Bench, place: Path, images: dict[str, Path]
) -> None:
    for given, why in (
        (archive(lambda _: None, init=False), "no /sbin/init"),
        (busybox_root()[:100_000], "unexpected end of data"),
        (b"not a tar at all" * 1000, "not a tar|invalid header|could not be opened"),
        (archive(runs_code), "cannot convert float infinity"),
    ):
        rack: Rack = rack_for(replace(bench, image=image_of(given, place, images)))
        await make(bench, rack.pool)
        with pytest.raises(ProviderError, match=why):
            await make(bench, rack.image)
        assert set(await observe_all(bench)) == {rack.pool.key}
        pool = Path(bench.pool_root, rack.pool.key.name)
        assert [each.name for each in pool.iterdir()] == ["pool.json"]
    assert not Path("/ran").exists()


async def test_podman_keeps_no_copy_of_an_image(bench: Bench, engine: Path) -> None:
    rack = rack_for(bench)
    await make(bench, rack.pool, rack.image)
    assert list((engine.parent / "temporary").iterdir()) == []


FILL = """
/bin/busybox dd if=/dev/zero of=/filled bs=65536 count=320 2>/dev/null
exec /bin/busybox stat -c %s /filled
"""
"""Shell: as much of 20 MiB as can be written."""


@both_engines
async def test_what_a_container_writes_ends_at_the_size_of_its_root(
    bench: Bench, engine: Path, place: Path
) -> None:
    rack, machines = rack_for(bench), bench.connection.machine_driver
    await make(bench, *rack.all)

    def filled() -> int:
        name = f"{rack.pool.key.name}.m0-0"
        return int(asked(engine, "exec", name, "/bin/busybox", "sh", "-c", FILL))

    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    assert 4 * MEBI < filled() < 8 * MEBI
    assert isinstance(rack.blank.shape, Volume)
    larger = replace(rack.blank, shape=replace(rack.blank.shape, size=64 * MEBI))
    await make(bench, larger)
    await machines.power(rack.uuid, PowerCommand.CYCLE, PLAN)
    assert filled() == 20 * MEBI
    await machines.power(rack.uuid, PowerCommand.OFF, PLAN)
    assert str(place) not in Path("/proc/self/mountinfo").read_text()


async def test_after_a_reboot_of_its_host_a_container_is_off_and_starts_with_what_it_wrote(
    bench: Bench, connection: DockerConnection, place: Path
) -> None:
    """With its links and the limit of its root."""
    with closing(Service()) as service:
        host = replace(connection.host, connection=Docker(str(service.socket)))
        engine = DockerConnection(
            host, "kit", LocalRunner(), connection.drivers[Kind.IMAGE]._open,  # type: ignore[attr-defined]
            root=bench.pool_root, records=str(place / "records"),
        )  # fmt: skip
        rebooted = replace(bench, connection=engine)
        rack, machines = rack_for(rebooted), engine.machine_driver
        await make(rebooted, *rack.all)
        await machines.power(rack.uuid, PowerCommand.ON, PLAN)
        name = f"{rack.pool.key.name}.m0-0"
        asked(service.socket, "exec", name, "/bin/busybox", "touch", "/kept")
        directory = directory_of(bench)
        running = [number(directory / each) for each in ("pid", "init")]
        service.reboot(place, *running)
        seen = await found(rebooted, rack.machine)
        assert (seen.running, seen.live) == (False, None)
        await machines.power(rack.uuid, PowerCommand.ON, PLAN)
        asked(service.socket, "exec", name, "/bin/busybox", "test", "-e", "/kept")
        assert mounts_below(place)
        await machines.power(rack.uuid, PowerCommand.OFF, PLAN)
        await remove_all(rebooted)
        await engine.close()
    assert mounts_below(place) == []


@both_engines
async def test_a_root_that_was_lost_and_made_again_is_that_of_its_image(
    bench: Bench, engine: Path
) -> None:
    rack, machines = rack_for(bench), bench.connection.machine_driver
    name = f"{rack.pool.key.name}.m0-0"
    await make(bench, *rack.all)
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    asked(engine, "exec", name, "/bin/busybox", "touch", "/kept")
    await machines.power(rack.uuid, PowerCommand.CYCLE, PLAN)
    asked(engine, "exec", name, "/bin/busybox", "test", "-e", "/kept")
    removed(engine, name)
    await make(bench, rack.blank)
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    assert "kept" not in asked(engine, "exec", name, "/bin/busybox", "ls", "/")


@both_engines
async def test_a_container_does_not_start_where_its_root_is_gone(bench: Bench) -> None:
    """It would write to the engine's own directory, without a limit."""
    rack = rack_for(bench)
    await make(bench, *rack.all)
    (volume,) = Path(bench.pool_root).glob("*/m0-0.volume")
    volume.unlink()
    with pytest.raises(ProviderError, match=r"its root .* is gone"):
        await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)


@both_engines
async def test_a_container_has_ids_limits_and_capabilities_that_are_not_the_hosts(
    bench: Bench, connection: DockerConnection, engine: Path
) -> None:
    rack = rack_for(bench)
    await make(bench, *rack.all)
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    pid = number(directory_of(bench) / "init")
    inside, outside, count = map(int, Path(f"/proc/{pid}/uid_map").read_text().split())
    assert (inside, count) == (0, 65536)
    of_podman = outside >= 2_147_483_647  # of each container, others
    assert of_podman or (engine.name == "docker.sock" and outside == ids_of(REMAPPED))
    status = Path(f"/proc/{pid}/status").read_text()
    rows = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    has = int(rows["CapBnd"], 16)
    for dropped in (16, 17, 25, 34, 35):  # sys_module, sys_rawio, sys_time, syslog, wake_alarm
        assert not has >> dropped & 1
    assert rows["Seccomp"] == "2"
    shown = Path(f"/proc/{pid}/mountinfo").read_text()
    assert str(engine.parent / "data" / "containers") not in shown, "Docker's files of names"
    groups = [line.split(":") for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    for _, kind, path in groups:
        if kind == "memory":
            limit = Path(f"/sys/fs/cgroup/memory{path}/memory.limit_in_bytes").read_text()
            assert int(limit) == 64 << 20
        if kind == "pids":
            assert Path(f"/sys/fs/cgroup/pids{path}/pids.max").read_text() == "4096\n"


@both_engines
async def test_a_container_has_the_files_of_names_of_its_image_and_none_of_its_host(
    bench: Bench, engine: Path, place: Path, images: dict[str, Path]
) -> None:
    def more(made: tarfile.TarFile) -> None:
        add(made, "etc/hosts", tarfile.REGTYPE, size=6, mode=0o640, gid=7)
        add(made, "etc/resolv.conf", tarfile.SYMTYPE, linkname="../run/names/resolv.conf")

    rack = rack_for(replace(bench, image=image_of(archive(more), place, images)))
    await make(bench, *rack.all)
    for _ in range(2):
        await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
        name, busybox = f"{rack.pool.key.name}.m0-0", "/bin/busybox"
        assert asked(engine, "exec", name, busybox, "cat", "/etc/hosts") == "theirs"
        own = asked(engine, "exec", name, busybox, "stat", "-c", "%a %u %g", "/etc", "/etc/hosts")
        assert own.splitlines() == ["755 0 0", "640 0 7"]
        link = asked(engine, "exec", name, busybox, "readlink", "/etc/resolv.conf")
        assert link.strip() == "../run/names/resolv.conf"
        pid = number(directory_of(bench) / "init")
        shown = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
        assert [row[4] for row in shown if row[3].startswith(str(engine.parent))] == []
        await bench.connection.machine_driver.power(rack.uuid, PowerCommand.OFF, PLAN)


@docker_engine
async def test_an_init_that_ends_at_once_was_on_and_one_that_cannot_be_executed_is_at_fault(
    bench: Bench, place: Path, images: dict[str, Path]
) -> None:
    machines = bench.connection.machine_driver
    ends = image_of(busybox_root(init="#!/bin/busybox sh\nexit 3\n"), place, images)
    rack = rack_for(replace(bench, image=ends))
    await make(bench, *rack.all)
    assert await machines.power(rack.uuid, PowerCommand.ON, PLAN) is Outcome.CHANGED
    await eventually(lambda: not (directory_of(bench) / "pid").exists())
    assert not (await found(bench, rack.machine)).running
    await remove_all(bench)
    lacks = image_of(busybox_root(init="#!/not/there\n"), place, images)
    rack = rack_for(replace(bench, image=lacks))
    await make(bench, *rack.all)
    with pytest.raises(ProviderError, match="can /sbin/init be executed"):
        await machines.power(rack.uuid, PowerCommand.ON, PLAN)


@docker_engine
async def test_the_process_that_waits_leaves_no_file_and_a_guest_does_not_keep_it_from_its_place(
    bench: Bench, engine: Path
) -> None:
    rack, machines = rack_for(bench), bench.connection.machine_driver
    name = f"{rack.pool.key.name}.m0-0"
    await make(bench, *rack.all)
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    shown = (name, "/bin/busybox", "ls", "-a", "/")
    assert waiting.NAME not in asked(engine, "exec", *shown)
    asked(engine, "exec", name, "/bin/busybox", "mkdir", "-p", f"/{waiting.NAME}/d")
    await machines.power(rack.uuid, PowerCommand.CYCLE, PLAN)
    assert waiting.NAME not in asked(engine, "exec", *shown)
    init = number(directory_of(bench) / "init")
    assert Path(f"/proc/{init}/status").read_text().count("\nNSpid:\t" + f"{init}\t1\n"), "PID 1"


async def test_a_docker_engine_that_gives_its_containers_the_hosts_ids_is_refused(
    connection: DockerConnection,
) -> None:
    with closing(DockerService("--icc=true")) as service:
        host = replace(connection.host, connection=Docker(str(service.socket)))
        refused = DockerConnection(
            host, "kit", LocalRunner(), connection.drivers[Kind.IMAGE]._open,  # type: ignore[attr-defined]
            root="/nowhere", records="/nowhere",
        )  # fmt: skip
        with pytest.raises(ProviderError) as raised:
            await refused.check()
        await refused.close()
    said = "has a Docker Engine without `userns-remap`: root in its containers is root of the host"
    assert raised.value.message == f"host here:docker {said}"
    assert '{"userns-remap": "default"}' in raised.value.hint


DIES = """
import os, signal, sys
from pathlib import Path
from nospoon.providers.docker.program import main, running
engine = main.engine_at(sys.argv[1])
engine.begin = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
settings = running.settings(Path(sys.argv[2]))
running.start(engine, sys.argv[2], {"settings": settings, "filters": {}, "remove_filters": ""})
"""
"""A start that is killed when its container is prepared, and has not begun."""


def killed(engine: Path, directory: Path) -> int:
    """Status of such a start."""
    argv = [sys.executable, "-c", DIES, str(engine), str(directory)]
    return subprocess.run(argv, check=False).returncode


def rename(link: str, name: str) -> None:
    subprocess.run(["ip", "link", "set", link, "name", name], check=True)


@both_engines
async def test_a_start_that_was_killed_before_init_ran_is_made_again(
    bench: Bench, engine: Path, place: Path
) -> None:
    rack, machines = rack_for(bench), bench.connection.machine_driver
    await make(bench, *rack.all)
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    await machines.power(rack.uuid, PowerCommand.OFF, PLAN)
    console_of(place, rack.uuid).write_text("")
    assert killed(engine, directory_of(bench)) == -signal.SIGKILL
    assert not (await found(bench, rack.machine)).running
    assert await machines.power(rack.uuid, PowerCommand.ON, PLAN) is Outcome.CHANGED
    await eventually(lambda: SAYS in console_of(place, rack.uuid).read_text())


@both_engines
async def test_a_guest_that_reboots_where_its_bridge_is_gone_is_off(
    bench: Bench, place: Path, images: dict[str, Path], bridge: str, engine: Path
) -> None:
    port = f"nse{uuid4().hex[:8]}"
    image = image_of(busybox_root(init=REBOOTS_LATER), place, images)
    rack = rack_for(replace(bench, image=image))
    assert isinstance(rack.machine.shape, Machine)
    nic = replace(rack.machine.shape.nics[0], network=bridge, port=port)
    machine = replace(rack.machine, shape=replace(rack.machine.shape, nics=(nic,)))
    await make(bench, rack.pool, rack.image, rack.blank, machine)
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    directory, console = directory_of(bench), console_of(place, rack.uuid)
    await eventually(lambda: console.exists() and SAYS in console.read_text())  # its trap is set
    rename(bridge, f"{bridge}x")
    os.kill(number(directory / "init"), signal.SIGPWR)
    try:
        await eventually(lambda: not (directory / "pid").exists())
        assert "does not exist" in (directory / "log").read_text()
        assert not (await found(bench, machine)).running
        assert asked(engine, "ps", "-q") == ""
    finally:
        rename(f"{bridge}x", bridge)
