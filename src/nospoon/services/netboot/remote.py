"""Netboot services of a host over ssh: dnsmasq runs there, on files that are copied there.

Guests of an isolated network there cannot reach this daemon, so everything comes by TFTP, iPXE's
scripts too. A service's directory there is the truth about it; a copy here, in which it is made
ready, may be lost. What was copied is told by a list (`copies`).
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote
from uuid import UUID

import structlog

from nospoon.errors import NospoonError, NotOurs, ProviderError
from nospoon.model.cluster import Arch
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import Loader, NetbootService
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.visible import visible
from nospoon.protocols.ipxe.dnsmasq import without_left
from nospoon.runtime.paced import paced
from nospoon.runtime.process import said_by
from nospoon.runtime.runner import Runner
from nospoon.runtime.users import GroupOf, group_of_nobody
from nospoon.services.netboot import instructions, local_tftp
from nospoon.services.netboot.copies import (
    GONE,
    MANIFEST,
    MOST_SERVICES,
    archive,
    digests,
    digests_in,
    is_short,
    manifest_of,
    record_in,
    rows_in,
)
from nospoon.services.netboot.driver import FindGrub
from nospoon.services.netboot.ports import BootAuthority
from nospoon.services.netboot.tree import SAVED, Saved, Tree

log = structlog.get_logger()

NOBODY_ANSWERS = 9
"""A port for firmware that goes on with HTTP boot: it is refused at once, and tries the disk."""

RUNNING = """
pid=$(cat "$d/dnsmasq.pid" 2>/dev/null) || pid=
if [ -n "$pid" ] && tr '\\0' '\\n' 2>/dev/null <"/proc/$pid/cmdline" |
  grep -qxF -e "--conf-file=$d/dnsmasq.conf"; then :; else pid=; fi
