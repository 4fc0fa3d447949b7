"""What a system and its chassis share: whether it is on, its light and its asset tag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from nospoon.bmc import octets
from nospoon.bmc.messages import IdentifyRequested, SettingsRequested
from nospoon.model.machine import PowerPolicy, PowerState
from nospoon.services.bmcs.redfish.messages import errors

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served

POWER_STATES: Mapping[PowerState, str | None] = {
    PowerState.ON: "On",
    PowerState.FAILED: "On",
    PowerState.OFF: "Off",
    PowerState.ABSENT: "Off",
    PowerState.UNKNOWN: None,
}
"""Of a machine whose host does not answer nothing is known: null, not "Off"."""
POLICIES: Mapping[PowerPolicy, str] = {
    PowerPolicy.ALWAYS_ON: "AlwaysOn",
    PowerPolicy.ALWAYS_OFF: "AlwaysOff",
    PowerPolicy.PREVIOUS: "LastState",
}
"""PowerRestorePolicy: that of IPMI (§28.8)."""
POLICY, _TAG = "PowerRestorePolicy", "AssetTag"
LIGHTS = ("IndicatorLED", "LocationIndicatorActive")
INDICATORS = ("Lit", "Off")
LONGEST_TAG = 63


def light(served: Served) -> dict[str, object]:
    """The same light by its two names: the first is deprecated, and what older clients know."""
    return {
        "IndicatorLED": "Lit" if served.aggregate.identify else "Off",
        "IndicatorLED@Redfish.AllowableValues": list(INDICATORS),
        "LocationIndicatorActive": served.aggregate.identify,
    }


def asset_tag(served: Served) -> str | None:
    return octets.shown(served.aggregate.runtime.settings.asset_tag) or None


def changed_settings(served: Served, body: Mapping[str, object]) -> Iterator[SettingsRequested]:
    """Nothing when this body has nothing of them. The policy is a system's alone."""
    before = after = served.aggregate.runtime.settings
    if POLICY in body:
        after = replace(after, policy=_policy(body[POLICY]))
    if _TAG in body:
        after = replace(after, asset_tag=_tag(body[_TAG]))
    if after is not before:
        yield SettingsRequested(after)


def _policy(name: object) -> PowerPolicy:
    if not isinstance(name, str):
        raise errors.wrong_type(POLICY, name)
    if name not in POLICIES.values():
        raise errors.not_in_list(POLICY, name, tuple(POLICIES.values()))
    return next(each for each, told in POLICIES.items() if told == name)


def _tag(tag: object) -> str:
    """DCMI has room for 63 bytes of it (DCMI 1.5 §6.4.3); null is none."""
    if tag is None:
        return ""
    if not isinstance(tag, str):
        raise errors.wrong_type(_TAG, tag)
    if not tag.isprintable():  # which half a surrogate pair is not either
        raise errors.wrong_format(_TAG, tag, "printable characters")
    if len(tag.encode()) > LONGEST_TAG:
        raise errors.too_long(_TAG, tag, LONGEST_TAG)
    return tag


def changed_light(body: Mapping[str, object]) -> Iterator[IdentifyRequested]:
    lit = _lit(body)
    if lit is not None:
        yield IdentifyRequested(lit)


def _lit(body: Mapping[str, object]) -> bool | None:
    if "LocationIndicatorActive" in body:
        active = body["LocationIndicatorActive"]
        if not isinstance(active, bool):
            raise errors.wrong_type("LocationIndicatorActive", active)
        return active
    if "IndicatorLED" in body:
        led = body["IndicatorLED"]
        if led not in INDICATORS:
            raise errors.not_in_list("IndicatorLED", led, INDICATORS)
        return bool(led == "Lit")
    return None
