"""Logins by password: those that fail are logged, and make the next ones of their source wait.

Where the cluster file gives a hash alone, the first login with the right password is checked in a
thread, which takes bcrypt's milliseconds; the same credentials are found at once from then on.

A login reaches every BMC here that has this name and password, as they are or as any hash.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from ipaddress import AddressValueError, IPv4Address
from socket import gethostname

from nospoon.errors import Conflict
from nospoon.model.addresses import source_key
from nospoon.runtime import clock
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.messages import errors

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.%]+\]|[^:\[\]]+)(:[0-9]*)?")
LONGEST = 72
"""Bytes of a password that bcrypt looks at."""


async def account_of(exchange: Exchange, username: str, password: str) -> bytes:
    """The account of these credentials, if it may see something here. Raises `RedfishError`.

    Attempts that wait, wait in a queue: many at once are no quicker than one after the other.
    """
    failures, guesses = exchange.accounts.failures, exchange.accounts.guesses
    place, source = exchange.place, _source(exchange)
    now = clock.monotonic()
    waiting = (failures.queue(place, source, username, now=now),
               guesses.queue(place, source, username, now=now))  # fmt: skip
    await _wait(*waiting)
    account = exchange.accounts.find(exchange.place, username, password)
    if account is not None and await _is_guess(exchange, account, username):
        account = exchange.accounts.find(exchange.place, username, password)
    if exchange.accounts.has_hashes(exchange.place):
        account = await _beside_hashes(exchange, account, (username, password))
    if account is not None and exchange.log_in(account):
        failures.worked(place, source, username)
        return account
    needs_none = needs_no_login(exchange)
    _count_guess(exchange, username, password, needs_none=needs_none)
    if needs_none:  # clients that always send credentials send any
        return exchange.account
    count = failures.failed(place, source, username, now=clock.monotonic())
    exchange.accounts.log.warning(
        "login failed", by="Redfish", peer=source, at=str(place), account=username[:32], times=count
    )
    raise errors.unauthorized(exchange.path)


def _count_guess(exchange: Exchange, username: str, password: str, *, needs_none: bool) -> None:
    """A login failed, perhaps of who may use some BMC here and guesses at another. `needs_none`:
    because some need no login.
    """
    accounts, place = exchange.accounts, exchange.place
    having = exchange.service.registry.having(username, place)
    if having > 1 or (having and needs_none and not accounts.all_are_open(place)):
        pair, now = accounts.pair(0, username, password), clock.monotonic()
        accounts.guesses.failed(place, _source(exchange), username, pair, now=now)


async def _wait(*seconds: float | None) -> None:
    """The longest of these. Raises `RedfishError` where one is None: too many wait already."""
    longest = 0.0
    for each in seconds:
        if each is None:
            raise errors.too_many_logins()
        longest = max(longest, each)
    if longest:
        await asyncio.sleep(longest)


async def _is_guess(exchange: Exchange, account: bytes, username: str) -> bool:
    """Whether this login may be a guess at other BMCs here, made by a client of one of them. It
    has waited then. Raises `RedfishError` where too many wait.
    """
    accounts, place = exchange.accounts, exchange.place
    bmc = accounts.untried(account, place)
    if bmc is None or exchange.service.registry.having(username, place) < 2:
        return False
    await _wait(accounts.guesses.queue_user(place, bmc, username, now=clock.monotonic()))
    if accounts.untried(account, place) is not None:
        accounts.guesses.tried_user(place, bmc, username, now=clock.monotonic())
        accounts.tried(account, place)
    return True


async def _beside_hashes(
    exchange: Exchange, account: bytes | None, credentials: tuple[str, str]
) -> bytes | None:
    """As `_with_hashes`; what a right login found before is so until who may use BMCs changes."""
    accounts, place = exchange.accounts, exchange.place
    key = place, accounts.pair(next(iter(accounts.owners(place)), 0), *credentials)
    settled = accounts.checked.settled(key, accounts.changes)
    if settled is not None:
        return settled
    hashes = accounts.hashes(place, credentials[0])
    if not hashes:
        return account
    before = accounts.changes
    found, is_all = await _with_hashes(exchange, account, hashes, credentials)
    if found is not None and is_all and accounts.changes == before:
        accounts.checked.settle(key, before, found)
    return found


async def _with_hashes(
    exchange: Exchange,
    account: bytes | None,
    hashes: Mapping[bytes, str],
    credentials: tuple[str, str],
) -> tuple[bytes | None, bool]:
    """The account of these credentials, where accounts here have hashes for this name, and whether
    all hashes were looked at. `account`: the one that has the password as it is.

    Raises `RedfishError` where checks are not possible now and no account is known without them.
    """
    accounts, place = exchange.accounts, exchange.place
    found = [account] if account is not None else []
    outcomes, is_all = list[tuple[int, bytes, bytes, bool]](), True
    pair = cache(partial(_pair, exchange, credentials))
    for each, text in hashes.items():
        await exchange.rest()
        if not accounts.is_at(each, place):
            continue  # its BMCs went while others were checked
        owner = accounts.owner_of(place, each)
        fits = accounts.checked.outcome(owner, each, pair(owner))
        if fits is None:
            try:
                fits = await accounts.checked.worker.run(
                    partial(_fits, credentials[1], text),
                    group=owner, source=source_key(_source(exchange)), key=(each, pair(owner)),
                )  # fmt: skip
            except Conflict:
                if not found:
                    raise errors.too_many_logins() from None
                is_all = False
                continue
            outcomes.append((owner, each, pair(owner), fits))
        if fits:
            found.append(each)
    for owner, each, theirs, fits in outcomes if found else ():
        await exchange.rest()
        accounts.checked.remember(owner, each, theirs, fits=fits)
    return await _together(exchange, found, credentials), is_all


def _pair(exchange: Exchange, credentials: tuple[str, str], owner: int) -> bytes:
    return exchange.accounts.pair(owner, *credentials)


async def _together(
    exchange: Exchange, found: Sequence[bytes], credentials: tuple[str, str]
) -> bytes | None:
    """One account for all that the same credentials fit, which may be thousands. BMCs may have
    gone while they were checked, and may go meanwhile.
    """
    accounts, place = exchange.accounts, exchange.place
    own, owner = list[bytes](), None
    for each in found:
        await exchange.rest()
        if not accounts.is_at(each, place):
            continue
        theirs = accounts.owner_of(place, each)
        owner = theirs if owner is None else owner
        if theirs == owner:
            own.append(each)
    if owner is None or len(own) < 2:
        return next(iter(own), None)
    pair = accounts.pair(owner, *credentials)
    for each in own:
        await exchange.rest()
        if accounts.is_at(each, place):
            accounts.join(each, pair)
    return pair


def _fits(password: str, text: str) -> bool:
    import bcrypt  # noqa: PLC0415  (only where a file gives hashes)

    given = password.encode()
    if len(given) > LONGEST or b"\0" in given:
        return False
    try:
        return bcrypt.checkpw(given, text.encode())
    except ValueError:  # a hash of an earlier store that bcrypt takes for none
        return False


def needs_no_login(exchange: Exchange) -> bool:
    """Whether this caller may use BMCs here without credentials.

    Not pages of other sites in a browser, which would act in its user's place: they say their
    origin (RFC 6454 §7.3), but for reads of what they take for their own site, because they have
    its name lead here now ("DNS rebinding"). Such a name is not one that `is_local` knows.
    """
    host = exchange.header(b"host") or ""
    if exchange.header(b"origin") is not None or not is_local(host):
        return False
    return exchange.log_in(exchange.accounts.open_at(exchange.place))


def is_local(host: str) -> bool:
    """Whether a Host header (RFC 9112 §3.2) has a name that no one on the Internet can have: an IP
    address, one without dots or below `localhost` (RFC 6761 §6.3), or that of this machine.
    """
    match = _HOST.fullmatch(host)
    if match is None:
        return not host  # of HTTP/1.0, which browsers do not speak
    name = match["name"].removesuffix(".").lower()
    if "." not in name or name.endswith(".localhost") or name == gethostname().lower():
        return True
    try:
        IPv4Address(name)
    except AddressValueError:
        return name.startswith("[")
    return True


def _source(exchange: Exchange) -> str:
    client = exchange.request.scope.get("client")
    return client[0] if client else ""
