"""Where a BMC is on its network, as IPMI's LAN parameters and Redfish's Manager show it."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from nospoon.bmc import ipmi
from nospoon.plan.identity import mac_address
from nospoon.services.bmcs.ports import BmcConfig

BMC_NIC = 0xFFFF
"""The number under which a BMC's own MAC address is derived: no NIC of the machine has it."""


def lan(config: BmcConfig) -> ipmi.Lan:
    bmc = config.bmc
    address = ip_address(bmc.address)
    return ipmi.Lan(
        address=address.packed,
        prefix=ip_network(bmc.pool or bmc.address).prefixlen,
        mac=bytes.fromhex(mac_address(bmc.uuid, BMC_NIC).replace(":", "")),
        port=bmc.ipmi_port,
    )
