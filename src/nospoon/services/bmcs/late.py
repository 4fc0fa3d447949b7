"""Datagrams that an injected fault delays.

They wait in memory for as long as the fault says, an hour perhaps, and a user who changes that
meanwhile has all of them come due at one moment. So few of a BMC wait, and few of an owner, and
what is due takes turns with what comes (`Received`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from nospoon.model.principal import OwnerId
from nospoon.runtime.received import Received

if TYPE_CHECKING:
    from nospoon.bmc.faults import Faults
    from nospoon.services.bmcs.served import Served

OF_BMC, OF_OWNER = 64, 4096
"""Datagrams that wait; further ones are lost, as in a BMC whose buffer is full."""


@dataclass(slots=True)
class _Waiting:
    """`amount`: datagrams of a BMC that wait because of these faults."""

    faults: Faults | None
    amount: int = 0


class LateDatagrams:
    """Those of all BMCs. `together`: with what they take turns; `of_owner`: see `OF_OWNER`."""

    def __init__(self, together: Received, *, of_owner: int = OF_OWNER) -> None:
        self._together, self._most = together, of_owner
        self._of_bmc: dict[UUID, _Waiting] = {}
        self._of_owner = Counter[OwnerId]()

    def put(self, served: Served, seconds: float, take: Callable[[], None]) -> None:
        """Call `take` so many seconds later, unless too many wait."""
        machine, owner = served.bmc.uuid, served.config.owner
        waiting = self._of_bmc.get(machine)
        if waiting is None or waiting.faults is not served.faults:  # what waited before is lost
            waiting = self._of_bmc[machine] = _Waiting(served.faults)
        if waiting.amount >= OF_BMC or self._of_owner[owner] >= self._most:
            return
        waiting.amount += 1
        self._of_owner[owner] += 1

        def step() -> bool:
            self._ended(machine, owner, waiting)
            take()
            return False

        asyncio.get_running_loop().call_later(seconds, self._together.put, owner, step)

    def _ended(self, machine: UUID, owner: OwnerId, waiting: _Waiting) -> None:
        waiting.amount -= 1
        if not waiting.amount and self._of_bmc.get(machine) is waiting:
            del self._of_bmc[machine]
        self._of_owner[owner] -= 1
        if not self._of_owner[owner]:
            del self._of_owner[owner]
