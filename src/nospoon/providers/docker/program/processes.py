"""Commands, files and processes of the host."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from nospoon.providers.docker.program.wire import EngineError


def run(*argv: str, stdin: bytes = b"", keeps: Sequence[int] = ()) -> str:
    """What a command said. Raises `EngineError` with its last line. `keeps`: files that it has open
    until it ends, also where this process is killed before.
    """
    done = subprocess.run(argv, input=stdin, capture_output=True, check=False, pass_fds=keeps)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise EngineError(f"{argv[0]}: {said[-1] if said else done.returncode}")
    return done.stdout.decode(errors="replace")


def content(path: Path) -> bytes:
    """Of a file, b"" where it is not there."""
    try:
        return path.read_bytes().strip()
    except OSError:
        return b""


def began(pid: int) -> str:
    """When a process began, by which it is another than one before of its number; "" for none
    (proc_pid_stat(5), 22). A zombie has ended.
    """
    fields = content(Path(f"/proc/{pid}/stat")).rpartition(b")")[2].split()
    return fields[19].decode() if len(fields) > 19 and fields[0] not in (b"Z", b"X") else ""


def write(path: Path, text: str) -> None:
    """In one step, for root alone."""
    part = path.with_name(f"{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    part.replace(path)
