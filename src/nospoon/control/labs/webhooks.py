"""Webhooks of labs: each event of a recipe set is sent to the URLs that the lab's file names.

An HTTP POST of JSON, signed with HMAC-SHA256 of its body by the hook's secret, as GitHub's are
(`X-Nospoon-Signature: sha256=DIGITS`). What is not accepted with a status below 300 is sent again,
later each time; then it is left out, for the stream of events has it as well. A hook that left its
file, or whose secret is another there, gets no event that waits. Events that wait are in the store,
so that the next daemon sends them: one that was being sent may come twice, with the same
`X-Nospoon-Delivery`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from nospoon.control.labs.access import KnownLab
from nospoon.errors import NospoonError
from nospoon.lab.effects import Happened
from nospoon.lab.work import RecipeSet
from nospoon.model.lab import Webhook
from nospoon.model.principal import OwnerId
from nospoon.runtime.http import request, without_account
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.reach import Reach
from nospoon.runtime.tasks import Tasks
from nospoon.store.lab_notices import Notice

log = RateLimitedLog()
PAUSES = (1.0, 5.0, 30.0, 120.0)
"""Seconds between two tries of one event."""
SECONDS = 10.0
"""For which one answer may take."""
MOST_WAITING = 1000
"""Events of one hook: the oldest is left out for one more."""
MOST_ANSWER = 1 << 16
AT_ONCE = 8
"""Requests to hooks of one owner of labs, who may have thousands of them."""
MOST_OF_OWNER = 4 * MOST_WAITING
"""Events of one owner's hooks that wait; further ones are left out."""
ACCEPTED = 300
Forget = Callable[[Sequence[str]], Awaitable[None]]
Has = Callable[[str, Webhook], bool]
"""Whether a lab, by its key, has a hook now."""
SIGNATURE, DELIVERY = "X-Nospoon-Signature", "X-Nospoon-Delivery"


def signature(secret: str, body: bytes) -> str:
    """What a receiver compares, in constant time."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


class Hooks(Protocol):
    """Where events of labs are sent."""

    def notice(self, known: KnownLab, found: RecipeSet, event: Happened) -> Notice | None:
        """An event as it is stored until it has arrived; None where no one wants it."""

    def send(self, known: KnownLab, notice: Notice) -> None:
        """Once it is stored; what an earlier daemon did not send, again."""


@dataclass(slots=True)
class _Waiting:
    """`left`: hooks that have not got it."""

    notice: Notice
    left: int


@dataclass(slots=True)
class _Line:
    waiting: deque[_Waiting] = field(default_factory=deque)
    busy: bool = False


@dataclass(slots=True)
class Webhooks:
    """`reach`: where a file's URLs may lead. `forget`: called with ids of events that no
    hook is sent any more. `pauses`: see `PAUSES`. `has`: a hook that is not there gets nothing.
    """

    tasks: Tasks
    reach: Reach
    forget: Forget
    pauses: tuple[float, ...] = PAUSES
    has: Has = lambda _lab, _hook: True
    _over: list[str] = field(default_factory=list)
    _lines: dict[tuple[str, Webhook], _Line] = field(default_factory=dict)
    _waiting: Counter[OwnerId] = field(default_factory=Counter)
    _places: defaultdict[OwnerId, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(AT_ONCE))
    )

    def send(self, hooks: tuple[Webhook, ...], notice: Notice) -> None:
        """Deliver an event in the order of events."""
        lab, owner = notice.lab, _owner(notice.lab)
        waiting = _Waiting(notice, len(hooks))
        if not hooks:
            self._settle(waiting)
        for hook in hooks:
            line = self._lines.get((lab, hook)) or _Line()
            if len(line.waiting) == MOST_WAITING:
                self._settle(line.waiting.popleft())
            elif self._waiting[owner] == MOST_OF_OWNER:
                _note("an event is left out", owner, hook, "too many wait")
                self._settle(waiting)
                continue
            else:
                self._waiting[owner] += 1
            self._lines[lab, hook] = line
            line.waiting.append(waiting)
            if not line.busy:
                line.busy = True
                self.tasks.start(self._deliver(lab, hook, line), name=f"webhook of {lab}")

    async def _deliver(self, lab: str, hook: Webhook, line: _Line) -> None:
        try:
            while line.waiting:
                waiting = line.waiting.popleft()
                self._forget(lab, 1)
                await self._surely(lab, hook, waiting.notice)
                self._settle(waiting)
        finally:
            line.busy = False
            self._forget(lab, len(line.waiting))
            self._lines.pop((lab, hook), None)

    def _settle(self, waiting: _Waiting) -> None:
        """One hook has got it, or does not get it."""
        waiting.left -= 1
        if waiting.left <= 0:
            self._over.append(waiting.notice.id)
            if len(self._over) == 1:
                self.tasks.start(self._forget_over(), name="forget what webhooks have got")

    async def _forget_over(self) -> None:
        """Many of them together."""
        while self._over:
            ids = self._over[:MOST_WAITING]
            try:
                await self.forget(ids)
            except NospoonError as error:  # they come again, with the same id
                log.warning("events that arrived are kept", why=str(error))
            del self._over[: len(ids)]

    def _forget(self, lab: str, events: int) -> None:
        """So many wait no more."""
        owner = _owner(lab)
        self._waiting[owner] -= events
        if self._waiting[owner] <= 0:
            del self._waiting[owner]

    async def _surely(self, lab: str, hook: Webhook, notice: Notice) -> None:
        owner, body = _owner(lab), notice.body.encode()
        headers = [
            ("Content-Type", "application/json"),
            (SIGNATURE, signature(hook.secret, body)),
            (DELIVERY, notice.id),
        ]
        for pause in (*self.pauses, None):
            if not self.has(lab, hook):
                return
            try:
                async with self._places[owner]:
                    answer = await request(
                        "POST", hook.url, body, headers=headers, verify=True, patience=SECONDS,
                        reach=replace(self.reach, owner=owner), most=MOST_ANSWER,
                    )  # fmt: skip
                if answer.status < ACCEPTED:
                    return
                why = f"HTTP {answer.status}"
            except NospoonError as error:
                why = str(error)
            if pause is None:
                _note("an event is not delivered", owner, hook, why)
                return
            await asyncio.sleep(pause)


def _owner(lab: str) -> OwnerId:
    """The user of a lab, by its key."""
    return int(lab.partition(":")[0])


def _note(what: str, owner: OwnerId, hook: Webhook, why: str) -> None:
    log.warning(what, of=str(owner), url=without_account(hook.url), why=why)
