"""What runs on the host: one program, of Python's standard library alone, that is sent there.

It speaks to the engine by HTTP over its unix socket: Docker's API (v1.40), and Podman's own for
what Docker's has not. `init` is one: a container has its namespaces and control groups then, and
runs nothing yet. So its links, limits and cloud-init's data are there before it runs anything.

    program SOCKET COMMAND WORDS…

A command ends with 0 and what it found on standard output, or with 1 and why not on standard error.
`start` leaves a process behind, the container's keeper: it writes the console's log, and starts a
container that rebooted again with its links, which no engine does.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlencode

SOCKETS = ("/run/podman/podman.sock", "/run/docker.sock")
"""Where engines listen, by the order in which they are looked for."""
LABEL = "nospoon.root"
"""Of a container and an image: the directory of pools in which their records are."""
DOCKER, LIBPOD = "/v1.40", "/v4.0.0/libpod"
REBOOTED = 128 + signal.SIGHUP
"""Status of an init that rebooted: the kernel ends it by SIGHUP (pid_namespaces(7), reboot(2))."""
RECORD = 2 << 20
"""Bytes of a console's log, as virtlogd's files have; the one before is kept as .1."""
PIECE = 1 << 16
IDS = 65_536
"""Users of a container: Debian's and Fedora's highest is 65534."""
FILES = 65_536
"""Descriptors of a process, where the host lets it have as many."""
LONGEST = 600.0
"""Seconds for an answer: an image of gigabytes is read meanwhile."""
SETTLES = 15.0
"""Seconds within which what was killed is gone."""
PAUSES = (0.0, 0.0, 0.0, 1.0, 2.0, 4.0, 8.0)
"""Seconds before reboots of a guest that ran for less than `RUNS`, one after the other: each costs
its host half a second of a processor.
"""
RUNS = 30.0
HALT = signal.SIGRTMIN + 3
"""By which systemd halts: it blocks it and reads it from a descriptor (systemd(1), Signals)."""
ADDED = ("SYS_ADMIN", "SYS_BOOT", "SYS_PTRACE", "NET_ADMIN", "NET_RAW", "AUDIT_WRITE", "MKNOD")
"""Capabilities besides the engine's, in the container's own user namespace: systemd mounts and
reboots, networkd sets addresses.
"""
CHANGES = ('CMD ["/sbin/init"]', "STOPSIGNAL SIGRTMIN+3")
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Programs that a container's user can run, too, as it cannot a python3 of root's (pyenv)."""
PEER = struct.Struct("iII")
"""Process, user and group of who listens at a socket (unix(7), SO_PEERCRED)."""
ENDED = ("created", "configured", "exited")
"""States of a container that has no process."""
THERE = 17
"""Status where a name is another's (EEXIST)."""
GROW = """
blocks=$(dumpe2fs -h "$1" 2>/dev/null |
  awk -F: '/^Block (count|size):/ {value = value ? value * $2 : $2} END {printf "%.0f", value}')
[ "$blocks" -ge "$(($(stat -c %s "$1") - 4096))" ] || {
  for turn in $(seq 100); do
    [ -n "$(losetup -j "$1")" ] || break
    sleep 0.1
  done
  [ -z "$(losetup -j "$1")" ] || { echo "its root is mounted elsewhere" >&2; exit 1; }
  e2fsck -f -p "$1" >/dev/null || [ $? -le 1 ]
  resize2fs "$1" >/dev/null 2>&1
}
"""
"""Shell: a file system becomes as large as its file, when its mount before has ended: that does so
a moment after the processes of its container.
"""


class Nic(TypedDict):
    """`port`: of the link on the host; `bridge`: "" for none. `ovs`: settings of its port there, []
    for a Linux bridge's. `filter`: path of its rules, "" for none, and what puts them up and down.
    """

    port: str
    bridge: str
    mac: str
    ovs: list[str]
    filter: str
    filter_up: str
    filter_down: str


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


