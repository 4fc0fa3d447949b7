"""A manager's parts, the protocols that it speaks and its serial port; and its own restart."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING

from starlette.responses import Response

from nospoon.bmc.ipmi import Lan
from nospoon.model.cluster import BmcProtocol
from nospoon.services.bmcs.lan import lan
from nospoon.services.bmcs.redfish.http.answers import ODATA
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.routes import Resource
from nospoon.services.bmcs.redfish.messages.bodies import OK, ref, resource
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources.actions import reset_manager, reset_to_defaults

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served


def network_protocol(served: Served) -> dict[str, object]:
    """ManagerNetworkProtocol: where it answers."""
    bmc = served.bmc
    ipmi = BmcProtocol.IPMI in bmc.protocols
    path = f"Managers/{bmc.uuid}/NetworkProtocol"
    return {
        **resource("ManagerNetworkProtocol", path, "NetworkProtocol", "Manager Network Protocol"),
        "HostName": served.config.node,
        "HTTP": {"ProtocolEnabled": not bmc.tls, "Port": None if bmc.tls else bmc.redfish_port},
        "HTTPS": {
            "ProtocolEnabled": bmc.tls,
            "Port": bmc.redfish_port if bmc.tls else None,
            "Certificates": ref(f"{path}/HTTPS/Certificates"),
        },
        "IPMI": {"ProtocolEnabled": ipmi, "Port": bmc.ipmi_port if ipmi else None},
        "SSDP": {"ProtocolEnabled": False},
        "Status": OK,
    }


def serial_interfaces(served: Served) -> list[str]:
    """The port that serial over LAN reaches."""
    del served
    return ["1"]


def serial_interface(served: Served, member: str) -> dict[str, object] | None:
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


def ethernet_interfaces(served: Served) -> list[str]:
    """The BMC's own; it has one."""
    del served
    return ["1"]


def ethernet_interface(served: Served, member: str) -> dict[str, object] | None:
    """EthernetInterface of the BMC: where it answers, as its LAN parameters have it over IPMI."""
    if member not in ethernet_interfaces(served):
        return None
    network = lan(served.config)
    path = f"Managers/{served.bmc.uuid}/EthernetInterfaces/{member}"
    mac = network.mac.hex(":")
    return {
        **resource("EthernetInterface", path, member, "Management network"),
        "MACAddress": mac,
        "PermanentMACAddress": mac,
        "InterfaceEnabled": True,
        "LinkStatus": "LinkUp",
        "HostName": served.config.node,
        **_address(ip_address(network.address), network),
        "Status": OK,
    }


def _address(address: IPv4Address | IPv6Address, network: Lan) -> dict[str, object]:
    if isinstance(address, IPv6Address):
        prefix = {"Address": str(address), "PrefixLength": network.prefix}
        told = {**prefix, "AddressOrigin": "Static", "AddressState": "Preferred"}
        return {"IPv4Addresses": [], "IPv6Addresses": [told]}
    mask = str(ip_network(f"0.0.0.0/{network.prefix}").netmask)
    gateway = ip_address(network.gateway)
    told = {
        "Address": str(address),
        "SubnetMask": mask,
        "AddressOrigin": "Static",
        "Gateway": None if gateway.is_unspecified else str(gateway),
    }
    return {"IPv4Addresses": [told], "IPv6Addresses": []}


async def _reset(exchange: Exchange) -> Response:
    await reset_manager(exchange.service, exchange.administered(), await exchange.body())
    return Response(status_code=204, headers=ODATA)


async def _to_defaults(exchange: Exchange) -> Response:
    await reset_to_defaults(exchange.service, exchange.administered(), await exchange.body())
    return Response(status_code=204, headers=ODATA)


_ACTIONS = f"{ROOT}/Managers/{{id}}/Actions"
RESOURCES = (
    Resource(f"{_ACTIONS}/Manager.Reset", {"POST": _reset}),
    Resource(f"{_ACTIONS}/Manager.ResetToDefaults", {"POST": _to_defaults}),
)
