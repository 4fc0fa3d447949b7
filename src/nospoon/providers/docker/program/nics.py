"""Links of a container into the networks of its host."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TypedDict

from nospoon.providers.docker.program.processes import content, run
from nospoon.providers.docker.program.wire import EngineError


class Nic(TypedDict):
    """`port`: of the link on the host; `bridge`: "" for none. `ovs`: settings of its port there, []
    for a Linux bridge's. `filter`: path of its rules, "" for none, and what puts them up and down.
    """

    port: str
    bridge: str
    mac: str
    ovs: list[str]
    filter: str
    filter_up: str
    filter_down: str


def plug(pid: int, number: int, nic: Nic) -> None:
    """A link into its network, up at both ends, with its filter before it is. A packet that is
    longer than the MTU of either end is dropped there, whatever the bridge passes.
    """
    port, bridge = nic["port"], nic["bridge"]
    if not bridge:
        return
    unplug(nic)
    mtu = content(Path(f"/sys/class/net/{bridge}/mtu")).decode()
    size = ("mtu", mtu) if mtu else ()
    run(
        "ip", "link", "add", port, *size, "type", "veth",
        "peer", "name", f"eth{number}", "address", nic["mac"], *size, "netns", str(pid),
    )  # fmt: skip
    if nic["ovs"]:
        run("ovs-vsctl", "--timeout=5", "--may-exist", "add-port", bridge, port, *nic["ovs"][1:])
    else:
        run("ip", "link", "set", "dev", port, "master", bridge)
    if nic["filter"]:
        run("sh", "-c", nic["filter_up"], nic["filter"])
    run("ip", "link", "set", "dev", port, "up")
    run("nsenter", "-t", str(pid), "-n", "ip", "link", "set", "dev", f"eth{number}", "up")


def unplug(nic: Nic) -> None:
    port = nic["port"]
    if Path(f"/sys/class/net/{port}").exists():
        with contextlib.suppress(EngineError):
            run("ip", "link", "del", "dev", port)
    if nic["ovs"]:
        run("ovs-vsctl", "--timeout=5", "--if-exists", "del-port", port)
    if nic["filter"]:
        run("sh", "-c", nic["filter_down"], port)
