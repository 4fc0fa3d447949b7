"""Settings come from the environment; those that cannot be used are refused, all at once."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from nospoon.errors import UsageError
from nospoon.settings import MOST_OF_DIRECTORY, TABLE, make_directory, misspelled, settings_for

BROKEN = {
    "NOSPOON_STATE_DIR": "state",
    "NOSPOON_POOL_DIR": "./pools",
    "NOSPOON_BOOT_PORT": "abc",
    "NOSPOON_LOG": "loud",
    "NOSPOON_LEASE": "0",
    "NOSPOON_BMC_RESTART": "nan",
    "NOSPOON_MEDIA_NETWORKS": "192.0.2.0/33",
    "NOSPOON_MEDIA_SIZE": "-1",
}


def test_every_variable_that_cannot_be_used_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        settings_for({"HOME": "/root", **BROKEN}, uid=0)
    lines = caught.value.message.splitlines()
    assert {line.partition(":")[0] for line in lines} == set(BROKEN)
    assert "NOSPOON_BOOT_PORT: expected a TCP port from 0 to 65535, got 'abc'" in lines


@pytest.mark.parametrize("uid", [0, 1000])
def test_defaults_are_valid(uid: int) -> None:
    settings = settings_for({"HOME": "/home/me"}, uid=uid)
    assert settings.boot_port == (8069 if uid == 0 else 0)
    assert len({setting.variable for setting in TABLE}) == len(TABLE)


def nospoon(directory: Path, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    places: Mapping[str, str] = {
        f"NOSPOON_{name}_DIR": str(directory / name.lower())
        for name in ("STATE", "RUNTIME", "CACHE", "POOL")
    }
    return subprocess.run(
        [sys.executable, "-m", "nospoon.cli.main", *argv],
        env={"HOME": str(directory), "PATH": "/usr/bin:/bin", **places, **variables},
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_a_command_with_invalid_settings_says_so_without_a_traceback(tmp_path: Path) -> None:
    done = nospoon(tmp_path, "status", NOSPOON_BOOT_PORT="abc", NOSPOON_LOG="loud")
    assert done.returncode == 2
    assert "NOSPOON_BOOT_PORT: expected a TCP port" in done.stderr
    assert "NOSPOON_LOG: expected one of debug, info, warning, error, got 'loud'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = str(tmp_path / "file" / "state")
    done = nospoon(tmp_path, "status", NOSPOON_STATE_DIR=place)
    assert done.returncode == 2
    assert f"cannot make the directory {place}: Not a directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_daemon_that_does_not_start_says_why_to_the_command(tmp_path: Path) -> None:
    done = nospoon(tmp_path, "status", NOSPOON_DATABASE="nodatabase://somewhere")
    assert done.returncode == 1
    assert "the daemon did not start: NOSPOON_DATABASE is" in done.stderr
    assert "Traceback" not in done.stderr
    assert "{" not in done.stderr


def test_a_damaged_key_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    key = tmp_path / "state" / "nospoon.key"
    key.write_text("cut off")
    done = nospoon(tmp_path, "status")
    assert done.returncode == 1
    assert f"cannot use the key {key}: it is not a whole key. Restore it" in done.stderr
    assert "`nospoon recover`" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_variable_spelled_almost_like_a_setting_is_named() -> None:
    given = {"NOSPOON_STATEDIR": "/x", "NOSPOON_Boot_Port": "1", "NOSPOON_LOG": "info"}
    others = {"NOSPOON_CLUSTER": "c", "NOSPOON_FILE": "f", "NOSPOON_": "", "STATE_DIR": "/x"}
    assert misspelled({**given, **others}) == {
        "NOSPOON_Boot_Port": "NOSPOON_BOOT_PORT",
        "NOSPOON_STATEDIR": "NOSPOON_STATE_DIR",
    }


def test_a_runtime_directory_leaves_room_for_the_path_of_a_socket() -> None:
    longest = "/" + "x" * (MOST_OF_DIRECTORY - 1)
    settings = settings_for({"HOME": "/root", "NOSPOON_RUNTIME_DIR": longest}, uid=0)
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(FileNotFoundError):
        client.connect(str(settings.socket))  # and not "AF_UNIX path too long"
    for variable in ("NOSPOON_RUNTIME_DIR", "XDG_RUNTIME_DIR"):
        with pytest.raises(UsageError, match=r"NOSPOON_RUNTIME_DIR: .* at most 93 bytes"):
            settings_for({"HOME": "/home/me", variable: f"{longest}x"}, uid=1000)


def test_a_directory_on_a_file_system_that_is_read_only_is_said_to_be(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(tmp_path)]
    subprocess.run(mount, check=True)
    try:
        with pytest.raises(UsageError, match=r": Read-only file system$"):
            make_directory(tmp_path, 0o711)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
