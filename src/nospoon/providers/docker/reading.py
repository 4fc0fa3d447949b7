"""What reads an image on the host: of Python's standard library alone, without rights.

    reading MOST [MEMBERS] <IMAGE >TAR

An image is a packed root, or an archive of `docker save` or of an OCI image layout: the layers of
its first image are put together. It writes a tar with what may be in a root: files, directories
and links alone, of extended attributes capabilities alone (those of overlayfs would lead out of the
root), and users that a container has. It ends with 1 and why where that is not the root of a system
container, takes more than MOST bytes of a disk, or has more than MEMBERS files, if that is given.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import posixpath
import resource
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from typing import IO, Any, TypedDict

MEMBERS = 2_000_000
BLOCK = 4096
"""Bytes of a disk that each file takes a multiple of, and another one for its inode and its name:
two million files of a byte take 8 GB.
"""
LONGEST_PATH, SHOWN, SAID = 4096, 200, 1000
"""Characters of a path (PATH_MAX of Linux), of one that is said, and of all that is: a header may
have a name of a hundred megabytes, which packed has some kilobytes.
"""
DEEPEST = 256
"""Levels of a path, each of which a layer above may have removed."""
OUTER = 1000
"""Members of an archive of layers; one that has none of its files among as many is a root."""
MOST_LAYERS = 256
"""Twice as many as engines can stack. A manifest may name one again and again."""
TEXT = 4 << 20
"""Bytes of a manifest (image-spec, manifest.md)."""
IDS = 65_536
MEMORY, SECONDS = 1 << 30, 900
ZSTD = b"\x28\xb5\x2f\xfd"
"""RFC 8878, 3.1.1."""
CAPABILITY = "SCHILY.xattr.security.capability"
INITS = {"sbin/init", "usr/sbin/init"}
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, "")
"""Of this machine, as an index calls it (image-index.md, GOARCH)."""
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
"""What a layer has of what lower ones lose: a name, or all that is in a directory (layer.md)."""


class Described(TypedDict, total=False):
    """What is read of the description of a blob (descriptor.md)."""

    digest: str
    platform: dict[str, str] | None


class Manifest(TypedDict, total=False):
    """What is read of one, or of an index of several."""

    manifests: list[Described]
    layers: list[Described]


class Links:
    """Hard links of a layer to files that are not written by their own names: a layer above has
    others of these, or removes them. `waiting`: such a file -> names by which it stays.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, list[str]] = {}
        self._targets: dict[str, str] = {}

    def target(self, member: tarfile.TarInfo) -> str:
        """What a link leads to, "" for no link."""
        found = posixpath.normpath(f"/{member.linkname}") if member.islnk() else ""
        return self._targets.get(found, found)

    def leave(self, path: str, target: str) -> None:
        """One that is not written."""
        if target:
            self._targets[path] = target

    def put_off(self, path: str, name: str, target: str) -> None:
        """One that is written when its layer is read again."""
        self._targets[path] = target
        self.waiting.setdefault(target, []).append(name)


