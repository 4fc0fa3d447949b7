"""Systems as clients ask for them: again and again, to see whether a machine is on."""

from __future__ import annotations

from starlette.responses import Response

from nospoon.services.bmcs.redfish.http.answers import check_tag, tagged_json
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.messages.encoding import JSON, tag_of
from nospoon.services.bmcs.redfish.messages.metadata import odata_type
from nospoon.services.bmcs.redfish.resources.actions import patch_system
from nospoon.services.bmcs.redfish.resources.resources import system
from nospoon.services.bmcs.served import Served, Shown


async def get_system(exchange: Exchange) -> Response:
    return _answer(exchange, exchange.served())


async def change_system(exchange: Exchange) -> Response:
    """What was made for who looked before is compared, and the answer is for who looks next."""
    served = exchange.served()
    check_tag(exchange, lambda: as_json(served).tag)
    await patch_system(exchange.service, served, await exchange.body())
    return _answer(exchange, served)


def _answer(exchange: Exchange, served: Served) -> Response:
    found = as_json(served)
    return tagged_json(exchange, found.data, found.tag, odata_type("ComputerSystem"))


def as_json(served: Served) -> Shown:
    """A System, which is made again when something has changed of what it is made of."""
    now = _made_of(served)
    if served.system is None or served.system.of != now:
        data = JSON.encode(system(served))
        served.system = Shown(now, data, tag_of(data))
    return served.system


def _made_of(served: Served) -> tuple[object, ...]:
    """All that `system` reads: values that are replaced when they change, which are compared at
    once where they are the same.
    """
    aggregate = served.aggregate
    return (
        served.config, aggregate.runtime, aggregate.power, aggregate.fault, aggregate.identify,
        aggregate.boot_order, aggregate.state.inventory, served.smbios,
    )  # fmt: skip
