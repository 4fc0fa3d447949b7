"""Subprocesses: every one goes through here and is logged as one could paste it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import structlog

from nospoon.errors import MissingTool, ProviderError

log = structlog.get_logger()


class OutputTooLong(ProviderError):
    """A command wrote more than is taken of it."""

    def __init__(self) -> None:
        super().__init__("the command wrote too much")


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended. Output is decoded as UTF-8 with replacement."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    @property
    def line(self) -> str:
        return shlex.join(self.argv)


async def run(
    argv: Sequence[str],
    *,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout: float = 60.0,  # noqa: ASYNC109  (this is the one place that turns it into a kill)
    check: bool = True,
    most: int | None = None,
) -> Finished:
    """Run a command to its end; a non-zero status raises `ProviderError` unless `check` is off.

    `most`: bytes of its output, and of its errors; of more, `OutputTooLong` is raised.
    """
    line = shlex.join(argv)
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(env) if env is not None else None,
            cwd=cwd,
        )
    except FileNotFoundError as error:
        raise MissingTool(f"{argv[0]} is not installed", hint="Run `nospoon doctor`.") from error
    try:
        async with asyncio.timeout(timeout):
            out, err = await _outputs(process, stdin, most)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise ProviderError(f"`{line}` did not end within {timeout:.0f} s") from None
    except (asyncio.CancelledError, OutputTooLong):
        process.kill()
        await process.wait()
        raise
    done = Finished(
        argv=tuple(argv),
        status=process.returncode or 0,
        stdout=out.decode(errors="replace"),
        stderr=err.decode(errors="replace"),
    )
    log.debug("ran", command=line, status=done.status)
    if check and done.status != 0:
        refuse(done)
    return done


async def _outputs(
    process: asyncio.subprocess.Process, stdin: bytes | None, most: int | None
) -> tuple[bytes, bytes]:
    if most is None:
        return await process.communicate(stdin)
    assert stdin is None, "what is bounded is given nothing"
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = await asyncio.gather(_at_most(process.stdout, most), _at_most(process.stderr, most))
    await process.wait()
    return out, err


async def _at_most(stream: asyncio.StreamReader, most: int) -> bytes:
    found = bytearray()
    while part := await stream.read(1 << 16):
        found += part
        if len(found) > most:
            raise OutputTooLong
    return bytes(found)


def refuse(done: Finished) -> NoReturn:
    """Raise for a command that failed, with the end of what it said."""
    said = (done.stderr or done.stdout).strip().splitlines()
    raise ProviderError(f"`{done.line}` failed with status {done.status}: {' / '.join(said[-3:])}")
