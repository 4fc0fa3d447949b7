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
from nospoon.errors import NospoonError, UsageError
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
    assert f'\nExecStart="{quoted}/python" -P -m nospoon.daemon.main\n' in texts[SERVICE]


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


FAILING = '{"error": "TCP port 8069 is taken. Set it.", "event": "cannot start", "level": "error"}'


def systemd_in(directory: Path, *, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`systemctl` and `journalctl` of a systemd whose service is in this state and cannot start."""
    tools = {
        "systemctl": (
            f'case "$*" in *Result*) echo exit-code;; *show*) echo {state};; '
            "*) echo failed. >&2; exit 1;; esac"
        ),
        "journalctl": f"cat <<'END'\n{FAILING}\nMain process exited\nEND",
    }
    for name, does in tools.items():
        (directory / name).write_text(f"#!/bin/sh\n{does}\n")
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


@pytest.mark.parametrize("state", ["auto-restart", "failed"])
def test_a_service_that_fails_again_and_again_is_not_waited_for(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd listens for it, so a request would wait for its whole deadline."""
    systemd_in(tmp_path, state=state, monkeypatch=monkeypatch)
    units = units_for(settings(0, tmp_path), {"HOME": str(tmp_path)})
    with pytest.raises(NospoonError) as caught:
        units.wait_until_started()
    assert str(caught.value) == (
        "the daemon does not start: TCP port 8069 is taken. Set it. Its log: "
        "`journalctl --unit nospoond.service`. Its settings are in /etc/default/nospoon."
    )
    with pytest.raises(NospoonError, match="the daemon does not start: TCP port 8069 is taken"):
        units.start()


@pytest.mark.parametrize("state", ["running", "dead"])
def test_a_service_that_runs_or_that_a_request_starts_is_used(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemd_in(tmp_path, state=state, monkeypatch=monkeypatch)
    units_for(settings(1000, tmp_path), {"HOME": str(tmp_path)}).wait_until_started()


def test_where_units_cannot_be_enabled_the_reason_is_the_right_one(tmp_path: Path) -> None:
    """A user who came by `su` was told that systemd did not run, which it did."""
    mine, system = (
        units_for(settings(uid, tmp_path), {"HOME": str(tmp_path)}) for uid in (1000, 0)
    )
    assert "your own systemd does not run" in mine.without_manager(tmp_path)
    for units in (mine, system):
        assert units.without_manager(tmp_path / "none").startswith("systemd does not run here")


def test_install_names_settings_that_the_service_would_not_have(tmp_path: Path) -> None:
    environment = {
        "HOME": str(tmp_path), "NOSPOON_BOOT_PORT": "18069", "NOSPOON_POOL_DIR": "/srv/my pools",
        "NOSPOON_DATABASE": "postgresql://nospoon:secret@db/it", "NOSPOON_RUNTIME_DIR": "/run/x",
    }  # fmt: skip
    units = units_for(settings_for(environment, uid=1000), environment)
    with pytest.raises(UsageError) as caught:
        units.require_settings(environment)
    assert caught.value.message == (
        "the service would not have this command's NOSPOON_BOOT_PORT, NOSPOON_DATABASE, "
        "NOSPOON_POOL_DIR"
    )
    assert str(tmp_path / ".config/nospoon/environment") in caught.value.hint
    units.environment.parent.mkdir(parents=True)
    units.environment.write_text(
        "# kept\nNOSPOON_BOOT_PORT=18069\nNOSPOON_POOL_DIR='/srv/my pools'\n"
        "NOSPOON_DATABASE=postgresql://nospoon:secret@db/it\n"
    )
    units.require_settings(environment)


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
        assert daemon.wait(60) == 0
        assert path.exists()
