"""Netboot services of networks in clouds: dnsmasq runs on the relay there, on files of this daemon.

Each service is a directory here, which is the truth about it. A helper on the relay asks for its
files through the tunnel, says what became of them, and is trusted with nothing: it gets the MACs
and addresses of its own cluster's nodes, loaders, and a script (docs/adr/0031).
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path, PurePosixPath
from urllib.parse import quote
from uuid import UUID

import structlog

from nospoon.errors import NotOurs, ProviderError
from nospoon.model.connections import RELAY_PORT
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.visible import visible_line
from nospoon.protocols.relayed import (
    LENGTH,
    LONGEST_REPORT,
    Fails,
    Has,
    Malformed,
    Report,
    Serves,
    report,
)
from nospoon.providers.tunnels import RelayId
from nospoon.runtime import clock
from nospoon.services.netboot.copies import MANIFEST, archive, digests, manifest_of
from nospoon.services.netboot.tree import SAVED, Saved, Tree

log = structlog.get_logger()
THERE = PurePosixPath("/run/nospoon/netboot")
"""Where the files are on a relay; its helper knows that, too."""
USUAL = ("undionly.kpxe", "snponly.efi")
"""Loaders: signed ones ask by GRUB, which nothing answers through a relay."""
SENT = ("dnsmasq.conf", "hosts/", "tftp/")
SERVED = 1200.0
"""Seconds until a relay serves: it may have to install dnsmasq first."""
STOPPED = 10.0
"""Seconds until a relay that is connected has stopped."""
OPENING, BETWEEN = 10.0, 1.0
"""Seconds for the first line, and from one look at a relay's files to the next, at least."""
PACE = 0.05
"""Seconds from one line of a relay to the next, beyond those that its helper says at first."""
UNPACED = 16
AT_ONCE = 4096
"""Bytes that are received of a relay at a time."""
RESTS = 3
"""Times as long as a look took there is none at the files of that relay, however often it begins
again: of 10,000 nodes one takes a second of a processor.
"""
MOST_OPEN = 4
"""Connections of one relay at a time: the one whose helper it is, and the next."""
MOST_SHOWN = 500
"""Characters of what a relay says."""


async def _paced() -> None:
    await asyncio.sleep(PACE)


