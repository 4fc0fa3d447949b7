"""What benchmarks share: a private daemon, and ratios printed one way."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SOCKETS = {"podman": "/run/podman/podman.sock", "docker": "/run/docker.sock"}
"""Where engines of containers listen."""
NOSPOON = str(Path(sys.executable).with_name("nospoon"))


@contextlib.contextmanager
def private_daemon() -> Iterator[Mapping[str, str]]:
    """The environment of a daemon of our own; it is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="nospoon-bench-") as directory:
        Path(directory).chmod(0o711)
        names = ("STATE", "RUNTIME", "CACHE", "POOL")
        places = {f"NOSPOON_{name}_DIR": f"{directory}/{name.lower()}" for name in names}
        environment = {**os.environ, **places, "NOSPOON_BOOT_PORT": "0"}
        environment["NOSPOON_MEDIA_NETWORKS"] = "127.0.0.0/8"
        try:
            yield environment
        finally:
            subprocess.run([NOSPOON, "daemon", "stop"], env=environment, check=True)


def timed(*argv: str, env: Mapping[str, str]) -> float:
    """Seconds that a nospoon command takes; its failure ends the benchmark."""
    began = time.perf_counter()
    done = subprocess.run([NOSPOON, *argv], env=dict(env), check=False, capture_output=True)
    if done.returncode != 0:
        raise SystemExit(f"nospoon {' '.join(argv)}: {done.stderr.decode()}")
    return time.perf_counter() - began


def asked(env: Mapping[str, str], *argv: str) -> Any:
    """What a nospoon command prints as JSON."""
    done = subprocess.run(
        [NOSPOON, *argv, "-f", "json"], env=dict(env), check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def engines_of(parser: ArgumentParser) -> dict[str, str]:
    """Settings of the connection by the name of each engine, from options that are added here."""
    for engine, socket in SOCKETS.items():
        parser.add_argument(f"--{engine}", default=socket, help=f"its socket, {socket} by default")
    given = vars(parser.parse_args())
    return {each: f"docker: {{socket: {given[each]}}}" for each in SOCKETS if is_there(given[each])}


def is_there(socket: str) -> bool:
    """An engine that does not run is not measured."""
    if Path(socket).is_socket():
        return True
    print(f"no engine listens at {socket}: it is not measured", flush=True)
    return False


def addresses_of(env: Mapping[str, str]) -> list[str]:
    """Those of all BMCs."""
    return [row["ipmi"].rpartition(":")[0] for row in asked(env, "bmc", "list")]


def report(what: str, seconds: float, *, reference: float | None = None, of: str = "") -> None:
    """One line: what, seconds, and the ratio to a reference measured in this run."""
    ratio = f"  {seconds / reference:.2f} x {of} ({reference:.2f} s)" if reference else ""
    print(f"{what:<46} {seconds:8.2f} s{ratio}", flush=True)
