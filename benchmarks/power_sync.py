"""Power synchronisation of 1,000 nodes by a real conductor, which asks each of our BMCs in turn:
seconds of a round, CPU seconds of Ironic with its ipmitool processes, and of nospoon's daemon,
which are to be at most a twentieth. Half of the nodes have IPMI, half Redfish.

`--nodes N` takes another number: most of the time goes into making Ironic manage them. It does not
synchronise meanwhile: it is started again for that.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path

from conducted import bmcs, cpu, daemon_of, own_ironic, restarted
from measure import private_daemon, timed
from nospoon.dev.ironic import Ironic
from nospoon.testing.ironic import Api

NODES = 1000
BAR = 1 / 20
LONGEST = 1800
"""Seconds in which a round is looked for."""
NEVER = "conductor.sync_power_state_interval=0"
OPTIONS = (
    "conductor.sync_power_state_interval=5",
    "DEFAULT.default_log_levels=ironic.conductor.manager=DEBUG,sushy=WARNING",
)
DONE = re.compile(r"Completed power state sync operation.* in ([\d.]+) seconds")


def file_for(found: Ironic, count: int) -> str:
    told = {"endpoint": found.endpoint, "state": "manageable"}
    half = count // 2
    return (
        f"cluster: bench\nhosts: {{sim: simulated}}\nnetworks: {{lan: {{}}}}\n"
        f"bmc: {bmcs()}\nironic: {json.dumps(told)}\n"
        f"nodes: [{{name: 'i{{n}}', count: {count - half}, bmc: [ipmi]}},"
        f" {{name: 'r{{n}}', count: {half}, bmc: [redfish]}}]\n"
    )


def first_round(found: Ironic, *, since: int) -> float:
    """Seconds of the first round that ends after byte `since` of the log."""
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        with found.log_file.open("rb") as log:
            log.seek(since)
            seen = DONE.search(log.read().decode(errors="replace"))
        if seen:
            return float(seen[1])
        time.sleep(0.5)
    raise TimeoutError(f"no round in {LONGEST} s: see {found.log_file}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    count = parser.parse_args().nodes
    with own_ironic(NEVER) as found, private_daemon() as env:
        path = Path(found.state).parent / "bench.yaml"
        path.write_text(file_for(found, count))
        managed = timed("up", "--yes", str(path), env=env)
        print(f"up, {count} nodes manageable: {managed:.0f} s", flush=True)
        size = found.log_file.stat().st_size
        found = restarted(found, *OPTIONS)  # noqa: PLW2901  (the same one)
        theirs, ours = cpu(found.process.pid), cpu(daemon_of(env))
        seconds = first_round(found, since=size)
        theirs, ours = cpu(found.process.pid) - theirs, cpu(daemon_of(env)) - ours
        nodes = Api(found.endpoint)("GET", "/nodes?detail=true&limit=1000")["nodes"]
        lost = [n["name"] for n in nodes if n["power_state"] != "power off" or n["maintenance"]]
        assert len(nodes) == min(count, 1000)
        assert not lost, f"Ironic has lost {lost}"
        ratio = ours / theirs
        verdict = "within" if ratio <= BAR else "OVER"
        print(f"power sync, {count} nodes: takes {seconds:.1f} s; "
              f"CPU seconds: Ironic {theirs:.1f}, nospoon {ours:.2f}: "
              f"1/{1 / ratio:.0f} ({verdict})", flush=True)  # fmt: skip
        timed("down", "--yes", "bench", env=env)


if __name__ == "__main__":
    main()
