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

from nospoon.plan.access import over_bmcs

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
