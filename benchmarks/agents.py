"""Nodes that a real conductor cleans, deploys and undeploys, with simulated agents and BMCs of
ours: CPU seconds a node of Ironic and of nospoon's daemon, which are to be at most a twentieth.

Ironic is the development one: SQLite, no debug logging, no synchronisation of power, which
`power_sync.py` measures. `--nodes N` takes another number; each needs about ten CPU seconds of
Ironic's, which is the time that it takes. `--at-once N` are cleaned and deployed at the same time:
a conductor that is given more answers agents after their patience.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from conducted import bmcs, cpu, daemon_of, own_ironic
from measure import private_daemon, timed
from nospoon.dev.ironic import Ironic
from nospoon.testing.ironic import files_of

NODES, AT_ONCE = 300, 40
BAR = 1 / 20
OPTIONS = (
    "conductor.automated_clean=true",
    "conductor.sync_power_state_interval=86400",
    "conductor.deploy_callback_timeout=7200",
    "conductor.clean_callback_timeout=7200",
)
GROUPS = (
    "[{{name: 'i{{n:03}}', count: {ipmi}}},"
    " {{name: 'r{{n:03}}', count: {redfish}, ironic: {{driver: redfish}}}}]"
)


def file_for(found: Ironic, count: int) -> str:
    files = files_of(found)
    host = {"simulated": {"agents": {"boot_script": f"{found.wanted.files_url}/boot.ipxe"}}}
    told: dict[str, Any] = {
        "endpoint": found.endpoint,
        "deploy_kernel": files["kernel"],
        "deploy_ramdisk": files["ramdisk"],
        "interfaces": {"deploy": "direct", "boot": "ipxe"},
        "state": "active",
        "image": files["image.raw"],
        "checksum": files["checksum"],
    }
    nodes = GROUPS.format(ipmi=count - count // 2, redfish=count // 2)
    return (
        f"cluster: bench\nhosts: {json.dumps({'sim': host})}\n"
        f"bmc: {bmcs()}\nnetworks: {{lan: {{}}}}\n"
        f"ironic: {json.dumps(told)}\nnodes: {nodes}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    given = parser.parse_args()
    count, parallel = given.nodes, f"--parallel={given.at_once}"
    with own_ironic(*OPTIONS) as found, private_daemon() as env:
        path = Path(found.state).parent / "bench.yaml"
        path.write_text(file_for(found, count))
        timed("status", env=env)
        daemon = daemon_of(env)
        theirs, ours = cpu(found.process.pid), cpu(daemon)
        for what, argv in (
            ("clean and deploy", ("up", "--yes", parallel, str(path))),
            ("undeploy and clean", ("down", "--yes", "bench")),
        ):
            seconds = timed(*argv, env=env)
            spent = cpu(found.process.pid) - theirs, cpu(daemon) - ours
            theirs, ours = theirs + spent[0], ours + spent[1]
            ratio = spent[1] / spent[0]
            verdict = "within" if ratio <= BAR else "OVER"
            each = f"Ironic {spent[0] / count:.2f}, nospoon {spent[1] / count:.3f}"
            print(f"{what}: {count} nodes in {seconds:.0f} s, CPU seconds a node: {each}: "
                  f"1/{1 / ratio:.0f} ({verdict})", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
