"""Logins by password: those that fail are logged, and make the next ones of their source wait.

Where the cluster file gives a hash alone, the first login with the right password is checked in a
thread, which takes bcrypt's milliseconds; the same credentials are found at once from then on.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from ipaddress import AddressValueError, IPv4Address
from socket import gethostname

from nospoon.errors import Conflict
from nospoon.runtime import clock
from nospoon.services.bmcs.accounts import OPEN
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
    account = exchange.accounts.find(username, password)
    if account is None or not exchange.log_in(account):  # BMCs elsewhere may have the same pair
        account = await _by_hash(exchange, username, password)
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


async def _by_hash(exchange: Exchange, username: str, password: str) -> bytes | None:
    """The account whose hash this password fits. Of several requests with the same credentials the
    first one is checked.
    """
    accounts, worker = exchange.accounts, exchange.service.listeners.passwords
    place = exchange.request.scope["server"]
    here = exchange.service.redfish_at(place)

    def hashes() -> dict[bytes, str]:
        """Of accounts that may use a BMC here: others of the name cost a check each, too."""
        known = accounts.hashes(username).items()
        return {each: text for each, text in known if not accounts.systems(each).isdisjoint(here)}

    def learned() -> bytes | None:
        return next((a for a in hashes() if accounts.has_learned(a, username, password)), None)

    if not hashes():
        return None
    if (found := learned()) is not None:
        return found
    async with accounts.checking(place):
        found = learned()
        for account, text in hashes().items() if found is None else ():
            try:
                fits = await worker.run(partial(_fits, password, text), client=object())
            except Conflict:
                raise errors.too_many_logins() from None
            if fits:
                accounts.learn(account, username, password)
                return account
        return found


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
    return "origin" not in headers and is_local(headers.get("host", "")) and exchange.log_in(OPEN)


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
