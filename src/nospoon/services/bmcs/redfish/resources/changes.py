"""What clients change: what may be set is checked, a BMC is asked, and what it says is an error
or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from nospoon.bmc.messages import (
    Answer,
    BootOrderRequested,
    HttpBootUriRequested,
    IdentifyRequested,
    OverrideRequested,
    SettingsRequested,
    Verdict,
)
from nospoon.services.bmcs.redfish.messages import errors

if TYPE_CHECKING:
    from nospoon.services.bmcs.redfish.http.service import Service
    from nospoon.services.bmcs.served import Served

STATUSES: Mapping[Verdict, int] = {
    Verdict.BUSY: 503,
    Verdict.WRONG_STATE: 409,
    Verdict.GONE: 409,
    Verdict.UNREACHABLE: 503,
    Verdict.FAILED: 500,
}
RETRY_AFTER = "5"
_KNOWN = frozenset({"Actions", "Id", "Links", "Name", "Status"})
"""What most resources have."""

BootChange = HttpBootUriRequested | BootOrderRequested | OverrideRequested
Change = BootChange | SettingsRequested | IdentifyRequested


def done(answer: Answer) -> None:
    """Raises `RedfishError` for an answer that is not good."""
    if answer.verdict in STATUSES:
        status = STATUSES[answer.verdict]
        if answer.verdict is Verdict.WRONG_STATE:
            raise errors.in_standby(answer.reason)
        headers = {"Retry-After": RETRY_AFTER} if status == 503 else None
        raise errors.general(status, answer.reason or str(answer.verdict), headers=headers)


async def change(service: Service, served: Served, wanted: Iterable[Change]) -> None:
    """All in one step, so that no one else's change is lost; durable when this returns."""

    def asked(event: Change) -> asyncio.Future[Answer]:
        return service.ask(served, lambda ticket: replace(event, ticket=ticket))

    for answer in await asyncio.gather(*map(asked, wanted)):
        done(answer)


def refuse_others(
    body: Mapping[str, object],
    writable: tuple[str, ...],
    resource: Callable[[], Mapping[str, object]] = dict,
) -> None:
    """Raises `RedfishError` for properties that cannot be set here. `resource`: makes
    it as it is, for a client that asks for more.
    """
    for name in body:
        if name.startswith("@odata.") or name in writable:
            continue
        there = name in _KNOWN or name in resource()
        raise (errors.read_only(name) if there else errors.unknown_property(name))
