"""AccountService: users, which IPMI and Redfish share, and the roles that hold (DSP0266 §13.7).

Rules:

- An account is a row of the BMC's table of users (`nospoon.bmc.users`); 2 is the node's own
  account, which only the cluster file changes.
- Where an endpoint serves several systems, one account stands for the rows with the same number
  and name on those that the caller may use there: with the lowest of their roles, and enabled when
  it is on all of them. What is changed is changed on all of them, what is made is made on all.
- Its id is IPMI's number; where several names have that on BMCs of this endpoint, seen by the
  caller or not, with power or without, the name follows: a URI never means somebody else.
- Administrators see and change all accounts; others see their own, and may change its password.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from nospoon.bmc import users as table
from nospoon.bmc.messages import Answer, SettingsRequested
from nospoon.bmc.users import ADMINISTRATOR, LAST, OWNER, User
from nospoon.services.bmcs.accounts import LEAST_PRIVILEGE, OPERATOR
from nospoon.services.bmcs.redfish import errors
from nospoon.services.bmcs.redfish.actions import done
from nospoon.services.bmcs.redfish.exchange import (
    ODATA,
    OK,
    ROOT,
    Exchange,
    Resource,
    check_match,
    collection,
    ref,
    resource,
    respond,
    tagged,
)

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served

ROLES = {
    "Administrator": ["Login", "ConfigureManager", "ConfigureUsers", "ConfigureComponents",
                      "ConfigureSelf"],
    "Operator": ["Login", "ConfigureComponents", "ConfigureSelf"],
    "ReadOnly": ["Login", "ConfigureSelf"],
}  # fmt: skip
"""Role -> its privileges, as the standard assigns them."""
PRIVILEGES = {"Administrator": ADMINISTRATOR, "Operator": OPERATOR, "ReadOnly": LEAST_PRIVILEGE}
"""Role -> IPMI's privilege level (§6.8)."""
SERVICE, ACCOUNTS = "AccountService", "AccountService/Accounts"
SHORTEST, LONGEST, LONGEST_NAME = 8, 20, 16
"""Bytes of passwords and names: IPMI 2.0 §22.30 and §22.28 have no room for more."""
TYPES = ["Redfish", "IPMI"]
_WRITABLE = ("UserName", "Password", "RoleId", "Enabled", "Locked", "AccountTypes")
_ROLES = {privilege: role for role, privilege in PRIVILEGES.items()}
_PLAIN = re.compile(r"[\w.-]*\w", re.ASCII)
_READ_ONLY = frozenset({"Id", "Name", "Links", "Description", "PasswordChangeRequired"})

Change = Callable[[Sequence[User], User], tuple[User, ...]]
"""A table of users after one row of it was changed."""


async def _service(exchange: Exchange) -> Response:
    body = {
        **resource("AccountService", SERVICE, SERVICE, "Account Service"),
        "ServiceEnabled": True,
        "MinPasswordLength": SHORTEST,
        "MaxPasswordLength": LONGEST,
        "Status": OK,
        "Accounts": ref(ACCOUNTS),
        "Roles": ref(f"{SERVICE}/Roles"),
    }
    return tagged(exchange, body)


def _is_administrator(exchange: Exchange) -> bool:
    return exchange.least_privilege() >= ADMINISTRATOR


def _systems(exchange: Exchange) -> list[Served]:
    found = (exchange.service.status(each) for each in exchange.systems())
    return [each for each in found if each is not None]


def _owner(served: Served) -> User:
    """The node's own account as clients see it; its password is not part of this view."""
    return User(OWNER, served.bmc.username, "", ADMINISTRATOR, enabled=True, messaging=True)


@dataclass(frozen=True, slots=True)
class _Account:
    """Rows of one number and name, each with its system."""

    id: str
    rows: tuple[tuple[Served, User], ...]

    @property
    def user(self) -> User:
        """The one of them that may do least."""
        return min((user for _, user in self.rows), key=_level)


def _level(user: User) -> int:
    return user.privilege if user.privilege <= ADMINISTRATOR else 0


