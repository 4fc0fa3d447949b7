"""Webhooks of labs: each event of a recipe set is sent to the URLs that the lab's file names.

An HTTP POST of JSON, signed with HMAC-SHA256 of its body by the hook's secret, as GitHub's are
(`X-Nospoon-Signature: sha256=DIGITS`). What is not accepted with a status below 300 is sent again,
later each time; then it is left out, for the stream of events has it as well.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import uuid4

import structlog

from nospoon.errors import NospoonError
from nospoon.model.lab import Webhook
from nospoon.runtime.http import request
from nospoon.runtime.reach import Reach
from nospoon.runtime.tasks import Tasks

log = structlog.get_logger()
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
SIGNATURE, DELIVERY = "X-Nospoon-Signature", "X-Nospoon-Delivery"


def signature(secret: str, body: bytes) -> str:
    """What a receiver compares, in constant time."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


@dataclass(slots=True)
class _Line:
    waiting: deque[bytes] = field(default_factory=deque)
    busy: bool = False


@dataclass(slots=True)
class Webhooks:
    """`reach`: where a file's URLs may lead. `pauses`: see `PAUSES`."""

    tasks: Tasks
    reach: Reach
    pauses: tuple[float, ...] = PAUSES
    _lines: dict[tuple[str, Webhook], _Line] = field(default_factory=dict)
    _waiting: Counter[str] = field(default_factory=Counter)
    _places: defaultdict[str, asyncio.Semaphore] = field(
        default_factory=lambda: defaultdict(lambda: asyncio.Semaphore(AT_ONCE))
    )

    def send(self, lab: str, hooks: tuple[Webhook, ...], event: Mapping[str, object]) -> None:
        """Deliver an event in the order of events; `lab`: its key."""
        body, owner = json.dumps(event).encode(), _owner(lab)
        for hook in hooks:
            line = self._lines.get((lab, hook)) or _Line()
            if len(line.waiting) == MOST_WAITING:
                line.waiting.popleft()
            elif self._waiting[owner] == MOST_OF_OWNER:
                log.warning("an event is left out", url=hook.url, why="too many wait")
                continue
            else:
                self._waiting[owner] += 1
            self._lines[lab, hook] = line
            line.waiting.append(body)
            if not line.busy:
                line.busy = True
                self.tasks.start(self._deliver(lab, hook, line), name=f"webhook of {lab}")

    async def _deliver(self, lab: str, hook: Webhook, line: _Line) -> None:
        try:
            while line.waiting:
                body = line.waiting.popleft()
                self._forget(lab, 1)
                await self._surely(_owner(lab), hook, body)
        finally:
            line.busy = False
            self._forget(lab, len(line.waiting))
            self._lines.pop((lab, hook), None)

    def _forget(self, lab: str, events: int) -> None:
        """So many wait no more."""
        owner = _owner(lab)
        self._waiting[owner] -= events
        if self._waiting[owner] <= 0:
            del self._waiting[owner]

    async def _surely(self, owner: str, hook: Webhook, body: bytes) -> None:
        headers = [
            ("Content-Type", "application/json"),
            (SIGNATURE, signature(hook.secret, body)),
            (DELIVERY, str(uuid4())),
        ]
        for pause in (*self.pauses, None):
            try:
                async with self._places[owner]:
                    answer = await request(
                        "POST", hook.url, body, headers=headers, verify=True, patience=SECONDS,
                        reach=self.reach, most=MOST_ANSWER,
                    )  # fmt: skip
                if answer.status < ACCEPTED:
                    return
                why = f"HTTP {answer.status}"
            except NospoonError as error:
                why = str(error)
            if pause is None:
                log.warning("an event is not delivered", url=hook.url, why=why)
                return
            await asyncio.sleep(pause)


def _owner(lab: str) -> str:
    """The user of a lab, by its key."""
    return lab.partition(":")[0]
