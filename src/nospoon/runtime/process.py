"""Subprocesses: every one goes through here and is logged as one could paste it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import structlog

from nospoon.errors import MissingTool, ProviderError

log = structlog.get_logger()
PIECE = 1 << 16
"""Bytes that are read at a time."""
DECODED = 256 << 10
"""Bytes of UTF-8 that are decoded at a time."""
LONGEST_WORD = 120
"""Characters of a word of a command that messages show."""
MOST_SAID = 1000
"""Characters of what a command that failed said, in an error."""
ENDING = 5.0
"""Seconds in which what a killed command wrote ends."""
MOST_PRINTED = 1 << 20
"""Characters of what is taken of a command's output where it is short."""
LEFT = 2 << 20
"""Bytes that are read of what a command wrote before it was killed: more than a pipe may hold
(pipe(7), pipe-max-size). A child of it may go on writing without an end.
"""


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
        return shown(self.argv)


def shown(argv: Sequence[str]) -> str:
    """A command line, of which long words, such as whole programs, have their beginning alone."""
    return shlex.join(
        word if len(word) <= LONGEST_WORD else f"{word[:LONGEST_WORD]}…" for word in argv
    )


async def run(
    argv: Sequence[str],
    *,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout: float = 60.0,  # noqa: ASYNC109  (this is the one place that turns it into a kill)
    check: bool = True,
    most: int | None = None,
    cleaning: float = 0.0,
) -> Finished:
    """Run a command to its end; a non-zero status raises `ProviderError` unless `check` is off.

    `most`: bytes of its output, and of its errors; of more, `OutputTooLong` is raised. `cleaning`:
    seconds for a command that removes what it made when it and its children are interrupted; they
    have a session of their own.
    """
    line = shown(argv)
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            start_new_session=cleaning > 0,
        )
    except FileNotFoundError as error:
        raise MissingTool(f"{argv[0]} is not installed", hint="Run `nospoon doctor`.") from error
    try:
        async with asyncio.timeout(timeout):
            out, err = await _outputs(process, stdin, most)
    except TimeoutError:
        await _end(process, cleaning)
        raise ProviderError(f"`{line}` did not end within {timeout:.0f} s") from None
    except asyncio.CancelledError:
        await _end(process, cleaning)
        raise
    if most is not None and max(len(out), len(err)) > most:
        raise OutputTooLong
    done = Finished(
        argv=tuple(argv),
        status=process.returncode or 0,
        stdout=await _text(out),
        stderr=await _text(err),
    )
    log.debug("ran", command=line, status=done.status)
    if check and done.status != 0:
        refuse(done)
    return done


async def _text(data: bytes) -> str:
    """Piece by piece, between which others run: each byte that is not UTF-8 takes as long as a
    hundred others.
    """
    decoder, parts = getincrementaldecoder("utf-8")(errors="replace"), list[str]()
    for begin in range(0, len(data), DECODED):
        parts.append(decoder.decode(data[begin : begin + DECODED]))
        if begin:
            await asyncio.sleep(0)
    return "".join([*parts, decoder.decode(b"", final=True)])


async def _outputs(
    process: asyncio.subprocess.Process, stdin: bytes | None, most: int | None
) -> tuple[bytes, bytes]:
    if most is None:
        return await process.communicate(stdin)
    assert process.stdout is not None
    assert process.stderr is not None
    out, err, _ = await asyncio.gather(
        _at_most(process, process.stdout, most),
        _at_most(process, process.stderr, most),
        _feed(process, stdin),
    )
    await process.wait()
    return out, err


async def _feed(process: asyncio.subprocess.Process, data: bytes | None) -> None:
    if process.stdin is None or data is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it reads no more
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _at_most(
    process: asyncio.subprocess.Process, stream: asyncio.StreamReader, most: int
) -> bytes:
    """What it says, and a little more than `most` where that is too long, which ends it. What its
    children go on to write is not read.
    """
    found, left = bytearray(), LEFT
    while left > 0 and (part := await stream.read(PIECE)):
        if len(found) > most:
            left -= len(part)
            continue
        found += part
        if len(found) > most:
            _kill(process)
    return bytes(found)


