"""A guest that reboots as fast as it can costs its host no processor: each reboot of a container of
Podman is half a second of one.
"""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from socket import socket
from typing import Any

import pytest

from nospoon.providers.docker.program import running
from nospoon.providers.docker.program.podman import Podman
from nospoon.providers.docker.program.reboots import PAUSES, RUNS, Reboots
from nospoon.providers.docker.program.running import REBOOTED
from nospoon.providers.docker.program.wire import EngineError
from nospoon.providers.lxc.config import PAUSED


def test_reboots_that_come_early_wait_longer_and_longer() -> None:
    reboots, now, waited = Reboots(100.0), 100.0, []
    for _ in range(8):
        now += 0.1
        waited.append(reboots.pause(now))
        now += waited[-1]
        reboots.began = now
    assert waited == [0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_a_guest_that_ran_for_a_while_reboots_at_once() -> None:
    reboots = Reboots(0.0)
    for _ in PAUSES:
        reboots.pause(0.0)
    assert reboots.pause(0.0) == max(PAUSES)
    assert reboots.pause(RUNS) == 0.0


def test_a_keeper_waits_before_it_starts_a_guest_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, waited = [REBOOTED] * 5 + [128 + signal.SIGKILL], list[float]()

    class Closed(socket):
        def recv(self, *_: Any) -> bytes:
            return b""

    def bring_up(*_: object) -> socket:
        return Closed()

    def ended(*_: object) -> int:
        if not ends:
            raise EngineError("it was asked once too often")
        return ends.pop(0)

    for name, function in (("bring_up", bring_up), ("ended", ended)):
        monkeypatch.setattr(running, name, function)
    monkeypatch.setattr(running, "lives", lambda _: False)
    monkeypatch.setattr(time, "sleep", waited.append)
    given: running.Start = {
        "record": str(tmp_path / "console"), "volume": str(tmp_path / "root.volume"),
        "container": "c", "nics": [], "cpus": 1, "memory": 1 << 30, "pids": 100, "put_seed": "",
        "attach": "", "volumes": [],
    }  # fmt: skip
    running.keep(Podman("/nowhere"), tmp_path, given, Closed())
    assert waited == [0.0, 0.0, 1.0, 2.0, 4.0]


def test_liblxc_waits_before_it_starts_a_guest_again(tmp_path: Path) -> None:
    """A hook is called for each start. Its pauses are written down, in place of sleep(1)."""
    sleep, place = tmp_path / "sleep", tmp_path / "reboots"
    sleep.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/slept\n')
    sleep.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    def start() -> list[str]:
        argv = ["sh", "-c", PAUSED, str(place), "box", "lxc", "pre-start"]
        subprocess.run(argv, env=env, check=True)
        slept = tmp_path / "slept"
        return slept.read_text().split() if slept.exists() else []

    assert [start() for _ in range(6)][2:] == [[], ["1"], ["1", "2"], ["1", "2", "2"]]
    place.write_text("5 -100\n")
    assert start() == ["1", "2", "2"]
    assert place.read_text().startswith("0 ")
