"""The files of one netboot service, below a directory of its own.

    service.json        what this service is: key, shape, owner tag, and its process
    dnsmasq.conf, dnsmasq.log, dnsmasq.pid, leases
    hosts/MAC           a reservation each; dnsmasq takes new ones by inotify, removals by SIGHUP
    tftp/               loaders, the entry script, GRUB's configuration
    tftp/grub/machines/MAC.cfg, tftp/ipxe/MAC.ipxe, tftp/files/…
                        what machines get whose loaders cannot ask the daemon

dnsmasq reads them as `no one`, so only the group of `no one` may enter the directory: instructions
and initrds may have secrets. The way to it must be open to `no one`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath
from uuid import UUID

import msgspec

from nospoon.errors import MissingTool, ProviderError
from nospoon.model.resources import earlier
from nospoon.model.resources.keys import Key
from nospoon.model.resources.netboot import NetbootService, Reservation
from nospoon.model.resources.tags import OwnerTag
from nospoon.protocols.ipxe import dnsmasq, grub, script
from nospoon.runtime.users import GroupOf, group_of_nobody
from nospoon.services.netboot.logs import LOG

LOADERS: Mapping[str, tuple[Path, str]] = {
    "undionly.kpxe": (Path("/usr/lib/ipxe/undionly.kpxe"), "ipxe"),
    "snponly.efi": (Path("/usr/lib/ipxe/snponly.efi"), "ipxe"),
    "shimx64.efi": (Path("/usr/lib/shim/shimx64.efi.signed"), "shim-signed"),
    "grubx64.efi": (
        Path("/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed"),
        "grub-efi-amd64-signed",
    ),
}
"""Name below the TFTP root -> where Debian puts the file, and the package that has it."""

SAVED = "service.json"
MOST_SOUGHT = 8
"""Machines that are sought in a record before it is decoded."""
READABLE, ENTERABLE, OF_GROUP, PRIVATE = 0o644, 0o755, 0o750, 0o700


class Saved(msgspec.Struct, frozen=True):
    """service.json. `pid` 0: not started yet. `bridge_index`: the bridge that it was started on,
    since a bridge of the same name that is made later is another one to sockets.
    """

    key: Key
    shape: NetbootService
    tag: OwnerTag
    pid: int = 0
    started: int = 0
    bridge_index: int = 0


_SAVED = msgspec.json.Decoder(Saved)


def decoded(data: bytes) -> Saved:
    """What a service.json says, of whichever version. Raises `msgspec.DecodeError`."""
    try:
        return _SAVED.decode(data)
    except msgspec.ValidationError:
        record = msgspec.json.decode(data)
        if isinstance(record, dict):
            record["key"] = earlier.renewed_key(record.get("key"))
        return msgspec.convert(record, Saved)


class Tree:
    """Reads and writes the files of one service.

    `there`: the path of the directory on the host where dnsmasq runs, if that is another.
    `group`: the group of `no one`, which `save` asks for: call it in a thread.
    """

    def __init__(
        self,
        directory: Path,
        *,
        there: PurePosixPath | None = None,
        group: GroupOf = group_of_nobody,
    ) -> None:
        self.directory, self._group = directory, group
        self.there = there if there is not None else PurePosixPath(directory)
        self.saved_file = directory / SAVED
        self.configuration = directory / "dnsmasq.conf"
        self.pid_file, self.leases = directory / "dnsmasq.pid", directory / "leases"
        self.hosts, self.tftp = directory / "hosts", directory / "tftp"
        self.machines, self.files = self.tftp / "grub/machines", self.tftp / "files"
        self.scripts = self.tftp / "ipxe"

    def load(self, *, naming: Collection[UUID] = ()) -> Saved | None:
        """What was saved; None where nothing was, or not to its end. `naming`: None also where it
        has none of these machines; of many, it may have none.
        """
        try:
            text = self.saved_file.read_bytes()
            few = len(naming) <= MOST_SOUGHT and naming
            if few and all(str(each).encode() not in text for each in few):
                return None
            return decoded(text)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    @property
    def is_whole(self) -> bool:
        """Whether its files were written, and not only what they are to be."""
        return self.configuration.exists()

    def save(self, saved: Saved) -> None:
        self._make_closed()
        write(self.saved_file, msgspec.json.encode(saved))

    def write(
        self,
        shape: NetbootService,
        *,
        http_port: int,
        user: str,
        loaders: Mapping[str, Path],
        usual: Collection[str] = LOADERS,
    ) -> None:
        """Everything that dnsmasq reads but the reservations. `loaders`: more than the `usual` of
        `LOADERS`.
        """
        for each in (self.hosts, self.tftp, self.machines, self.scripts, self.files):
            self._make(each)
        for name in usual:
            source, package = LOADERS[name]
            _copy_loader(source, self.tftp / name, package)
        for name, source in loaders.items():
            _copy(source, self.tftp / name)
        entry = script.ask(f"http://{shape.host}:{http_port}")
        write(self.tftp / dnsmasq.ENTRY_SCRIPT, entry.encode())
        write(self.tftp / "grub/grub.cfg", grub.ask(shape.host).encode())
        text = dnsmasq.configuration(shape, self._places(user), http_port=http_port)
        write(self.configuration, text.encode())

    def write_entry_by_tftp(self, shape: NetbootService) -> None:
        """The entry script of a host from which guests do not reach the daemon."""
        write(self.tftp / dnsmasq.ENTRY_SCRIPT, script.ask_files(shape.host).encode())

    def write_entry_through(self, base_url: str) -> None:
        """The entry script of a relay, by which guests reach the daemon."""
        write(self.tftp / dnsmasq.ENTRY_SCRIPT, script.ask_through(base_url).encode())

    def write_reservations(self, reservations: Collection[Reservation]) -> bool:
        """Make the files those of these reservations; True when dnsmasq must be told of it."""
        dnsmasq.refuse_odd(reservations)
        wanted = {
            dnsmasq.reservation_file(r): dnsmasq.reservation(r).encode() for r in reservations
        }
        present = {path.name: path.read_bytes() for path in self.hosts.iterdir()}
        for name in present.keys() - wanted.keys():
            (self.hosts / name).unlink()
        for name, content in wanted.items():
            if present.get(name) != content:
                write(self.hosts / name, content)
        return any(wanted.get(name) != content for name, content in present.items())

    def reserved(self) -> list[str]:
        """What is written of reservations."""
        return [path.read_text() for path in self.hosts.iterdir()] if self.hosts.exists() else []

    def has_left(self, before: Iterable[str]) -> bool:
        """Whether someone has a lease who had a reservation `before`, and has none now."""
        there = self._leased()
        return dnsmasq.without_left(there, before, self.reserved()) != there

    def drop_left(self, before: Iterable[str]) -> None:
        """Those leases go, while no dnsmasq runs. The file stays its user's."""
        there = self._leased()
        left = dnsmasq.without_left(there, before, self.reserved())
        if left != there:
            self.leases.write_text(left)

    def _leased(self) -> str:
        return self.leases.read_text() if self.leases.exists() else ""

    def write_instructions(self, texts: Mapping[str, str]) -> None:
        """Make the files of machines these; path below the TFTP root -> content."""
        for directory in (self.machines, self.scripts):
            for path in directory.iterdir():
                if str(path.relative_to(self.tftp)) not in texts:
                    path.unlink()
        for name, text in texts.items():
            write(self.tftp / name, text.encode())

    def offer_file(self, source: Path) -> str:
        """Copy a file where TFTP finds it; returns its path below the TFTP root."""
        found = source.stat()
        facts = f"{source} {found.st_size} {found.st_mtime_ns}"
        name = hashlib.sha256(facts.encode()).hexdigest()[:32]
        if not (self.files / name).exists():
            _copy(source, self.files / name)
        return f"files/{name}"

    def drop_files_except(self, used: set[str]) -> None:
        """Remove offered files that no machine's instructions name."""
        for path in self.files.iterdir():
            if f"files/{path.name}" not in used:
                path.unlink()

    def remove(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=False)

    def check_way(self) -> None:
        """Raise `ProviderError` where `no one` could not come to these files."""
        for each in self.directory.parents:
            if not each.stat().st_mode & stat.S_IXOTH:
                raise ProviderError(
                    f"dnsmasq runs as nobody and cannot enter {each}",
                    hint=f"Run `chmod o+x {each}`, or set NOSPOON_STATE_DIR to another place.",
                )

    def _make_closed(self) -> None:
        """The directory itself: not even for an instant open to everybody."""
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        self.directory.mkdir(exist_ok=True, mode=PRIVATE)
        if os.geteuid() == 0:
            os.chown(self.directory, -1, self._group().gid)
            self.directory.chmod(OF_GROUP)
        else:
            self.directory.chmod(PRIVATE)

    def _make(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(ENTERABLE)

    def _places(self, user: str) -> dnsmasq.Places:
        return dnsmasq.Places(
            hosts=str(self.there / self.hosts.name),
            leases=str(self.there / self.leases.name),
            tftp=str(self.there / self.tftp.name),
            pid=str(self.there / self.pid_file.name),
            log=str(self.directory / LOG) if str(self.there) == str(self.directory) else "",
            user=user,
        )


def write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all. dnsmasq ignores names that begin with a dot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.parent / f".{path.name}"
    part.write_bytes(content)
    part.chmod(READABLE)
    part.replace(path)


def _copy_loader(source: Path, target: Path, package: str) -> None:
    try:
        if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
            _copy(source, target)
    except FileNotFoundError as error:
        raise MissingTool(
            f"{source} is not there", hint=f"Install the package {package}."
        ) from error


def _copy(source: Path, target: Path) -> None:
    part = target.parent / f".{target.name}.{os.getpid()}"
    shutil.copyfile(source, part)
    part.chmod(READABLE)
    part.replace(target)
