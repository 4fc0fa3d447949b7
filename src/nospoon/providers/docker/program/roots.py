"""Images and roots: the engine's own, with the paths of their records as labels."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TypedDict
from urllib.parse import urlencode

from nospoon.providers.docker.program import shown
from nospoon.providers.docker.program.engines import Container, Engine
from nospoon.providers.docker.program.processes import run
from nospoon.providers.docker.program.space import KEPT_FREE, importing
from nospoon.providers.docker.program.wire import PIECE, EngineError

LABEL = "nospoon.root"
"""Of a container and an image: the directory of pools in which their records are."""
THERE = 17
"""Status where a name is another's (EEXIST)."""
BUSY = (0.0, 0.5, 2.0)
"""Seconds before a container is removed again: on a busy host, Podman 4.3 finds the /dev/shm of one
that has just ended "busy".
"""
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


class Listed(TypedDict):
    """What is read of a list of containers (`Image`) or images (`RepoTags`)."""

    Image: str
    RepoTags: list[str] | None
    Labels: dict[str, str]


def root_name(path: str) -> str:
    """The engine's name of what has its record at that path, without its ending."""
    place = PurePosixPath(path)
    return f"{place.parent.name}.{place.stem}"


def image_name(path: str) -> str:
    return f"localhost/{PurePosixPath(path).parent.name}/{PurePosixPath(path).stem}:latest"


