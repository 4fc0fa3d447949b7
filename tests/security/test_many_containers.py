"""Looks at a host's containers cost little however many there are. A process was started for each
record of each, in each look, each second: with a few thousand, which one member may have, a look
took longer than a minute, and all containers of the host, also those of others, were unreachable.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from nospoon.errors import NotOurs, ProviderError
from nospoon.model.boot import BootMethod
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Pool, Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.identity import pool_name
from nospoon.providers.base import no_seeds
from nospoon.providers.containers import host
from nospoon.providers.containers.machines import MachineDriver
from nospoon.providers.containers.records import Seen, parse, record
from nospoon.providers.lxc.host import LxcHost
from nospoon.providers.lxc.runtime import LxcRuntime
from nospoon.runtime.process import Finished
from nospoon.runtime.runner import LocalRunner

COUNT = 50
TAG = OwnerTag("kit", UUID(int=1))


class Counted(LocalRunner):
    """Counts commands; `broken`: they fail."""

    def __init__(self) -> None:
        self.count, self.broken = 0, False

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        self.count += 1
        if self.broken:
            await asyncio.sleep(0)
            raise ProviderError("it does not answer")
        return await super().run(argv, stdin=stdin, check=check)


def machine(number: int) -> Machine:
    return Machine(
        UUID(int=number + 1), 1, 1 << 24, Arch.X86_64, Firmware.BIOS, tpm=False,
        disks=(), nics=(), boot_order=(), boot=BootMethod.NONE, kind=NodeKind.CONTAINER,
    )  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    pool = tmp_path / "nospoon-p"
    pool.mkdir()
    (pool / "pool.json").write_bytes(record("p", TAG, Pool(str(pool))))
    for number in range(COUNT):
        directory = pool / f"p-{number}"
        directory.mkdir()
        (directory / "machine.json").write_bytes(record(f"{number}", TAG, machine(number)))
        (directory / "live.json").write_bytes(record(f"{number}", TAG, machine(number)))
        (directory / "pid").write_text("1\n")  # of another process by now
        volume = record(f"{number}-0", TAG, Volume("p", 4), ids=(1, 2))
        (pool / f"{number}-0.volume.json").write_bytes(volume)
        (pool / f"{number}-0.volume").write_bytes(b"root")
    unfinished = pool / ".making-p-x"
    unfinished.mkdir()
    (unfinished / "machine.json").write_bytes(record("x", TAG, machine(COUNT)))
    (tmp_path / "file").touch()
    return tmp_path


async def test_one_command_finds_all_that_a_host_has(root: Path) -> None:
    runner = Counted()
    seen = await LxcHost("h", runner, str(root), (0, 0)).look()
    assert runner.count == 1
    assert len(seen.records) == 1 + 2 * COUNT, "live.json is read of those that run"
    assert list(seen.pools) == ["nospoon-p/pool.json"]
    assert seen.machines[UUID(int=COUNT)] == f"nospoon-p/p-{COUNT - 1}"
    assert (len(seen.machines), seen.running) == (COUNT, {})
    assert seen.sizes["nospoon-p/0-0.volume"] == 4
    assert seen.records["nospoon-p/0-0.volume.json"].ids == (1, 2)
    assert await LxcHost("h", runner, str(root / "none"), (0, 0)).look() == Seen()


async def test_who_looks_at_one_moment_shares_a_look(root: Path) -> None:
    runner = Counted()
    there = LxcHost("h", runner, str(root), (0, 0))
    looks = await asyncio.gather(*(there.look() for _ in range(COUNT)))
    assert all(len(each.machines) == COUNT for each in looks)
    assert runner.count == 1
    runner.broken = True
    failed = await asyncio.gather(*(there.look() for _ in range(COUNT)), return_exceptions=True)
    assert {str(each) for each in failed} == {"it does not answer"}
    assert runner.count == 2
    runner.broken = False
    assert len((await there.look()).machines) == COUNT


async def test_what_is_seen_is_from_after_the_question(root: Path) -> None:
    there = LxcHost("h", Counted(), str(root), (0, 0))
    async with asyncio.TaskGroup() as group:
        first = group.create_task(there.look())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        (root / "nospoon-p" / "p-0" / "machine.json").unlink()
        second = await there.look()
    assert len(second.machines) == COUNT - 1
    assert len(first.result().machines) >= COUNT - 1


async def test_records_are_read_beside_the_event_loop(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[int]()

    def noted(text: str) -> Seen:
        threads.append(threading.get_ident())
        return parse(text)

    monkeypatch.setattr(host, "parse", noted)
    await LxcHost("h", Counted(), str(root), (0, 0)).look()
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_record_at_an_odd_place_is_found_there() -> None:
    """What a host over ssh writes is whatever has it by now: one ended the look at all others."""
    text = record("n", TAG, machine(0)).decode()
    seen = parse(f"record a//b/machine.json {text}\nrecord /machine.json {text}\n")
    assert all(f"{place}/machine.json" in seen.records for place in seen.machines.values())


async def test_a_container_is_not_called_as_another_users(tmp_path: Path) -> None:
    """By its name alone liblxc calls its control groups: at its start, the processes of the other
    one were killed. Names have the beginning of an id, which a file may choose.
    """
    theirs = OwnerTag("kit", UUID("c0ffee00-0000-4000-8000-000000000000"), name="ci", uid=1)
    mine = OwnerTag("kit", UUID("20261201-0000-4000-8000-000000000000"), name="ci-c0ffee00", uid=2)
    for tag in (theirs, mine):
        pool = tmp_path / pool_name(tag.cluster, tag.name)
        pool.mkdir()
        (pool / "pool.json").write_bytes(record(pool.name, tag, Pool(str(pool))))
    there = LxcHost("h", LocalRunner(), str(tmp_path), (0, 0))
    driver = MachineDriver(
        LxcRuntime(there, str(tmp_path)), "kit", records=str(tmp_path), open_seed=no_seeds
    )
    other = Resource(Key(Kind.MACHINE, "h", "20261201-a"), machine(1))
    await driver.create(other, theirs)
    own = Resource(Key(Kind.MACHINE, "h", "a"), machine(2))
    with pytest.raises(NotOurs, match="a container ci-c0ffee00-20261201-a is at another pool"):
        await driver.create(own, mine)
    await driver.create(other, theirs)
    await driver.create(Resource(Key(Kind.MACHINE, "h", "b"), machine(2)), mine)
    assert len((await there.look()).machines) == 2
    await driver.close()
