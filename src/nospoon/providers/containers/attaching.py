"""What mounts volumes in a container: a program of Python's standard library, run on its host.

    attaching PID VOLUMES

PID is the container's init, which has its namespaces and its root and runs nothing yet. VOLUMES is
a file of JSON: [[FILE, PLACE], …], ext4 in a file and an absolute path in the container. What is in
them belongs to the container's own ids, from 0 on, and they are mounted with the ids that these are
on the host (mount_setattr(2), ID-mapped mounts): a volume goes from one container to the next,
whatever ids that has. It ends with 1 and why on standard error.

A path is looked up by a process that is root in the container alone, so that a link in it leads to
no place of the host. An empty volume begins with what the image has at its place, as those of
Docker do; that is read and written by such a process as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

OPEN_TREE, MOVE_MOUNT, OPENAT2, MOUNT_SETATTR = 428, 429, 437, 442
"""Numbers of system calls, the same on every architecture (syscall.tbl)."""
AT_FDCWD, AT_EMPTY_PATH, CLONE_TREE, CLOEXEC = -100, 0x1000, 1, 0o2000000
FROM_AND_TO_EMPTY_PATH = 0x04 | 0x40
NOSUID, NODEV, IDMAP = 0x2, 0x4, 0x00100000
NO_MAGICLINKS = 0x02
NEWNS, NEWUSER = 0x00020000, 0x10000000
REC_PRIVATE, DETACH = 0x4000 | 0x40000, 2
MEMORY, SECONDS = 1 << 30, 600
BEGUN = ".nospoon-begun"
"""A file of a volume that has not all of its first content yet."""
CONFINED = Path("/proc/self/attr/apparmor/current")
"""AppArmor's profile of this process. It is not there where the kernel has no AppArmor."""
LIBC = ctypes.CDLL(None, use_errno=True)
MOUNT = """
for turn in $(seq 100); do
  [ -n "$(losetup -j "$1")" ] || break
  sleep 0.1
done
[ -z "$(losetup -j "$1")" ] || { echo "it is mounted elsewhere" >&2; exit 1; }
blocks=$(dumpe2fs -h "$1" 2>/dev/null |
  awk -F: '/^Block (count|size):/ {value = value ? value * $2 : $2} END {printf "%.0f", value}')
[ "$blocks" -ge "$(($(stat -c %s "$1") - 4096))" ] || {
  e2fsck -f -p "$1" >/dev/null || [ $? -le 1 ]
  resize2fs "$1" >/dev/null 2>&1
}
mount -t ext4 -o loop,nodev,nosuid,noatime "$1" "$2"
"""
"""Shell: mount a file system that has ended elsewhere: the mounts of a container do so a moment
after its processes. It becomes as large as its file before. Its type is named, for a guest could
write what mount(8) takes for another one, such as the end of a disk of a RAID.
"""


class Failure(Exception):
    """Why a volume is not there."""


class Attributes(ctypes.Structure):
    """struct mount_attr of mount_setattr(2)."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class How(ctypes.Structure):
    """struct open_how of openat2(2)."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def call(what: str, number: int, *words: object) -> int:
    return done(what, LIBC.syscall(number, *words))


