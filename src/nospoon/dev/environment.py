"""A virtual environment made of a lock file, once, below the cache: its name is its contents' key.

An environment is complete when its stamp is there; what an interrupted run left is made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from nospoon.errors import Conflict, MissingTool, ProviderError
from nospoon.runtime import process

LONGEST_INSTALL = 1800.0
"""Seconds in which 400 MB come through a slow line."""
STAMP = "complete"
ROOT = "/"
"""Where the installers run: uv takes settings (uv.toml) from its working directory and those above,
which may be another user's.
"""
KEY_DIGITS = 16
_LOCKED = ("--require-hashes", "--no-deps", "--requirement")
"""Options of pip and uv: only the very files that the lock file names are installed. It has every
dependency; one with an extra (`NAME[EXTRA]`) would make pip look at newer releases and refuse them.
"""

_NO_NETWORK = ("NewConnectionError", "ConnectTimeoutError", "Failed to establish a new connection")
"""In pip's output, of urllib3."""

_BESIDE = str(Path(sys.executable).parent)
"""Where tools are that were installed with us."""

log = structlog.get_logger()


def place(cache: Path, name: str, lock: Path) -> Path:
    """Where the environment of this lock file is, whether made yet or not."""
    contents = lock.read_bytes() + sys.version.encode()
    return cache / "environments" / f"{name}-{hashlib.sha256(contents).hexdigest()[:KEY_DIGITS]}"


async def ensure(cache: Path, name: str, lock: Path) -> Path:
    """The environment of a lock file, made when it is not there. Raises `ProviderError`."""
    where = place(cache, name, lock)
    where.parent.mkdir(parents=True, exist_ok=True)
    with _alone(where):
        if not (where / STAMP).exists():
            await _make(where, lock)
    return where


def remove(cache: Path, name: str) -> None:
    """Remove every environment of this name, also those of other versions.

    Raises `Conflict` for those that another process runs from: they stay.
    """
    busy = []
    for lock in sorted((cache / "environments").glob(f"{name}-{'[0-9a-f]' * KEY_DIGITS}.lock")):
        where = lock.with_suffix("")
        with _alone(where):
            user = _user_of(where)
            if user:
                busy.append(f"{where.name} (process {user})")
                continue
            if where.exists():
                shutil.rmtree(where)
            lock.unlink()
    if busy:
        raise Conflict(
            f"another process runs from {', '.join(busy)}: it stays",
            hint="Run the same command again when that has ended.",
        )


def _user_of(where: Path) -> int:
    """A process that was started from an environment, 0 for none."""
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            started = each.read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if f"{where}/bin/".encode() in started:
            return int(each.parent.name)
    return 0


@contextmanager
def _alone(where: Path) -> Iterator[None]:
    """Two runs at once make it once: the second one waits."""
    with where.with_name(f"{where.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


async def _make(where: Path, lock: Path) -> None:
    """By uv where there is one (seconds), else by pip (minutes), which may know another index."""
    if await _is_made_by_uv(where, lock):
        return
    shutil.rmtree(where, ignore_errors=True)
    try:
        for argv in _by_pip(where, lock):
            await process.run(argv, cwd=ROOT, timeout=LONGEST_INSTALL)
    except MissingTool:
        raise
    except ProviderError as error:
        raise ProviderError(
            f"the Python packages of {lock.stem} are not available: {_why(str(error))}",
            hint="It needs python3-venv, and a package index that pip can reach (pip.conf(5)).",
        ) from error
    (where / STAMP).touch()


def _why(said: str) -> str:
    """Without a network pip shows each of its attempts, and then that there is no such release."""
    if any(sign in said for sign in _NO_NETWORK):
        return "the package index cannot be reached"
    return said


async def _is_made_by_uv(where: Path, lock: Path) -> bool:
    uv = shutil.which("uv", path=os.pathsep.join([_BESIDE, *os.get_exec_path()]))
    if uv is None:
        return False
    shutil.rmtree(where, ignore_errors=True)
    try:
        for argv in _by_uv(uv, where, lock):
            await process.run(argv, cwd=ROOT, timeout=LONGEST_INSTALL)
    except ProviderError as error:
        log.debug("uv cannot install these packages; pip tries", lock=lock.stem, why=str(error))
        return False
    (where / STAMP).touch()
    return True


def _by_uv(uv: str, where: Path, lock: Path) -> list[list[str]]:
    python = str(where / "bin" / "python")
    return [
        [uv, "venv", "--quiet", "--python", sys.executable, str(where)],
        [uv, "pip", "install", "--quiet", "--python", python, *_LOCKED, str(lock)],
    ]


def _by_pip(where: Path, lock: Path) -> list[list[str]]:
    python = str(where / "bin" / "python")
    pip = [python, "-P", "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    base = Path(sys.base_prefix) / "bin" / Path(sys.executable).resolve().name
    return [[str(base), "-P", "-m", "venv", str(where)], [*pip, *_LOCKED, str(lock)]]