def _may_log_in(served: Served, user: User) -> bool:
    """Over Redfish; the name of the node's own account is nobody else's."""
    if user.id == OWNER:
        return True
    usable = user.may_log_in and user.privilege >= LEAST_PRIVILEGE
    return usable and user.name != served.bmc.username


def _known(exchange: Exchange) -> dict[str, _Account]:
    """Accounts that this caller sees, by id."""
    rows: dict[tuple[int, str], list[tuple[Served, User]]] = {}
    for served in _systems(exchange):
        for user in (_owner(served), *table.added(served.aggregate.runtime.settings.users)):
            if user.name:
                rows.setdefault((user.id, user.name), []).append((served, user))
    shared = _shared(exchange)
    found = (
        _Account(_id(number, name, shared), tuple(rows[number, name]))
        for number, name in sorted(rows)
    )
    mine = _is_administrator(exchange)
    return {each.id: each for each in found if mine or each.user.name == exchange.username}


def _shared(exchange: Exchange) -> frozenset[int]:
    """Numbers that several names have, on all BMCs that are or would be at this endpoint.

    Those that the caller does not see count, too: one account has one URI for all who ask.
    """
    names: dict[int, str] = {}
    several = set()
    for served in exchange.service.redfish_shaped_at(exchange.request.scope["server"]):
        owner = (OWNER, served.bmc.username)
        users = ((each.id, each.name) for each in served.aggregate.runtime.settings.users)
        for number, name in (owner, *users):
            if name and names.setdefault(number, name) != name:
                several.add(number)
    return frozenset(several)


def _id(number: int, name: str, shared: AbstractSet[int]) -> str:
    return f"{number}-{_in_path(name)}" if number in shared else str(number)


def _in_path(name: str) -> str:
    """A name, or with characters that paths cannot have its bytes."""
    return name if _PLAIN.fullmatch(name) else f"-{name.encode().hex()}"


def _one(exchange: Exchange) -> _Account:
    found = _known(exchange).get(exchange.request.path_params["member"])
    if found is None:
        raise errors.not_found(exchange.path)
    return found


async def _accounts(exchange: Exchange) -> Response:
    return tagged(exchange, collection("ManagerAccount", ACCOUNTS, list(_known(exchange))))


async def _account(exchange: Exchange) -> Response:
    return tagged(exchange, _shown(_one(exchange)))


def _shown(account: _Account) -> dict[str, Any]:
    """ManagerAccount; passwords are never told."""
    user, id_ = account.user, account.id
    role = _ROLES.get(user.privilege, "ReadOnly")
    return {
        **resource("ManagerAccount", f"{ACCOUNTS}/{id_}", id_, f"User {id_}"),
        "UserName": user.name,
        "Password": None,
        "RoleId": role,
        "Enabled": all(_may_log_in(*row) for row in account.rows),
        "Locked": False,
        "PasswordChangeRequired": False,
        "AccountTypes": TYPES,
        "Links": {"Role": ref(f"{SERVICE}/Roles/{role}")},
    }


def _need_administrator(exchange: Exchange) -> None:
    if not _is_administrator(exchange):
        raise errors.forbidden()


async def _create(exchange: Exchange) -> Response:
    _need_administrator(exchange)
    body = await exchange.body()
    for name in ("UserName", "Password", "RoleId"):
        if name not in body:
            raise errors.missing_property(name)
    async with exchange.accounts.changing:
        systems = _systems(exchange)
        number = _free(systems)
        fresh = User(number, enabled=True, messaging=True)
        user = _changed(_names(systems, number), fresh, body)
        made = _Account(str(number), tuple((each, user) for each in systems))
        await _change(exchange, made, table.with_user)
    made = replace(made, id=_id(number, user.name, _shared(exchange)))
    headers = {"Location": f"{ROOT}/{ACCOUNTS}/{made.id}"}
    return respond(_shown(made), status=201, headers=headers)