def done(what: str, result: int) -> int:
    if result < 0:
        raise Failure(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def apart(work: Callable[[], None]) -> None:
    """In a process of its own. Raises `Failure` with what it said."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            work()
        except BaseException as error:  # noqa: BLE001  (it is said by the one who waits)
            os.write(write, (str(error) or type(error).__name__).encode()[:1000])
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as said:
        why = said.read().decode(errors="replace")
    if os.waitpid(child, 0)[1] != 0:
        raise Failure(why or "it was killed")


def directory(place: str) -> int:
    """Descriptor of a directory, made where it is not there. It follows no link of /proc to a file
    of another process (RESOLVE_NO_MAGICLINKS): liblxc's has its host's directories open, and is as
    much the container's user as this one.
    """
    found = os.open("/", os.O_PATH | os.O_CLOEXEC)
    how = How(os.O_DIRECTORY | os.O_CLOEXEC, 0, NO_MAGICLINKS)
    for name in Path(place).parts[1:]:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=found)
        words = (found, os.fsencode(name), ctypes.byref(how), ctypes.sizeof(how))
        below = LIBC.syscall(OPENAT2, *words)
        if below < 0:
            raise Failure(f"{os.strerror(ctypes.get_errno())}: {name!r}")
        os.close(found)
        found = below
    return found


class Inside:
    """A process that is root in a container alone; it sees its root."""

    def __init__(self, user: int, mounts: int) -> None:
        self._user, self._mounts = user, mounts

    def enter(self) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        done("entering its users", LIBC.setns(self._user, NEWUSER))
        done("entering its mounts", LIBC.setns(self._mounts, NEWNS))
        os.setgroups([])
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        sys.meta_path.clear()  # from here on no module is its container's

    def opened(self, place: str) -> int:
        """Descriptor of a directory, made where it is not there."""
        near, far = socket.socketpair()

        def work() -> None:
            self.enter()
            socket.send_fds(far, [b"."], [directory(place)])

        with near, far:
            apart(work)
            _, (found,), _, _ = socket.recv_fds(near, 1, 1)
            return found

    def filled(self, place: str, before: int) -> None:
        """A volume at its place, where it is empty, with what was there: directory `before`."""

        def work() -> None:
            self.enter()
            os.fchdir(directory(place))
            begun = Path(BEGUN)
            if not begun.exists() and has_content(each.name for each in os.scandir()):
                return
            for each in list(Path().iterdir()):
                if each != begun:
                    remove(each)
            begun.touch(mode=0o600)
            copied(before)
            begun.unlink()

        apart(work)


def has_content(names: Iterator[str]) -> bool:
    """Of a volume. It may have millions of files, of which no more are read than are needed."""
    return any(name not in ("lost+found", BEGUN) for name in names)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def copied(before: int) -> None:
    """A directory into the working one, with owners, modes, times and links."""
    tarfile.pwd = tarfile.grp = None  # type: ignore[attr-defined]  # names are of other files
    read, write = os.pipe()

    def pack() -> None:
        os.close(read)
        os.fchdir(before)
        with os.fdopen(write, "wb") as out, tarfile.open(fileobj=out, mode="w|") as archive:
            archive.add(".")

    def unpack() -> None:
        with os.fdopen(read, "rb") as packed:
            archive = tarfile.open(fileobj=packed, mode="r|", errorlevel=2)  # noqa: SIM115
            archive.extraction_filter = lambda member, _: member
            archive.extractall(".", numeric_owner=True)  # noqa: S202  (the container's own)

    child = os.fork()
    if child == 0:
        try:
            pack()
        except BaseException:  # noqa: BLE001  (whoever unpacks says that it is cut off)
            os._exit(1)
        os._exit(0)
    os.close(write)
    try:
        unpack()
    finally:
        status = os.waitpid(child, 0)[1]
    if status != 0:
        raise Failure("what its image has there cannot be read")


@contextlib.contextmanager
def mounted(file: str, user: int) -> Iterator[int]:
    """A volume as a mount that is at no place yet, with the container's ids."""
    with tempfile.TemporaryDirectory(prefix="nospoon-volume-") as place:
        ended = subprocess.run(
            ["sh", "-ec", MOUNT, "sh", file, place], capture_output=True, text=True, check=False
        )
        if ended.returncode != 0:
            raise Failure(ended.stderr.strip() or "it cannot be mounted")
        try:
            tree = call("open_tree", OPEN_TREE, AT_FDCWD, place.encode(), CLONE_TREE | CLOEXEC)
        finally:
            done("umount", LIBC.umount2(place.encode(), DETACH))
    wanted = Attributes(NOSUID | NODEV | IDMAP, 0, 0, user)
    size = ctypes.sizeof(wanted)
    try:
        call("its ids", MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, ctypes.byref(wanted), size)
        yield tree
    finally:
        os.close(tree)


def attach(pid: int, file: str, place: str) -> None:
    """One volume."""
    if not Path(file).exists():
        raise Failure(f"the file {file} is gone")
    user = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    inside = Inside(user, mounts)
    before = inside.opened(place)

    def work() -> None:
        done("unshare", LIBC.unshare(NEWNS))
        done("private mounts", LIBC.mount(b"none", b"/", None, REC_PRIVATE, None))
        with mounted(file, user) as tree:
            done("entering its mounts", LIBC.setns(mounts, NEWNS))
            call("move_mount", MOVE_MOUNT, tree, b"", before, b"", FROM_AND_TO_EMPTY_PATH)

    apart(work)
    inside.filled(place, before)
    for each in (before, mounts, user):
        os.close(each)


def leave_profile() -> None:
    """AppArmor's profile of lxc-start, which this inherits, lets its commands mount almost nothing,
    and lets them leave it (`change_profile -> unconfined` in its abstractions/lxc/start-container).
    The container is not in it: liblxc gives that its own.
    """
    try:
        profile = CONFINED.read_text()
    except OSError:  # not there, or not in use
        return
    if "lxc-start" in profile:
        CONFINED.write_text("changeprofile unconfined")


def main(pid: str, volumes: str, *_: str) -> None:
    leave_profile()
    for file, place in json.loads(Path(volumes).read_bytes()):
        try:
            attach(int(pid), file, place)
        except (Failure, OSError) as error:
            sys.exit(f"volume {Path(file).stem} at {place}: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
