"""The interactive console: the terminal in raw mode, joined to a websocket. Ctrl-] leaves."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from urllib.parse import quote

import click
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, unix_connect

from nospoon.api.client import Client, connected
from nospoon.errors import NospoonError, UsageError

ESCAPE = b"\x1d"
"""Ctrl-], as telnet(1) and virsh(1) have it."""
REFUSED = 4000
ENDS = {1001, 1012}
"""A server that goes away, or restarts (RFC 6455 §7.4.1, IANA's registry of close codes)."""
LEFT = 1000
"""A close that both sides meant (RFC 6455 §7.4.1)."""


def attach(client: Client, node: str) -> None:
    """Join standard input and output to a node's console until Ctrl-], end of input or its end.
    Raises `NotFound` before anything is said of it.
    """
    client.get(f"/v1/nodes/{quote(node)}/show")
    uri = f"ws://nospoond/v1/nodes/{quote(node)}/console"
    made = connected(str(client.socket_path), client.timeout)
    with unix_connect(uri=uri, sock=made, max_size=None) as socket, _raw(sys.stdin.fileno()):
        click.echo(f"Attached to {node}. Ctrl-] leaves.\r", err=True)
        threading.Thread(target=_type, args=(socket,), daemon=True).start()
        reason = _show(socket)
    click.echo("\r\nDetached.", err=True)
    if reason:
        raise NospoonError(reason)


def _show(socket: ClientConnection) -> str:
    """Print what comes until the socket closes; returns what is wrong with that, or ""."""
    try:
        while True:
            data = socket.recv()
            os.write(sys.stdout.fileno(), data if isinstance(data, bytes) else data.encode())
    except ConnectionClosed as closed:
        if closed.rcvd is None:
            return "the daemon went away; the record goes on, see `--log`"
        if closed.rcvd.code == REFUSED:
            return closed.rcvd.reason
        if closed.rcvd.code in ENDS:
            return "the daemon ended; the record goes on, see `--log`"
        return "" if closed.rcvd.code == LEFT else f"the daemon closed it: {closed.rcvd}"


def _type(socket: ClientConnection) -> None:
    """Send what is typed until the escape or the end of input."""
    with contextlib.suppress(ConnectionClosed):
        while typed := os.read(sys.stdin.fileno(), 1024):
            before, escape, _ = typed.partition(ESCAPE)
            if before:
                socket.send(before)
            if escape:
                break
        socket.close()


@contextlib.contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    if not os.isatty(descriptor):
        yield
        return
    try:
        before = termios.tcgetattr(descriptor)
    except termios.error as error:
        raise UsageError(
            f"standard input is not a usable terminal: {os.strerror(error.args[0])}"
        ) from error
    tty.setraw(descriptor)
    try:
        with _ending_by_signal():
            yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _ending_by_signal() -> Iterator[None]:
    """Signals that end a program at once, as timeout(1) sends one, would leave the terminal raw."""

    def leave(number: int, frame: object) -> None:
        del frame
        sys.exit(128 + number)

    signals = (signal.SIGTERM, signal.SIGHUP)
    handlers = {each: signal.signal(each, leave) for each in signals}
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
