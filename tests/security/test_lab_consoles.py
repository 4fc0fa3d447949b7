"""BMCs of registered machines whose consoles say anything, for ever, or nothing: a member names
them, and ipmitool shows what they say.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import pytest

from nospoon.control.labs import bmcs, recording, sol
from nospoon.control.labs import consoles as module
from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.consoles import RegisteredConsoles, record_of
from nospoon.lab.work import Asked, RecipeSet, Run, SetState
from nospoon.model.lab import Lab, Registered
from nospoon.runtime.reach import ANYWHERE
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.workers import Workers
from nospoon.services.consoles.records import SEGMENT_SIZE, Records

PATIENCE = 60.0
TOOL = """#!/bin/sh
case "$*" in
*deactivate*) exit 0 ;;
*"-H 192.0.2.2 "*) echo "[SOL Session operational. Use ~? for help]"; echo login:; exec cat ;;
esac
echo $$ >>{started}
{body}
"""
GREETING = 'echo "[SOL Session operational. Use ~? for help]"'
HOSTILE, OTHER = Registered("hostile", address="192.0.2.1"), Registered("m", address="192.0.2.2")


@dataclass
class Site:
    """Labs of two owners. `tool`: makes the ipmitool of the hostile machine do that."""

    place: Path
    records: Records
    lacking: int = 0
    ended: list[UUID] = field(default_factory=list)

    def tool(self, body: str) -> None:
        (self.place / "ipmitool").write_text(TOOL.format(started=self.place / "started", body=body))

    def left(self) -> list[str]:
        """Processes of the hostile machine that were started and are still there."""
        started = (self.place / "started").read_text().split()
        assert started
        return [each for each in started if Path(f"/proc/{each}").exists()]

    @asynccontextmanager
    async def consoles(self) -> AsyncIterator[RegisteredConsoles]:
        workers = Workers("test", 2)
        async with Tasks("test") as tasks:
            yield RegisteredConsoles(
                self.records, ANYWHERE, tasks, workers, self.ended.append, lambda: self.lacking
            )
        workers.close()

    def text(self, found: RecipeSet) -> bytes:
        return self.records.tail(record_of(found, 0), 1 << 30)


def leased(machine: Registered, number: int = 1) -> tuple[RecipeSet, int, KnownLab]:
    run = Run(Asked("recipe"), {}, machine=machine.name)
    key, uid = f"of {machine.name}", 1000 if machine is HOSTILE else 1001
    found = RecipeSet(
        f"{number}.1", number, uid, "x", (run,), state=SetState.RUNNING, lab=key, attempts=1
    )
    return found, 0, KnownLab(key, uid, "c", Lab("dev", machines=(machine,)))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with TemporaryDirectory(prefix="nospoon-tools-") as made:  # which every user may read
        place = Path(made)
        place.chmod(0o755)
        for name, mode in (("ipmitool", 0o755), ("started", 0o666)):
            (place / name).touch()
            (place / name).chmod(mode)
        monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
        for name in ("PAUSE", "ENDING"):
            monkeypatch.setattr(sol, name, 0.01)
        monkeypatch.setattr(recording, "SOONEST", 0.01)
        yield Site(place, Records(tmp_path / "consoles", most=2 * SEGMENT_SIZE))


async def until(reached: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not reached():  # noqa: ASYNC110  (nothing else shows it)
            await asyncio.sleep(0.01)


async def test_a_console_without_end_fills_its_own_log_up_to_its_bound_alone(site: Site) -> None:
    site.tool(f"{GREETING}; exec yes \"$(printf '\\033[2J\\001\\377%4000s')\"")
    lease, other = leased(HOSTILE), leased(OTHER, 2)
    async with site.consoles() as consoles:
        await consoles.begin(*lease)
        await consoles.begin(*other)
        await until(lambda: site.text(other[0]) == b"login:\n")
        dropped = site.records.directory / f"{record_of(lease[0], 0)}.d" / "dropped"
        await until(dropped.exists)
        assert site.records.usage(record_of(lease[0], 0))[1] <= 3 * SEGMENT_SIZE
        assert b"\x1b[2J\x01\xff   " in site.text(lease[0]), "as it came"
        await consoles.end(lease[0])
        assert site.left() == []
        assert site.ended == [record_of(lease[0], 0)]
        assert consoles.state(*other) == "recorded"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("exec yes >&2", "ipmitool writes errors without end"),
        ("exec yes | tr -d '\\n'", "ipmitool does not write what it should"),
        ("exec yes", "ipmitool does not write what it should"),
        ("trap '' TERM HUP; exec sleep 600", "no session within a minute"),
        ("kill -SEGV $$", "ipmitool ended"),
        ("printf 'Error: \\033[2Jwrong\\a cipher\\n' >&2; exit 1", "Error:  [2Jwrong  cipher"),
        (f"{GREETING}; echo 'SOL session closed by BMC' >&2", "SOL session closed by BMC"),
        (f"{GREETING}; exec >&-; exec sleep 600", "ipmitool goes on without its output"),
    ],
    ids=["errors", "no line", "no greeting", "silent", "crash", "refusal", "closed", "no output"],
)
async def test_a_bmc_that_gives_no_console_is_shown_with_the_reason(
    site: Site, monkeypatch: pytest.MonkeyPatch, body: str, why: str
) -> None:
    monkeypatch.setattr(sol, "OPENING", 1.0)
    monkeypatch.setattr(sol, "LINGERING", 1.0)
    site.tool(body)
    lease = leased(HOSTILE)
    async with site.consoles() as consoles:
        await consoles.begin(*lease)
        await until(lambda: consoles.state(*lease) == f"not recorded: {why}")
        await until(lambda: f"is not recorded from here on: {why}]".encode() in site.text(lease[0]))
        await consoles.end(lease[0])
    assert site.left() == []


async def test_a_bmc_that_does_not_answer_keepalives_of_sol_is_recorded_without(
    site: Site,
) -> None:
    silent = "case $* in *usesolkeepalive) echo Error: No response to keepalive >&2; exit 1; esac"
    site.tool(f"{GREETING}; {silent}; echo login:; exec cat")
    lease = leased(HOSTILE)
    async with site.consoles() as consoles:
        await consoles.begin(*lease)
        await until(lambda: b"login:" in site.text(lease[0]))
        assert site.text(lease[0]).count(b"is not recorded from here on") == recording.DEAF


async def test_a_machine_waits_no_longer_than_that_for_a_bmc_that_is_silent(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    site.tool("exec sleep 600")
    lease = leased(HOSTILE)
    async with site.consoles() as consoles, asyncio.timeout(PATIENCE):
        await consoles.begin(*lease)
        assert consoles.state(*lease) == f"not recorded: {recording.NOT_YET}"
        await until((site.place / "started").read_text)
    assert site.left() == []


async def test_a_full_disk_is_marked_where_something_is_missing(site: Site) -> None:
    site.tool(f"{GREETING}; echo one; while read line; do echo $line; done")
    lease = leased(HOSTILE)
    site.lacking = 1
    async with site.consoles() as consoles:
        recorded = consoles.resume(*lease)
        assert recorded is not None
        await recorded.settled.wait()
        await until(lambda: recorded.to._lost == len("one\n"))
        site.lacking = 0
        await recorded.to.add(b"two")
        mark = b"\r\n[nospoon: 4 bytes are missing here: they could not be written]\r\n"
        assert site.text(lease[0]) == mark + b"two"
        await site.records.purge("1000/lab-dev-1-1")
        await recorded.to.add(b"three")
        await recorded.to.add(b"four")
        assert site.text(lease[0]).endswith(b"written]\r\nfour"), "its owner purged it meanwhile"


KILLED = """
import asyncio
from nospoon.control.labs.bmcs import UNUSED, ipmitool
from nospoon.model.lab import Registered
from nospoon.runtime import process

