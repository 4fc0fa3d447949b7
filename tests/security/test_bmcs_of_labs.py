"""Networks of members take over no BMC that labs of other users call: it would be their guests to
whom its password is sent.
"""

from __future__ import annotations

import json
import os
from ipaddress import ip_network
from pathlib import Path

import pytest
from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.clusterfile.load import load
from nospoon.control.labs.known import MOST_RANGES
from nospoon.plan.access import over_bmcs
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.addresses.networks import PRIVATE, SECOND_PRIVATE

LAB = """
cluster: racks
hosts: {s: simulated}
labs:
  lab:
    dynamic: false
    machines:
      metal: {bmc: {address: 10.231.7.9, password: secret}, memory: 1GiB, cpus: 1}
nodes: []
"""
OVER = """
cluster: over
hosts: {{a: {{libvirt: "qemu:///system"}}}}
networks: {{n: {{cidr: {cidr}}}}}
nodes: [{{nics: [n]}}]
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="asks libvirt")
async def test_no_network_takes_over_bmcs_of_other_users_labs(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        made = await asked.up(OWNER, LAB)
        assert made.status < 300, made.body

        async def planned(uid: int, cidr: str) -> bytes:
            body = {"file": "c.yaml", "text": OVER.format(cidr=cidr)}
            return (await asked.ask(uid, "POST", "/v1/plan", body)).body

        said = await planned(OTHER, "10.231.7.0/24")
        assert b"10.231.7.0/24 has addresses of BMCs that labs of other users call" in said
        assert b"10.231.7.9" not in said
        assert b"of other users" not in await planned(OTHER, "10.231.8.0/24")
        assert b"of other users" not in await planned(OWNER, "10.231.7.0/24")


def test_addresses_are_compared_with_their_like() -> None:
    cidrs = {"a": ip_network("10.1.0.0/16"), "b": ip_network("fd00:1::/64")}
    found = list(over_bmcs(cidrs, ["10.1.2.3", "bmc.example", "10.2.0.1", "", "fd00:2::1"]))
    assert [each.split(":")[0] for each in found] == ["network a"]
    (found_by_ipv6,) = over_bmcs(cidrs, ["fd00:1::9"])
    assert found_by_ipv6.startswith("network b: fd00:1::/64 has addresses")


async def test_a_lab_shows_which_of_its_bmcs_the_daemon_does_not_go_to(tmp_path: Path) -> None:
    lab = LAB.replace("metal:", "here: {bmc: {address: 127.0.0.1, password: secret}}\n      metal:")
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, lab)).status < 300
        shown = json.loads((await asked.ask(OWNER, "GET", "/v1/labs/lab/show")).body)
    beyond = {each["machine"]: each["beyond"] for each in shown["machines"]}
    assert beyond["metal"] == ""
    assert beyond["here"].startswith("it is at 127.0.0.1, where the daemon does not go. NOSPOON_")


def test_networks_are_chosen_beside_bmcs_of_labs() -> None:
    """One was chosen that was refused then."""
    text = "cluster: c\nhosts: {s: simulated}\nnetworks: {n: {nat: true}}\nnodes: [{nics: [n]}]\n"
    cluster, free = load(text, file="f"), ip_network("10.213.77.0/24")
    all_ = [each for whole in (PRIVATE, SECOND_PRIVATE) for each in whole.subnets(new_prefix=24)]
    occupied = Occupied(avoided=[each[9] for each in all_ if each != free])
    allocations, reasons = allocate(cluster, Allocations(), occupied)
    assert (allocations.cidrs, reasons) == ({"n": str(free)}, [])
    kept, reasons = allocate(cluster, allocations, Occupied(avoided=[each[9] for each in all_]))
    assert (kept.cidrs, reasons) == (allocations.cidrs, [])


async def test_labs_of_a_member_leave_others_networks_to_choose_from(tmp_path: Path) -> None:
    """With a BMC in each of 512, this machine got no network that was chosen for anyone."""
    networks = [*PRIVATE.subnets(new_prefix=24)][: MOST_RANGES + 1]
    metal = "metal: {bmc: {address: 10.231.7.9, password: secret}"
    assert metal in LAB

    def lab(count: int) -> str:
        machines = "".join(
            f"m{number}: {{bmc: {{address: {each[host]}, password: secret}}, memory: 1GiB, "
            "cpus: 1}\n      "
            for number, (each, host) in enumerate(
                (each, host) for each in networks[:count] for host in (5, 6)
            )
        )
        return LAB.replace(metal, f"{machines}{metal}")

    async with a_daemon(tmp_path) as asked:
        refused = await asked.up(OWNER, lab(MOST_RANGES + 1))
        assert refused.status == 409
        assert b"you would have 65 /24 networks with BMCs in 172.30.0.0/16 and" in refused.body
        assert (await asked.up(OWNER, lab(MOST_RANGES))).status == 202