class Merged:
    """A root out of layers, read from the last one down. `most`: bytes that it may take of a disk;
    `members`: how many it may have.
    """

    def __init__(self, most: int, members: int = MEMBERS) -> None:
        self._most, self._members, self._size, self._count = most, members, 0, 0
        self._clean = tarfile.open(  # noqa: SIM115  (what is not whole gets no end)
            fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT
        )
        self._names: set[str] = set()
        self._covered: set[str] = set()
        self._directories = {"/"}
        self._below: dict[str, bool] = {}
        self.has_init = False
        self.name = "its begin"

    def add(self, layer: IO[bytes], *, is_last: bool) -> None:
        """What is above stays. `is_last`: nothing is below, and no names need be known."""
        names: set[str] = set()
        covered: set[str] = set()
        links = Links()
        self._below.clear()
        for packed, member in self._read(layer):
            path = posixpath.normpath(f"/{member.name}")
            self._count_in(member, path)
            directory, base = posixpath.split(path)
            target = links.target(member)
            if base == OPAQUE:
                covered.add(f"{directory}/")
            elif base.startswith(WHITEOUT):
                covered.add(posixpath.join(directory, base.removeprefix(WHITEOUT)))
            elif self._is_covered(path):
                links.leave(path, target)
            elif _may_be_in_a_root(member):
                if target and self._is_covered(target):
                    links.put_off(path, member.name, target)
                else:
                    member.linkname = target[1:] if target else member.linkname
                    self._put(packed, member)
                if not is_last:
                    names.add(path)
                    covered.update(() if member.isdir() else (path,))
        if links.waiting:
            self._put_linked(layer, links.waiting)
        self._names |= names
        self._covered |= covered

    def _read(self, layer: IO[bytes]) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
        packed = tarfile.open(fileobj=layer, mode="r|*", errorlevel=2)  # noqa: SIM115
        while (member := packed.next()) is not None:
            packed.members.clear()  # type: ignore[attr-defined]  # they are as many as it has
            self._clean.members.clear()  # type: ignore[attr-defined]
            self.name = member.name[:SHOWN]
            if max(len(member.name), len(member.linkname)) > LONGEST_PATH:
                sys.exit(f"{self.name!r}: its path has more than {LONGEST_PATH} characters")
            if max(member.name.count("/"), member.linkname.count("/")) > DEEPEST:
                sys.exit(f"{self.name!r}: its path has more than {DEEPEST} levels")
            yield packed, member

    def _put_linked(self, layer: IO[bytes], waiting: dict[str, list[str]]) -> None:
        """Files that have lost the name by which the layer has their content, by their others."""
        layer.seek(0)
        for packed, member in self._read(layer):
            if not (member.isreg() or member.issym()):
                continue
            first, *others = waiting.pop(posixpath.normpath(f"/{member.name}"), ("",))
            if not first:
                continue
            member.name = first
            self._put(packed, member)
            for each in others:
                link = copy.copy(member)
                link.name, link.type, link.linkname = each, tarfile.LNKTYPE, first
                self._put(packed, link)

    def _count_in(self, member: tarfile.TarInfo, path: str) -> None:
        files = 1 + self._made_above(path)
        if member.isdir():
            self._directories.add(path)
        self._count += files
        self._size += files * BLOCK + -(-member.size // BLOCK) * BLOCK
        if self._count > self._members:
            sys.exit(f"it has more than {self._members} members")
        if self._size > self._most:
            sys.exit(f"it has more than {self._most >> 20} MiB: No space left on the host")
        if not 0 <= min(member.uid, member.gid) <= max(member.uid, member.gid) < IDS:
            sys.exit(f"{self.name!r}: its user is {member.uid}:{member.gid}, of {IDS}")

    def _made_above(self, path: str) -> int:
        """Directories above it that the image has not named, which an engine makes as well."""
        made, above = 0, posixpath.dirname(path)
        while above not in self._directories:
            self._directories.add(above)
            made, above = made + 1, posixpath.dirname(above)
        return made

    def _is_covered(self, path: str) -> bool:
        if not self._covered and not self._names:
            return False
        if path in self._names or path in self._covered:
            return True
        return self._is_below_covered(posixpath.dirname(path))

    def _is_below_covered(self, directory: str) -> bool:
        """Whether what a layer has in it is covered, found out once for each directory: a file has
        hundreds above it, and an image millions of files.
        """
        fresh, found = list[str](), False
        while directory not in self._below:
            fresh.append(directory)
            found = directory in self._covered or f"{directory}/" in self._covered
            above = posixpath.dirname(directory)
            if found or above == directory:
                break
            directory = above
        else:
            found = self._below[directory]
        self._below.update(dict.fromkeys(fresh, found))
        return found

    def _put(self, packed: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self.has_init |= posixpath.normpath(f"/{member.name}")[1:] in INITS
        granted = member.pax_headers.get(CAPABILITY)
        member.pax_headers = {CAPABILITY: granted} if granted and member.isreg() else {}
        file = None
        if member.isreg():
            file, member.type = packed.extractfile(member), tarfile.REGTYPE
        else:
            member.size = 0  # no content is written, and an engine would skip what follows
        self._clean.addfile(member, file)

    def close(self) -> None:
        self._clean.close()


def _may_be_in_a_root(member: tarfile.TarInfo) -> bool:
    """Of a type that has no name here, an engine may think otherwise; `.wh.` within a path is for
    its own use (aufs).
    """
    known = member.isreg() or member.isdir() or member.issym() or member.islnk()
    return known and f"/{WHITEOUT}" not in f"/{member.name}"


def layers(source: IO[bytes]) -> list[IO[bytes]]:
    """From the lowest up; [] for a root."""
    try:
        outer = tarfile.open(fileobj=source, mode="r:")  # noqa: SIM115  (its layers are read)
    except tarfile.ReadError:
        return []
    found = {each.name.removeprefix("./"): each for each in itertools.islice(outer, OUTER)}

    def text(name: str) -> Any:
        return json.loads(content(name).read(TEXT))

    def manifest_of(index: Manifest) -> Manifest:
        """For this machine, else the first one that is there: an engine may save those of other
        machines by their names alone.
        """
        there = [each for each in index["manifests"] if blob(each) in found]
        mine = (e for e in there if (e.get("platform") or {}).get("architecture") == ARCHITECTURE)
        chosen: Manifest = text(blob(next(mine, there[0])))
        return chosen

    def content(name: str) -> IO[bytes]:
        file = outer.extractfile(found[name])
        if file is None:
            raise ValueError(f"{name} is not a file")
        return file

    def blob(described: Described) -> str:
        return "blobs/" + str(described["digest"]).replace(":", "/", 1)

    try:
        if "oci-layout" in found and "index.json" in found:
            manifest = manifest_of(text("index.json"))
            if "manifests" in manifest:  # of several architectures
                manifest = manifest_of(manifest)
            return [content(blob(each)) for each in manifest["layers"]]
        if "manifest.json" in found and any(each.endswith(".tar") for each in found):
            return [content(each) for each in text("manifest.json")[0]["Layers"]]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError("its manifest names no layers that are there") from error
    return []


def sources() -> Iterator[tuple[IO[bytes], bool]]:
    """From the last layer down, and whether it is the lowest."""
    if os.pread(0, 4, 0) == ZSTD:
        packer = subprocess.Popen(["zstd", "-dcq"], stdin=0, stdout=subprocess.PIPE)
        assert packer.stdout is not None
        yield packer.stdout, True
        return
    found = layers(sys.stdin.buffer)
    if len(found) > MOST_LAYERS:
        raise ValueError(f"it has more than {MOST_LAYERS} layers")
    for number, each in reversed(list(enumerate(found))):
        if each.read(len(ZSTD)) == ZSTD:  # which takes another process, with a file of its own
            raise ValueError("a layer is compressed by zstd: expected gzip, or no compression")
        each.seek(0)
        yield each, number == 0
    if not found:
        sys.stdin.buffer.seek(0)
        yield sys.stdin.buffer, True


def main(most: int, members: int = MEMBERS) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    merged = Merged(most, min(members, MEMBERS))
    try:
        for layer, is_last in sources():
            merged.add(layer, is_last=is_last)
        if merged.has_init:
            merged.close()
    except (tarfile.TarError, OSError, ValueError, EOFError, MemoryError, OverflowError) as error:
        sys.exit(f"{merged.name!r}: {str(error) or type(error).__name__}"[:SAID])
    if not merged.has_init:
        sys.exit("it has no /sbin/init: it is not the root of a system container")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
