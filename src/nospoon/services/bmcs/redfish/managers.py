"""A manager's parts: the protocols that it speaks and its serial port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nospoon.model.cluster import BmcProtocol
from nospoon.services.bmcs.redfish.exchange import OK, resource

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served


def network_protocol(served: Served) -> dict[str, Any]:
    """ManagerNetworkProtocol: where it answers."""
    bmc = served.bmc
    ipmi = BmcProtocol.IPMI in bmc.protocols
    path = f"Managers/{bmc.uuid}/NetworkProtocol"
    return {
        **resource("ManagerNetworkProtocol", path, "NetworkProtocol", "Manager Network Protocol"),
        "HostName": served.config.node,
        "HTTP": {"ProtocolEnabled": not bmc.tls, "Port": None if bmc.tls else bmc.redfish_port},
        "HTTPS": {"ProtocolEnabled": bmc.tls, "Port": bmc.redfish_port if bmc.tls else None},
        "IPMI": {"ProtocolEnabled": ipmi, "Port": bmc.ipmi_port if ipmi else None},
        "SSDP": {"ProtocolEnabled": False},
        "Status": OK,
    }


def serial_interfaces(served: Served) -> list[str]:
    """The port that serial over LAN reaches."""
    del served
    return ["1"]


def serial_interface(served: Served, member: str) -> dict[str, Any] | None:
    """SerialInterface: the first serial port of the machine."""
    if member not in serial_interfaces(served):
        return None
    path = f"Managers/{served.bmc.uuid}/SerialInterfaces/{member}"
    return {
        **resource("SerialInterface", path, member, "Serial over LAN"),
        "InterfaceEnabled": True,
        "SignalType": "Rs232",
        "BitRate": "115200",
        "DataBits": "8",
        "Parity": "None",
        "StopBits": "1",
        "FlowControl": "None",
    }
