"""What resources are made of and act on, whichever request comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from nospoon.bmc.messages import Answer, Event
from nospoon.model.resources.bmcs import Bmc
from nospoon.runtime.slices import Slices
from nospoon.runtime.worker import Worker
from nospoon.services.bmcs.accounts import Accounts
from nospoon.services.bmcs.certificates import Certificates
from nospoon.services.bmcs.effects import Effects
from nospoon.services.bmcs.ports import Machines, Media
from nospoon.services.bmcs.redfish.events.events import Events
from nospoon.services.bmcs.redfish.messages.jobs import Jobs
from nospoon.services.bmcs.redfish.messages.listings import Listings
from nospoon.services.bmcs.registry import Registry
from nospoon.services.bmcs.served import Served


class Listeners(Protocol):
    """The sockets at which the service is reached, as far as its resources show and change them."""

    @property
    def accounts(self) -> Accounts: ...

    @property
    def keys(self) -> Worker:
        """In which keys of certificates are made."""

    def certificates(self, bmc: Bmc) -> Certificates | None: ...

    def certificate_owner(self, bmc: Bmc) -> int | None: ...

    def renew_certificate(self, bmc: Bmc) -> None: ...

    def beside(self, bmc: Bmc) -> set[UUID]: ...


@dataclass(slots=True)
class Service:
    """Of all BMCs of the daemon. `media` None: nothing can be inserted."""

    registry: Registry
    effects: Effects
    machines: Machines
    media: Media | None
    jobs: Jobs
    events: Events
    listeners: Listeners
    slices: Slices
    listings: Listings

    def ask(self, served: Served, event: Callable[[int], Event]) -> asyncio.Future[Answer]:
        """As `Effects.ask`."""
        return self.effects.ask(served, event)