async def main():
    machine = Registered("m", address="192.0.2.1")
    argv, env = ipmitool(machine, "sol", "activate", user=UNUSED)
    await process.pipe(argv, env=env, errors=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_an_ipmitool_that_hangs_ends_with_a_daemon_that_is_killed(site: Site) -> None:
    site.tool("exec sleep 600")
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED)
    try:
        await until((site.place / "started").read_text)
        assert len(site.left()) == 1
    finally:
        killed.kill()
        await killed.wait()
    await until(lambda: not site.left())


async def test_consoles_of_an_owner_are_bounded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_OF_USER", 1)
    site.tool(f"{GREETING}; exec cat")
    lease, second, other = leased(HOSTILE), leased(HOSTILE, 2), leased(OTHER, 3)
    async with site.consoles() as consoles:
        for each in (lease, second, other):
            await consoles.begin(*each)
        why = "1 of its lab's owner are, the most at a time"
        assert consoles.state(*second) == f"not recorded: {why}"
        assert consoles.state(*other) == "recorded"
        await consoles.end(lease[0])
        assert consoles.resume(*second) is not None


async def test_a_bmc_that_took_ipmitool_over_reads_no_password_of_another_owner(
    site: Site,
) -> None:
    """Processes of one user may read one another's environments."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    site.tool("")
    victim, thief = leased(replace(OTHER, password="secret of m")), leased(HOSTILE, 2)
    async with site.consoles() as consoles:
        await consoles.begin(*victim)
        await until(lambda: site.text(victim[0]))
        (other,) = [
            each.parent.name
            for each in Path("/proc").glob("[0-9]*/environ")
            if b"secret of m" in _content(each)
        ]
        site.tool(f"{GREETING}; cat /proc/{other}/environ 2>&1; echo over; exec cat")
        await consoles.begin(*thief)
        await until(lambda: b"over" in site.text(thief[0]))
        assert b"Permission denied" in site.text(thief[0])


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended meanwhile
        return b""


@pytest.mark.parametrize(("mapped", "has"), [("0 0 4294967295", True), ("0 100000 65536", False)])
def test_a_user_namespace_may_have_too_few_users(mapped: str, has: bool) -> None:  # noqa: FBT001
    assert bmcs._maps(f"         {mapped}\n", bmcs.OWNERS) is has
