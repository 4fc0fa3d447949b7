"""How a container starts, ends, and is kept."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict, TypeVar

from nospoon.providers.docker.program.engines import INIT, Engine, Limits
from nospoon.providers.docker.program.nics import Nic, plug, unplug
from nospoon.providers.docker.program.processes import began, content, run, write
from nospoon.providers.docker.program.reboots import Reboots
from nospoon.providers.docker.program.record import Record
from nospoon.providers.docker.program.roots import mount_root, unmount_root
from nospoon.providers.docker.program.wire import LONGEST, PIECE, EngineAway, EngineError

REBOOTED = 128 + signal.SIGHUP
"""Status of an init that rebooted: the kernel ends it by SIGHUP (pid_namespaces(7), reboot(2))."""
NOT_EXECUTED = 127
"""Status where the init cannot be executed, as a shell has it."""
SETTLES = 15.0
"""Seconds within which what was killed is gone."""
AWAY = 600.0
"""Seconds for which an engine may be away that has to say how a container ended."""
Answer = TypeVar("Answer")
HALT = signal.SIGRTMIN + 3
"""By which systemd halts: it blocks it and reads it from a descriptor (systemd(1), Signals)."""


class Start(TypedDict):
    """With what a container starts (start.json). `volume`: path of the file of its root; `record`:
    of its console's log; `memory`: bytes; `put_seed`: the program that writes cloud-init's data;
    `attach`: that which mounts volumes, "" where there are none; `volumes`: files and places.
    """

    container: str
    volume: str
    record: str
    cpus: int
    memory: int
    pids: int
    put_seed: str
    attach: str
    volumes: list[tuple[str, str]]
    nics: list[Nic]


class Given(TypedDict):
    """What `start` is given. `filters`: path -> content of each NIC's rules; `remove_filters`: the
    program that removes those of a start before, of its directory.
    """

    settings: Start
    filters: dict[str, str]
    remove_filters: str


def keeper_of(directory: Path) -> int:
    """Its process, 0 for none. It is known by its words: its number may be another's by now."""
    pid = content(directory / "pid")
    words = content(Path(f"/proc/{pid.decode()}/cmdline")) if pid.isdigit() else b""
    ends = tuple(b"\0%s\0%s\0" % (each, os.fsencode(directory)) for each in (b"start", b"tend"))
    return int(pid) if words.endswith(ends) else 0


def init_of(directory: Path) -> int:
    """Process of a container's init, 0 for none."""
    pid, _, since = content(directory / "init").decode().partition(" ")
    return int(pid) if pid.isdigit() and since and began(int(pid)) == since else 0


def settings(directory: Path) -> Start:
    """With what it starts. Earlier versions had no volumes; those before `bound_root` named no file
    of its root, which is beside its directory. Raises `OSError`, `ValueError`.
    """
    given: Start = json.loads((directory / "start.json").read_bytes())
    root = given["container"].removeprefix(f"{directory.parent.name}.")
    given.setdefault("volume", str(directory.parent / f"{root}.volume"))
    given.setdefault("attach", "")
    return given


def start_as_given(engine: Engine, place: str) -> None:
    """By what is at standard input. Of a daemon that was killed while it wrote, nothing is done."""
    try:
        given: Given = json.load(sys.stdin)
    except ValueError as error:
        raise EngineError("it is not wholly given with what to start") from error
    start(engine, place, given)


def start(engine: Engine, place: str, wanted: Given) -> None:
    """When what the start before has left is removed. Returns when it runs; the keeper goes on."""
    directory, given = Path(place), wanted["settings"]
    hold(directory)
    try:
        before = settings(directory)
    except (OSError, ValueError):
        before = given
    end(engine, directory, before)
    if before["container"] != given["container"]:
        end(engine, directory, given)
    if any(directory.glob("filter-*.xml")):
        run("sh", "-ec", wanted["remove_filters"], "sh", place)
    for path, text in wanted["filters"].items():
        write(Path(path), text)
    write(directory / "start.json", json.dumps(given))
    if engine.container(given["container"]) is None:
        raise EngineError(f"its root is gone: the engine has no container {given['container']}")
    shutil.copyfile(directory / "machine.json", directory / "live.json")
    Path(given["record"]).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        console = bring_up(engine, directory, given)
    except EngineError:
        end(engine, directory, given)
        raise
    leave_keeper(engine, directory, given, console)


