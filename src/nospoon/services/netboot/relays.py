"""Tunnels to relays: each has a port of its relay lead to the boot server of this daemon.

    guest -- HTTP --> relay's port ==ssh -R==> ssh(1), a child of the daemon -- UNIX socket --> app

The daemon opens them, so a relay needs no way to the daemon and no secret of it (docs/adr/0030). A
relay may be anyone's by now: ssh(1) reads no configuration, asks no agent, takes one host key, and
forwards this one port (it refuses others that the relay asks for). What the relay asks for and does
not take stays in ssh's memory, as much as the relay says it would take: so that is limited. The
kernel kills it when this daemon ends, however that ends: the end of its input ends it only where
the relay wants it to. What comes through is answered by the secrets of machines alone, for no
address says who asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from starlette.types import ASGIApp, Receive, Scope, Send

from nospoon.errors import MissingTool, NospoonError, ProviderError
from nospoon.model.principal import OwnerId
from nospoon.model.visible import visible_line
from nospoon.providers.tunnels import (
    BMCS_PORT,
    NETBOOT_PORT,
    READY,
    Address,
    Find,
    RelayId,
    RelayKeys,
    RelayPlace,
)
from nospoon.runtime import clock, process
from nospoon.runtime.http_limits import Connections
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.serve import HttpServer
from nospoon.runtime.tasks import Tasks
from nospoon.services.netboot.http import THROUGH
from nospoon.services.netboot.serving import RELAYED, BootHttp

log = RateLimitedLog()
USER, ALIAS = "nospoon", "relay"
SHORTEST, LONGEST = 1.0, 30.0
"""Seconds from a tunnel that broke to the next try; they double."""
STEADY = 60.0
"""Seconds after which one that was open did not break at once."""
CONNECTING = 40.0
"""Seconds for a relay to let us in."""
ENDING = 5.0
"""Seconds for ssh to end once it says nothing more."""
SAID = 2000
"""Bytes of what ssh says that are kept."""
MOST_SHOWN = 1200
"""Characters of why a tunnel is not open: the relay may say what it likes."""
MOST_OF_OWNER = 128
"""Tunnels of one user: each is a process, and where it fails, another one every half a minute."""
LONGEST_SOCKET = 107
"""Bytes of a socket's path (unix(7))."""
BOOT, BMCS, NETBOOT = "boot", "bmcs", "netboot"
"""Sockets, beside ssh's files."""
AT_ONCE, BACKLOG = 4, 100
"""Connections of a helper that asyncio accepts in one turn of the loop, and that wait for it."""
LINES = 4096
"""Bytes of a line or frame of a helper that are read ahead."""
ServeBmcs = Callable[[UUID, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves a connection of the helper on the relay of a cluster."""
OwnerOf = Callable[[UUID], OwnerId | None]
"""Whose a cluster is, None for a user who may have any number of tunnels."""
ServeNetboot = Callable[[RelayId, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves a connection of the helper on a relay that serves DHCP."""
MEMORY = 1280 << 20
"""Bytes of address space of ssh, which keeps what a relay does not take: that of a real one, 2 MiB
for each connection, fits in.
"""
WITH_US = (
    *("choom", "-n", "1000", "--"),
    *("prlimit", f"--as={MEMORY}"),
    *("setpriv", "--no-new-privs", "--pdeathsig=KILL"),
)
"""What runs so ends with the daemon (prctl(2), PR_SET_PDEATHSIG), and before everything else where
memory is short (proc(5), oom_score_adj).
"""
OPTIONS = (
    "BatchMode=yes",
    "IdentitiesOnly=yes",
    "IdentityAgent=none",
    "PreferredAuthentications=publickey",
    "StrictHostKeyChecking=yes",
    "HostKeyAlgorithms=ssh-ed25519",
    f"HostKeyAlias={ALIAS}",
    "GlobalKnownHostsFile=none",
    "UpdateHostKeys=no",
    "ExitOnForwardFailure=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "Tunnel=no",
    "ControlMaster=no",
    "ControlPath=none",
    "EscapeChar=none",
    "RequestTTY=no",
    "ConnectTimeout=20",
    "ConnectionAttempts=1",
    "ServerAliveInterval=10",
    "ServerAliveCountMax=3",
    "LogLevel=ERROR",
)
"""Of ssh_config(5), of which no file is read."""


@dataclass(slots=True)
class Pauses:
    """From one try to the next: longer each time until a tunnel is open for a while. One that ends
    as soon as it is open counts as one that was not.
    """

    shortest: float
    _next: float = 0.0
    _since: float | None = None

    def opened(self, now: float) -> None:
        self._since = now

    def next(self, now: float) -> float:
        was_steady = self._since is not None and now - self._since >= STEADY
        self._since = None
        pause = self.shortest if was_steady or not self._next else self._next
        self._next = min(LONGEST, pause * 2)
        return pause


@dataclass(slots=True)
class _Kept:
    """A tunnel. `why`: what ended its last try, "" while it is open or first tried. `owner`: the
    user as whose it counts, None for no one's.
    """

    find: Find
    pauses: Pauses
    owner: OwnerId | None = None
    task: asyncio.Task[None] | None = None
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    why: str = ""


class RelayTunnels:
    """The `Tunnels` of a daemon. `app`: what is served, at sockets below `directory`; `secret`: of
    which all keys are made. `bmcs`, `netboot`: take connections of helpers. `shortest`: seconds
    from a break to the next try; `environment`: of ssh. `owner_of`: whose clusters are.
    """

    def __init__(
        self,
        app: ASGIApp,
        directory: Path,
        secret: bytes,
        *,
        bmcs: ServeBmcs,
        netboot: ServeNetboot,
        shortest: float = SHORTEST,
        environment: Mapping[str, str] | None = None,
        owner_of: OwnerOf = lambda _: None,
    ) -> None:
        self._app, self._directory, self._secret = app, directory, secret
        self._owner_of = owner_of
        self._bmcs, self._netboot, self._shortest = bmcs, netboot, shortest
        self._connections = Connections(RELAYED)
        self._environment = ENVIRONMENT if environment is None else environment
        self._kept: dict[RelayId, _Kept] = {}
        self._ending: dict[RelayId, asyncio.Task[None]] = {}
        """Those that still have the sockets which the next one is to have."""
        self._tasks = Tasks("relays")

    def keys(self, relay: RelayId) -> RelayKeys:
        return RelayKeys(_private(self._key("host", relay)), _public(self._key("client", relay)))

    def keep(self, relay: RelayId, find: Find) -> None:
        kept = self._kept.get(relay)
        if kept is not None:
            kept.find = find
        else:
            owner = self._owner_of(relay.cluster)
            if owner is not None:
                self._require_few(owner)
            kept = self._kept[relay] = _Kept(find, Pauses(self._shortest), owner)
        if kept.task is not None and not kept.task.done():
            return
        name = f"tunnel to the relay of {relay.cluster} on {relay.host}"
        kept.task = self._tasks.start(self._keep(relay, kept), name=name)

    def _require_few(self, owner: OwnerId) -> None:
        count = sum(each.owner == owner for each in self._kept.values())
        if count >= MOST_OF_OWNER:
            raise ProviderError(
                f"you have {count} tunnels to relays, and members may have {MOST_OF_OWNER}",
                hint="Take down clusters that have relays.",
            )

    async def opened(self, relay: RelayId, seconds: float) -> None:
        kept = self._kept[relay]
        try:
            async with asyncio.timeout(seconds):
                await kept.opened.wait()
        except TimeoutError:
            raise ProviderError(
                f"the relay does not let this daemon in after {seconds:.0f} s: {kept.why}",
                hint="`openstack console log show` of its server says how far it came. Its image "
                "needs cloud-init and OpenSSH's server, and TCP has to reach it.",
            ) from None

    async def end(self, relay: RelayId, find: Find | None = None) -> None:
        kept = self._kept.get(relay)
        if kept is None or find not in (None, kept.find):
            return
        del self._kept[relay]
        if kept.task is not None:
            self._ending[relay] = kept.task
            kept.task.cancel()
            await asyncio.wait([kept.task])
            if self._ending.get(relay) is kept.task:
                del self._ending[relay]

    def fault(self, relay: RelayId) -> str:
        if not self.is_kept(relay):
            return "no tunnel to it is kept"
        why = self._kept[relay].why
        return f"no tunnel leads to it: {why}" if why else ""

    def is_kept(self, relay: RelayId) -> bool:
        kept = self._kept.get(relay)
        return kept is not None and kept.task is not None and not kept.task.done()

    async def close(self) -> None:
        for relay in list(self._kept):
            await self.end(relay)
        await self._tasks.close()

    async def _keep(self, relay: RelayId, kept: _Kept) -> None:
        """Until it is cancelled."""
        if (before := self._ending.get(relay)) is not None:
            await asyncio.wait([before])
        while True:
            try:
                async with self._served(relay) as files:
                    why = await self._try(relay, kept, files)
            except (NospoonError, OSError) as error:  # such as no space, or too many open files
                why = str(error)
            kept.opened.clear()
            kept.why = visible_line(why)[:MOST_SHOWN]
            cluster = str(relay.cluster)
            log.warning("no tunnel to a relay", of=cluster, cluster=cluster, why=kept.why)
            await asyncio.sleep(kept.pauses.next(clock.monotonic()))

    async def _try(self, relay: RelayId, kept: _Kept, files: Path) -> str:
        """Open it, and why it ended. Raises `NospoonError` or `OSError`."""
        place = await kept.find()
        path = self._environment["PATH"]
        if await asyncio.to_thread(shutil.which, "ssh", path=path) is None:
            raise MissingTool(f"there is no ssh in {path}", hint="Install openssh-client.")
        ssh = await process.pipe(command(place, files), env=self._environment, errors=True)
        ended = "it ended"
        try:
            async with asyncio.timeout(CONNECTING):
                said = await ssh.read(len(READY) + 1)
            if said.decode(errors="replace").strip() == READY:
                cluster = str(relay.cluster)
                log.info("tunnel to a relay", of=cluster, cluster=cluster, at=str(place.address))
                kept.why = ""
                kept.pauses.opened(clock.monotonic())
                kept.opened.set()
                await ssh.read(1)  # it says nothing more until it ends
            async with asyncio.timeout(ENDING):
                words = await ssh.errors(SAID)
            ended = process.end_of(words.decode(errors="replace")) or ended
        except TimeoutError:
            ended = "it does not answer"
        finally:
            await ssh.close()
        return f"{place.address} port {place.port}: {ended}"

    @asynccontextmanager
    async def _served(self, relay: RelayId) -> AsyncIterator[Path]:
        """The directory with ssh's files, and the sockets to which it leads."""
        name = hashlib.sha256(f"{relay.cluster}/{relay.host}".encode()).hexdigest()[:12]
        files = self._directory / name
        await asyncio.to_thread(self._write, relay, files)
        try:
            async with self._listening(relay, name, files):
                yield files
        finally:
            await asyncio.to_thread(shutil.rmtree, files)

    @asynccontextmanager
    async def _listening(self, relay: RelayId, name: str, files: Path) -> AsyncIterator[None]:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await self._app({**scope, THROUGH: name}, receive, send)

        server = HttpServer(
            app,
            [_bound(files / BOOT)],
            limits=RELAYED,
            connections=self._connections,
            identify=lambda _: f"relay {name}",
            http=BootHttp,
            ws="none",
            interface="asgi3",
        )
        serving = {BMCS: partial(self._bmcs, relay.cluster), NETBOOT: partial(self._netboot, relay)}
        try:
            await server.start()
            with contextlib.ExitStack() as helpers:
                for socket_name, serve in serving.items():
                    bound = _bound(files / socket_name)
                    helpers.callback(bound.close)
                    made = await asyncio.start_unix_server(
                        serve, sock=bound, limit=LINES, backlog=AT_ONCE, start_serving=False
                    )
                    helpers.callback(made.close)  # before it serves, which may be cancelled
                    await made.start_serving()
                    bound.listen(BACKLOG)
                yield
        finally:
            await server.close()

    def _write(self, relay: RelayId, files: Path) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        shutil.rmtree(files, ignore_errors=True)  # of a daemon that was killed
        files.mkdir(mode=0o700)
        key = files / "key"
        key.touch(0o600)
        key.write_text(_private(self._key("client", relay)))
        (files / "known_hosts").write_text(f"{ALIAS} {_public(self._key('host', relay))}\n")

    def _key(self, whose: str, relay: RelayId) -> Ed25519PrivateKey:
        text = f"{whose}/{relay.cluster}/{relay.host}"
        return Ed25519PrivateKey.from_private_bytes(
            hmac.digest(self._secret, text.encode(), "sha256")
        )


ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}


def command(place: RelayPlace, files: Path) -> list[str]:
    """The ssh command line: nothing in it but addresses and numbers comes from anyone else."""
    options = [word for each in OPTIONS for word in ("-o", each)]
    options += ["-o", f"UserKnownHostsFile={_quoted(files / 'known_hosts')}"]
    leads = ["-R", f"{_shown(place.on)}:{place.listens}:{files / BOOT}"]
    if place.bmcs:
        leads += ["-R", f"127.0.0.1:{BMCS_PORT}:{files / BMCS}"]
    if place.netboot:
        leads += ["-R", f"127.0.0.1:{NETBOOT_PORT}:{files / NETBOOT}"]
    return [
        *WITH_US, "ssh", "-F", "none", "-T", "-a", "-x", "-i", str(files / "key"), *options,
        *leads,
        "-p", str(place.port), "-l", USER, "--", str(place.address),
    ]  # fmt: skip


def _quoted(path: Path) -> str:
    return f'"{path}"'


def _shown(address: Address) -> str:
    return f"[{address}]" if isinstance(address, IPv6Address) else str(address)


def _bound(at: Path) -> socket.socket:
    """Its directory is this user's alone. Raises `ProviderError`."""
    if len(str(at)) > LONGEST_SOCKET:
        raise ProviderError(f"{at} is too long for a socket", hint="Shorten NOSPOON_RUNTIME_DIR.")
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.ExitStack() as stack:
        stack.callback(bound.close)
        bound.bind(str(at))
        bound.setblocking(False)  # noqa: FBT003  (socket's own signature)
        stack.pop_all()
    return bound


def _private(key: Ed25519PrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
