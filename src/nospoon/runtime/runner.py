"""Commands on a host: this machine, or one over ssh."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Protocol

from nospoon.errors import HostUnreachable, ProviderError
from nospoon.model.destinations import SshDestination
from nospoon.runtime import process
from nospoon.runtime.process import Finished, OutputTooLong, said_by

SECONDS = 60.0
"""For how long a command may run, where it is not given longer."""
SSH_FAILED = 255
MOST_OUTPUT = 64 << 20
"""Bytes that a command may write, and as many of errors: what answers on another host may be
anyone's by now, and here tools show what guests and others put there.
"""
NOT_SSHS_OWN = "; status=$?; [ $status -ne 255 ] || status=254; exit $status"
"""What is appended to a command: ssh(1) tells its own failures by 255, as some commands do."""
LONGEST_SOCKETS = 108 - 1 - len("/ssh-") - 40 - 18
"""A socket's path has 108 bytes (unix(7)): %C has 40, and ssh adds 17 while it makes it."""


class Runner(Protocol):
    """Runs commands on one host."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished: ...


@contextmanager
def _bounded(what: str) -> Iterator[None]:
    try:
        yield
    except OutputTooLong as error:
        raise ProviderError(f"{what} wrote more than {MOST_OUTPUT >> 20}MiB") from error


class LocalRunner:
    """Commands on this machine. `seconds`: for how long each may run."""

    seconds = SECONDS

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        with _bounded(f"`{process.shown(argv)}`"):
            return await process.run(
                argv, stdin=stdin, check=check, most=MOST_OUTPUT, timeout=self.seconds
            )


class SshRunner:
    """Commands on a machine over ssh(1), with the user's own configuration and keys.

    Commands share one connection, whose socket is in `sockets`; it ends when no one used it for a
    minute (ssh_config(5), ControlPersist), so that a command costs milliseconds and no login.
    A destination of another form than `SshDestination` is refused: it may be from an older store.
    """

    def __init__(
        self, destination: str, sockets: Path | None = None, seconds: float = SECONDS
    ) -> None:
        self.destination, self.seconds = destination, seconds
        self._options = ["-o", "BatchMode=yes"]
        if sockets is not None and len(str(sockets)) <= LONGEST_SOCKETS:
            shared = ("ControlMaster=auto", f"ControlPath={sockets}/ssh-%C", "ControlPersist=60")
            self._options += [word for each in shared for word in ("-o", each)]

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        try:
            SshDestination.parse(self.destination)
        except ValueError as error:
            raise HostUnreachable(str(error)) from error
        command = self.command(argv)
        with _bounded(f"`{process.shown(argv)}` on {self.destination}"):
            done = await process.run(
                command, stdin=stdin, check=False, most=MOST_OUTPUT, timeout=self.seconds
            )
        if done.status == SSH_FAILED:
            raise HostUnreachable(f"ssh to {self.destination} failed: {said_by(done)}")
        if check and done.status != 0:
            process.refuse(done)
        return done

    def command(self, argv: Sequence[str]) -> list[str]:
        """The ssh command line. Options end before the destination; what follows it is the command,
        a second `--` included (ssh.c, opt_terminated).
        """
        command = f"{shlex.join(argv)}{NOT_SSHS_OWN}"
        return ["ssh", *self._options, "--", self.destination, command]


def patient(runner: Runner, seconds: float) -> Runner:
    """The same, whose commands may run for so long; one that is neither of these two as it is."""
    if type(runner) not in (LocalRunner, SshRunner):
        return runner
    made = copy(runner)
    made.seconds = seconds  # type: ignore[attr-defined]  # both have it
    return made


def runner_for(ssh: str, sockets: Path | None = None) -> Runner:
    """The runner of a host whose `ssh` setting is this ("" is here)."""
    return SshRunner(ssh, sockets) if ssh else LocalRunner()
