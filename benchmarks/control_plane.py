"""What one does with ten thousand nodes, and what their BMCs' clients notice of it meanwhile.

Each command runs on 1,000 and on 10,000 simulated nodes: its seconds, the exponent of its growth
(1.0: ten times the nodes take ten times as long), and of Get Chassis Status on one BMC, asked over
and over meanwhile, the 99th percentile and the slowest answer. The reference is a bare UDP echo, a
process of its own that is asked by turns: what the machine's scheduler alone costs. Needs root:
BMCs have addresses of a pool, at port 623. `--nodes N` takes another number for the larger one.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from conductor import STATUS, Session, echo_process
from measure import addresses_of, private_daemon, timed

FEW, MANY = 1_000, 10_000
FILE = """
cluster: bench
hosts: {{sim: simulated}}
bmc: {{pool: 127.64.0.0/17, username: admin, password: secret}}
nodes: [{{count: {count}}}]
"""
WATCHED = """
cluster: watched
hosts: {sim: simulated}
bmc: {pool: 127.65.0.0/24, username: admin, password: secret}
nodes: [{name: watched}]
"""
LONGEST = 300.0
"""Seconds of silence after which nothing is measured any more."""
PAUSE = 0.001
"""Seconds between two requests of the client."""
FORMATS = ("ironic", "instackenv", "bifrost", "kayobe", "bmh", "ansible", "prometheus-sd")


@dataclass(frozen=True, slots=True)
class Felt:
    """Of a client's waits: the 99th percentile and the longest, milliseconds."""

    p99: float
    longest: float


@dataclass(frozen=True, slots=True)
class Row:
    """What a command took, seconds, and what a BMC's client and the echo's felt meanwhile."""

    seconds: float
    bmc: Felt
    echo: Felt


def commands(file: str) -> Mapping[str, Sequence[str]]:
    """In this order."""
    exports = {f"export {name}": ("export", "bench", "--to", name) for name in FORMATS}
    return {
        "plan of all": ("plan", file),
        "up": ("up", "--yes", file),
        "plan": ("plan", file),
        "no-op up": ("up", "--yes", file),
        "status": ("status", "bench"),
        "node list": ("node", "list"),
        "bmc list": ("bmc", "list"),
        **exports,
        "down": ("down", "--yes", "--purge", "bench"),
    }


def measure(count: int) -> dict[str, Row]:
    with private_daemon() as env, tempfile.TemporaryDirectory() as directory:
        file, watched = Path(directory, "bench.yaml"), Path(directory, "watched.yaml")
        file.write_text(FILE.format(count=count))
        watched.write_text(WATCHED)
        timed("up", "--yes", str(watched), env=env)
        (address,) = addresses_of(env)
        return {name: row(argv, env, address) for name, argv in commands(str(file)).items()}


def row(argv: Sequence[str], env: Mapping[str, str], address: str) -> Row:
    ours, theirs = multiprocessing.Pipe()
    client = multiprocessing.get_context("fork").Process(target=_watch, args=(address, theirs))
    client.start()
    theirs.close()
    ours.recv()
    seconds = timed(*argv, env=env)
    ours.send(None)
    bmc, echo = ours.recv()
    client.join()
    return Row(seconds, bmc, echo)


def _watch(address: str, pipe: Connection) -> None:
    """Ask the BMC and the echo by turns until told otherwise."""
    session, echo = Session(address), echo_process()
    session.socket.settimeout(LONGEST)
    pipe.send(None)
    waits: tuple[list[float], list[float]] = ([], [])
    while not pipe.poll():
        began = time.perf_counter()
        session.ask(STATUS)
        between = time.perf_counter()
        echo.send(b"?")
        echo.recv(16)
        waits[0].append(between - began)
        waits[1].append(time.perf_counter() - between)
        time.sleep(PAUSE)
    session.close()
    pipe.send(tuple(map(_felt, waits)))


def _felt(waits: Sequence[float]) -> Felt:
    slow = statistics.quantiles(waits, n=100)[98] if len(waits) > 1 else max(waits)
    return Felt(slow * 1e3, max(waits) * 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=MANY)
    many = parser.parse_args().nodes
    few_rows, many_rows = measure(FEW), measure(many)
    print(f"{many} nodes{'seconds':>22}{'exponent':>10}   BMC p99, longest (echo's), ms")
    for name, found in many_rows.items():
        growth = math.log(found.seconds / few_rows[name].seconds) / math.log(many / FEW)
        felt = f"{found.bmc.p99:8.1f}{found.bmc.longest:8.1f}"
        beside = f"({found.echo.p99:.1f}, {found.echo.longest:.1f})"
        print(f"{name:<24}{found.seconds:9.2f}{growth:10.2f}   {felt} {beside}", flush=True)


if __name__ == "__main__":
    main()
