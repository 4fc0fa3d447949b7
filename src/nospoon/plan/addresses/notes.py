"""What a machine's owner tag notes beside its owner, for a lost store to be made again from it.

JSON: `host`, the name of its host in the cluster file; `bmc`, where its BMC answers; `outlet` of
its PDU. What cannot be read is taken for nothing: tags are on hosts, where anybody may edit them,
and in clouds, which are what members choose.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from ipaddress import ip_address
from operator import attrgetter

import msgspec

from nospoon.plan.addresses.allocate import Endpoint
from nospoon.plan.addresses.pdus import Socket

LONGEST = 1000
"""Characters of a note: names have 63, addresses 45."""
PORTS, NUMBERS = range(1 << 16), range(1, 1 << 31)
"""Of BMCs and PDUs, 0 for none; PDUs, and outlets of one."""


@dataclass(frozen=True, slots=True)
class Noted:
    """What was decided for a node."""

    host: str = ""
    bmc: Endpoint | None = None
    outlet: Socket | None = None


_encoded = msgspec.json.Encoder().encode
"""What is noted is ASCII, of which it writes the same as `json`, in a tenth of the time."""
_of_endpoint, _of_outlet = (
    attrgetter(*(each.name for each in fields(kind))) for kind in (Endpoint, Socket)
)


def written(noted: Noted) -> str:
    """One line, the same for the same decisions."""
    told: dict[str, object] = {"host": noted.host}
    if noted.bmc is not None:
        told["bmc"] = _of_endpoint(noted.bmc)
    if noted.outlet is not None:
        told["outlet"] = _of_outlet(noted.outlet)
    return _encoded(told).decode()


def read(text: str) -> Noted:
    """What `written` wrote; the parts that are something else are left out."""
    if len(text) > LONGEST:
        return Noted()
    try:
        told = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return Noted()
    if not isinstance(told, dict):
        return Noted()
    host = told.get("host")
    return Noted(
        host if isinstance(host, str) and host.isprintable() else "",
        _endpoint(told.get("bmc")),
        _outlet(told.get("outlet")),
    )


def described(noted: Noted) -> str:
    """In words, for a plan."""
    bmc, outlet = noted.bmc, noted.outlet
    parts = [f"host {noted.host}"] if noted.host else []
    if bmc is not None:
        ports = ", ".join(
            f"{name} {port}"
            for name, port in (("ipmi", bmc.ipmi_port), ("redfish", bmc.redfish_port))
            if port
        )
        parts.append(f"BMC at {bmc.address} ({ports})" if ports else "BMC without ports")
    if outlet is not None:
        parts.append(f"outlet {outlet.number} at {outlet.address}:{outlet.port}")
    return ", ".join(parts) or "nothing"


def _endpoint(told: object) -> Endpoint | None:
    match told:
        case [str(address), int(ipmi), int(redfish)] if _is_place(address, ipmi, redfish):
            return Endpoint(address, ipmi, redfish)
        case _:
            return None


def _outlet(told: object) -> Socket | None:
    match told:
        case [int(pdu), int(number), str(address), int(port)] if (
            pdu in NUMBERS and number in NUMBERS and _is_place(address, port)
        ):
            return Socket(pdu, number, address, port)
        case _:
            return None


def _is_place(address: str, *ports: int) -> bool:
    try:
        ip_address(address)
    except ValueError:
        return False
    return all(port in PORTS for port in ports)
