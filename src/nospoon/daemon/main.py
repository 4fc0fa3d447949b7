"""The daemon `nospoond`: settings, one instance, signals, and an end in good order."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from typing import NoReturn

import structlog

from nospoon import __version__
from nospoon.daemon.instance import listening, locked
from nospoon.errors import NospoonError, Superseded, UsageError
from nospoon.runtime import logs, loop, systemd
from nospoon.runtime.gc_freeze import starting
from nospoon.runtime.hardening import protect_memory, restrict
from nospoon.runtime.http_limits import raise_descriptor_limit
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.users import is_group
from nospoon.settings import (
    READY,
    REFUSED,
    Settings,
    make_directory,
    settings_for,
    unknown_group,
)

log = structlog.get_logger()

TURN_SECONDS = 0.0005
"""How long another thread of ours may go on in Python while the loop has something to do: each
datagram may wait for it several times.
"""


def main() -> None:
    """Run the daemon in the foreground until SIGTERM or SIGINT; SIGHUP: read the list of grants
    again.
    """
    arguments = _parser().parse_args()
    try:
        settings = settings_for(os.environ, uid=os.getuid())
    except UsageError as error:
        sys.exit(f"nospoond: {error}")
    os.umask(0o022)
    logs.configure(settings.log_level)
    raise_descriptor_limit()
    protect_memory()
    sys.setswitchinterval(TURN_SECONDS)
    try:
        _prepare(settings)
        with locked(settings.pid_file, settings.socket), listening(settings.socket) as listener:
            loop.run(_serve(settings, listener, arguments.ready_fd))
    except Superseded as error:
        log.error("superseded", why=str(error))
        _leave(1)
    except NospoonError as error:
        log.error("cannot start", error=str(error))
        _tell(arguments.ready_fd, f"{REFUSED}{error}")
        _leave(1)
    _leave(0)


def _leave(status: int) -> NoReturn:
    """All is closed by now. Threads that wait for a host or service that hangs are not waited for,
    as Python would do.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if threading.active_count() > 1:
        os._exit(status)
    sys.exit(status)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nospoond", description="Virtual bare metal: the daemon.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument(
        "--ready-fd",
        type=int,
        help="write 'ready' to this descriptor when requests are answered, or why they are not",
    )
    return parser


def _prepare(settings: Settings) -> None:
    """State is private but searchable: the hypervisor's user opens the disks below it."""
    for directory, mode in (
        (settings.state, 0o711),
        (settings.cache, 0o755),
        (settings.pools, 0o711),
        (settings.runtime, 0o755),
    ):
        make_directory(directory, mode)
        restrict(directory, mode)


async def _serve(settings: Settings, listener: socket.socket, ready_fd: int | None) -> None:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    async with contextlib.AsyncExitStack() as end:
        with starting():
            from nospoon.daemon.wiring import Daemon  # noqa: PLC0415  (heavy: if it really runs)

            daemon = await end.enter_async_context(Daemon(settings, listener, ending))
        log.info("ready", version=__version__, socket=str(settings.socket), pid=os.getpid())
        _tell(ready_fd, f"{READY}\n")
        systemd.notify("READY=1")
        tasks = await end.enter_async_context(Tasks("daemon"))
        tasks.start(systemd.feed_watchdog(), name="watchdog")
        if os.environ.get("NOSPOON_GROUP"):
            tasks.start(_check_group(settings.group), name="check group")
        loop.add_signal_handler(
            signal.SIGHUP, lambda: tasks.start(daemon.control.work.use_grants(), name="read grants")
        )
        await ending.wait()
        systemd.notify("STOPPING=1")
        log.info("stopping")
    if daemon.superseded:
        raise Superseded(daemon.superseded)
    log.info("stopped")


async def _check_group(name: str) -> None:
    """One that is only not known yet, of another machine's database, may be known later."""
    if not await asyncio.to_thread(is_group, name):
        log.warning("unknown group", setting="NOSPOON_GROUP", why=unknown_group(name))


def _tell(ready_fd: int | None, how: str) -> None:
    """Who started this daemon reads how that went."""
    if ready_fd is not None:
        with contextlib.suppress(OSError), os.fdopen(ready_fd, "w") as ready:
            ready.write(how)


if __name__ == "__main__":
    main()
