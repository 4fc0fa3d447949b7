"""Enrolment of 200 simulated nodes in a real Ironic, against the processes that Tenks runs for it.

Tenks takes one node after the other: a module that makes the node, then `openstack baremetal` for
maintenance, attributes, traits, and three more for each port (its role ironic-enrolment). Here the
module is one `baremetal node create`, and the rest is as it is there: eight processes for a node
with one port, timed for ten nodes. Both leave the same in Ironic: node, port, traits, switch port;
neither brings nodes further, which would be Ironic's time. Machines are made before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from conducted import bmcs, own_ironic
from measure import private_daemon, report, timed
from nospoon.dev.ironic import Ironic
from nospoon.testing.ironic import Api

NODES, PEERS = 200, 10
BAREMETAL = str(Path(sys.executable).with_name("baremetal"))
CLASS, TRAITS = "gold", ("CUSTOM_GOLD", "CUSTOM_FAST")


def file_for(found: Ironic, count: int) -> str:
    told = {"endpoint": found.endpoint, "state": "enroll", "resource_class": CLASS}
    return (
        f"cluster: bench\nhosts: {{sim: simulated}}\nnetworks: {{lan: {{bridge: br-bench}}}}\n"
        f"bmc: {bmcs()}\nironic: {json.dumps(told)}\n"
        f"nodes: [{{count: {count}, bmc: [ipmi], traits: {json.dumps(TRAITS)}}}]\n"
    )


def commands(name: str, uuid: str, mac: str) -> Iterator[list[str]]:
    """What is run for a node, in this order; "PORT" is what `port list` has told."""
    yield ["node", "create", "--driver", "ipmi", "--name", name, "--uuid", uuid, "--driver-info",
           "ipmi_address=127.0.0.1", "--driver-info", "ipmi_port=6230"]  # fmt: skip
    yield ["port", "create", mac, "--node", uuid]
    yield ["node", "maintenance", "set", name]
    yield ["node", "set", name, "--resource-class", CLASS, "--property", "cpus=1",
           "--property", "memory_mb=1024", "--property", "local_gb=10"]  # fmt: skip
    yield ["node", "add", "trait", name, *TRAITS]
    yield ["port", "list", "--format", "value", "--column", "UUID", "--address", mac]
    yield ["port", "show", "PORT", "-f", "json"]
    yield ["port", "set", "PORT", "--physical-network", "lan", "--local-link-connection",
           f"switch_id={mac}", "--local-link-connection", "switch_info=br-bench",
           "--local-link-connection", f"port_id={name}"]  # fmt: skip
    yield ["node", "maintenance", "unset", name]


def enrol_as_tenks(found: Ironic, count: int) -> tuple[float, int]:
    """Seconds, and processes a node. Making the port is the module's doing, and is not timed."""
    env = {**os.environ, "OS_CLIENT_CONFIG_FILE": str(found.clouds_file), "OS_CLOUD": "nospoon-dev"}
    seconds, processes = 0.0, 0
    for number in range(count):
        port = ""
        for argv in commands(f"peer-{number}", str(uuid4()), f"02:00:00:00:00:{number:02x}"):
            filled = [port if each == "PORT" else each for each in argv]
            began = time.perf_counter()
            done = subprocess.run(
                [BAREMETAL, *filled], env=env, check=True, capture_output=True, text=True
            )
            if argv[:2] != ["port", "create"]:
                seconds += time.perf_counter() - began
                processes += 1
            if argv[:2] == ["port", "list"]:
                port = done.stdout.strip()
    return seconds, processes // count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--peers", type=int, default=PEERS, help="Nodes that the loop enrols.")
    told = parser.parse_args()
    with own_ironic() as found, private_daemon() as env:
        path = Path(found.state).parent / "bench.yaml"
        text = file_for(found, told.nodes)
        lines = text.splitlines(keepends=True)
        path.write_text("".join(each for each in lines if not each.startswith("ironic:")))
        timed("up", "--yes", str(path), env=env)
        path.write_text(text)
        ours = timed("up", "--yes", str(path), env=env)
        api = Api(found.endpoint)
        enrolled = api("GET", "/nodes?limit=1000")["nodes"]
        assert len(enrolled) == told.nodes, f"{len(enrolled)} nodes are in Ironic"
        assert len(api("GET", "/ports?limit=1000")["ports"]) == told.nodes
        again = timed("up", "--yes", str(path), env=env)
        theirs, processes = enrol_as_tenks(found, told.peers)
        whole = theirs / told.peers * told.nodes
        removed = timed("down", "--yes", "bench", env=env)
        report(f"{processes} processes a node, {told.peers} nodes", theirs)
        report(f"the same, {told.nodes} nodes (by proportion)", whole)
        report(f"nospoon up, {told.nodes} nodes", ours, reference=whole, of="that loop")
        print(f"{'':46} 1/{whole / ours:.0f}")
        report("nospoon up again", again, reference=whole, of="that loop")
        report("nospoon down, machines too", removed)


if __name__ == "__main__":
    main()
