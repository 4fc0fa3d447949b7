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
from nospoon.errors import NospoonError, Superseded
from nospoon.runtime import logs
from nospoon.runtime.heap import starting
from nospoon.settings import Settings, settings_for

log = structlog.get_logger()

TURN_SECONDS = 0.0005
"""How long another thread of ours may go on in Python while the loop has something to do: each
datagram may wait for it several times.
"""


def main() -> None:
    """Run the daemon in the foreground until SIGTERM or SIGINT."""
    arguments = _parser().parse_args()
    settings = settings_for(os.environ, uid=os.getuid())
    os.umask(0o022)
    logs.configure(settings.log_level)
    sys.setswitchinterval(TURN_SECONDS)
    try:
        _prepare(settings)
        with locked(settings.pid_file), listening(settings.socket) as listener:
            asyncio.run(_serve(settings, listener, arguments.ready_fd))
    except Superseded as error:
        log.error("superseded", why=str(error))
        _leave(1)
    except NospoonError as error:
        log.error("cannot start", error=str(error))
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
        "--ready-fd", type=int, help="write 'ready' to this descriptor when requests are answered"
    )
    return parser


def _prepare(settings: Settings) -> None:
    """State is private but searchable: the hypervisor's user opens the disks below it."""
    for directory, mode in (
        (settings.state, 0o711),
        (settings.cache, 0o755),
        (settings.pools, 0o711),
    ):
        directory.mkdir(parents=True, exist_ok=True, mode=mode)


async def _serve(settings: Settings, listener: socket.socket, ready_fd: int | None) -> None:
    from nospoon.daemon.wiring import Daemon  # noqa: PLC0415  (heavy: only when it really runs)

    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    async with contextlib.AsyncExitStack() as end:
        with starting():
            daemon = await end.enter_async_context(Daemon(settings, listener, ending))
        log.info("ready", version=__version__, socket=str(settings.socket), pid=os.getpid())
        _tell_ready(ready_fd)
        await ending.wait()
        log.info("stopping")
    if daemon.superseded:
        raise Superseded(daemon.superseded)
    log.info("stopped")


def _tell_ready(ready_fd: int | None) -> None:
    if ready_fd is not None:
        os.write(ready_fd, b"ready\n")
        os.close(ready_fd)
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", address.replace("@", "\0", 1))


if __name__ == "__main__":
    main()