class ContainerState(TypedDict):
    Status: str
    Pid: int
    ExitCode: int


class Labeled(TypedDict):
    Labels: dict[str, str] | None


class Layers(TypedDict, total=False):
    UpperDir: str


class GraphDriver(TypedDict):
    Name: str
    Data: Layers | None


class Container(TypedDict):
    """What is read of libpod's `inspect`."""

    State: ContainerState
    Config: Labeled
    GraphDriver: GraphDriver | None


class Listed(TypedDict):
    """What is read of a list of containers or images."""

    Id: str
    Image: str
    Labels: dict[str, str]


class EngineError(Exception):
    """The engine refused a call, or something failed beside it. `status`: of HTTP, 0 for none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


def connected(path: str) -> socket.socket:
    """To an engine of root's or of one's own: what another user's says of processes is obeyed here
    with rights that this user has not.
    """
    made = socket.socket(socket.AF_UNIX)
    try:
        made.connect(path)
        peer = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
    except OSError as error:
        made.close()
        raise EngineError(f"no engine answers at {path}: {error.strerror}") from error
    user = PEER.unpack(peer)[1]
    if user not in (0, os.geteuid()):
        made.close()
        raise EngineError(f"what listens at {path} is not root's: it is user {user}'s")
    return made


class Engine:
    """Calls of the engine behind a socket."""

    def __init__(self, path: str) -> None:
        self.path = path or next(filter(os.path.exists, SOCKETS), SOCKETS[0])

    def call(
        self,
        method: str,
        target: str,
        *,
        body: object = None,
        stream: Iterable[bytes] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        """What it answers. Raises `EngineError`."""
        where = f"{target}?{urlencode(query)}" if query else target
        with connected(self.path) as connection:
            connection.settimeout(LONGEST)
            try:
                send(connection, f"{method} {where}", body, stream)
                status, said = answer(connection)
            except OSError as error:
                why = error.strerror or "it gave no answer in time"
                raise EngineError(f"the engine at {self.path} ended: {why}") from error
            except (ValueError, IndexError) as error:
                raise EngineError(f"what answers at {self.path} is not an engine") from error
        if status >= 400:
            raise EngineError(message_of(said), status)
        return said

    def get(self, target: str, **query: str) -> Any:
        return json.loads(self.call("GET", target, query=query) or b"null")

    def container(self, name: str) -> Container | None:
        """What it says of one, None where it is not there."""
        try:
            found: Container = self.get(f"{LIBPOD}/containers/{name}/json")
        except EngineError as error:
            if error.status == 404:
                return None
            raise
        return found

    def console(self, name: str) -> socket.socket:
        """Both ways: after the head of the answer come its bytes."""
        made = connected(self.path)
        query = "stream=1&stdin=1&stdout=1&stderr=1&detachKeys="
        made.sendall(
            f"POST {DOCKER}/containers/{name}/attach?{query} HTTP/1.1\r\nHost: engine\r\n"
            "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = made.recv(1)
            head += byte
            if not byte or len(head) > PIECE:
                raise EngineError("the engine gives no console")
        if head.split()[1] not in (b"101", b"200"):
            raise EngineError(f"the engine gives no console: {head.splitlines()[0]!r}")
        return made

    def pid(self, name: str) -> int:
        found = self.container(name)
        return int(found["State"]["Pid"]) if found is not None else 0


def send(
    connection: socket.socket, line: str, body: object, stream: Iterable[bytes] | None
) -> None:
    """A request (RFC 9112). http.client does it, too, and takes longer to import than all else:
    what is there is looked at all the time.
    """
    given = b"" if body is None else json.dumps(body).encode()
    kind = "application/json" if stream is None else "application/x-tar"
    size = f"Content-Length: {len(given)}" if stream is None else "Transfer-Encoding: chunked"
    head = f"{line} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nContent-Type: {kind}\r\n{size}"
    connection.sendall(f"{head}\r\n\r\n".encode() + given)
    if stream is not None:
        for piece in stream:
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        connection.sendall(b"0\r\n\r\n")


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """Status and content. Raises `ValueError` where it is not HTTP's."""
    with connection.makefile("rb") as file:
        status = int(file.readline(PIECE).split(maxsplit=2)[1])
        chunked = False
        while line := file.readline(PIECE).strip().lower():
            chunked |= line.startswith(b"transfer-encoding:") and b"chunked" in line
        if not chunked:
            return status, file.read()
        said = b""
        while size := int(file.readline(PIECE).split(b";")[0], 16):
            said += file.read(size)
            file.readline(PIECE)
        return status, said


