"""What a machine's owner tag notes beside its owner, for a lost store to be made again from it.

JSON: `host`, the name of its host in the cluster file; `bmc`, where its BMC answers; `outlet` of
its PDU. What cannot be read is taken for nothing: tags are on hosts, where anybody may edit them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields

from nospoon.plan.addresses.allocate import Endpoint
from nospoon.plan.addresses.pdus import Socket


@dataclass(frozen=True, slots=True)
class Noted:
    """What was decided for a node."""

    host: str = ""
    bmc: Endpoint | None = None
    outlet: Socket | None = None


def written(noted: Noted) -> str:
    """One line, the same for the same decisions."""
    told: dict[str, object] = {"host": noted.host}
    if noted.bmc is not None:
        told["bmc"] = _values(noted.bmc)
    if noted.outlet is not None:
        told["outlet"] = _values(noted.outlet)
    return json.dumps(told, separators=(",", ":"))


def _values(decided: Endpoint | Socket) -> list[str | int]:
    return [getattr(decided, each.name) for each in fields(decided)]


def read(text: str) -> Noted:
    """What `written` wrote; the parts that are something else are left out."""
    try:
        told = json.loads(text or "{}")
    except ValueError:
        return Noted()
    if not isinstance(told, dict):
        return Noted()
    host = told.get("host")
    return Noted(
        host if isinstance(host, str) else "",
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
        case [str(address), int(ipmi), int(redfish)]:
            return Endpoint(address, ipmi, redfish)
        case _:
            return None


def _outlet(told: object) -> Socket | None:
    match told:
        case [int(pdu), int(number), str(address), int(port)]:
            return Socket(pdu, number, address, port)
        case _:
            return None