def import_image(engine: Engine, name: str, root: str, path: str, place: str, reading: str) -> None:
    """Of a packed root at standard input. Another process reads it, which has no rights: what its
    headers ask for is limited, and what it leaves out does not reach the engine. `place`: where the
    engine keeps images, for which Podman needs half a second to say.
    """
    remove_image(engine, name)
    disk = os.statvfs(place)
    most = [str(most_of_image(disk)), *map(str, most_members(disk))]
    reader = subprocess.Popen(
        ["python3", "-I", "-S", "-c", reading, *most],
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
            under_way.add(len(piece))
            yield piece
        listening.join()
        if reader.wait() != 0:
            words = b"".join(said).decode(errors="replace").strip().splitlines()
            raise EngineError(words[-1] if words else "it cannot be read")

    changes = [*engine.changes, f"LABEL {LABEL}={root}", f"LABEL {LABEL}.path={path}"]
    query = [*engine.import_query(name), *(("changes", each) for each in changes)]
    try:
        with importing(Path(root), place) as under_way:
            answer = engine.call("POST", f"{engine.imports}?{urlencode(query)}", stream=pieces())
    finally:
        reader.kill()
        reader.wait()
        listening.join()
    for line in answer.splitlines():
        if b'"error"' in line:
            raise EngineError(str(json.loads(line).get("error")))
    if not Path(root, path).parent.exists():  # its daemon was killed, and the next one took it down
        remove_image(engine, name)


def most_of_image(space: os.statvfs_result) -> int:
    """Bytes that an unpacked image may have, of which the engine may keep a second copy meanwhile:
    half of what is free, but for a tenth of the disk. Some kilobytes that are packed well become
    as much, and several such images would take ever more halves.
    """
    return max(0, space.f_bavail - space.f_blocks // KEPT_FREE) * space.f_frsize // 2


def most_members(space: os.statvfs_result) -> list[int]:
    """Files that it may have: of the disk's inodes the same part. [] where that has no number of
    them, as Btrfs.
    """
    if not space.f_files:
        return []
    return [max(0, space.f_favail - space.f_files // KEPT_FREE) // 2]


def remove_image(engine: Engine, name: str) -> None:
    try:
        engine.call("DELETE", f"/images/{name}")
    except EngineError as error:
        if error.status != 404:
            raise


def make_root(
    engine: Engine,
    name: str,
    image: str,
    host: str,
    root: str,
    path: str,
    size: str,
    privileges: str = "",
) -> None:
    """A container, which has its root from then on. `host`: its name within; `size`: bytes;
    `privileges`: "" where its programs gain none by their files.
    """
    found = engine.container(name)
    if found is not None:
        check_owner(found, root, path)
        bound_root(engine, name, Path(root, path), int(size))
        return
    remove_volume(Path(root, path))  # of one that the engine has lost
    labels = {LABEL: root, f"{LABEL}.path": path}
    engine.create(name, image, host, labels, new_privileges=bool(privileges))
    if not Path(root, path).parent.exists():
        remove_root(engine, name, root, path)
        return
    bound_root(engine, name, Path(root, path), int(size))


def layer_of(engine: Engine, name: str) -> Path | None:
    """Where it keeps what a container has written, None where its driver has no place for that."""
    found = engine.container(name)
    driver = found["GraphDriver"] if found is not None else None
    above = (driver["Data"] or {}).get("UpperDir", "") if driver is not None else ""
    return Path(above).parent if driver and driver["Name"] == engine.overlay and above else None


def image_of(engine: Engine, name: str) -> list[Path]:
    """Layers of its image, the upper one first. One of the engine's own is above them: `ID-init` of
    Docker's.
    """
    found = engine.container(name)
    driver = found["GraphDriver"] if found is not None else None
    below = (driver["Data"] or {}).get("LowerDir", "") if driver is not None else ""
    layers = [Path(each) for each in below.split(":") if each]
    return [each for each in layers if not each.parent.name.endswith("-init")]


def written_of(engine: Engine, name: str) -> Path | None:
    """Where what a container with a limit writes is while that is mounted, None without one."""
    layer = layer_of(engine, name)
    bound = layer is not None and (layer / "diff").is_symlink()
    return (layer / "diff").readlink() if layer is not None and bound else None


def bound_root(engine: Engine, name: str, volume: Path, size: int) -> None:
    """What a container writes goes into a file system in a file of that many bytes. The engine
    limits it on XFS with quotas alone; so its two directories are links that lead into that file
    system. Where it is not mounted they lead nowhere, and a container does not start.
    """
    layer = layer_of(engine, name)
    if layer is None:
        return
    if not volume.exists():
        shown.keep_own(image_of(engine, name), layer / "diff", engine.covers)
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


def mount_root(engine: Engine, name: str, volume: Path) -> None:
    """The root of a container with a limit, which grows first where a larger one is asked for."""
    place = mount_point(volume)
    if written_of(engine, name) is None or place.is_mount():
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
    for pause in BUSY:
        with contextlib.suppress(EngineError):
            engine.call("DELETE", f"/containers/{name}", query={"force": "1", "v": "1"})
        if engine.container(name) is None:
            break
        time.sleep(pause)
    else:
        engine.call("DELETE", f"/containers/{name}", query={"force": "1", "v": "1"})
    remove_volume(Path(root, path))


def clear(engine: Engine, root: str, pool: str) -> None:
    """What the engine has of a pool, by its name: what others made of it (`commit`, `build`, `tag`)
    has the same labels.
    """
    for _, path in listed(engine, "containers", root):
        if path.startswith(f"{pool}/") and path.endswith(".volume"):
            remove_root(engine, root_name(path), root, path)
    for each, path in listed(engine, "images", root):
        if not (path.startswith(f"{pool}/") and path.endswith(".image")):
            continue
        if image_name(path) in (each["RepoTags"] or ()):
            remove_image(engine, image_name(path))
    for place in Path(root, pool).glob("*.volume"):  # of containers that the engine has lost
        unmount_root(place)


def remove_unused(engine: Engine, name: str, root: str) -> None:
    """An image, and roots of it that were made for a daemon that was killed before it wrote their
    record: the engine removes no image that has any.
    """
    for each, path in listed(engine, "containers", root):
        is_root = each["Image"] == name and path.endswith(".volume")
        if is_root and not Path(root, f"{path}.json").exists():
            remove_root(engine, root_name(path), root, path)
    remove_image(engine, name)


def listed(engine: Engine, kind: str, root: str) -> list[tuple[Listed, str]]:
    """What nospoon made, and what others made of that, with the paths of records in its labels."""
    wanted = json.dumps({"label": [f"{LABEL}={root}"]})
    found = engine.get(f"/{kind}/json", all="1", filters=wanted)
    return [(each, str(each["Labels"].get(f"{LABEL}.path", ""))) for each in found]