def _free(systems: Sequence[Served]) -> int:
    """The lowest number that has a name on none of them. IPMI clients also write rows without one,
    FreeIPMI's bmc-config all of them: such a row is free.
    """
    rows = (user for each in systems for user in each.aggregate.runtime.settings.users)
    taken = {user.id for user in rows if user.name}
    free = (number for number in range(OWNER + 1, LAST + 1) if number not in taken)
    found = next(free, None)
    if found is None:
        raise errors.RedfishError(
            400,
            "CreateLimitReachedForResource",
            "The create operation failed because the resource has reached the limit of possible "
            "resources.",
            resolution="Delete other accounts and resubmit the request.",
        )
    return found


async def _patch(exchange: Exchange) -> Response:
    body = await exchange.body()
    async with exchange.accounts.changing:
        return await _patched(exchange, body)


async def _patched(exchange: Exchange, body: dict[str, Any]) -> Response:
    before = _one(exchange)
    check_match(exchange, _shown(before))
    if not _is_administrator(exchange) and set(body) - {"Password"}:
        raise errors.forbidden()
    _check_names(body)
    if before.user.id == OWNER:
        return _unchanged(exchange, before, body)
    await exchange.rest()
    names = _names(_systems(exchange), before.user.id)
    rows = ((served, _changed(names, user, body)) for served, user in before.rows)
    after = replace(before, rows=tuple(rows))
    await exchange.rest()
    if body.get("Enabled"):
        _check_enabled(after)
    await _change(exchange, after, table.with_user)
    after = replace(after, id=_id(after.user.id, after.user.name, _shared(exchange)))
    return tagged(exchange, _shown(after))


def _unchanged(exchange: Exchange, owner: _Account, body: Mapping[str, Any]) -> Response:
    """The answer to a PATCH of the node's own account, which only the cluster file changes."""
    for name in body:
        if not name.startswith("@odata."):
            raise errors.read_only(name)
    return tagged(exchange, _shown(owner))


async def _delete(exchange: Exchange) -> Response:
    _need_administrator(exchange)
    async with exchange.accounts.changing:
        return await _deleted(exchange)


async def _deleted(exchange: Exchange) -> Response:
    gone = _one(exchange)
    if gone.user.id == OWNER:
        raise errors.RedfishError(
            403,
            "ResourceCannotBeDeleted",
            "The delete request failed because the resource requested cannot be deleted.",
            resolution="The cluster file says the account of a node.",
        )
    check_match(exchange, _shown(gone))
    await _change(exchange, gone, lambda users, row: table.without_user(users, row.id))
    return Response(status_code=204, headers=ODATA)


def _check_enabled(account: _Account) -> None:
    """What cannot log in is not called enabled."""
    for served, user in account.rows:
        if not user.password:
            raise errors.conflict("Enabled", "Password", "Give it a password, too.")
        if user.name == served.bmc.username:
            raise errors.conflict("Enabled", "UserName", "A node's own account has this name.")


async def _change(exchange: Exchange, account: _Account, change: Change) -> None:
    """On all its systems; durable when this returns. They may be thousands."""

    def asked(served: Served, row: User) -> asyncio.Future[Answer]:
        settings = served.aggregate.runtime.settings
        after = replace(settings, users=change(settings.users, row))
        return exchange.service.ask(served, lambda ticket: SettingsRequested(after, ticket))

    answers = []
    for each in account.rows:
        await exchange.rest()
        answers.append(asked(*each))
    for answer in await asyncio.gather(*answers):
        done(answer)
    await exchange.service.events.followed()


def _check_names(body: Mapping[str, Any]) -> None:
    for name in body:
        if name in _WRITABLE or name.startswith("@odata."):
            continue
        raise (errors.read_only if name in _READ_ONLY else errors.unknown_property)(name)


def _names(systems: Sequence[Served], number: int) -> frozenset[str]:
    """Those that users with other numbers have."""
    users = (each for s in systems for each in s.aggregate.runtime.settings.users)
    return frozenset({each.name for each in users if each.id != number}).union(
        each.bmc.username for each in systems
    )


