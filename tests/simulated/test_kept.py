"""What a daemon keeps of its simulated hosts over its end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

import pytest

from nospoon.daemon import simulation
from nospoon.daemon.simulation import Simulations
from nospoon.model.cluster import Host
from nospoon.model.connections import Simulated
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.storage import Pool
from nospoon.providers.simulated.connection import SimulatedConnection
from nospoon.providers.simulated.world import Made, Snapshot


def connected(simulations: Simulations, name: str, place: Path) -> SimulatedConnection:
    given = Simulated()
    return simulations.connect(Host(name, given), given, place / "records")


def make(host: SimulatedConnection, name: str) -> None:
    host.world.put(Made(Key(Kind.POOL, "here", name), Pool(f"/pools/{name}"), None))


def kept(place: Path, name: str) -> set[str]:
    """Names of the pools that another daemon finds on a host."""
    host = connected(Simulations(place, "d"), name, place)
    return {each.key.name for each in host.world.all()}


async def test_a_host_is_kept_while_whose_turn_the_daemon_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first host of two was being written: the second one counted as kept, and was not."""
    monkeypatch.setattr(simulation, "KEEP_SECONDS", 0)
    begun, go_on, encoded = asyncio.Event(), Event(), Snapshot.encoded
    loop = asyncio.get_running_loop()

    def late(snapshot: Snapshot) -> bytes:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()
        return encoded(snapshot)

    simulations = Simulations(tmp_path, "d")
    for name in ("a", "b"):
        make(connected(simulations, name, tmp_path), "p")
    monkeypatch.setattr(Snapshot, "encoded", late)
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(simulations.keep())
        await begun.wait()
        keeping.cancel()
    go_on.set()
    simulations.save()
    assert kept(tmp_path, "a") == kept(tmp_path, "b") == {"p"}


def test_what_is_written_late_replaces_nothing_newer(tmp_path: Path) -> None:
    simulations = Simulations(tmp_path, "d")
    host = connected(simulations, "a", tmp_path)
    make(host, "p")
    (late,) = simulations._changed()
    make(host, "q")
    simulations.save()
    simulations._write(*late)
    assert kept(tmp_path, "a") == {"p", "q"}


def test_a_host_that_is_connected_anew_has_what_no_file_has_yet(tmp_path: Path) -> None:
    simulations = Simulations(tmp_path, "d")
    make(connected(simulations, "a", tmp_path), "p")
    make(connected(simulations, "a", tmp_path), "q")
    simulations.save()
    assert kept(tmp_path, "a") == {"p", "q"}


def test_a_host_on_which_nothing_is_left_has_no_file(tmp_path: Path) -> None:
    simulations = Simulations(tmp_path, "d")
    host = connected(simulations, "a", tmp_path)
    make(host, "p")
    simulations.save()
    host.world.take_away(next(iter(host.world.all())))
    simulations.save()
    assert not (tmp_path / "a.json").exists()


async def test_hosts_that_were_closed_and_have_nothing_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of members name others again and again: each took 7 KiB for ever."""
    monkeypatch.setattr(simulation, "FEW", 4)
    monkeypatch.setattr(simulation, "KEPT_SECONDS", -1)
    simulations = Simulations(tmp_path, "d")
    make(connected(simulations, "used", tmp_path), "p")
    left = connected(simulations, "left", tmp_path)
    make(left, "p")
    left.world.take_away(next(iter(left.world.all())))
    connected(simulations, "open", tmp_path)
    for number in range(30):
        await connected(simulations, f"h{number}", tmp_path).close()
        simulations.save()
    await simulations._connections["used"].close()
    await left.close()
    await connected(simulations, "h0", tmp_path).close()
    known = set(simulations._connections)
    assert {"used", "open", "left"} <= known, "the last file of `left` was written before it closed"
    assert len(known) < 12
    assert simulations._kept.keys() <= known
    assert kept(tmp_path, "used") == {"p"}
    assert {each.key.name for each in connected(simulations, "used", tmp_path).world.all()} == {"p"}


async def test_a_host_that_was_forgotten_is_kept_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "FEW", 0)
    monkeypatch.setattr(simulation, "KEPT_SECONDS", -1)
    simulations = Simulations(tmp_path, "d")
    host = connected(simulations, "a", tmp_path)
    make(host, "p")
    simulations.save()
    host.world.take_away(next(iter(host.world.all())))
    simulations.save()
    await host.close()
    connected(simulations, "b", tmp_path)
    assert set(simulations._connections) == {"b"}
    make(connected(simulations, "a", tmp_path), "q")
    simulations.save()
    assert kept(tmp_path, "a") == {"q"}
