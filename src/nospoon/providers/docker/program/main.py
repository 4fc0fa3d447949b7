"""Commands of the program.

    program SOCKET COMMAND WORDS…

A command ends with 0 and what it found on standard output, or with 1 and why not on standard error.
`start` leaves a process behind, the container's keeper: it writes the console's log, and starts a
container that rebooted again with its links, which no engine does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Sequence

from nospoon.providers.docker.program import roots, running
from nospoon.providers.docker.program.engines import Engine, Info
from nospoon.providers.docker.program.moby import DockerEngine
from nospoon.providers.docker.program.podman import LIBPOD, Podman
from nospoon.providers.docker.program.processes import run
from nospoon.providers.docker.program.wire import EngineError, Wire

SOCKETS = ("/run/podman/podman.sock", "/run/docker.sock")
"""Where engines listen, by the order in which they are looked for."""
SYSTEM = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Programs that a container's user can run, too, as it cannot a python3 of root's (pyenv)."""


def engine_at(path: str) -> Engine:
    """The engine that listens there. Podman takes half a second to say its version, and no time to
    say that it has an API of its own. Raises `EngineError`.
    """
    where = path or next(filter(os.path.exists, SOCKETS), SOCKETS[0])
    try:
        Wire(where).call("GET", f"{LIBPOD}/_ping")
    except EngineError as error:
        if error.status != 404:
            raise
        return DockerEngine(where)
    return Podman(where)


def facts(engine: Engine) -> None:
    """What a host has, as JSON."""
    info: Info = engine.get("/info")
    name = socket.gethostname()
    if "." not in name and not name.startswith("localhost"):
        with contextlib.suppress(EngineError, OSError):
            name = run("hostname", "-f").strip() or name
    violation, hint = engine.violation(info)
    driver = info.get("Driver", "")
    found = {
        "socket": engine.path,
        "cli": engine.cli,
        "cpus": os.cpu_count() or 0,
        "memory": info["MemTotal"],
        "name": name,
        "directory": info.get("DockerRootDir", ""),
        "driver": driver,
        "limits_roots": driver == engine.overlay,
        "overlay": engine.overlay,
        "violation": violation,
        "hint": hint,
        "lacks": [each for each in ("ip", "nsenter", "mkfs.ext4") if shutil.which(each) is None],
    }
    sys.stdout.write(json.dumps(found))


def main(words: Sequence[str]) -> None:
    where, command, *given = words
    os.environ["PATH"] = f"{SYSTEM}:{os.environ.get('PATH', '')}"
    commands: dict[str, Callable[..., None]] = {
        "facts": facts,
        "import": roots.import_image,
        "remove-image": roots.remove_unused,
        "make-root": roots.make_root,
        "remove-root": roots.remove_root,
        "grow-root": roots.grow_root,
        "clear": roots.clear,
        "start": running.start_as_given,
        "kill": running.kill,
        "tend": running.tend,
        "console": running.show_console,
    }
    try:
        if command == "shut-down":
            running.shut_down(*given)
        else:
            commands[command](engine_at(where), *given)
    except EngineError as error:
        sys.exit(str(error))
