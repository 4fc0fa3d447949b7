"""10,000 simulated nodes with IPMI, Redfish and a PDU's outlet in one daemon: `up`, memory,
descriptors and threads, restart. Against the same with 100 nodes in the same run, so that what
grows faster than the nodes shows. Needs root: BMCs have addresses of a pool, and ports below 1024.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from measure import private_daemon, timed

FEW, MANY = 100, 10_000
FILE = """
cluster: bench
hosts: {{sim: simulated}}
bmc: {{pool: 127.64.0.0/17}}
nodes: [{{count: {count}, bmc: [ipmi, redfish, pdu]}}]
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds; MiB of PSS; numbers of descriptors and threads."""

    up: float
    again: float
    restart: float
    down: float
    pss: float
    descriptors: int
    threads: int


def measure(count: int) -> Measured:
    with private_daemon() as env, tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "bench.yaml")
        file.write_text(FILE.format(count=count))
        timed("daemon", "start", env=env)
        up = timed("up", "--yes", str(file), env=env)
        process = _daemon(env)
        pss = _pss(process)
        descriptors = len(list(process.joinpath("fd").iterdir()))
        threads = len(list(process.joinpath("task").iterdir()))
        again = timed("up", "--yes", str(file), env=env)
        timed("daemon", "stop", env=env)
        began = time.perf_counter()
        timed("daemon", "start", env=env)
        restart = time.perf_counter() - began
        down = timed("down", "--yes", "--purge", "bench", env=env)
    return Measured(up, again, restart, down, pss, descriptors, threads)


def _daemon(env: Mapping[str, str]) -> Path:
    pid = Path(env["NOSPOON_RUNTIME_DIR"], "nospoond.pid").read_text().strip()
    return Path("/proc", pid)


def _pss(process: Path) -> float:
    lines = process.joinpath("smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def main() -> None:
    few, many = measure(FEW), measure(MANY)
    for name in Measured.__slots__:
        small, large = getattr(few, name), getattr(many, name)
        print(f"{name:<12} {large:10.2f}  {large / small:6.1f} x {FEW} nodes ({small:.2f})")


if __name__ == "__main__":
    main()