@dataclass(slots=True)
class _Connected:
    """A relay's helper. `has`: the files that it was sent, as far as known; `said`: last."""

    writer: asyncio.StreamWriter
    has: str = ""
    sent: Mapping[str, str] = field(default_factory=dict)
    said: Report | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class RelayNetbootDriver:
    """The `Driver` of `Kind.NETBOOT` of all relays. `state`: a directory of its own; `patience`:
    seconds until a relay serves; `pace`: from one line of a relay to the next.
    """

    def __init__(
        self,
        *,
        state: Path,
        deployment: str,
        patience: float = SERVED,
        pace: Callable[[], Awaitable[None]] = _paced,
    ) -> None:
        self._state, self._deployment, self._patience = state, deployment, patience
        self._pace = pace
        self._connected: dict[RelayId, _Connected] = {}
        self._lost: set[RelayId] = set()
        self._next: dict[RelayId, float] = {}
        """When the files of a relay are looked at again, at the earliest."""
        self._open = Counter[RelayId]()
        self._writing = asyncio.Lock()
        self._said = asyncio.Condition()

    @property
    def kind(self) -> Kind:
        return Kind.NETBOOT

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        kept = await asyncio.to_thread(lambda: list(self._kept()))
        return [
            Observed(saved.key, saved.shape, saved.tag, fault=self._fault(_relay_of(saved)))
            for _, saved in kept
            if cluster in (None, saved.tag.cluster)
        ]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """Its relay serves it when this returns."""
        if not isinstance(resource.shape, NetbootService):
            raise ProviderError(f"{resource.key} is not a netboot service")
        saved = Saved(resource.key, resource.shape, tag)
        tree = self._tree(tag.cluster, resource.key)
        async with self._writing:
            await asyncio.to_thread(self._write, tree, saved)
            revision = _revision(await asyncio.to_thread(_files, tree))
        relay = _relay_of(saved)
        self._notify(relay)
        await self._until(relay, revision, self._patience)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        """A relay that is not connected gets no files when it is."""
        tree = self._tree(observed.tag.cluster, observed.key)
        async with self._writing:
            if tree.directory.exists():
                await asyncio.to_thread(shutil.rmtree, tree.directory)
            with suppress(OSError):  # others are there
                tree.directory.parent.rmdir()
        relay = RelayId(observed.tag.cluster, observed.key.place)
        self._lost.discard(relay)
        self._notify(relay)
        self._next = {each: when for each, when in self._next.items() if when > clock.monotonic()}
        if relay in self._connected:
            try:
                await self._until(relay, _revision(await self._wanted(relay)), STOPPED)
            except ProviderError as error:
                log.warning("a relay may go on serving", relay=str(observed.key), why=str(error))

    async def serve(
        self, relay: RelayId, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection of a relay's helper, until it ends or another one takes its place."""
        if self._open[relay] >= MOST_OPEN:
            writer.transport.abort()
            return
        self._open[relay] += 1
        try:
            await self._serve(relay, reader, writer)
        finally:
            writer.transport.abort()  # `close` would wait until the relay takes what it was sent
            self._open[relay] -= 1
            if not self._open[relay]:
                del self._open[relay]

    async def _serve(
        self, relay: RelayId, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        mine = _Connected(writer)
        writer.transport.max_size = AT_ONCE  # type: ignore[attr-defined]  # asyncio's, for recv(2)
        try:
            async with asyncio.timeout(OPENING):
                first = report(await reader.readuntil(b"\n"))
            if not isinstance(first, Has):
                raise Malformed
            mine.has = first.revision
            before = self._connected.get(relay)
            self._connected[relay] = mine
            if before is not None:
                before.writer.transport.abort()
            async with asyncio.TaskGroup() as both:
                sending = both.create_task(self._send(relay, mine), name="files of a relay")
                await self._listen(relay, mine, reader)
                sending.cancel()
        except* (Malformed, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as end:
            log.debug(
                "a relay asks for no files any more", cluster=str(relay.cluster), why=repr(end)
            )
        finally:
            if self._connected.get(relay) is mine:
                del self._connected[relay]
                self._lost.add(relay)
                async with self._said:
                    self._said.notify_all()

    async def _listen(self, relay: RelayId, mine: _Connected, reader: asyncio.StreamReader) -> None:
        for number in count():  # it may send them without end
            line = await reader.readuntil(b"\n")
            if len(line) > LONGEST_REPORT:
                raise Malformed
            mine.said = report(line)
            self._lost.discard(relay)
            async with self._said:
                self._said.notify_all()
            if number >= UNPACED:
                await self._pace()

    async def _send(self, relay: RelayId, mine: _Connected) -> None:
        """The files, each time that they change."""
        while True:
            await asyncio.sleep(max(0.0, self._next.get(relay, 0.0) - clock.monotonic()))
            mine.changed.clear()
            async with self._writing:
                begun = clock.monotonic()
                files, revision, packed = await asyncio.to_thread(self._look, relay, mine)
                took = clock.monotonic() - begun
                self._next[relay] = begun + took + max(BETWEEN, took * RESTS)
            mine.has, mine.sent = revision, files
            if packed:
                mine.said = None  # that was of the others
                mine.writer.write(LENGTH.pack(len(packed)) + packed)
                await mine.writer.drain()
            await mine.changed.wait()

    def _look(self, relay: RelayId, mine: _Connected) -> tuple[Mapping[str, str], str, bytes]:
        """What it gets, the revision of that, and an archive of what it lacks, b"" for nothing."""
        tree = self._served(relay)
        files = _files(tree)
        revision = _revision(files)
        if revision == mine.has:
            return files, revision, b""
        changed = {name for name, digest in files.items() if mine.sent.get(name) != digest}
        return files, revision, _packed(tree, changed, files)

    async def _until(self, relay: RelayId, revision: str, seconds: float) -> None:
        """It serves these files. Raises `ProviderError` with its words where it does not."""
        wanted = Serves(revision)
        end = clock.monotonic() + seconds
        async with self._said:
            while True:
                mine = self._connected.get(relay)
                said = mine.said if mine is not None else None
                if said == wanted:
                    return
                if isinstance(said, Fails) and mine is not None and mine.has == revision:
                    raise ProviderError(
                        f"host {relay.host}: its relay serves no DHCP: {_shown(said.why)}",
                        hint="Its image needs dnsmasq, or a way to the mirrors of its distribution "
                        "and `nameservers` in the host's `relay`.",
                    )
                left = end - clock.monotonic()
                try:
                    async with asyncio.timeout(max(left, 0)):
                        await self._said.wait()
                except TimeoutError:
                    raise ProviderError(
                        f"host {relay.host}: its relay does not serve DHCP after {seconds:.0f} s: "
                        f"{_why(mine)}",
                        hint="See `openstack console log show` of its server.",
                    ) from None

    async def _wanted(self, relay: RelayId) -> Mapping[str, str]:
        async with self._writing:
            return await asyncio.to_thread(lambda: _files(self._served(relay)))

    def _notify(self, relay: RelayId) -> None:
        mine = self._connected.get(relay)
        if mine is not None:
            mine.changed.set()

    def _fault(self, relay: RelayId) -> str:
        """What keeps it from serving, "" also while that is not known."""
        mine = self._connected.get(relay)
        if mine is not None and isinstance(mine.said, Fails):
            return f"its relay serves no DHCP: {_shown(mine.said.why)}"
        return "its relay asks for its files no more" if relay in self._lost else ""

    def _write(self, tree: Tree, saved: Saved) -> None:
        earlier = tree.load()
        if earlier is not None and earlier.tag.deployment != self._deployment:
            raise NotOurs(
                f"{tree.directory} belongs to the deployment {earlier.tag.deployment}",
                hint="Give each deployment a NOSPOON_STATE_DIR of its own.",
            )
        shape = saved.shape
        tree.save(saved)
        tree.write(shape, http_port=RELAY_PORT, user="nobody", loaders={}, usual=USUAL)
        tree.write_entry_through(f"http://{shape.host}:{RELAY_PORT}")
        tree.write_reservations(shape.reservations)

    def _served(self, relay: RelayId) -> Tree | None:
        """What a relay serves: what came last, where its network changes."""
        found = [
            (tree.saved_file.stat().st_mtime_ns, number, tree)
            for number, (tree, saved) in enumerate(self._kept(str(relay.cluster)))
            if _relay_of(saved) == relay
        ]
        return max(found)[2] if found else None

    def _tree(self, cluster: UUID, key: Key) -> Tree:
        name = f"{quote(key.place, safe='')}@{quote(key.name, safe='')}"  # of one directory
        return Tree(self._state / str(cluster) / name, there=THERE)

    def _kept(self, clusters: str = "*") -> Iterator[tuple[Tree, Saved]]:
        for path in sorted(self._state.glob(f"{clusters}/*/{SAVED}")):
            saved = Tree(path.parent).load()
            if saved is not None and saved.tag.deployment == self._deployment:
                yield self._tree(saved.tag.cluster, saved.key), saved


def _relay_of(saved: Saved) -> RelayId:
    return RelayId(saved.tag.cluster, saved.key.place)


def _files(tree: Tree | None) -> dict[str, str]:
    """What a relay gets -> its digest."""
    if tree is None or not tree.is_whole:
        return {}
    all_ = digests(tree.directory)
    return {name: each for name, each in all_.items() if name.startswith(SENT)}


def _revision(files: Mapping[str, str]) -> str:
    return hashlib.sha256(manifest_of(dict(files))).hexdigest()


def _packed(tree: Tree | None, changed: set[str], files: Mapping[str, str]) -> bytes:
    directory = tree.directory if tree is not None else Path("/nonexistent")
    return archive(directory, changed, {MANIFEST: manifest_of(dict(files))})


def _why(mine: _Connected | None) -> str:
    if mine is None:
        return "it does not ask for its files"
    said = mine.said
    return "it says nothing" if said is None or isinstance(said, Has | Serves) else _shown(said.why)


def _shown(words: str) -> str:
    return visible_line(words)[:MOST_SHOWN]
