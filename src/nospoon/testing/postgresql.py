"""A PostgreSQL server of a test's own: in one directory, on a unix socket only."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SERVER = "postgres"
"""The user that Debian's package makes; the server refuses to run as root."""


@dataclass(frozen=True, slots=True)
class PostgreSql:
    """`place`: a directory that is its alone; it is given to the server's user."""

    place: Path

    def url(self, database: str) -> str:
        """SQLAlchemy's URL of one of its databases."""
        return f"postgresql+psycopg://{SERVER}@/{database}?host={self.place}"

    def start(self) -> None:
        """Make it and start it; returns when it answers."""
        if os.geteuid() == 0:
            shutil.chown(self.place, SERVER, SERVER)
        self._run("initdb", "--auth=trust", "--no-sync", f"--username={SERVER}", "--encoding=UTF8")
        options = f"-c listen_addresses='' -c fsync=off -k {self.place}"
        log = str(self.place / "log")
        self._run("pg_ctl", "--wait", "start", "-o", options, "-l", log)

    def stop(self) -> None:
        self._run("pg_ctl", "--wait", "stop", "--mode=immediate")

    def _run(self, program: str, *argv: str) -> None:
        newest = max(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), key=_version)
        command = [str(newest), "-D", str(self.place / "data"), *argv]
        if os.geteuid() == 0:
            command = ["setpriv", f"--reuid={SERVER}", f"--regid={SERVER}", "--clear-groups",
                       *command]  # fmt: skip
        # the server inherits its starter's output: a pipe would stay open as long as it lives
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False, cwd="/"
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed with status {done.returncode}")


def _version(path: Path) -> int:
    return int(path.parts[-3])