def message_of(said: bytes) -> str:
    """What an answer says that is an error."""
    try:
        return str(json.loads(said)["message"])
    except (ValueError, KeyError, TypeError):
        return said[:200].decode(errors="replace").strip()


def run(*argv: str, stdin: bytes = b"", keeps: Sequence[int] = ()) -> str:
    """What a command said. Raises `EngineError` with its last line. `keeps`: files that it has open
    until it ends, also where this process is killed before.
    """
    done = subprocess.run(argv, input=stdin, capture_output=True, check=False, pass_fds=keeps)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise EngineError(f"{argv[0]}: {said[-1] if said else done.returncode}")
    return done.stdout.decode(errors="replace")


def content(path: Path) -> bytes:
    """Of a file, b"" where it is not there."""
    try:
        return path.read_bytes().strip()
    except OSError:
        return b""


def began(pid: int) -> str:
    """When a process began, by which it is another than one before of its number; "" for none
    (proc_pid_stat(5), 22). A zombie has ended.
    """
    fields = content(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
    return fields[19].decode() if len(fields) > 19 and fields[0] not in (b"Z", b"X") else ""


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


def facts(engine: Engine) -> None:
    """What a host has, as JSON."""
    said = connected(engine.path)
    said.close()
    info = engine.get(f"{DOCKER}/info")
    try:
        podman = str(engine.get(f"{LIBPOD}/version")["Version"])
    except (EngineError, ValueError, KeyError):
        podman = ""
    name = socket.gethostname()
    if "." not in name and not name.startswith("localhost"):
        with contextlib.suppress(EngineError, OSError):
            name = run("hostname", "-f").strip() or name
    ids = [
        any(line.startswith("containers:") for line in content(Path(each)).decode().splitlines())
        for each in ("/etc/subuid", "/etc/subgid")
    ]
    found = {
        "socket": engine.path,
        "podman": podman,
        "cpus": os.cpu_count() or 0,
        "memory": int(info["MemTotal"]),
        "name": name,
        "has_ids": all(ids),
        "directory": str(info.get("DockerRootDir", "")),
        "driver": str(info.get("Driver", "")),
        "lacks": [each for each in ("ip", "nsenter", "mkfs.ext4") if shutil.which(each) is None],
    }
    sys.stdout.write(json.dumps(found))


# Images and roots


def import_image(engine: Engine, name: str, root: str, path: str, reading: str) -> None:
    """Of a packed root at standard input. Another process reads it, which has no rights: what its
    headers ask for is limited, and what it leaves out does not reach the engine.
    """
    remove_image(engine, name)
    place = engine.get(f"{DOCKER}/info").get("DockerRootDir") or "/"
    space = os.statvfs(place)
    most = str(space.f_bavail * space.f_frsize // 2)
    reader = subprocess.Popen(
        ["python3", "-I", "-S", "-c", reading, most],
        stdin=sys.stdin.buffer,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        user=65534,
        group=65534,
        extra_groups=[],
        cwd="/",
    )
    assert reader.stdout is not None
    assert reader.stderr is not None
    stdout, stderr = reader.stdout, reader.stderr
    said: list[bytes] = []
    listening = threading.Thread(target=lambda: said.append(stderr.read()))
    listening.start()

    def pieces() -> Iterator[bytes]:
        while piece := stdout.read(PIECE):
            yield piece
        listening.join()
        if reader.wait() != 0:
            words = b"".join(said).decode(errors="replace").strip().splitlines()
            raise EngineError(words[-1] if words else "it cannot be read")

    changes = [*CHANGES, f"LABEL {LABEL}={root}", f"LABEL {LABEL}.path={path}"]
    query = [("fromSrc", "-"), ("repo", name), *(("changes", each) for each in changes)]
    try:
        answer = engine.call("POST", f"{DOCKER}/images/create?{urlencode(query)}", stream=pieces())
    finally:
        reader.kill()
        reader.wait()
        listening.join()
    for line in answer.splitlines():
        if b'"error"' in line:
            raise EngineError(str(json.loads(line).get("error")))
    if not Path(root, path).parent.exists():  # its daemon was killed, and the next one took it down
        remove_image(engine, name)


def remove_image(engine: Engine, name: str) -> None:
    try:
        engine.call("DELETE", f"{DOCKER}/images/{name}")
    except EngineError as error:
        if error.status != 404:
            raise


def make_root(
    engine: Engine, name: str, image: str, host: str, root: str, path: str, size: str
) -> None:
    """A container, which has its root from then on. `host`: its name within; `size`: bytes."""
    found = engine.container(name)
    if found is not None:
        check_owner(found, root, path)
        bound_root(engine, name, Path(root, path), int(size))
        return
    remove_volume(Path(root, path))  # of one that the engine has lost
    files = min(FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    engine.call(
        "POST",
        f"{DOCKER}/containers/create",
        query={"name": name},
        body={
            "Image": image,
            "Cmd": ["/sbin/init"],
            "Hostname": host,
            "Tty": True,
            "OpenStdin": True,
            "StopSignal": "SIGRTMIN+3",
            "Env": ["container=docker"],
            "Labels": {LABEL: root, f"{LABEL}.path": path},
            "HostConfig": {
                "NetworkMode": "none",
                "UsernsMode": f"auto:size={IDS}",
                "LogConfig": {"Type": "none"},
                "CapAdd": list(ADDED),
                "RestartPolicy": {"Name": "no"},
                "Ulimits": [
                    {"Name": "nofile", "Soft": 1024, "Hard": files},
                    {"Name": "nproc", "Soft": 4096, "Hard": 4096},
                ],
            },
        },
    )
    if not Path(root, path).parent.exists():
        remove_root(engine, name, root, path)
        return
    bound_root(engine, name, Path(root, path), int(size))


def layer_of(found: Container | None) -> Path | None:
    """Where the engine keeps what a container has written, None where its driver is not overlay."""
    driver = found["GraphDriver"] if found is not None else None
    above = (driver["Data"] or {}).get("UpperDir", "") if driver is not None else ""
    return Path(above).parent if driver and driver["Name"] == "overlay" and above else None


def bound_root(engine: Engine, name: str, volume: Path, size: int) -> None:
    """What a container writes goes into a file system in a file of that many bytes. The engine
    limits it on XFS with quotas alone; so its two directories are links that lead into that file
    system. Where it is not mounted they lead nowhere, and a container does not start.
    """
    layer = layer_of(engine.container(name))
    if layer is None:
        return
    if not volume.exists():
        make_volume(volume, layer / "diff", size)
    for each in ("diff", "work"):
        link(layer / each, mount_point(volume) / each)


def mount_point(volume: Path) -> Path:
    return volume.with_suffix(".root")


def make_volume(volume: Path, content: Path, size: int) -> None:
    """A file system with that directory, which has its name when it is whole. One process at a time
    makes it: who was killed may have left its commands.
    """
    part, work = Path(f"{volume}.part"), volume.with_name(f".making-{volume.name}")
    script = """
    mkfs.ext4 -q -F -m 0 -O ^resize_inode -E nodiscard "$1"
    mkdir -p -m 700 "$2"
    unshare --mount --propagation private sh -ec '
      mount -t ext4 -o loop,nodev,noatime "$1" "$2"
      rmdir "$2/lost+found"
      chmod 700 "$2"
      mkdir "$2/work"
      cp -a "$3" "$2/diff"
    ' sh "$1" "$2" "$3"
    rmdir "$2"
    """
    with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o600), "wb") as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        if volume.exists():  # another process has made it meanwhile
            part.unlink(missing_ok=True)
            return
        file.truncate(0)
        file.truncate(size)
        run("sh", "-ec", script, "sh", str(part), str(work), str(content), keeps=[file.fileno()])
        part.replace(volume)


def link(place: Path, target: Path) -> None:
    """In the place of a directory."""
    if place.is_symlink():
        return
    if place.exists():
        before = place.with_name(f"{place.name}.before")
        shutil.rmtree(before, ignore_errors=True)
        place.rename(before)
    place.symlink_to(target)
    shutil.rmtree(place.with_name(f"{place.name}.before"), ignore_errors=True)


def mount_root(engine: Engine, given: Start) -> None:
    """That of a container that has a limit; it grows before, where it is to be larger."""
    volume = Path(given["volume"])
    place = mount_point(volume)
    layer = layer_of(engine.container(given["container"]))
    if layer is None or not (layer / "diff").is_symlink() or place.is_mount():
        return
    if not volume.exists():
        raise EngineError(f"its root {volume} is gone")
    place.mkdir(mode=0o700, exist_ok=True)
    run("sh", "-ec", GROW, "sh", str(volume))
    run("mount", "-t", "ext4", "-o", "loop,nodev,noatime", str(volume), str(place))


def unmount_root(volume: Path) -> None:
    place = mount_point(volume)
    if place.is_mount():
        run("umount", str(place))
    with contextlib.suppress(FileNotFoundError):
        place.rmdir()


def remove_volume(volume: Path) -> None:
    unmount_root(volume)
    for each in (volume, Path(f"{volume}.part")):
        each.unlink(missing_ok=True)


def grow_root(engine: Engine, root: str, path: str, size: str) -> None:
    """The file; what is in it grows at the container's next start."""
    del engine
    if Path(root, path).exists():
        os.truncate(Path(root, path), int(size))


def check_owner(found: Container, root: str, path: str) -> None:
    """By both labels: another program's container of an image of nospoon's has those of its image.
    Ends the program with `THERE` where it is another's.
    """
    labels = found["Config"]["Labels"] or {}
    if (labels.get(LABEL), labels.get(f"{LABEL}.path")) != (root, path):
        sys.exit(THERE)


def remove_root(engine: Engine, name: str, root: str, path: str) -> None:
    found = engine.container(name)
    if found is None:
        remove_volume(Path(root, path))
        return
    check_owner(found, root, path)
    unmount_root(Path(root, path))
    with contextlib.suppress(EngineError):
        engine.call("DELETE", f"{DOCKER}/containers/{name}", query={"force": "1", "v": "1"})
    if engine.container(name) is not None:
        engine.call("DELETE", f"{DOCKER}/containers/{name}", query={"force": "1", "v": "1"})
    remove_volume(Path(root, path))


def clear(engine: Engine, root: str, pool: str) -> None:
    """What the engine has of a pool."""
    for each, path in listed(engine, "containers", root):
        if path.startswith(f"{pool}/") and path.endswith(".volume"):
            remove_root(engine, each["Id"], root, path)
    for each, path in listed(engine, "images", root):
        if path.startswith(f"{pool}/"):
            remove_image(engine, each["Id"])
    for place in Path(root, pool).glob("*.volume"):  # of containers that the engine has lost
        unmount_root(place)


def remove_unused(engine: Engine, name: str, root: str) -> None:
    """An image, and roots of it that were made for a daemon that was killed before it wrote their
    record: the engine removes no image that has any.
    """
    for each, path in listed(engine, "containers", root):
        is_root = each["Image"] == name and path.endswith(".volume")
        if is_root and not Path(root, f"{path}.json").exists():
            remove_root(engine, each["Id"], root, path)
    remove_image(engine, name)


def listed(engine: Engine, kind: str, root: str) -> list[tuple[Listed, str]]:
    """What nospoon made, and the paths of their records. Another program's container of an image
    has the labels of that, and its path.
    """
    wanted = json.dumps({"label": [f"{LABEL}={root}"]})
    found = engine.get(f"{DOCKER}/{kind}/json", all="1", filters=wanted)
    return [(each, str(each["Labels"].get(f"{LABEL}.path", ""))) for each in found]


# Power


def settings(directory: Path) -> Start:
    """With what it starts. Earlier versions had no volumes; those before `bound_root` named no file
    of its root, which is beside its directory. Raises `OSError`, `ValueError`.
    """
    given: Start = json.loads((directory / "start.json").read_bytes())
    root = given["container"].removeprefix(f"{directory.parent.name}.")
    given.setdefault("volume", str(directory.parent / f"{root}.volume"))
    given.setdefault("attach", "")
    return given


def start(engine: Engine, place: str) -> None:
    """By the settings beside it. Returns when it runs; the keeper goes on."""
    directory = Path(place)
    given = settings(directory)
    hold(directory)
    end(engine, directory, given)
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
    keeper = os.fork()
    if keeper == 0:
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(null, each)
        keep(engine, directory, given, console)
        os._exit(0)
    write(directory / "pid", str(keeper))


def write(path: Path, text: str) -> None:
    """In one step, for root alone."""
    part = path.with_name(f"{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    part.replace(path)


def bring_up(engine: Engine, directory: Path, given: Start) -> socket.socket:
    """Its console, when its init was begun."""
    name = given["container"]
    mount_root(engine, given)
    engine.call("POST", f"{LIBPOD}/containers/{name}/init")
    pid = engine.pid(name)
    if not pid:
        raise EngineError("the engine has made no process of it")
    write(directory / "init", f"{pid} {began(pid)}")
    limit(engine, name, given, pid)
    delegate(pid)
    for number, nic in enumerate(given["nics"]):
        plug(pid, number, nic)
    if given["attach"]:
        attach_volumes(pid, directory, given)
    if (directory / "seed.json").exists():
        put_seed(pid, directory / "seed.json", given["put_seed"])
    console = engine.console(name)
    engine.call("POST", f"{DOCKER}/containers/{name}/start")
    return console


def limit(engine: Engine, name: str, given: Start, pid: int) -> None:
    """Version 1 counts what is swapped out with memory, where the kernel counts it at all; version
    2 gives a container all the swap of its host, if it is not limited to none.
    """
    memory = {"limit": given["memory"]}
    for line in content(Path(f"/proc/{pid}/cgroup")).decode().splitlines():
        number, _, path = line.split(":", 2)
        if number == "0" and Path(f"/sys/fs/cgroup{path}/memory.swap.max").exists():
            memory["swap"] = given["memory"]  # of both together (config-linux.md of runtime-spec)
    body = {
        "cpu": {"quota": given["cpus"] * 100_000, "period": 100_000},
        "memory": memory,
        "pids": {"limit": given["pids"]},
    }
    engine.call("POST", f"{LIBPOD}/containers/{name}/update", body=body)


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


def plug(pid: int, number: int, nic: Nic) -> None:
    """A link into its network, up at both ends, with its filter before it is."""
    port, bridge = nic["port"], nic["bridge"]
    if not bridge:
        return
    unplug(nic)
    run(
        "ip", "link", "add", port, "type", "veth",
        "peer", "name", f"eth{number}", "address", nic["mac"], "netns", str(pid),
    )  # fmt: skip
    if nic["ovs"]:
        run("ovs-vsctl", "--timeout=5", "--may-exist", "add-port", bridge, port, *nic["ovs"][1:])
    else:
        run("ip", "link", "set", "dev", port, "master", bridge)
    if nic["filter"]:
        run("sh", "-c", nic["filter_up"], nic["filter"])
    run("ip", "link", "set", "dev", port, "up")
    run("nsenter", "-t", str(pid), "-n", "ip", "link", "set", "dev", f"eth{number}", "up")


def unplug(nic: Nic) -> None:
    port = nic["port"]
    if Path(f"/sys/class/net/{port}").exists():
        with contextlib.suppress(EngineError):
            run("ip", "link", "del", "dev", port)
    if nic["ovs"]:
        run("ovs-vsctl", "--timeout=5", "--if-exists", "del-port", port)
    if nic["filter"]:
        run("sh", "-c", nic["filter_down"], port)


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
    it; the container goes on, and is asked for again.
    """
    record, name = Record(Path(given["record"])), given["container"]
    reboots = Reboots(time.monotonic())
    while True:
        with contextlib.suppress(OSError), console:
            while piece := console.recv(PIECE):
                record.add(piece)
        try:
            if lives(directory):
                console = engine.console(name)
                continue
            if ended(engine, name) != REBOOTED:
                break
            time.sleep(reboots.pause(time.monotonic()))
            console = bring_up(engine, directory, given)
            reboots.began = time.monotonic()
        except EngineError as error:
            write(directory / "log", f"{error}\n")
            if not init_of(directory):
                break
            time.sleep(1)
    clean(directory, given)


class Reboots:
    """How long each waits. `began`: when the guest did, by the clock of all arguments."""

    def __init__(self, began: float) -> None:
        self.began, self._early = began, 0

    def pause(self, now: float) -> float:
        """Seconds, of the one that comes now."""
        self._early = self._early + 1 if now - self.began < RUNS else 0
        return PAUSES[min(self._early, len(PAUSES) - 1)]


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
        if state["Status"] in ENDED or (late and state["Status"] == "stopped"):
            return int(state["ExitCode"])
        if late:
            raise EngineError(f"it does not end: the engine says {state['Status']}")
        time.sleep(0.02)
    return -1


class Record:
    """The log of a console: no larger than `RECORD`, with the one before it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, piece: bytes) -> None:
        with contextlib.suppress(OSError):
            if self._path.exists() and self._path.stat().st_size + len(piece) > RECORD:
                self._path.replace(f"{self._path}.1")
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
                file.write(piece)


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
    name = given["container"]
    found = engine.container(name)
    if found is not None and found["State"]["Status"] not in ENDED:
        query = {"timeout": "0", "ignore": "true"}
        with contextlib.suppress(EngineError):
            engine.call("POST", f"{LIBPOD}/containers/{name}/stop", query=query)
        ended(engine, name)
    clean(directory, given)


def clean(directory: Path, given: Start) -> None:
    for nic in given["nics"]:
        if nic["bridge"]:
            unplug(nic)
    unmount_root(Path(given["volume"]))
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


def main(words: Sequence[str]) -> None:
    where, command, *given = words
    os.environ["PATH"] = f"{SYSTEM}:{os.environ.get('PATH', '')}"
    engine = Engine(where)
    commands: dict[str, Callable[..., None]] = {
        "facts": facts,
        "import": import_image,
        "remove-image": remove_unused,
        "make-root": make_root,
        "remove-root": remove_root,
        "grow-root": grow_root,
        "start": start,
        "clear": clear,
        "kill": kill,
        "tend": tend,
        "console": show_console,
    }
    try:
        if command == "shut-down":
            shut_down(*given)
        else:
            commands[command](engine, *given)
    except EngineError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
