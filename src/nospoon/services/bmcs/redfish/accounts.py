"""AccountService: the caller's own account, and the roles that hold (DSP0266 §13.7).

Accounts are made in the cluster file, or over IPMI; both protocols share them.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from nospoon.bmc.users import ADMINISTRATOR
from nospoon.services.bmcs.accounts import OPERATOR
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

ROLES = {
    "Administrator": ["Login", "ConfigureManager", "ConfigureUsers", "ConfigureComponents",
                      "ConfigureSelf"],
    "Operator": ["Login", "ConfigureComponents", "ConfigureSelf"],
    "ReadOnly": ["Login", "ConfigureSelf"],
}  # fmt: skip
"""Role -> its privileges, as the standard assigns them."""
OWN = "own"


async def _service(exchange: Exchange) -> Response:
    body = {
        **resource("AccountService", "AccountService", "AccountService", "Account Service"),
        "ServiceEnabled": True,
        "MinPasswordLength": 1,
        "MaxPasswordLength": 20,
        "Status": OK,
        "Accounts": ref("AccountService/Accounts"),
        "Roles": ref("AccountService/Roles"),
    }
    return tagged(exchange, body)


async def _accounts(exchange: Exchange) -> Response:
    return tagged(exchange, collection("ManagerAccount", "AccountService/Accounts", [OWN]))


async def _account(exchange: Exchange) -> Response:
    if exchange.request.path_params["member"] != OWN:
        raise errors.not_found(exchange.path)
    body = {
        **resource("ManagerAccount", f"AccountService/Accounts/{OWN}", OWN, "Own Account"),
        "UserName": exchange.username,
        "Password": None,
        "RoleId": _role_of(exchange),
        "Enabled": True,
        "Locked": False,
        "AccountTypes": ["Redfish", "IPMI"],
        "Links": {"Role": ref(f"AccountService/Roles/{_role_of(exchange)}")},
    }
    return tagged(exchange, body)


def _role_of(exchange: Exchange) -> str:
    """The least that the account may do on any of its systems."""
    least = exchange.least_privilege()
    if least >= ADMINISTRATOR:
        return "Administrator"
    return "Operator" if least >= OPERATOR else "ReadOnly"


async def _roles(exchange: Exchange) -> Response:
    return tagged(exchange, collection("Role", "AccountService/Roles", list(ROLES)))


async def _role(exchange: Exchange) -> Response:
    name = exchange.request.path_params["member"]
    if name not in ROLES:
        raise errors.not_found(exchange.path)
    body: dict[str, Any] = {
        **resource("Role", f"AccountService/Roles/{name}", name, f"{name} Role"),
        "RoleId": name,
        "IsPredefined": True,
        "AssignedPrivileges": ROLES[name],
    }
    return tagged(exchange, body)


RESOURCES = (
    Resource(f"{ROOT}/AccountService", {"GET": _service}),
    Resource(f"{ROOT}/AccountService/Accounts", {"GET": _accounts}),
    Resource(f"{ROOT}/AccountService/Accounts/{{member}}", {"GET": _account}),
    Resource(f"{ROOT}/AccountService/Roles", {"GET": _roles}),
    Resource(f"{ROOT}/AccountService/Roles/{{member}}", {"GET": _role}),
)