def tend(engine: Engine, place: str) -> None:
    """A keeper for one that runs and has none: another program killed it."""
    directory = Path(place)
    try:
        given = settings(directory)
        hold(directory, patience=0.0)
    except (OSError, ValueError, EngineError):
        return
    if init_of(directory):
        leave_keeper(engine, directory, given, engine.console(given["container"]))


def hold(directory: Path, patience: float = LONGEST) -> int:
    """Be the only one who acts on a container, until this process and the keeper that it leaves
    have ended. A keeper that has it is ended; a start that goes on for a daemon that was killed
    leaves one first. Raises `EngineError` after `patience` seconds, `OSError` where it is gone.
    """
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= until:
                raise EngineError("another command acts on it") from error
            keeper = keeper_of(directory)
            with contextlib.suppress(ProcessLookupError):
                if keeper:
                    os.kill(keeper, signal.SIGKILL)
            time.sleep(0.02)
        else:
            return lock


def leave_keeper(engine: Engine, directory: Path, given: Start, console: socket.socket) -> None:
    """A process that goes on when this one has ended."""
    written, writing = os.pipe()
    keeper = os.fork()
    if keeper == 0:
        os.setsid()
        os.close(writing)
        os.read(written, 1)  # until `pid` is there: it is removed where the container ended by then
        os.close(written)
        null = os.open("/dev/null", os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(null, each)
        keep(engine, directory, given, console)
        os._exit(0)
    os.close(written)
    write(directory / "pid", str(keeper))
    os.close(writing)


def bring_up(engine: Engine, directory: Path, given: Start) -> socket.socket:
    """Its console, when its init was begun."""
    name = given["container"]
    mount_root(engine, name, Path(given["volume"]))
    limits = Limits(given["cpus"], given["memory"], given["pids"])
    if engine.missed_end(name):
        end_a_run(engine, name, limits)
    pid = engine.prepare(name, limits)
    delegate(pid)
    for number, nic in enumerate(given["nics"]):
        plug(pid, number, nic)
    if given["attach"]:
        attach_volumes(pid, directory, given)
    if (directory / "seed.json").exists():
        put_seed(pid, directory / "seed.json", given["put_seed"])
    console = engine.console(name)
    engine.begin(name, pid)
    if not began(pid) and ended(engine, name) == NOT_EXECUTED:
        raise EngineError(f"its init ended at once, with {NOT_EXECUTED}: can {INIT} be executed?")
    write(directory / "init", f"{pid} {began(pid)}")  # from now on it is seen to run
    return console


def end_a_run(engine: Engine, name: str, limits: Limits) -> None:
    """One in which nothing of its image runs. It may fail: the next one is to work."""
    with contextlib.suppress(EngineError):
        engine.prepare(name, limits)
    with contextlib.suppress(EngineError):
        engine.end(name)
    ended(engine, name)


def delegate(pid: int) -> None:
    """systemd has groups of its own in that of version 2, or in that of its name, and in no other
    (CGROUP_DELEGATION.md of systemd).
    """
    first = int(content(Path(f"/proc/{pid}/uid_map")).split()[1])
    for line in content(Path(f"/proc/{pid}/cgroup")).decode().splitlines():
        number, kind, path = line.split(":", 2)
        mounts = {"0": ("", "unified")}.get(number, ("systemd",) * (kind == "name=systemd"))
        for mount in mounts:
            group = Path(f"/sys/fs/cgroup/{mount}/{path.lstrip('/')}")
            names = ("", "cgroup.procs", "tasks", "cgroup.threads", "cgroup.subtree_control")
            for each in names:
                with contextlib.suppress(FileNotFoundError):
                    os.chown(group / each, first, first)


def attach_volumes(pid: int, directory: Path, given: Start) -> None:
    """In its mounts, which end with it."""
    which = directory / "volumes.json"
    write(which, json.dumps(given["volumes"]))
    run("python3", "-I", "-S", "-c", given["attach"], str(pid), str(which))


def put_seed(pid: int, seed: Path, program: str) -> None:
    """As root in its user namespace alone, with its root: it follows no link out of it."""
    done = subprocess.run(
        ["nsenter", "-t", str(pid), "-U", "-i", "-n", "python3", "-I", "-S", "-c", program],
        input=seed.read_bytes(),
        cwd=f"/proc/{pid}/root",
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise EngineError(f"cloud-init's data: {done.stderr.decode(errors='replace').strip()}")


def keep(engine: Engine, directory: Path, given: Start, console: socket.socket) -> None:
    """Until it ends by itself. A service of the engine that ends meanwhile takes the console with
    it; the container goes on, and is asked for again. Whether a guest that ended then has rebooted,
    the engine says when it is back.
    """
    record, name = Record(Path(given["record"])), given["container"]
    reboots = Reboots(time.monotonic())
    while True:
        with contextlib.suppress(OSError), console:
            while piece := console.recv(PIECE):
                record.add(piece)
        try:
            if lives(directory):
                console = console_again(engine, directory, name) or console
                continue
            if when_back(lambda: ended(engine, name)) != REBOOTED:
                break
            time.sleep(reboots.pause(time.monotonic()))
            console = bring_up_again(engine, directory, given)
            reboots.began = time.monotonic()
        except (EngineError, OSError) as error:  # without it a guest would run that no one sees
            note(directory, error)
            with contextlib.suppress(EngineError, OSError):
                end(engine, directory, given)  # what is prepared of it
            break
    clean(directory, given)


def note(directory: Path, error: Exception) -> None:
    with contextlib.suppress(OSError):
        write(directory / "log", f"{error}\n")


def console_again(engine: Engine, directory: Path, name: str) -> socket.socket | None:
    """Of a guest that goes on. None where the engine gives none, a second later: the guest may have
    ended by then.
    """
    try:
        return engine.console(name)
    except (EngineError, OSError) as error:
        note(directory, error)
        time.sleep(1)
        return None


def bring_up_again(engine: Engine, directory: Path, given: Start) -> socket.socket:
    """As `bring_up`, of a guest that rebooted. What fails otherwise than because the engine goes
    away would fail again.
    """
    try:
        return bring_up(engine, directory, given)
    except EngineAway:
        when_back(lambda: stop(engine, given))
        return bring_up(engine, directory, given)


def lives(directory: Path) -> bool:
    """Whether its init does, a moment after its console ended."""
    for _ in range(40):
        if not init_of(directory):
            return False
        time.sleep(0.025)
    return True


def ended(engine: Engine, name: str) -> int:
    """Its status, when it and what the engine does after it have ended; -1 for none. Until then the
    engine removes from a next start what it still takes for the one before.
    """
    until = time.monotonic() + SETTLES
    while (found := engine.container(name)) is not None:
        state = found["State"]
        late = time.monotonic() > until
        if state["Status"] in engine.ended or (late and state["Status"] == "stopped"):
            return int(state["ExitCode"])
        if late:
            raise EngineError(f"it does not end: the engine says {state['Status']}")
        time.sleep(0.02)
    return -1


def when_back(act: Callable[[], Answer]) -> Answer:
    """What it gives, of an engine that may be away."""
    until = time.monotonic() + AWAY
    while True:
        try:
            return act()
        except EngineAway:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def kill(engine: Engine, place: str) -> None:
    """At once, and its keeper before it, which would start it again."""
    directory = Path(place)
    try:
        given = settings(directory)
        hold(directory)
    except (OSError, ValueError):
        return
    end(engine, directory, given)


def end(engine: Engine, directory: Path, given: Start) -> None:
    stop(engine, given)
    clean(directory, given)


def stop(engine: Engine, given: Start) -> None:
    """Its processes; its links and its root are released."""
    name = given["container"]
    found = engine.container(name)
    if found is not None and found["State"]["Status"] not in engine.ended:
        with contextlib.suppress(EngineError):
            engine.end(name)
        ended(engine, name)
    release(given)


def release(given: Start) -> None:
    for nic in given["nics"]:
        if nic["bridge"]:
            unplug(nic)
    unmount_root(Path(given["volume"]))


def clean(directory: Path, given: Start) -> None:
    release(given)
    for each in ("live.json", "init", "pid"):
        (directory / each).unlink(missing_ok=True)


def shut_down(place: str) -> None:
    """Ask its init as it expects it: one that blocks systemd's signal is a systemd."""
    pid = init_of(Path(place))
    status = content(Path(f"/proc/{pid}/status")).decode(errors="replace")
    blocked = next((x.split()[1] for x in status.splitlines() if x.startswith("SigBlk:")), "0")
    halts = int(blocked, 16) >> (HALT - 1) & 1
    with contextlib.suppress(ProcessLookupError):
        if pid:
            os.kill(pid, HALT if halts else signal.SIGPWR)


def show_console(engine: Engine, place: str) -> None:
    """What it says to standard output, and standard input typed."""
    given = settings(Path(place))
    console = engine.console(given["container"])

    def type_all() -> None:
        while piece := os.read(0, PIECE):
            console.sendall(piece)
        console.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=type_all, daemon=True).start()
    with contextlib.suppress(OSError):
        while piece := console.recv(PIECE):
            os.write(1, piece)
