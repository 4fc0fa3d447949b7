"""Logins by password: those that fail are logged, and make the next ones of their source wait.

Where the cluster file gives a hash alone, the first login with the right password is checked in a
thread, which takes bcrypt's milliseconds; the same credentials are found at once from then on.

A login reaches every BMC here that has this name and password, as they are or as any hash.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import partial
from ipaddress import AddressValueError, IPv4Address
from socket import gethostname

from nospoon.errors import Conflict
from nospoon.model.addresses import peer_key
from nospoon.runtime import clock
from nospoon.services.bmcs.redfish import errors
from nospoon.services.bmcs.redfish.exchange import Exchange

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.%]+\]|[^:\[\]]+)(:[0-9]*)?")
LONGEST = 72
"""Bytes of a password that bcrypt looks at."""


async def account_of(exchange: Exchange, username: str, password: str) -> bytes:
    """The account of these credentials, if it may see something here. Raises `RedfishError`.

    Attempts that wait, wait in a queue: many at once are no quicker than one after the other.
    """
    failures = exchange.accounts.failures
    place, source = exchange.request.scope["server"], _source(exchange)
    waiting = failures.queue(place, source, username, now=clock.monotonic())
    if waiting is None:
        raise errors.too_many_logins()
    if waiting:
        await asyncio.sleep(waiting)
    account = exchange.accounts.find(exchange.place, username, password)
    hashes = exchange.accounts.hashes(exchange.place, username)
    if hashes:
        account = await _with_hashes(exchange, account, hashes, (username, password))
    if account is not None and exchange.log_in(account):
        failures.worked(place, source, username)
        return account
    if needs_no_login(exchange):  # clients that always send credentials send any
        return exchange.account
    count = failures.failed(place, source, username, now=clock.monotonic())
    exchange.accounts.log.warning(
        "login failed", by="Redfish", peer=source, at=str(place), account=username[:32], times=count
    )
    raise errors.unauthorized(exchange.path)


async def _with_hashes(
    exchange: Exchange,
    account: bytes | None,
    hashes: Mapping[bytes, str],
    credentials: tuple[str, str],
) -> bytes | None:
    """The account of these credentials, where accounts here have hashes for this name. `account`:
    the one that has the password as it is. Raises `RedfishError` where checks are not possible now
    and no account is known without them.
    """
    accounts, place = exchange.accounts, exchange.place
    found = [account] if account is not None else []
    outcomes = list[tuple[int, bytes, bytes, bool]]()
    for each, text in hashes.items():
        if not accounts.is_at(each, place):
            continue  # its BMCs went while others were checked
        owner = accounts.owner_of(place, each)
        pair = accounts.pair(owner, *credentials)
        fits = accounts.checked.outcome(owner, each, pair)
        if fits is None:
            try:
                fits = await accounts.checked.worker.run(
                    partial(_fits, credentials[1], text),
                    group=owner, source=peer_key(_source(exchange)), key=(each, pair),
                )  # fmt: skip
            except Conflict:
                if not found:
                    raise errors.too_many_logins() from None
                continue
            outcomes.append((owner, each, pair, fits))
        if fits:
            found.append(each)
    for owner, each, pair, fits in outcomes if found else ():
        accounts.checked.remember(owner, each, pair, fits=fits)
    return _together(exchange, found, credentials)


def _together(
    exchange: Exchange, found: Sequence[bytes], credentials: tuple[str, str]
) -> bytes | None:
    """One account for all that the same credentials fit. BMCs may have gone while they were
    checked.
    """
    accounts, place = exchange.accounts, exchange.place
    here = [each for each in found if accounts.is_at(each, place)]
    if len(here) < 2:
        return next(iter(here), None)
    owner = accounts.owner_of(place, here[0])
    own = [each for each in here if accounts.owner_of(place, each) == owner]
    return accounts.join(own, accounts.pair(owner, *credentials)) if len(own) > 1 else own[0]


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
    headers = exchange.request.headers
    if "origin" in headers or not is_local(headers.get("host", "")):
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
