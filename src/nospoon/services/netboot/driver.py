"""The driver of netboot services: DHCP, TFTP and HTTP on a bridge of this machine.

dnsmasq outlives the daemon; HTTP and the answers to IPv6 solicitations live in it, so `start` takes
up again what an earlier daemon left, and starts a dnsmasq that died meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote
from uuid import UUID

import msgspec
import structlog

from nospoon.errors import NospoonError, NotOurs, ProviderError
from nospoon.model.cluster import Arch
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import Loader, NetbootService
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.runtime import process
from nospoon.runtime.owned import Process
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.users import GroupOf, group_of_nobody
from nospoon.services.netboot import dnsmasq, instructions, local_tftp, logs
from nospoon.services.netboot.peers import Peers
from nospoon.services.netboot.ports import BootAuthority
from nospoon.services.netboot.serving import Advertiser, HttpListeners
from nospoon.services.netboot.tree import SAVED, Saved, Tree

log = structlog.get_logger()

FindGrub = Callable[[Arch], Awaitable[Path]]
"""The signed GRUB that loads from the network, for an architecture."""


class NetbootDriver:
    """Makes and keeps netboot services; the `Driver` of `Kind.NETBOOT` for one host, this machine.

    `state`: a directory that `no one` can enter. `http`: where scripts and files are served.
    """

    def __init__(
        self,
        *,
        state: Path,
        deployment: str,
        http: HttpListeners,
        authority: BootAuthority,
        peers: Peers,
        find_grub: FindGrub,
        group: GroupOf = group_of_nobody,
    ) -> None:
        self._group = group
        self._state, self._deployment, self._http = state, deployment, http
        self._authority, self._find_grub = authority, find_grub
        self._peers = peers
        self._advertisers: dict[Path, Advertiser] = {}
        self._publishing = asyncio.Lock()
        self._tasks = Tasks("netboot")

    @property
    def kind(self) -> Kind:
        return Kind.NETBOOT

    @property
    def http_port(self) -> int:
        return self._http.port

    async def start(self) -> None:
        """Serve again what an earlier daemon left. What cannot be served is logged and observed."""
        for tree, saved in await asyncio.to_thread(self._ours):
            try:
                await self._run(tree, saved)
            except NospoonError as error:
                log.error("network boot is not served", service=str(saved.key), why=str(error))
        self._tasks.start(logs.keep_small(self._state), name="keep logs small")

    async def close(self) -> None:
        """End what lives in this process; dnsmasq goes on."""
        await self._tasks.close()
        for advertiser in self._advertisers.values():
            await advertiser.close()
        self._advertisers.clear()
        await self._http.close_all()

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        """The services of this cluster, or of all; `fault` when one doesn't serve. One whose files
        are lost is known by its dnsmasq, which still runs.
        """
        found = await asyncio.to_thread(lambda: [*map(_observed, self._ours()), *self._left()])
        return [each for each in found if cluster in (None, each.tag.cluster)]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """Make it and start it; undone when it does not start."""
        tree = self._tree(tag.cluster, resource.key)
        earlier = await asyncio.to_thread(self._earlier, tree)
        saved = _taking_over(Saved(resource.key, _shape(resource), tag), earlier)
        try:
            await self._run(tree, saved)
        except BaseException:
            if earlier is None:
                await self._remove(tree, saved)
            raise

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """Reservations change under the running dnsmasq; for another range it starts again."""
        tree = self._tree(observed.tag.cluster, observed.key)
        saved = Saved(desired.key, _shape(desired), tag)
        earlier = await asyncio.to_thread(self._earlier, tree)
        await self._run(tree, _taking_over(saved, earlier))
        served = earlier.shape.addresses if earlier is not None else ()
        for address in set(served) - set(saved.shape.addresses):
            await self._http.close(address)

    async def delete(self, observed: Observed) -> None:
        """Stop what runs and remove the files; what is gone already is fine."""
        tree = self._tree(observed.tag.cluster, observed.key)
        saved = await asyncio.to_thread(self._earlier, tree)
        if saved is not None:
            await self._remove(tree, saved)
        else:
            await self._stop_dnsmasq(tree)

    async def publish(self, *machines: UUID) -> None:
        """Write down again what these machines boot, for loaders that cannot ask by HTTP.

        To be called whenever the authority's answer for a machine has changed; once for several,
        because all machines of a service are written each time.
        """
        wanted = frozenset(machines)
        for tree, saved in await asyncio.to_thread(self._ours, naming=wanted):
            if any(
                each.uuid in wanted and instructions.by_file(each)
                for each in saved.shape.reservations
            ):
                await self._publish(tree, saved)

    async def _run(self, tree: Tree, saved: Saved) -> None:
        """Bring files, dnsmasq and our own part to what is saved. Idempotent."""
        _bridge_index(saved.shape.bridge)
        await asyncio.to_thread(tree.save, saved)
        user = "nobody" if os.geteuid() == 0 else ""
        if user:
            tree.check_way()
        loaders = await self._loaders(saved.shape)
        await asyncio.to_thread(
            tree.write, saved.shape, http_port=self._http.port, user=user, loaders=loaders
        )
        self._peers.serve(saved.tag.cluster, saved.key, saved.shape)
        before = await asyncio.to_thread(tree.reserved)
        told = await asyncio.to_thread(tree.write_reservations, saved.shape.reservations)
        await self._publish(tree, saved)
        await self._serve_http(tree, saved)
        await self._close_to_host(tree, saved.shape)
        await self._run_dnsmasq(tree, saved, reload=told, before=before)

    async def _loaders(self, shape: NetbootService) -> Mapping[str, Path]:
        """Loaders that this machine's packages do not have: those of machines of another kind."""
        if not any(each.loader is Loader.GRUB for each in shape.reservations):
            return {}
        return {"grubaa64.efi": await self._find_grub(Arch.AARCH64)}

    async def _close_to_host(self, tree: Tree, shape: NetbootService) -> None:
        if os.geteuid() != 0:  # then dnsmasq has no port of TFTP either
            return
        command = local_tftp.closing(tree.directory, shape.addresses)
        done = await process.run(command, check=False)
        if done.status:
            why = process.said_by(done)
            log.warning(
                "users of this machine may read files of TFTP", bridge=shape.bridge, why=why
            )

    async def _serve_http(self, tree: Tree, saved: Saved) -> None:
        for address in saved.shape.addresses:
            await self._http.open(address)
        stale = self._advertisers.pop(tree.directory, None)
        if stale is not None:
            await stale.close()
        if saved.shape.address6:
            return  # dnsmasq advertises
        advertiser = Advertiser(saved.shape.bridge)
        advertiser.start()
        self._advertisers[tree.directory] = advertiser

    async def _run_dnsmasq(
        self, tree: Tree, saved: Saved, *, reload: bool, before: Sequence[str]
    ) -> None:
        """One that runs goes on if it is the saved one, on the bridge that is there now, and no one
        who had a reservation `before` has a lease still: it forgets none while it runs.
        """
        running = await _running(tree)
        goes_on = running is not None and _is_saved(running, saved) and not _moved(saved)
        if running is not None and goes_on and not await asyncio.to_thread(tree.has_left, before):
            if reload:
                dnsmasq.reload(running)
            return
        if running is not None:
            await dnsmasq.stop(running)
        await asyncio.to_thread(tree.drop_left, before)
        index = _bridge_index(saved.shape.bridge)
        group = (await asyncio.to_thread(self._group)).name if os.geteuid() == 0 else ""
        running = await dnsmasq.start(
            tree.configuration,
            pid_file=tree.pid_file,
            group=group,
        )
        started = msgspec.structs.replace(
            saved, pid=running.pid, started=running.started, bridge_index=index
        )
        await asyncio.to_thread(tree.save, started)

    async def _remove(self, tree: Tree, saved: Saved) -> None:
        await self._stop_dnsmasq(tree)
        advertiser = self._advertisers.pop(tree.directory, None)
        if advertiser is not None:
            await advertiser.close()
        for address in saved.shape.addresses:
            await self._http.close(address)
        self._peers.leave(saved.tag.cluster, saved.key)
        if tree.directory.exists():
            await asyncio.to_thread(shutil.rmtree, tree.directory)
        _remove_if_empty(tree.directory.parent)

    async def _stop_dnsmasq(self, tree: Tree) -> None:
        running = await _running(tree)
        if running is not None:
            await dnsmasq.stop(running)
        if os.geteuid() == 0:
            await process.run(local_tftp.opening(tree.directory), check=False)

    async def _publish(self, tree: Tree, saved: Saved) -> None:
        async with self._publishing:
            await asyncio.to_thread(self._write_machines, tree, saved)

    def _write_machines(self, tree: Tree, saved: Saved) -> None:
        wanted = list(filter(instructions.by_file, saved.shape.reservations))
        instructions.write(tree, wanted, self._authority, address=saved.shape.host)

    def _tree(self, cluster: UUID, key: Key) -> Tree:
        directory = self._state / str(cluster) / f"{quote(key.place)}@{quote(key.name)}"
        return Tree(directory, group=self._group)

    def _earlier(self, tree: Tree) -> Saved | None:
        """What is there already. Raises `NotOurs` for another deployment's."""
        saved = tree.load()
        if saved is not None and saved.tag.deployment != self._deployment:
            raise NotOurs(
                f"{tree.directory} belongs to the deployment {saved.tag.deployment}",
                hint="Give each deployment a NOSPOON_STATE_DIR of its own.",
            )
        return saved

    def _ours(self, *, naming: Collection[UUID] = ()) -> list[tuple[Tree, Saved]]:
        """Run it in a thread: records may be of ten thousand nodes. `naming`: those alone that have
        one of these machines.
        """
        trees = (
            Tree(path.parent, group=self._group)
            for path in sorted(self._state.glob(f"*/*/{SAVED}"))
        )
        pairs = ((tree, tree.load(naming=naming)) for tree in trees)
        return [
            (tree, saved)
            for tree, saved in pairs
            if saved is not None and saved.tag.deployment == self._deployment
        ]

    def _left(self) -> list[Observed]:
        """Services of a lost state directory: of their owner tags only the path is left."""
        return [
            Observed(
                key=key,
                shape=NetbootService(bridge="", address="", range=("", ""), reservations=()),
                tag=OwnerTag(self._deployment, cluster),
                fault="its files are lost",
            )
            for path in sorted(dnsmasq.all_below(self._state))
            if not (path.parent / SAVED).exists() and (named := _named(path)) is not None
            for cluster, key in [named]
        ]


