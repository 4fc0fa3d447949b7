"""Commands on a host: this machine, or one over ssh."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Protocol

from nospoon.errors import HostUnreachable
from nospoon.runtime import process
from nospoon.runtime.process import Finished

SSH_FAILED = 255


class Runner(Protocol):
    """Runs commands on one host."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished: ...


class LocalRunner:
    """Commands on this machine."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        return await process.run(argv, stdin=stdin, check=check)


class SshRunner:
    """Commands on a machine over ssh(1), with the user's own configuration and keys."""

    def __init__(self, destination: str) -> None:
        self.destination = destination

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        ssh = ["ssh", "-o", "BatchMode=yes", self.destination, "--", shlex.join(argv)]
        done = await process.run(ssh, stdin=stdin, check=False)
        if done.status == SSH_FAILED:
            raise HostUnreachable(f"ssh to {self.destination} failed: {done.stderr.strip()}")
        if check and done.status != 0:
            process.refuse(done)
        return done


def runner_for(ssh: str) -> Runner:
    """The runner of a host whose `ssh` setting is this ("" is here)."""
    return SshRunner(ssh) if ssh else LocalRunner()
