"""Two daemons on one database: one controls the hosts, and one that slept too long does no more."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nospoon.testing.bench import free_port
from nospoon.testing.postgresql import PostgreSql
from nospoon.testing.rack import Rack

LEASE = 5.0


@pytest.fixture(params=["sqlite", "postgresql"])
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Rack, Rack]]:
    """Two racks with one state directory and one database."""
    tmp_path.chmod(0o711)
    more = {"NOSPOON_LEASE": str(LEASE)}
    if request.param == "postgresql":
        server: PostgreSql = request.getfixturevalue("postgresql")
        more["NOSPOON_DATABASE"] = server.url("postgres")
    first = Rack.at(tmp_path, **more)
    second = Rack.at(tmp_path, **more)
    second.environment["NOSPOON_RUNTIME_DIR"] = str(tmp_path / "second")
    second.environment["NOSPOON_BOOT_PORT"] = str(free_port(socket.SOCK_STREAM))
    try:
        yield first, second
        second.names += first.names
        second.close()
    finally:
        first.kill()
        second.run("daemon", "stop")


def stop_between_transactions(rack: Rack) -> None:
    """Who is stopped while he writes to SQLite keeps its file locked: then nobody can take over."""
    pid = rack.daemon_pid()
    stop(pid)
    while is_locked(rack.directory / "state" / "nospoon.db"):
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)
        stop(pid)


def stop(pid: int) -> None:
    """Sends SIGSTOP and waits for it: the sender goes on before each thread has stopped."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    while any(state(each) != "T" for each in tasks.iterdir()):
        time.sleep(0.001)


def state(task: Path) -> str:
    """Of a thread, in one letter (proc(5)); one that ended does no more, either."""
    try:
        return (task / "stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return "T"


def is_locked(path: Path) -> bool:
    database = sqlite3.connect(path, isolation_level=None, timeout=0)
    with contextlib.closing(database):
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False


def ended(pid: int, seconds: float) -> bool:
    watched = os.pidfd_open(pid)
    try:
        return bool(select.select([watched], [], [], seconds)[0])
    finally:
        os.close(watched)


def waits(rack: Rack) -> int:
    """How often a daemon waited for another one that might live."""
    return rack.log().count("waiting for a controller that may live")


def until(so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_daemon_on_the_database_of_a_living_one_does_not_start(two: tuple[Rack, Rack]) -> None:
    first, second = two
    first.run("daemon", "start")
    refused = second.run("daemon", "start", status=1)
    assert "controls the hosts of this database" in refused.stderr
    assert f"pid {first.daemon_pid()}" in refused.stderr
    first.run("daemon", "stop")
    before = waits(second)
    second.run("daemon", "start")
    assert waits(second) == before, "what was given back is not waited for"


def test_a_daemon_that_slept_past_its_lease_does_nothing_more_when_it_wakes(
    two: tuple[Rack, Rack],
) -> None:
    first, second = two
    name = first.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{first.bmc()}nodes: [{{count: 200}}]\n"
    file = first.file(text)
    first.run("daemon", "start")
    pid = first.daemon_pid()
    command = ["nospoon", "up", "--yes", file]
    with subprocess.Popen(command, env=first.environment, stderr=subprocess.PIPE, text=True) as up:
        assert up.stderr is not None
        next(line for line in up.stderr if line.startswith("[1"))
        stop_between_transactions(first)
        try:
            second.run("daemon", "start")
            assert "interrupted" in second.run("operation", "list").stdout
            second.run("down", "--yes", name)
            assert second.json("status") == []
        finally:
            os.kill(pid, signal.SIGCONT)
        assert ended(pid, 60)
        up.communicate(timeout=240)
        assert up.returncode != 0
    assert "has taken over these hosts" in first.log()
    assert second.json("orphans", file) == [], "the one that woke made something"
    second.run("daemon", "stop")
    second.run("daemon", "start")
    assert second.json("orphans", file) == [], "the one that woke wrote its world down"
    second.run("up", "--yes", file)
    assert {row["state"] for row in second.json("status", name)} == {"present"}


def test_a_power_command_that_waited_for_a_sleeping_daemon_is_not_carried_out(
    two: tuple[Rack, Rack],
) -> None:
    first, second = two
    name = first.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{first.bmc()}nodes: [{{count: 1}}]\n"
    first.run("up", "--yes", first.file(text))
    written = first.directory / "state" / "simulated" / "sim.json"
    machine = first.bmcs(name)["node-0"]["uuid"]
    until(lambda: written.exists() and machine in written.read_text())
    pid = first.daemon_pid()
    stop(pid)
    try:
        power = subprocess.Popen(
            ["nospoon", "node", "power", f"{name}/node-0", "on"], env=first.environment,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        second.run("daemon", "start")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert ended(pid, 60)
    power.communicate(timeout=240)
    assert power.returncode != 0
    second.run("daemon", "stop")
    (row,) = second.json("node", "list")
    assert row["power"] == "off"


def test_a_daemon_that_slept_and_was_not_missed_goes_on(two: tuple[Rack, Rack]) -> None:
    first, second = two
    name = first.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{first.bmc()}nodes: [{{count: 1}}]\n"
    first.run("up", "--yes", first.file(text))
    pid = first.daemon_pid()
    stop(pid)
    time.sleep(LEASE * 1.5)
    os.kill(pid, signal.SIGCONT)
    first.ipmitool(first.bmcs(name)["node-0"], "power", "on")
    until(lambda: first.json("node", "show", f"{name}/node-0")["power"] == "on")
    first.crash()
    before = waits(first)
    first.run("status", name)
    assert first.daemon_pid() != pid
    assert waits(first) == before, "the same place starts again without waiting"
    first.run("down", "--yes", first.names.pop())
    first.run("daemon", "stop")
    second.run("daemon", "start")
