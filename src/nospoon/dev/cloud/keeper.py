"""The first process of the cloud's namespaces: it starts the services, and forwards its ports.

The namespace of processes ends with it, so nothing of the cloud can outlive it. Requests come by
a UNIX socket, one JSON value a line; it answers each with one line:

    {"start": NAME, "argv": [...], "env": {...}, "log": PATH}   -> {"pid": N}
    {"run": [...], "env": {...}}                                -> {"status": N, "output": "..."}
    {"forget": [NAME, ...]}                                     -> the same as
    {"list": true}                                              -> {NAME: null or its exit status}

Listeners of the host were opened before the namespaces were made, and are inherited: what connects
to one is connected to the same port of the namespace's own loopback.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

LONGEST_REQUEST = 1 << 20
"""Bytes of a line."""
_CHUNK = 1 << 16
MOST_FORWARDED = 512
"""Connections of the host that are forwarded at a time, of all ports; further ones are closed."""


@dataclass
class Keeper:
    """`services`: the exit status of each, None while it runs. `most`: connections of the host that
    are forwarded at a time, and are now (`forwarded`).
    """

    services: dict[str, int | None] = field(default_factory=dict)
    most: int = MOST_FORWARDED
    forwarded: int = 0
    _pids: dict[int, str] = field(default_factory=dict)
    _awaited: dict[int, asyncio.Future[int]] = field(default_factory=dict)

    async def serve(self, path: Path, listeners: Mapping[int, int]) -> None:
        """Until it is killed. `listeners`: descriptor of each port."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)
        for port, descriptor in listeners.items():
            listener = socket.socket(fileno=descriptor)
            await asyncio.start_server(partial(self.forward, port), sock=listener)
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._talk, path, limit=LONGEST_REQUEST)
        path.chmod(0o600)
        await server.serve_forever()

    async def forward(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Between a client on the host and the service inside, until both have ended."""
        if self.forwarded >= self.most:
            writer.close()
            return
        self.forwarded += 1
        try:
            await _forward(port, reader, writer)
        finally:
            self.forwarded -= 1

    def _reap(self) -> None:
        """Its own children, and those of others that ended: the kernel gives them to it."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended[0], os.waitstatus_to_exitcode(ended[1])
                if pid in self._awaited:
                    self._awaited.pop(pid).set_result(status)
                elif pid in self._pids:
                    self.services[self._pids.pop(pid)] = status

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(json.loads(line))).encode() + b"\n")
                await writer.drain()
        finally:
            writer.close()

    async def _answer(self, request: Mapping[str, Any]) -> Any:
        match request:
            case {"start": name, "argv": argv, "env": env, "log": log}:
                return {"pid": self._start(name, argv, env=env, log=Path(log))}
            case {"run": argv, "env": env}:
                return await self._run(argv, env)
            case {"forget": names}:
                return self._forget(names)
            case _:
                return self.services

    def _start(self, name: str, argv: Sequence[str], *, env: dict[str, str], log: Path) -> int:
        with log.open("ab") as output:
            pid = _spawn(argv, env, output.fileno())
        self.services[name], self._pids[pid] = None, name
        return pid

    def _forget(self, names: Sequence[str]) -> dict[str, int | None]:
        """Services that are not wanted any more, and were ended."""
        self._pids = {pid: name for pid, name in self._pids.items() if name not in names}
        self.services = {name: code for name, code in self.services.items() if name not in names}
        return self.services

    async def _run(self, argv: Sequence[str], env: dict[str, str]) -> object:
        with tempfile.TemporaryFile() as output:
            pid = _spawn(argv, env, output.fileno())
            self._awaited[pid] = asyncio.get_running_loop().create_future()
            status = await self._awaited[pid]
            output.seek(0)
            return {"status": status, "output": output.read().decode(errors="replace")}


def _spawn(argv: Sequence[str], env: dict[str, str], output: int) -> int:
    with Path(os.devnull).open("rb") as nothing:
        actions = [
            (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ]
        program = shutil.which(argv[0], path=env["PATH"]) or argv[0]  # not by our own PATH
        return os.posix_spawn(program, list(argv), env, file_actions=actions, setsid=True)


async def _forward(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:  # it does not listen yet, or no longer
        writer.close()
        return
    try:
        async with asyncio.TaskGroup() as both:  # an error of one ends the other, too
            both.create_task(_copy(reader, inner_writer))
            both.create_task(_copy(inner_reader, writer))
    except* OSError:
        pass
    finally:
        inner_writer.close()
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


def main(path: str, *listeners: str) -> None:
    """`listeners`: PORT=DESCRIPTOR each."""
    pairs = [each.partition("=") for each in listeners]
    known = {int(port): int(descriptor) for port, _, descriptor in pairs}
    asyncio.run(Keeper().serve(Path(path), known))


if __name__ == "__main__":
    main(*sys.argv[1:])
