"""AccountService: users, which IPMI and Redfish share, and the roles that hold (DSP0266 §13.7).

Rules:

- An account is a row of the BMC's table of users (`nospoon.bmc.users`); 2 is the node's own
  account, which only the cluster file changes.
- Where an endpoint serves several systems, one account stands for the rows with the same number
  and name on those that the caller may use there: with the lowest of their roles, and enabled when
  it is on all of them. What is changed is changed on all of them, what is made is made on all.
- Its id is IPMI's number; where several names have that on BMCs of this endpoint, seen by the
  caller or not, with power or without, the name follows: a URI never means someone else.
- Administrators see and change all accounts; others see their own, and may change its password.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from starlette.responses import Response

from nospoon.bmc import users as table
from nospoon.bmc.messages import Answer, SettingsRequested
from nospoon.bmc.users import ADMINISTRATOR, LAST, OWNER, User
from nospoon.errors import Conflict
from nospoon.services.bmcs.accounts import LEAST_PRIVILEGE, OPERATOR
from nospoon.services.bmcs.redfish.http.answers import ODATA, check_match, long, respond, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.routes import Resource
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import OK, collection, ref, resource
from nospoon.services.bmcs.redfish.messages.listings import BATCH, in_order
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources.changes import done

if TYPE_CHECKING:
    from nospoon.services.bmcs.directory import Account
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
AT_ONCE = 32
"""BMCs of one account whose changes wait to be stored: all that wait may go on in one turn of the
loop.
"""
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
    found = (exchange.service.registry.status(each) for each in exchange.systems())
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
    """Over Redfish; the name of the node's own account is no one else's."""
    if user.id == OWNER:
        return True
    usable = user.may_log_in and user.privilege >= LEAST_PRIVILEGE
    return usable and user.name != served.bmc.username


@dataclass(frozen=True, slots=True)
class _Here:
    """`seen`: numbers and names of users of the systems that the caller sees, in order. `shared`:
    numbers that several names have, on all BMCs that are or would be at this endpoint, whether the
    caller sees them or not: one account has one URI for all who ask.
    """

    seen: Sequence[Account]
    shared: AbstractSet[int]


async def _here(exchange: Exchange) -> _Here:
    visible, seen, names = exchange.systems(), list["Account"](), Counter[int]()
    for account, systems in list(_at(exchange).items()):
        await exchange.rest()
        names[account[0]] += 1
        if not visible.isdisjoint(systems):
            seen.append(account)
    few = len(seen) <= BATCH
    return _Here(
        sorted(seen) if few else await in_order(seen, exchange.rest),
        frozenset(number for number, count in names.items() if count > 1),
    )


def _at(exchange: Exchange) -> Mapping[Account, AbstractSet[UUID]]:
    return exchange.service.registry.users_at(exchange.request.scope["server"])


async def _known(exchange: Exchange) -> dict[str, Account]:
    """Accounts that this caller may ask for, by id."""
    here, mine = await _here(exchange), _is_administrator(exchange)
    found: dict[str, Account] = {}
    for number, name in here.seen:
        await exchange.rest()
        if mine or name == exchange.username:
            found[_id(number, name, here.shared)] = number, name
    return found


def _id(number: int, name: str, shared: AbstractSet[int]) -> str:
    return f"{number}-{_in_path(name)}" if number in shared else str(number)


def _in_path(name: str) -> str:
    """A name, or with characters that paths cannot have its bytes."""
    return name if _PLAIN.fullmatch(name) else f"-{name.encode().hex()}"


async def _one(exchange: Exchange) -> _Account:
    id_ = exchange.request.path_params["member"]
    number, name = (await _known(exchange)).get(id_, (0, ""))
    rows = []
    for uuid in exchange.systems() & _at(exchange).get((number, name), frozenset()):
        await exchange.rest()
        served = exchange.service.registry.status(uuid)
        user = _user(served, number) if served is not None else None
        if served is not None and user is not None and user.name == name:
            rows.append((served, user))
    if not rows:
        raise errors.not_found(exchange.path)
    return _Account(id_, tuple(rows))


def _user(served: Served, number: int) -> User | None:
    if number == OWNER:
        return _owner(served)
    users = table.added(served.aggregate.runtime.settings.users)
    return next((each for each in users if each.id == number), None)


async def _accounts(exchange: Exchange) -> Response:
    ids, paths = list(await _known(exchange)), list[str]()
    for first in range(0, len(ids), BATCH):
        await exchange.rest()
        paths += [f"{ACCOUNTS}/{each}" for each in ids[first : first + BATCH]]
    return await long(exchange, collection("ManagerAccount", ACCOUNTS, ()), paths)


async def _account(exchange: Exchange) -> Response:
    return tagged(exchange, _shown(await _one(exchange)))


def _shown(account: _Account) -> dict[str, object]:
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


def _need_login(exchange: Exchange) -> None:
    """Others may log in with what is made here: to BMCs that need no login, too."""
    if exchange.accounts.is_open(exchange.account, exchange.place):
        raise errors.unauthorized(exchange.path)


def _need_administrator(exchange: Exchange) -> None:
    _need_login(exchange)
    if not _is_administrator(exchange):
        raise errors.forbidden()


@asynccontextmanager
async def _turn(exchange: Exchange) -> AsyncIterator[None]:
    """To change accounts at this endpoint. Raises `RedfishError`."""
    async with AsyncExitStack() as turn:
        try:
            await turn.enter_async_context(
                exchange.accounts.changing.turn(exchange.place, exchange.account)
            )
        except Conflict:
            raise errors.too_many_requests() from None
        yield


async def _create(exchange: Exchange) -> Response:
    _need_administrator(exchange)
    body = await exchange.body()
    for name in ("UserName", "Password", "RoleId"):
        if name not in body:
            raise errors.missing_property(name)
    async with _turn(exchange):
        taken = (await _here(exchange)).seen
        number = _free(taken)
        fresh = User(number, enabled=True, messaging=True)
        user = _changed(_names(taken, number), fresh, body)
        made = _Account(str(number), tuple((each, user) for each in _systems(exchange)))
        await _change(exchange, made, table.with_user)
    made = replace(made, id=_id(number, user.name, (await _here(exchange)).shared))
    headers = {"Location": f"{ROOT}/{ACCOUNTS}/{made.id}"}
    return respond(_shown(made), status=201, headers=headers)


def _free(seen: Iterable[Account]) -> int:
    """The lowest number that has a name on none of the systems. IPMI clients also write rows
    without one, FreeIPMI's bmc-config all of them: such a row is free.
    """
    taken = {number for number, _ in seen}
    free = (number for number in range(OWNER + 1, LAST + 1) if number not in taken)
    found = next(free, None)
    if found is None:
        raise errors.RedfishError(
            400,
            "CreateLimitReachedForResource",
            resolution="Delete other accounts and resubmit the request.",
        )
    return found


async def _patch(exchange: Exchange) -> Response:
    _need_login(exchange)
    body = await exchange.body()
    async with _turn(exchange):
        return await _patched(exchange, body)


async def _patched(exchange: Exchange, body: dict[str, object]) -> Response:
    before = await _one(exchange)
    check_match(exchange, partial(_shown, before))
    if not _is_administrator(exchange) and set(body) - {"Password"}:
        raise errors.forbidden()
    _check_names(body)
    if before.user.id == OWNER:
        return _unchanged(exchange, before, body)
    names = _names((await _here(exchange)).seen, before.user.id)
    rows = []
    for served, user in before.rows:
        await exchange.rest()
        rows.append((served, _changed(names, user, body)))
    after = replace(before, rows=tuple(rows))
    if body.get("Enabled"):
        _check_enabled(after)
    await _change(exchange, after, table.with_user)
    after = replace(after, id=_id(after.user.id, after.user.name, (await _here(exchange)).shared))
    return tagged(exchange, _shown(after))


def _unchanged(exchange: Exchange, owner: _Account, body: Mapping[str, object]) -> Response:
    """The answer to a PATCH of the node's own account, which only the cluster file changes."""
    for name in body:
        if not name.startswith("@odata."):
            raise errors.read_only(name)
    return tagged(exchange, _shown(owner))


