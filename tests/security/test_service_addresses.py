"""Where health checks of services may lead: a file gives NICs their addresses."""

from __future__ import annotations

import pytest

from nospoon.clusterfile.load import load
from nospoon.plan.addresses.addresses import looked_at
from nospoon.plan.addresses.allocate import Allocations

FILE = """
cluster: c
hosts: {{a: {{libvirt: "qemu:///system"}}}}
networks: {{lan: {{bridge: br0}}}}
nodes:
  - name: n
    kind: vm
    disks: [{{size: 1GiB, image: /i.qcow2}}]
    nics: [{{network: lan, address: "{address}"}}]
"""


def found(address: str) -> dict[str, str]:
    return looked_at(load(FILE.format(address=address), file="f"), Allocations())


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1/24",
        "0.0.0.1/24",
        "169.254.169.254/16",
        "168.63.129.16/24",
        "fd00:ec2::254/64",
        "224.0.0.1/24",
        "::1/128",
        "fe80::1/64",
        "::ffff:127.0.0.1/128",
        "::ffff:169.254.169.254/128",
    ],
)
def test_hosts_ask_no_services_of_their_own_or_of_their_clouds(address: str) -> None:
    assert found(address) == {}


@pytest.mark.parametrize("address", ["192.168.7.9/24", "198.51.100.7/24", "fd00::7/64"])
def test_addresses_of_guests_are_looked_at(address: str) -> None:
    assert found(address) == {"n": address.partition("/")[0]}
