"""Hosts over ssh that answer what no host answers: they are an administrator's choice, but who
broke into one gets no further by it, and holds up nothing else.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import cast
from uuid import uuid4

import pytest

from nospoon.errors import ProviderError
from nospoon.runtime import runner
from nospoon.runtime.process import Finished
from nospoon.runtime.runner import Runner, SshRunner
from nospoon.services.consoles.mirror import Mirror
from nospoon.services.consoles.records import Records


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is run as ssh(1), to be written."""
    made = tmp_path / "ssh"
    made.touch(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return made


@pytest.mark.parametrize("where", ["", " >&2"])
async def test_endless_output_does_not_fill_the_memory(
    ssh: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """For 60 s a command's output was kept, however much came."""
    monkeypatch.setattr(runner, "MOST_OUTPUT", 1 << 20)
    ssh.write_text(f"#!/bin/sh\nexec yes{where}\n")
    with pytest.raises(ProviderError, match="on rack wrote more than 1MiB"):
        await SshRunner("rack").run(["ip", "-j", "link"], stdin=b"x" * (1 << 22))


async def test_a_command_over_ssh_is_still_given_what_it_reads(ssh: Path) -> None:
    ssh.write_text("#!/bin/sh\nexec cat\n")
    given = b"y" * (1 << 20)
    done = await SshRunner("rack").run(["cat"], stdin=given)
    assert done.stdout == given.decode()


class Odd:
    """Answers the same to each command."""

    def __init__(self, said: str) -> None:
        self.said = said

    async def run(self, argv: list[str], **_: object) -> Finished:
        return Finished(tuple(argv), 0, self.said, "")


@pytest.mark.parametrize(
    "said",
    ["-" * 36 + ".log 1 1\n", "{uuid}.log x 1\n", "{uuid}.log\n", "{uuid}.log 7 9\n"],
)
async def test_console_records_are_copied_on_after_odd_answers(tmp_path: Path, said: str) -> None:
    """The task that copies them ended, for good."""
    machine, records = uuid4(), Records(tmp_path)
    records.keep(machine, group="0/c", node="n")
    mirror = Mirror(
        cast("Runner", Odd(said.format(uuid=machine))),
        PurePosixPath("/there"),
        records,
        machines=lambda: [machine],
        busy=lambda: False,
    )
    await mirror.look()
    assert records.size(machine) == 0