async def _running(tree: Tree) -> Process | None:
    """Its dnsmasq, in a thread: without a pid file all processes are looked at."""
    return await asyncio.to_thread(dnsmasq.find, tree.configuration, pid_file=tree.pid_file)


def _named(configuration: Path) -> tuple[UUID, Key] | None:
    """Whose a configuration is, by its path as `_tree` makes it; None of another path."""
    host, at, network = configuration.parent.name.partition("@")
    try:
        cluster = UUID(configuration.parent.parent.name)
    except ValueError:
        return None
    return (cluster, Key(Kind.NETBOOT, unquote(host), unquote(network))) if at else None


def _taking_over(saved: Saved, earlier: Saved | None) -> Saved:
    """The new facts, with the running process if it may go on: dnsmasq reads its configuration
    once. Otherwise without: whatever runs then is stopped, also after a crash in between.
    """
    if earlier is None or not _configured_alike(earlier, saved):
        return saved
    return msgspec.structs.replace(
        saved, pid=earlier.pid, started=earlier.started, bridge_index=earlier.bridge_index
    )


def _shape(resource: Resource) -> NetbootService:
    if not isinstance(resource.shape, NetbootService):
        raise ProviderError(f"{resource.key} is not a netboot service")
    return resource.shape


def _configured_alike(before: Saved, after: Saved) -> bool:
    return replace(before.shape, reservations=()) == replace(after.shape, reservations=())


def _is_saved(running: Process, saved: Saved) -> bool:
    return (running.pid, running.started) == (saved.pid, saved.started)


def _moved(saved: Saved) -> bool:
    return saved.bridge_index != _bridge_index(saved.shape.bridge)


def _bridge_index(bridge: str) -> int:
    try:
        return socket.if_nametoindex(bridge)
    except OSError as error:
        raise ProviderError(
            f"there is no bridge {bridge} on this machine",
            hint="Its network may have been removed or stopped: run `nospoon up` again.",
        ) from error


def _observed(pair: tuple[Tree, Saved]) -> Observed:
    tree, saved = pair
    return Observed(saved.key, saved.shape, saved.tag, fault=_fault(tree, saved))


def _fault(tree: Tree, saved: Saved) -> str:
    running = dnsmasq.find(tree.configuration, pid_file=tree.pid_file)
    if running is None or not _is_saved(running, saved):
        return "its dnsmasq does not run"
    try:
        moved = _moved(saved)
    except ProviderError as error:
        return error.message
    return f"the bridge {saved.shape.bridge} was recreated since" if moved else ""


def _remove_if_empty(directory: Path) -> None:
    if directory.exists() and not any(directory.iterdir()):
        directory.rmdir()