async def _end(process: asyncio.subprocess.Process, cleaning: float = 0.0) -> None:
    """Kill it, after `cleaning` seconds in which it and its children may clean up; and read to
    their ends what it wrote: asyncio's `wait` returns only when its pipes have ended too, and a
    pipe of which much waits to be read is not looked at. A child of it that goes on with its pipes
    is waited for no longer than `ENDING`, and loses them: nothing is read there any more.
    """
    if cleaning:
        _signal_all(process, signal.SIGINT)
        if await _ended(process, cleaning):
            return
        _signal_all(process, signal.SIGKILL)
    _kill(process)
    if not await _ended(process, ENDING):
        log.warning("a child of a command that was ended goes on", pid=process.pid)
        process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001  (no other way)


async def _ended(process: asyncio.subprocess.Process, seconds: float) -> bool:
    streams = (each for each in (process.stdout, process.stderr) if each is not None)
    try:
        async with asyncio.timeout(seconds):
            are_over = await asyncio.gather(*map(_drain, streams))
            await process.wait()
    except TimeoutError:
        return False
    return all(are_over)


def _signal_all(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """It and its children, which share its session."""
    with contextlib.suppress(ProcessLookupError):  # all have ended
        os.killpg(process.pid, number)


async def _drain(stream: asyncio.StreamReader) -> bool:
    """Whether it has ended, or goes on beyond what its command can have left."""
    left = LEFT
    while left > 0:
        part = await stream.read(PIECE)
        if not part:
            return True
        left -= len(part)
    return False


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        process.kill()


class Piped:
    """A command that runs until it ends or is closed."""

    def __init__(self, process: asyncio.subprocess.Process, *, leads: bool = False) -> None:
        """`leads`: a session of its own."""
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._in, self._out = process, process.stdin, process.stdout
        self._leads = leads

    @property
    def pid(self) -> int:
        return self._process.pid

    async def read(self, most: int) -> bytes:
        """What it writes; b"" when it has ended."""
        return await self._out.read(most)

    async def write(self, data: bytes) -> None:
        """Raises `BrokenPipeError` or `ConnectionResetError` when it has ended."""
        self._in.write(data)
        await self._in.drain()

    async def errors(self, most: int) -> bytes:
        """What it writes as errors until it ends; of more than `most` bytes the first `most` + 1,
        and it is killed.
        """
        assert self._process.stderr is not None, "it was started with `errors`"
        return (await _at_most(self._process, self._process.stderr, most))[: most + 1]

    async def close(self, *, patience: float = 0.0) -> None:
        """Its input ends, upon which it may end by itself within `patience` seconds; then it is
        killed, with its children where it has a session. No one may read from it any more.
        """
        try:
            if patience:
                self._in.close()
                await _ended(self._process, patience)
        finally:
            if self._leads and self._process.returncode is None:
                _signal_all(self._process, signal.SIGKILL)
            await _end(self._process)


async def pipe(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, errors: bool = False
) -> Piped:
    """Start a command to write to and read from, and to read its `errors`; these are lost else.
    One with errors has a session of its own.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE if errors else asyncio.subprocess.DEVNULL,
            env=dict(env) if env is not None else None,
            start_new_session=errors,
        )
    except FileNotFoundError as error:
        raise MissingTool(f"{argv[0]} is not installed", hint="Run `nospoon doctor`.") from error
    log.debug("piped", command=shown(argv), pid=process.pid)
    return Piped(process, leads=errors)


def refuse(done: Finished) -> NoReturn:
    """Raise for a command that failed, with the end of what it said."""
    raise ProviderError(f"`{done.line}` failed with status {done.status}: {said_by(done)}")


def printed_by(done: Finished, most: int = MOST_PRINTED) -> str:
    """What a command wrote that writes little: a host over ssh may write 64 MiB in its place, which
    would be worked on, kept and stored. Raises `ProviderError` for more than `most` characters.
    """
    if len(done.stdout) > most:
        raise ProviderError(f"`{done.argv[0]}` printed what is not expected of it")
    return done.stdout


def said_by(done: Finished) -> str:
    """The end of what a command that failed said, in one line of bounded length: a host over ssh
    may say as much as it likes, and errors are logged.
    """
    return end_of(done.stderr or done.stdout)


def end_of(said: str) -> str:
    """Its last lines, as one of bounded length."""
    end = said[-(MOST_SAID * 4) :].strip()
    return " / ".join(end.splitlines()[-3:])[-MOST_SAID:]
