"""What is there on the host, and what runs: a program that imports next to nothing.

    observation ROOT SOCKET QUERY

It runs all the time. It writes a line for each record, for each file of a volume, for each
container that runs, and what the engine lists, as its JSON (RFC 8259), which the daemon takes
apart. `running` writes the files by which it knows what runs: `pid` of a keeper, `init` of an init,
with the time when that began.
"""

from __future__ import annotations

import os
import socket
import sys
import time

SOCKETS = ("/run/podman/podman.sock", "/run/docker.sock")
OUT = sys.stdout.buffer


def content(path: str) -> bytes:
    """Of a file, b"" where it is not there."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  (pathlib takes as long as the rest)
            return file.read().strip()
    except OSError:
        return b""


def names(directory: str) -> list[str]:
    try:
        return sorted(each for each in os.listdir(directory) if each[:1] != ".")  # noqa: PTH208
    except OSError:
        return []


def keeper_of(directory: str) -> bytes:
    """Its process, b"0" for none. It is known by its words: its number may be another's by now."""
    pid = content(f"{directory}/pid")
    words = content(f"/proc/{pid.decode()}/cmdline") if pid.isdigit() else b""
    ends = tuple(b"\0%s\0%s\0" % (each, os.fsencode(directory)) for each in (b"start", b"tend"))
    return pid if words.endswith(ends) else b"0"


def init_of(directory: str) -> bytes:
    """The container's init, b"0" for none (proc_pid_stat(5), 3 and 22)."""
    pid, _, since = content(f"{directory}/init").partition(b" ")
    if not pid.isdigit():
        return b"0"
    fields = content(f"/proc/{pid.decode()}/stat").rpartition(b")")[2].split()
    return pid if fields[19:20] == [since] and fields[0] not in (b"Z", b"X") else b"0"


def record(root: str, path: str) -> None:
    said = content(f"{root}/{path}")
    if said:
        OUT.write(b"record %s %s\n" % (os.fsencode(path), said.replace(b"\n", b" ")))


def look(root: str, pool: str) -> None:
    for name in names(f"{root}/{pool}"):
        path = f"{pool}/{name}"
        if name == "pool.json" or name.endswith((".image.json", ".volume.json")):
            record(root, path)
        elif name.endswith(".volume"):
            try:
                size = os.stat(f"{root}/{path}").st_size  # noqa: PTH116
            except OSError:
                continue
            OUT.write(b"size %s %d\n" % (os.fsencode(path), size))
        elif not name.endswith((".json", ".image")):
            record(root, f"{path}/machine.json")
            keeper, init = keeper_of(f"{root}/{path}"), init_of(f"{root}/{path}")
            if keeper != b"0" or init != b"0":
                OUT.write(b"runs %s %s %s\n" % (os.fsencode(path), keeper, init))
                record(root, f"{path}/live.json")


def check_peer(engine: socket.socket, where: str) -> None:
    """As `wire.connected` does: user of who listens (unix(7), SO_PEERCRED)."""
    peer = engine.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    user = int.from_bytes(peer[4:8], sys.byteorder)
    if user not in (0, os.geteuid()):
        sys.exit(f"what listens at {where} is not root's: it is user {user}'s")


def listed(where: str, kind: str, query: str) -> None:
    """Podman fails to list what another request is removing at that moment, or an import that was
    cut off.
    """
    for pause in (0.05, 0.2, 0.5, 1.0, 2.0, None):
        head, _, body = answer(where, f"/{kind}/json?{query}").partition(b"\r\n\r\n")
        status = head.split()[1:2]
        if status == [b"200"]:
            OUT.write(b"listed %s %s\n" % (kind.encode(), body.replace(b"\n", b" ")))
            return
        if pause is None or status != [b"500"]:
            why = (body.strip() or head)[:200].decode(errors="replace")
            sys.exit(f"the engine at {where} does not list its {kind}: {why}")
        time.sleep(pause)


def answer(where: str, target: str) -> bytes:
    """HTTP/1.0: it ends with the connection."""
    asked = f"GET {target} HTTP/1.0\r\nHost: engine\r\n\r\n"
    said = b""
    try:
        with socket.socket(socket.AF_UNIX) as engine:
            engine.settimeout(60)
            engine.connect(where)
            check_peer(engine, where)
            engine.sendall(asked.encode())
            while piece := engine.recv(1 << 16):
                said += piece
    except OSError as error:
        sys.exit(f"no engine answers at {where}: {error.strerror}")
    return said


def main(root: str, where: str, query: str) -> None:
    pools = names(root)
    for pool in pools:
        look(root, pool)
    if pools:
        for kind in ("containers", "images"):
            listed(where or next(filter(os.path.exists, SOCKETS), SOCKETS[0]), kind, query)


if __name__ == "__main__":
    main(*sys.argv[1:])
