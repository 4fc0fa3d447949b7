"""A manager, the protocols that it speaks and its serial port; its clock, and its own restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING
from uuid import UUID, uuid5

from starlette.responses import Response

from nospoon.bmc.ipmi import Lan
from nospoon.bmc.messages import Defaults, RestartRequested, SettingsRequested
from nospoon.bmc.software import Component
from nospoon.model.cluster import BmcProtocol
from nospoon.services.bmcs.lan import lan
from nospoon.services.bmcs.redfish.http.answers import CLOCK, ODATA, check_match, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.parameters import Action, Parameter
from nospoon.services.bmcs.redfish.http.routes import Resource, of_each_system
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import OK, ref, resource
from nospoon.services.bmcs.redfish.messages.jobs import when
from nospoon.services.bmcs.redfish.messages.metadata import odata_type
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources.changes import change, done, refuse_others
from nospoon.services.bmcs.redfish.resources.media import drives
from nospoon.services.bmcs.redfish.resources.root import install_of, service_uuid
from nospoon.services.bmcs.redfish.resources.update import software_version

if TYPE_CHECKING:
    from nospoon.services.bmcs.redfish.http.service import Service
    from nospoon.services.bmcs.served import Served

RESETS = ("GracefulRestart", "ForceRestart")
"""There is no difference: nothing of a BMC takes its time to end."""
DEFAULTS: Mapping[str, Defaults] = {
    "ResetAll": Defaults.ALL,
    "PreserveNetwork": Defaults.ALL,
    "PreserveNetworkAndUsers": Defaults.BUT_USERS,
}
"""Of the network nothing is a client's to set, so that it is preserved anyway."""
EPOCH, LATEST = datetime.fromtimestamp(0, UTC), 0xFFFFFFFE
RESET = Action("Manager.Reset", (Parameter("ResetType", allowed=RESETS),))
TO_DEFAULTS = Action(
    "Manager.ResetToDefaults",
    (Parameter("ResetType", required=True, allowed=tuple(DEFAULTS)),),
)


def manager(served: Served, install: UUID) -> dict[str, object]:
    """Manager: the BMC itself. `install`: of the service through which it is seen."""
    uuid = served.bmc.uuid
    return {
        "@odata.type": odata_type("Manager"),
        "@odata.id": f"{ROOT}/Managers/{uuid}",
        "Id": str(uuid),
        "Name": f"BMC of {served.config.node}",
        "ManagerType": "BMC",
        "Model": "nospoon",
        "UUID": str(uuid5(uuid, "manager")),
        "ServiceEntryPointUUID": service_uuid(install),
        "FirmwareVersion": software_version(served, Component.BMC),
        CLOCK: when(served.aggregate.state.clock(served.now())),
        "DateTimeLocalOffset": "+00:00",
        "PowerState": "On",
        "Status": {"State": "Enabled", "Health": "OK"},
        "NetworkProtocol": ref(f"Managers/{uuid}/NetworkProtocol"),
        "EthernetInterfaces": ref(f"Managers/{uuid}/EthernetInterfaces"),
        "SerialInterfaces": ref(f"Managers/{uuid}/SerialInterfaces"),
        "LogServices": ref(f"Managers/{uuid}/LogServices"),
        **({"VirtualMedia": ref(f"Managers/{uuid}/VirtualMedia")} if drives(served) else {}),
        "Links": {
            "ManagerForServers": [ref(f"Systems/{uuid}")],
            "ManagerForChassis": [ref(f"Chassis/{uuid}")],
        },
        "Actions": {
            "#Manager.Reset": {
                "target": f"{ROOT}/Managers/{uuid}/Actions/Manager.Reset",
                "ResetType@Redfish.AllowableValues": list(RESETS),
            },
            "#Manager.ResetToDefaults": {
                "target": f"{ROOT}/Managers/{uuid}/Actions/Manager.ResetToDefaults",
                "ResetType@Redfish.AllowableValues": list(DEFAULTS),
            },
        },
    }


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


async def patch_manager(
    service: Service, served: Served, body: dict[str, object], known: Mapping[str, object]
) -> None:
    """`known`: how it looks. Its clock is that of the SEL (IPMI 2.0 §31.11), which has room for a
    time until 2106.
    """
    refuse_others(body, (CLOCK,), lambda: known)
    if CLOCK not in body:
        return
    settings = served.aggregate.runtime.settings
    ahead = _time(body[CLOCK]) - served.aggregate.state.clock(served.now())
    after = replace(settings, clock_offset=settings.clock_offset + ahead)
    await change(service, served, [SettingsRequested(after)])


def _time(value: object) -> float:
    """Unix seconds of a date and time with its offset (RFC 3339)."""
    if not isinstance(value, str):
        raise errors.wrong_type(CLOCK, value)
    wrong = errors.wrong_format(CLOCK, value, "a date and time with its offset (RFC 3339)")
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise wrong from None
    if found.tzinfo is None:
        raise wrong
    unix = (found - EPOCH).total_seconds()
    if not 0 <= unix <= LATEST:
        raise errors.out_of_range(CLOCK, value)
    return unix


async def _restart(service: Service, served: Served, body: dict[str, object]) -> None:
    """Manager.Reset: the BMC restarts, its machine goes on."""
    RESET.read(body)
    done(await service.ask(served, RestartRequested))


async def _restore(service: Service, served: Served, body: dict[str, object]) -> None:
    """Manager.ResetToDefaults: settings are as they were made, and the BMC restarts."""
    defaults = DEFAULTS[TO_DEFAULTS.read(body).text("ResetType")]
    done(await service.ask(served, lambda ticket: RestartRequested(ticket, defaults)))


async def _get(exchange: Exchange) -> Response:
    return tagged(exchange, manager(exchange.served(), install_of(exchange)))


async def _patch(exchange: Exchange) -> Response:
    served = exchange.administered()
    before = manager(served, install_of(exchange))
    check_match(exchange, lambda: before)
    await patch_manager(exchange.service, served, await exchange.body(), before)
    return tagged(exchange, manager(served, install_of(exchange)))


async def _reset(exchange: Exchange) -> Response:
    await _restart(exchange.service, exchange.administered(), await exchange.body())
    return Response(status_code=204, headers=ODATA)


async def _to_defaults(exchange: Exchange) -> Response:
    await _restore(exchange.service, exchange.administered(), await exchange.body())
    return Response(status_code=204, headers=ODATA)


_ACTIONS = f"{ROOT}/Managers/{{id}}/Actions"
RESOURCES = (
    Resource(f"{ROOT}/Managers", {"GET": of_each_system("Manager", "Managers")}),
    Resource(f"{ROOT}/Managers/{{id}}", {"GET": _get, "PATCH": _patch}),
    Resource(f"{_ACTIONS}/Manager.Reset", {"POST": _reset}),
    Resource(f"{_ACTIONS}/Manager.ResetToDefaults", {"POST": _to_defaults}),
)
