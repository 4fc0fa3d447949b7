"""What logs that clients fill take of the daemon's memory."""

from __future__ import annotations

import struct
from uuid import UUID, uuid4

import pytest

from nospoon.bmc.log import CAPACITY, Kind, Log
from nospoon.model.machine import PowerCommand
from nospoon.services.bmcs import log_space
from nospoon.services.bmcs.log_space import LogSpace
from nospoon.testing.bench import bench

RAW = struct.pack("<HB13x", 0, 0x02)


def filled(count: int) -> Log:
    log = Log()
    for number in range(count):
        log.add(Kind.ADDED, float(number), raw=RAW)
    return log


async def test_records_of_an_owner_give_way_to_newer_ones_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """20,000 BMCs of a member, each with a full log, took two gigabytes."""
    monkeypatch.setattr(log_space, "MOST", 40)
    async with bench(2) as b:
        uuids = [each.bmc.uuid for each in b.configs]
        for uuid in uuids:
            for command in (PowerCommand.ON, PowerCommand.OFF) * 10:
                await b.service.power(uuid, command)
        logs = {
            each.bmc.uuid: each.aggregate.log
            for each in (b.service.registry.at((c.bmc.address, c.bmc.ipmi_port)) for c in b.configs)
            if each is not None
        }
        held = [len(logs[uuid].records) for uuid in uuids]
        assert held[1] == log_space.FEWEST
        assert sum(held) <= 40 + log_space.FEWEST, "as many were written by each"
        last = logs[uuids[1]]
        assert last.overflowed
        assert last.records[-1].kind is Kind.POWER_OFF, "the newest stays"
        kept = [each.number for machine, each in b.store.records if machine == uuids[1]]
        assert kept == [each.number for each in last.records], "and so in the store"


def test_each_owner_has_its_own_and_what_goes_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_space, "MOST", 100)
    space, machines = LogSpace(), [uuid4() for _ in range(3)]
    first, second = filled(100), filled(100)
    assert space.hold(machines[0], 1, first) is None
    assert space.hold(machines[1], 2, second) is None, "another owner's"
    third = filled(log_space.FEWEST)
    assert space.hold(machines[2], 1, third) is None, "each log has a few"
    more = filled(log_space.FEWEST + 1)
    given = space.hold(machines[2], 1, more)
    assert given is not None
    assert given.number == 1
    assert len(more.records) == log_space.FEWEST
    space.release(machines[0])
    assert space.hold(machines[2], 1, filled(80)) is None
    space.release(UUID(int=0))


def test_a_thousand_full_logs_are_within_it() -> None:
    assert log_space.MOST // CAPACITY >= 900
