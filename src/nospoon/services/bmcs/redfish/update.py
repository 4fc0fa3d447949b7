"""UpdateService: what software there is; none of it is updated from outside."""

from __future__ import annotations

from starlette.responses import Response

from nospoon import __version__
from nospoon.services.bmcs.redfish import errors
from nospoon.services.bmcs.redfish.exchange import (
    OK,
    ROOT,
    Exchange,
    Resource,
    collection,
    ref,
    resource,
    tagged,
)

INVENTORY = {"BMC": "nospoon's BMC", "BIOS": "the machine's firmware"}


async def _service(exchange: Exchange) -> Response:
    body = {
        **resource("UpdateService", "UpdateService", "UpdateService", "Update Service"),
        "ServiceEnabled": False,
        "Status": OK,
        "FirmwareInventory": ref("UpdateService/FirmwareInventory"),
    }
    return tagged(exchange, body)


async def _inventory(exchange: Exchange) -> Response:
    path = "UpdateService/FirmwareInventory"
    return tagged(
        exchange,
        {
            **collection("SoftwareInventory", path, list(INVENTORY)),
            "Name": "Firmware Inventory",
        },
    )


async def _item(exchange: Exchange) -> Response:
    name = exchange.request.path_params["member"]
    if name not in INVENTORY:
        raise errors.not_found(exchange.path)
    body = {
        **resource("SoftwareInventory", f"UpdateService/FirmwareInventory/{name}", name, name),
        "Description": INVENTORY[name],
        "Updateable": False,
        "Version": __version__ if name == "BMC" else "as the host has it",
        "Status": OK,
    }
    return tagged(exchange, body)


RESOURCES = (
    Resource(f"{ROOT}/UpdateService", {"GET": _service}),
    Resource(f"{ROOT}/UpdateService/FirmwareInventory", {"GET": _inventory}),
    Resource(f"{ROOT}/UpdateService/FirmwareInventory/{{member}}", {"GET": _item}),
)
