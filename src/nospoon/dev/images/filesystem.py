"""A tar as an ext4 file system, the same bytes each time, without rights of root.

debugfs(8) writes each file into an image, in the order of the names. `mke2fs -d` would take the
order of a directory of this machine, and times of its files; Debian 12's reads no tar.
"""

from __future__ import annotations

import posixpath
import shutil
import stat
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nospoon.errors import ProviderError, UsageError
from nospoon.runtime import process

LABEL = "nospoon-root"
UUID = "6e6f7370-6f6f-4e72-8f6f-740000000000"
"""Of the file system, and the seed of its directories' hashes: two that differ have one."""
BLOCK = 4096
ENTRY, LONGEST_ENTRY = 8, 264
"""Bytes of a name in a directory beside its own, in fours, and of the longest one with them."""
SPARE = 1.25, 96 << 20
"""How much larger than its files a file system is, by a factor and bytes: inodes, the journal."""
MIB = 1 << 20
LONGEST = 1200.0
"""Seconds: a file takes less than a millisecond."""
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_XATTR = "SCHILY.xattr."
_TYPES: Mapping[bytes, int] = {
    tarfile.REGTYPE: stat.S_IFREG,
    tarfile.AREGTYPE: stat.S_IFREG,
    tarfile.DIRTYPE: stat.S_IFDIR,
    tarfile.SYMTYPE: stat.S_IFLNK,
}


@dataclass(slots=True)
class _Script:
    """Commands of debugfs. `work`: where contents lie; `links`: names of each file beyond one."""

    work: Path
    lines: list[str] = field(default_factory=list)
    at: str = ""
    links: Counter[str] = field(default_factory=Counter)

    def enter(self, directory: str) -> None:
        """Commands that make something take names, not paths."""
        if directory != self.at:
            self.lines.append(f"cd {_quoted(directory)}")
            self.at = directory

    def describe(self, path: str, member: tarfile.TarInfo) -> None:
        mode = 0o777 if member.issym() else member.mode
        fields = {
            "mode": f"0{_TYPES[member.type] | mode:o}",
            "uid": member.uid, "gid": member.gid, "mtime": f"@{int(member.mtime)}",
        }  # fmt: skip
        self.lines += [f"sif {_quoted(path)} {name} {value}" for name, value in fields.items()]
        for number, (key, value) in enumerate(sorted(member.pax_headers.items())):
            if key.startswith(_XATTR):  # such as capabilities(7)
                content = self.work / f"xattr-{len(self.lines)}-{number}"
                content.write_bytes(value.encode("utf-8", "surrogateescape"))
                name = key.removeprefix(_XATTR)
                self.lines.append(f"ea_set -f {content} {_quoted(path)} {name}")


async def make(tar: Path, image: Path, *, epoch: int, size: int = 0) -> None:
    """Write an ext4 file system with what is in `tar`. `epoch`: Unix seconds of its own times;
    `size`: bytes, 0 for one that it fits in.
    """
    with tempfile.TemporaryDirectory(dir=image.parent, prefix=".building-") as made:
        work = Path(made)
        script = work / "script"
        script.write_text("".join(f"{line}\n" for line in _commands(tar, work)))
        needed = sum(-(-each.stat().st_size // BLOCK) * BLOCK for each in work.iterdir())
        size = size or -(-int(needed * SPARE[0] + SPARE[1]) // MIB) * MIB
        env = {"PATH": _PATH, "LC_ALL": "C.UTF-8", "E2FSPROGS_FAKE_TIME": str(epoch)}
        image.unlink(missing_ok=True)
        argv = ["mke2fs", "-q", "-t", "ext4", "-b", str(BLOCK), "-L", LABEL, "-U", UUID]
        argv += ["-E", f"hash_seed={UUID},root_owner=0:0", str(image), f"{size >> 10}k"]
        await process.run(argv, env=env, timeout=LONGEST)
        argv = ["debugfs", "-w", "-f", str(script), str(image)]
        done = await process.run(argv, env=env, timeout=LONGEST)
    wrong = [line for line in done.stderr.splitlines()[1:] if line.strip()]  # after its version
    if wrong:
        raise ProviderError(
            f"the file system of {size >> 20} MiB cannot be filled: {wrong[0]}",
            hint="Give a larger --size.",
        )


def _commands(tar: Path, work: Path) -> Iterator[str]:
    """What makes each file; contents are put below `work`."""
    script, hard = _Script(work), dict[str, str]()
    members, contents = _members(tar, work)
    for path in sorted(members, key=lambda each: each.split("/")):
        member = members[path]
        parent, name = posixpath.split(path)
        if member.islnk():
            hard[path] = _normal(member.linkname)
            continue
        if member.type not in _TYPES:
            continue  # devices, which every kind of node makes itself
        if path != "/":
            script.enter(parent)
            if member.isdir():
                script.lines.append(f"mkdir {_quoted(name)}")
            elif member.issym():
                script.lines.append(f"symlink {_quoted(name)} {_quoted(member.linkname)}")
            else:
                script.lines.append(f"write {contents[path]} {_quoted(name)}")
        script.describe(path, member)
    script.lines += _larger(hard)
    for path, target in hard.items():
        script.lines.append(f"ln {_quoted(target)} {_quoted(path)}")
        script.links[target] += 1
    for target, more in script.links.items():
        script.lines.append(f"sif {_quoted(target)} links_count {more + 1}")
    yield from script.lines


def _larger(paths: Iterable[str]) -> Iterator[str]:
    """Blocks for the directories that get these names: `ln` adds none, as other commands do."""
    sizes = Counter[str]()
    for path in paths:
        parent, name = posixpath.split(path)
        sizes[parent] += ENTRY + -(-len(name.encode()) // 4) * 4
    for parent, size in sizes.items():
        yield from [f"expand_dir {_quoted(parent)}"] * -(-size // (BLOCK - LONGEST_ENTRY))


def _members(tar: Path, work: Path) -> tuple[dict[str, tarfile.TarInfo], dict[str, Path]]:
    members, contents = dict[str, tarfile.TarInfo](), dict[str, Path]()
    with tarfile.open(tar) as archive:
        for number, member in enumerate(archive):
            path = _normal(member.name)
            members[path] = member
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None:
                contents[path] = work / str(number)
                with contents[path].open("wb") as copy:
                    shutil.copyfileobj(content, copy)
    return members, contents


def _normal(name: str) -> str:
    return posixpath.normpath(f"/{name}").replace("//", "/")


def _quoted(text: str) -> str:
    """As one word of debugfs, which doubles a quote within quotes."""
    if "\n" in text:
        raise UsageError(f"the root file system has a file with a line end in its name: {text!r}")
    return '"' + text.replace('"', '""') + '"'
