"""A System is made again when something of it has changed, and not before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest

from nospoon.bmc.fru import Inventory
from nospoon.bmc.runtime import Settings
from nospoon.bmc.software import Component, Software
from nospoon.model.boot import BootDevice, BootMode, BootOverride, OverrideEnabled
from nospoon.model.machine import PowerPolicy, PowerState
from nospoon.services.bmcs.redfish.messages.encoding import JSON, tag_of
from nospoon.services.bmcs.redfish.resources.systems import as_json, system
from nospoon.services.bmcs.served import Served
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import client, system_of

READ = {
    "served": {"config", "bmc", "smbios", "override", "power_fault", "aggregate"},
    "aggregate": {"power", "runtime", "identify", "boot_order", "state"},
    "state": {"runtime", "inventory"},
}
"""What a System is made of, by who has it: `_made_of` has all of it."""


class Watched:
    """Stands for an object, and notes which of its attributes are looked at."""

    def __init__(self, name: str, real: object, seen: dict[str, set[str]]) -> None:
        self._name, self._real, self._seen = name, real, seen

    def __getattr__(self, name: str) -> object:
        self._seen.setdefault(self._name, set()).add(name)
        found = getattr(self._real, name)
        return Watched(name, found, self._seen) if name in READ else found


def served_of(b: Bench) -> Served:
    served = b.service.status(b.first.bmc.uuid)
    assert served is not None
    return served


def runtime(served: Served, **changes: Any) -> None:
    state = served.aggregate.state
    state.runtime = replace(state.runtime, **changes)


def machine(served: Served, **changes: Any) -> None:
    served.config = replace(served.config, machine=replace(served.config.machine, **changes))


OVERRIDE = BootOverride(BootDevice.NETWORK, OverrideEnabled.ONCE, BootMode.UEFI)
CHANGES: dict[str, Callable[[Served], None]] = {
    "it is off": lambda s: setattr(s.aggregate.state, "power", PowerState.OFF),
    "it is on": lambda s: setattr(s.aggregate.state, "power", PowerState.ON),
    "a fault": lambda s: runtime(s, power_fault="its host is away"),
    "a light": lambda s: runtime(s, identify=True),
    "a policy": lambda s: runtime(s, settings=Settings(policy=PowerPolicy.ALWAYS_ON)),
    "a tag": lambda s: runtime(s, settings=Settings(asset_tag="7")),
    "an override": lambda s: runtime(s, override=OVERRIDE),
    "a URI": lambda s: runtime(s, http_boot_uri="http://192.0.2.1/x"),
    "an order": lambda s: runtime(s, boot_order=(BootDevice.DISK, BootDevice.NETWORK)),
    "an update": lambda s: runtime(s, software=Software(versions=((Component.BIOS, "9"),))),
    "an inventory": lambda s: setattr(
        s.aggregate.state, "inventory", Inventory(firmware="from a new machine")
    ),
    "a UUID of its guest": lambda s: setattr(s, "smbios", UUID(int=7)),
    "memory": lambda s: machine(s, memory=7 << 30),
    "another name": lambda s: setattr(s, "config", replace(s.config, node="another")),
}


@pytest.mark.parametrize("what", CHANGES)
async def test_a_system_is_shown_as_it_is_now(what: str) -> None:
    async with bench(1) as b:
        served, line = served_of(b), client(b.first)
        runtime(served, software=Software(versions=()))
        before = await line.get(system_of(b.first))
        assert as_json(served) is as_json(served), "nothing has changed"
        first = system(served)
        CHANGES[what](served)
        after = await line.get(system_of(b.first))
        now = system(served)
        assert {k: v for k, v in after.json.items() if k != "@odata.etag"} == now
        assert (before.headers["etag"] == after.headers["etag"]) == (first == now)
        assert after.headers["etag"] == tag_of(JSON.encode(now))


async def test_all_that_a_system_is_made_of_is_compared() -> None:
    async with bench(1) as b:
        seen = dict[str, set[str]]()
        system(cast("Served", Watched("served", served_of(b), seen)))
        assert all(names <= READ[name] for name, names in seen.items()), seen


async def test_a_change_makes_the_system_once() -> None:
    async with bench(1) as b:
        served, place = served_of(b), system_of(b.first)
        seen = await client(b.first).get(place)
        before = served.system
        told = {"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}
        stale = await client(b.first).ask("PATCH", place, told, If_Match='"another"')
        assert (stale.status, served.system) == (412, before)
        changed = await client(b.first).ask("PATCH", place, told, If_Match=seen.headers["etag"])
        made = served.system
        assert (changed.status, made is before) == (200, False)
        assert made is not None
        assert changed.headers["etag"] == made.tag
        assert (await client(b.first).get(place)).json == changed.json
        assert served.system is made, "who looks next has that one"
