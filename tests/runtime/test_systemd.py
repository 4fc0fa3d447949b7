"""Units that systemd accepts, its socket passed to the daemon, and what the daemon reports."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nospoon.api.client import Client
from nospoon.cli.units import SERVICE, SOCKET, units_for
from nospoon.runtime.systemd import feed_watchdog
from nospoon.settings import Settings, settings_for


def settings(uid: int, home: Path) -> Settings:
    return settings_for({"HOME": str(home), "XDG_RUNTIME_DIR": str(home)}, uid=uid)


@pytest.mark.parametrize("uid", [0, 1000])
def test_systemd_finds_nothing_wrong_with_the_units(uid: int, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    assert analyze is not None
    units = units_for(settings(uid, tmp_path), {"HOME": str(tmp_path)})
    paths = [tmp_path / name for name in units.texts()]
    for path in paths:
        path.write_text(units.texts()[path.name])
    command = [analyze, "verify", "--man=no", *map(str, paths)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_units_name_a_python_and_a_socket_whose_paths_need_quotes(tmp_path: Path) -> None:
    """As in `~/My projects/100%/nospoon/.venv/bin/python`."""
    analyze = shutil.which("systemd-analyze")
    assert analyze is not None
    place = tmp_path / "My projects" / "100%n"
    place.mkdir(parents=True)
    python = place / "python"
    python.symlink_to(sys.executable)
    known = settings_for({"HOME": str(place), "NOSPOON_RUNTIME_DIR": str(place)}, uid=1000)
    texts = units_for(known, {"HOME": str(place)}, python=str(python)).texts()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    command = [analyze, "verify", "--man=no", *(str(tmp_path / name) for name in texts)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    quoted = str(place).replace("%", "%%")
    assert f"\nListenStream={quoted}/nospoond.sock\n" in texts[SOCKET]
    assert f'\nExecStart="{quoted}/python" -m nospoon.daemon.main\n' in texts[SERVICE]


def test_the_service_has_the_runtime_directory_of_its_socket(tmp_path: Path) -> None:
    """Else it would listen elsewhere, and commands at systemd's socket would wait for ever."""
    known = settings_for({"NOSPOON_RUNTIME_DIR": str(tmp_path)}, uid=0)
    texts = units_for(known, {}).texts()
    assert f"\nListenStream={tmp_path}/nospoond.sock\n" in texts[SOCKET]
    assert f'\nEnvironment="NOSPOON_RUNTIME_DIR={tmp_path}"\n' in texts[SERVICE]


def test_the_systems_daemon_starts_when_addresses_of_bmcs_can_be_there(tmp_path: Path) -> None:
    """After= alone orders what something else pulls in (systemd.special(7))."""
    service = units_for(settings(0, tmp_path), {"HOME": str(tmp_path)}).texts()[SERVICE]
    assert "\nWants=network-online.target\n" in service
    mine = units_for(settings(1000, tmp_path), {"HOME": str(tmp_path)}).texts()[SERVICE]
    assert "network-online" not in mine, "a user's manager has no such target"


def test_a_users_units_are_written_and_removed(tmp_path: Path) -> None:
    units = units_for(settings(1000, tmp_path), {"HOME": str(tmp_path)})
    units.write()
    assert units.are_installed()
    assert sorted(p.name for p in (tmp_path / ".config/systemd/user").iterdir()) == [
        SERVICE,
        SOCKET,
    ]
    units.remove()
    assert not units.are_installed()


async def test_the_watchdog_is_fed_from_the_event_loop(tmp_path: Path) -> None:
    place = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(place)
        systemd.setblocking(False)  # noqa: FBT003  (socket has no other signature)
        environment = {"NOTIFY_SOCKET": place, "WATCHDOG_USEC": "20000"}
        feeding = asyncio.get_running_loop().create_task(feed_watchdog(environment))
        said = [await asyncio.get_running_loop().sock_recv(systemd, 64) for _ in range(3)]
        feeding.cancel()
    assert said == [b"WATCHDOG=1"] * 3


async def test_nobody_is_told_where_systemd_did_not_ask() -> None:
    await feed_watchdog({})


def test_the_daemon_serves_on_the_socket_of_systemd_and_leaves_it(tmp_path: Path) -> None:
    """As systemd does: the socket is descriptor 3, and LISTEN_PID is the daemon's own pid."""
    path = tmp_path / "runtime" / "nospoond.sock"
    path.parent.mkdir()
    reader, writer = os.pipe()
    places = {
        f"NOSPOON_{name}_DIR": str(tmp_path / name.lower())
        for name in ("STATE", "RUNTIME", "CACHE", "POOL")
    }
    with socket.socket(socket.AF_UNIX) as listener, os.fdopen(reader, "rb") as ready:
        listener.bind(str(path))
        listener.listen()
        run = f'exec "{sys.executable}" -m nospoon.daemon.main --ready-fd {writer}'
        daemon = subprocess.Popen(
            ["/bin/bash", "-c", f"exec 3<&{listener.fileno()}; LISTEN_PID=$$ {run}"],
            env={**os.environ, **places, "LISTEN_FDS": "1", "NOSPOON_BOOT_PORT": "0"},
            pass_fds=[listener.fileno(), writer],
            stderr=subprocess.DEVNULL,
        )
        os.close(writer)
        assert ready.read() == b"ready\n"
        assert Client(path).get("/v1/daemon")["pid"] == daemon.pid
        Client(path).post("/v1/daemon/stop")
        assert daemon.wait(30) == 0
        assert path.exists()