def _changed(others: AbstractSet[str], user: User, body: Mapping[str, Any]) -> User:
    """The user after this body; what it leaves out stays as it is. `others`: names that are taken.
    Raises `RedfishError`.
    """
    _check_names(body)
    if "UserName" in body and (not user.name or body["UserName"] != user.name):
        user = replace(user, name=_name(others, body["UserName"]))
    if "Password" in body:
        user = replace(user, password=_password(body["Password"]), long=False)
    if "RoleId" in body:
        role = body["RoleId"]
        if not isinstance(role, str) or role not in ROLES:
            raise errors.not_in_list("RoleId", role, tuple(ROLES))
        user = replace(user, privilege=PRIVILEGES[role])
    if "Enabled" in body:
        enabled = _truth("Enabled", body["Enabled"])
        user = replace(user, enabled=enabled, messaging=enabled or user.messaging)
        if enabled and user.privilege not in _ROLES:
            user = replace(user, privilege=LEAST_PRIVILEGE)
    if "Locked" in body and _truth("Locked", body["Locked"]):
        raise errors.not_in_list("Locked", "true", ("false",))
    if "AccountTypes" in body and body["AccountTypes"] not in (TYPES, TYPES[::-1]):
        raise errors.not_in_list("AccountTypes", body["AccountTypes"], tuple(TYPES))
    return user


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise errors.wrong_type(name, value)
    return value


def _name(others: AbstractSet[str], value: Any) -> str:
    """One that nobody else has, and that basic authentication and IPMI can carry."""
    if not isinstance(value, str):
        raise errors.wrong_type("UserName", value)
    good = value.isascii() and value.isprintable() and ":" not in value and value.strip() == value
    if not good or not 0 < len(value) <= LONGEST_NAME:
        expected = f"1 to {LONGEST_NAME} printable characters of ASCII without a colon"
        raise errors.wrong_format("UserName", value, expected)
    if value in others:
        raise errors.RedfishError(
            400,
            "ResourceAlreadyExists",
            "The requested resource of type ManagerAccount with the property UserName with the "
            f"value '{value}' already exists.",
            args=("ManagerAccount", "UserName", value),
            resolution="Choose another name and resubmit the request.",
        )
    return value


def _password(value: Any) -> str:
    if not isinstance(value, str):
        raise errors.wrong_type("Password", "…")
    size = len(value.encode("utf-8", "replace"))
    if not SHORTEST <= size <= LONGEST or not value.isprintable() or not _encodes(value):
        expected = f"{SHORTEST} to {LONGEST} bytes of printable characters"
        raise errors.wrong_format("Password", "…", expected)
    return value


def _encodes(text: str) -> bool:
    """JSON can say half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


async def _roles(exchange: Exchange) -> Response:
    return tagged(exchange, collection("Role", f"{SERVICE}/Roles", list(ROLES)))


async def _role(exchange: Exchange) -> Response:
    name = exchange.request.path_params["member"]
    if name not in ROLES:
        raise errors.not_found(exchange.path)
    body: dict[str, Any] = {
        **resource("Role", f"{SERVICE}/Roles/{name}", name, f"{name} Role"),
        "RoleId": name,
        "IsPredefined": True,
        "AssignedPrivileges": ROLES[name],
    }
    return tagged(exchange, body)


RESOURCES = (
    Resource(f"{ROOT}/{SERVICE}", {"GET": _service}),
    Resource(f"{ROOT}/{ACCOUNTS}", {"GET": _accounts, "POST": _create}),
    Resource(f"{ROOT}/{ACCOUNTS}/Members", {"POST": _create}),
    Resource(
        f"{ROOT}/{ACCOUNTS}/{{member}}", {"GET": _account, "PATCH": _patch, "DELETE": _delete}
    ),
    Resource(f"{ROOT}/{SERVICE}/Roles", {"GET": _roles}),
    Resource(f"{ROOT}/{SERVICE}/Roles/{{member}}", {"GET": _role}),
)