async def _delete(exchange: Exchange) -> Response:
    _need_administrator(exchange)
    async with _turn(exchange):
        return await _deleted(exchange)


async def _deleted(exchange: Exchange) -> Response:
    gone = await _one(exchange)
    if gone.user.id == OWNER:
        raise errors.RedfishError(
            403,
            "ResourceCannotBeDeleted",
            resolution="The cluster file says the account of a node.",
        )
    check_match(exchange, partial(_shown, gone))
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

    answers, waiting = list[Answer](), deque[asyncio.Future[Answer]]()
    for each in account.rows:
        await exchange.rest()
        if len(waiting) >= AT_ONCE:
            answers.append(await waiting.popleft())
        waiting.append(asked(*each))
    answers += [await each for each in waiting]
    for answer in answers:
        done(answer)
    await exchange.service.events.followed()


def _check_names(body: Mapping[str, object]) -> None:
    for name in body:
        if name in _WRITABLE or name.startswith("@odata."):
            continue
        raise (errors.read_only if name in _READ_ONLY else errors.unknown_property)(name)


def _names(seen: Iterable[Account], number: int) -> frozenset[str]:
    """Those that users with other numbers have, and the nodes' own accounts."""
    return frozenset(name for other, name in seen if other != number)


def _changed(others: AbstractSet[str], user: User, body: Mapping[str, object]) -> User:
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


def _truth(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise errors.wrong_type(name, value)
    return value


def _name(others: AbstractSet[str], value: object) -> str:
    """One that no one else has, and that basic authentication and IPMI can carry."""
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
            "ManagerAccount",
            "UserName",
            value,
            resolution="Choose another name and resubmit the request.",
        )
    return value


def _password(value: object) -> str:
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
    body: dict[str, object] = {
        **resource("Role", f"{SERVICE}/Roles/{name}", name, f"{name} Role"),
        "RoleId": name,
        "IsPredefined": True,
        "AssignedPrivileges": ROLES[name],
    }
    return tagged(exchange, body)


RESOURCES = (
    Resource(f"{ROOT}/{SERVICE}", {"GET": _service}),
    Resource(f"{ROOT}/{ACCOUNTS}", {"GET": _accounts, "POST": _create}, lists=True),
    Resource(f"{ROOT}/{ACCOUNTS}/Members", {"POST": _create}),
    Resource(
        f"{ROOT}/{ACCOUNTS}/{{member}}",
        {"GET": _account, "PATCH": _patch, "DELETE": _delete},
        lists=True,  # it is looked for in one
    ),
    Resource(f"{ROOT}/{SERVICE}/Roles", {"GET": _roles}),
    Resource(f"{ROOT}/{SERVICE}/Roles/{{member}}", {"GET": _role}),
)
