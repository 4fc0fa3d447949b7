"""A second `up` of 1,000 simulated nodes, with nothing to do, against the first one, and against
that of 100 nodes: what grows faster than the nodes shows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from measure import private_daemon, report, timed

FEW, MANY = 100, 1_000
FILE = """
cluster: bench
hosts: {{sim: simulated}}
bmc: {{ports: 20000-29999, redfish_port: 19999}}
nodes: [{{count: {count}}}]
"""


def measure(count: int) -> tuple[float, float]:
    """Seconds of the first `up`, and the least of three more."""
    with private_daemon() as env, tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "bench.yaml")
        file.write_text(FILE.format(count=count))
        timed("daemon", "start", env=env)
        first = timed("up", "--yes", str(file), env=env)
        again = min(timed("up", "--yes", str(file), env=env) for _ in range(3))
        timed("plan", "--detailed-exitcode", str(file), env=env)  # fails where it is not empty
        timed("down", "--yes", "--purge", "bench", env=env)
    return first, again


def main() -> None:
    _, few = measure(FEW)
    first, many = measure(MANY)
    what = f"up again of {MANY} nodes, nothing to do"
    report(what, many, reference=first, of="the first up")
    report(what, many, reference=few, of=f"{FEW} nodes")


if __name__ == "__main__":
    main()