"""
"""Shell: `pid` of the dnsmasq of the service in directory `d`, "" where none runs."""

READ = '[ ! -f "$1/service.json" ] || base64 -w0 "$1/service.json"'
LOOK = f"""
for d in "$1"/$2/*; do
  [ -f "$d/service.json" ] || continue
  {RUNNING}
  bridge=$(sed -n 's/^interface=//p' "$d/dnsmasq.conf")
  now=$(ip -o link show dev "$bridge" 2>/dev/null | cut -d: -f1)
  then=$(cat "$d/bridge-index" 2>/dev/null) || then=unknown
  echo "${{pid:-none}} ${{now:-none}} $then $d $(base64 -w0 "$d/service.json")"
done
"""

REPLACE = """
cat >"$1.new" && [ "$(stat -c %s "$1.new")" = "$2" ] || { rm -f "$1.new"; exit 74; }
cat "$1.new" >"$1"
rm -f "$1.new"
"""
"""Shell: new content of a file that stays its owner's, when all of it has come; else 74 (EX_IOERR):
the daemon was killed, or the connection was cut.
"""

STOP = f"""
d=$1
{RUNNING}
if [ -n "$pid" ]; then
  kill "$pid" || true
  n=0
  while [ -d "/proc/$pid" ] && [ $n -lt 50 ]; do n=$((n+1)); sleep 0.1; done
  [ ! -d "/proc/$pid" ] || kill -9 "$pid"
fi
"""

START = f"""
d=$1 bridge=$2
{RUNNING}
index=$(ip -o link show dev "$bridge" 2>/dev/null | cut -d: -f1)
[ -n "$index" ] || exit 3
if [ -n "$pid" ] && cmp -s "$d/dnsmasq.conf" "$d/dnsmasq.started" &&
   [ "$index" = "$(cat "$d/bridge-index")" ]; then
  kill -HUP "$pid"
  exit 0
fi
{STOP}
command -v dnsmasq >/dev/null || exit 4
dnsmasq --conf-file="$d/dnsmasq.conf" --group="$(id -gn nobody)" || exit 5
cp "$d/dnsmasq.conf" "$d/dnsmasq.started"
echo "$index" >"$d/bridge-index"
"""
REFUSALS = {
    3: ("there is no bridge {bridge} there", "Its network may be gone: run `nospoon up` again."),
    4: ("dnsmasq is not installed there", "Install the package dnsmasq-base there."),
    5: ("dnsmasq does not start there: {said}", "Only one DHCP server may answer on a bridge."),
}
"""Status of START -> what that means, and how to fix it."""


MOST_KEPT = 256 << 20
"""Bytes of the copies here of one host's records."""


@dataclass(slots=True)
class Space:
    """What is left of it, and of their number."""

    services: int
    size: int

    def take(self, size: int) -> bool:
        """Whether there is as much, which is taken then."""
        if self.services < 1 or self.size < size:
            return False
        self.services -= 1
        self.size -= size
        return True


@dataclass(frozen=True, slots=True)
class Place:
    """A directory of services: where they are made ready here, where they are on the host."""

    here: Path
    there: PurePosixPath


class RemoteNetbootDriver:
    """The `Driver` of `Kind.NETBOOT` of one host over ssh. `is_there`: whether a machine lives on
    the host: what others boot is not for it to know, whatever its records say.
    """

    def __init__(
        self,
        *,
        place: Place,
        deployment: str,
        runner: Runner,
        authority: BootAuthority,
        find_grub: FindGrub,
        is_there: Callable[[UUID], bool],
        group: GroupOf = group_of_nobody,
    ) -> None:
        self._group = group
        self._place, self._deployment, self._runner = place, deployment, runner
        self._authority, self._find_grub = authority, find_grub
        self._is_there = is_there
        self._copying = asyncio.Lock()

    @property
    def kind(self) -> Kind:
        return Kind.NETBOOT

    async def start(self) -> None:
        """Bring up to date what an earlier daemon left; a host that is away is told of."""
        for tree, saved in await asyncio.to_thread(self._prepared):
            try:
                async with self._copying:
                    served = await self._served(tree, saved)
                    if served is not None and self._has_machines(served):
                        await self._serve(tree, served)
            except NospoonError as error:
                log.error("network boot is not served", service=str(saved.key), why=str(error))

    async def _served(self, tree: Tree, saved: Saved) -> Saved | None:
        """What there is of a service on the host, as `saved` where half of it is; None, and no copy
        here, where it is no more: who knows the host by another name may have seen to it. For who
        holds `_copying`.
        """
        packed = await self._sh(READ, str(tree.there))
        if packed:
            found = await asyncio.to_thread(record_in, packed)
            alike = found is not None and (found.tag, found.key) == (saved.tag, saved.key)
            return found if alike else saved
        await asyncio.to_thread(shutil.rmtree, tree.directory, ignore_errors=True)
        return None

    def _has_machines(self, saved: Saved) -> bool:
        """Whether those whom it serves are known to live on this host by this name of it: else who
        knows it by another name sees to them.
        """
        given = saved.shape.reservations
        return not given or any(self._is_there(each.uuid) for each in given)

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        done = await self._sh(LOOK, str(self._place.there), str(cluster or "*"))
        if done.count("\n") > MOST_SERVICES:
            raise ProviderError(f"{self._place.there} on the host has too many services")
        lines = await asyncio.to_thread(rows_in, done)  # the host may print 64 MiB
        space = await asyncio.to_thread(self._space)
        found = [await self._observed(*line, space=space) async for line in paced(lines)]
        return [each for each in found if each is not None]

    def _space(self) -> Space:
        """For copies of records: each look may bring others."""
        sizes = [each.stat().st_size for each in self._place.here.glob(f"*/*/{SAVED}")]
        return Space(MOST_SERVICES - len(sizes), MOST_KEPT - sum(sizes))

    async def _observed(
        self, pid: str, bridge: str, then: str, place: str, packed: str, *, space: Space
    ) -> Observed | None:
        saved = await asyncio.to_thread(record_in, packed)
        if saved is None:
            return self._broken(place, "its files are not whole")
        if str(self._tree(saved.tag.cluster, saved.key).there) != place:
            return self._broken(place, "its record is of another place")
        tree = self._tree(saved.tag.cluster, saved.key)
        if await asyncio.to_thread(tree.load) is None and space.take(len(packed)):
            async with self._copying:  # another look may be at it
                await asyncio.to_thread(tree.save, saved)
        fault = ""
        if pid == "none":
            fault = "its dnsmasq does not run"
        elif bridge != then:
            fault = f"the bridge {saved.shape.bridge} was recreated since, or is gone"
        return Observed(key=saved.key, shape=saved.shape, tag=saved.tag, fault=fault)

    def _broken(self, place: str, fault: str) -> Observed | None:
        """A service whose record is not its own: its directory tells whose it is, unless nospoon
        names none so.
        """
        directory = PurePosixPath(place)
        host, _, network = directory.name.partition("@")
        key = Key(Kind.NETBOOT, unquote(host), unquote(network))
        try:
            cluster: UUID | None = UUID(directory.parent.name)
        except ValueError:
            cluster = None
        if cluster is None or str(self._tree(cluster, key).there) != place:
            log.warning("a record of network boot is of no place of its own", place=visible(place))
            return None
        return Observed(
            key=key,
            shape=NetbootService(bridge="", address="", range=("", ""), reservations=()),
            tag=OwnerTag(self._deployment, cluster),
            fault=fault,
        )

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        await self._make(resource, tag)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self._make(desired, tag)

    async def _make(self, resource: Resource, tag: OwnerTag) -> None:
        assert isinstance(resource.shape, NetbootService)
        tree = self._tree(tag.cluster, resource.key)
        await self._refuse_strangers(tree)
        async with self._copying:
            await self._serve(tree, Saved(resource.key, resource.shape, tag))

    async def _refuse_strangers(self, tree: Tree) -> None:
        packed = await self._sh(READ, str(tree.there))
        if not packed:
            return
        earlier = await asyncio.to_thread(record_in, packed)
        if earlier is not None and earlier.tag.deployment != self._deployment:
            raise NotOurs(
                f"{tree.there} on host {earlier.key.place} belongs to the deployment "
                f"{earlier.tag.deployment}",
                hint="Take its cluster down with that deployment, or remove the directory.",
            )

    async def delete(self, observed: Observed) -> None:
        tree = self._tree(observed.tag.cluster, observed.key)
        async with self._copying:
            script = STOP + 'rm -rf "$d"; rmdir "$(dirname "$d")" 2>/dev/null || true'
            await self._sh(script, str(tree.there))
            await self._runner.run(local_tftp.opening(tree.there), check=False)
            if tree.directory.exists():
                await asyncio.to_thread(shutil.rmtree, tree.directory)

    async def publish(self, *machines: UUID) -> None:
        """Copy again what these machines boot that are here. Raises `HostUnreachable`."""
        wanted = frozenset(filter(self._is_there, machines))
        if not wanted:
            return
        for tree, saved in await asyncio.to_thread(self._prepared, naming=wanted):
            if all(each.uuid not in wanted for each in saved.shape.reservations):
                continue
            async with self._copying:
                served = await self._served(tree, saved)
                if served == saved and tree.is_whole:
                    await asyncio.to_thread(self._instruct, tree, saved)
                    await self._copy(tree)
                elif served is not None:
                    await self._serve(tree, served)

    async def _serve(self, tree: Tree, saved: Saved) -> None:
        """Bring files and dnsmasq there to what is saved. Idempotent; for who holds `_copying`."""
        loaders = {}
        if any(each.loader is Loader.GRUB for each in saved.shape.reservations):
            loaders["grubaa64.efi"] = await self._find_grub(Arch.AARCH64)
        await asyncio.to_thread(tree.save, saved)
        await asyncio.to_thread(
            tree.write, saved.shape, http_port=NOBODY_ANSWERS, user="nobody", loaders=loaders
        )
        tree.write_entry_by_tftp(saved.shape)
        before = await asyncio.to_thread(tree.reserved)
        await asyncio.to_thread(tree.write_reservations, saved.shape.reservations)
        await asyncio.to_thread(self._instruct, tree, saved)
        await self._copy(tree)
        await self._drop_leases(tree, before)
        await self._close_to_host(tree, saved.shape)
        await self._start(tree, saved)

    def _instruct(self, tree: Tree, saved: Saved) -> None:
        where = saved.shape.host
        given = [each for each in saved.shape.reservations if self._is_there(each.uuid)]
        instructions.write(tree, given, self._authority, address=where)

    async def _drop_leases(self, tree: Tree, before: Sequence[str]) -> None:
        """Those of who had a reservation `before`, and has none now; dnsmasq forgets none while it
        runs.
        """
        look = 'cat "$d/leases" 2>/dev/null || true'

        async def left(first: str) -> tuple[str, str]:
            there = await self._sh(f"d=$1\n{first}\n{look}", str(tree.there))
            if not is_short(there):
                raise self._unexpected(tree, "leases")
            return there, await asyncio.to_thread(
                lambda: without_left(there, before, tree.reserved())
            )

        there, wanted = await left("")
        if there == wanted:
            return
        _, wanted = await left(STOP)
        text = wanted.encode()
        await self._sh(REPLACE, str(tree.there / "leases"), str(len(text)), stdin=text)

    async def _close_to_host(self, tree: Tree, shape: NetbootService) -> None:
        command = local_tftp.closing(tree.there, shape.addresses)
        done = await self._runner.run(command, check=False)
        if done.status:
            log.warning(
                "users of a host may read files of TFTP", bridge=shape.bridge, why=said_by(done)
            )

    async def _start(self, tree: Tree, saved: Saved) -> None:
        argv = ["sh", "-c", START, "sh", str(tree.there), saved.shape.bridge]
        done = await self._runner.run(argv, check=False)
        if done.status:
            what, hint = REFUSALS.get(done.status, ("{said}", ""))
            said = said_by(done) or f"status {done.status}"
            why = what.format(bridge=saved.shape.bridge, said=said)
            raise ProviderError(f"host {saved.key.place}: no network boot: {why}", hint=hint)

    async def _copy(self, tree: Tree) -> None:
        """Make the directory there what the one here is, by what has changed since."""
        script = 'cat "$1" 2>/dev/null || true'
        text = await self._sh(script, str(tree.there / MANIFEST))
        if not is_short(text):
            raise self._unexpected(tree, MANIFEST)
        there = await asyncio.to_thread(digests_in, text)
        here = await asyncio.to_thread(digests, tree.directory)
        changed = {name for name, digest in here.items() if there.get(name) != digest}
        gone = sorted(there.keys() - here.keys())
        if not changed and not gone:
            return
        ends = "".join(f"{name}\0" for name in gone)
        more = {GONE: ends.encode(errors="replace"), MANIFEST: manifest_of(here)}
        packed = await asyncio.to_thread(archive, tree.directory, changed, more)
        # only dnsmasq may enter, as the group of no one: see `tree`
        close = 'mkdir -p -m 700 "$d" && chgrp "$(id -gn nobody)" "$d" && chmod 750 "$d"'
        way = 'mkdir -p -m 755 "$(dirname "$d")"'
        drop = f"xargs -0 rm -f -- <{GONE} && rm -f {GONE}"
        unpack = f'umask 022; d=$1; {way} && {close} && cd "$d" && tar -x && {drop}'
        await self._sh(unpack, str(tree.there), stdin=packed)

    def _unexpected(self, tree: Tree, file: str) -> ProviderError:
        return ProviderError(
            f"{tree.there / file} on the host is longer than nospoon writes it",
            hint=f"Look who wrote it, remove {tree.there} there, and run `nospoon up` again.",
        )

    async def _sh(self, script: str, *words: str, stdin: bytes | None = None) -> str:
        done = await self._runner.run(["sh", "-c", script, "sh", *words], stdin=stdin)
        return done.stdout

    def _tree(self, cluster: UUID, key: Key) -> Tree:
        name = f"{quote(key.place, safe='')}@{quote(key.name, safe='')}"  # of one directory
        here = self._place.here / str(cluster) / name
        there = self._place.there / str(cluster) / name
        return Tree(here, there=there, group=self._group)

    def _prepared(self, *, naming: Collection[UUID] = ()) -> list[tuple[Tree, Saved]]:
        """Run it in a thread: records may be of ten thousand nodes. `naming`: those alone that have
        one of these machines.
        """
        found = (
            Tree(path.parent).load(naming=naming)
            for path in sorted(self._place.here.glob("*/*/service.json"))
        )
        return [
            (self._tree(saved.tag.cluster, saved.key), saved)
            for saved in found
            if saved is not None
        ]
