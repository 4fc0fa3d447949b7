"""What Redfish clients may change: the boot override, the indicator, and power."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from nospoon.bmc.messages import (
    Answer,
    BootOrderRequested,
    HttpBootUriRequested,
    IdentifyRequested,
    OverrideRequested,
    PowerRequested,
    RestartRequested,
    SettingsRequested,
    Verdict,
)
from nospoon.model.boot import NO_OVERRIDE, BootDevice, BootMode, BootOverride, OverrideEnabled
from nospoon.model.machine import PowerPolicy
from nospoon.services.bmcs.redfish.http.answers import CLOCK
from nospoon.services.bmcs.redfish.http.parameters import Action, Parameter
from nospoon.services.bmcs.redfish.messages import errors, uris
from nospoon.services.bmcs.redfish.resources import resources as shown

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
_TARGET, _ENABLED, _MODE = (
    "BootSourceOverrideTarget",
    "BootSourceOverrideEnabled",
    "BootSourceOverrideMode",
)
_URI = "HttpBootUri"
_POLICY = "PowerRestorePolicy"
LIGHTS = ("IndicatorLED", "LocationIndicatorActive")
LONGEST_TAG = 63
EPOCH, LATEST = datetime.fromtimestamp(0, UTC), 0xFFFFFFFE
RESET = Action("ComputerSystem.Reset", (Parameter("ResetType", allowed=tuple(shown.RESET_TYPES)),))
RESET_MANAGER = Action("Manager.Reset", (Parameter("ResetType", allowed=shown.MANAGER_RESETS),))
TO_DEFAULTS = Action(
    "Manager.ResetToDefaults",
    (Parameter("ResetType", required=True, allowed=tuple(shown.MANAGER_DEFAULTS)),),
)
_ORDER = "BootOrder"
_OVERRIDE = frozenset({_TARGET, _ENABLED, _MODE})
_BOOT = frozenset({*_OVERRIDE, _URI, _ORDER})

_BootChange = HttpBootUriRequested | BootOrderRequested | OverrideRequested
_Change = _BootChange | SettingsRequested | IdentifyRequested


def done(answer: Answer) -> None:
    """Raises `RedfishError` for an answer that is not good."""
    if answer.verdict in STATUSES:
        status = STATUSES[answer.verdict]
        if answer.verdict is Verdict.WRONG_STATE:
            raise errors.in_standby(answer.reason)
        headers = {"Retry-After": RETRY_AFTER} if status == 503 else None
        raise errors.general(status, answer.reason or str(answer.verdict), headers=headers)


async def reset_system(service: Service, served: Served, body: dict[str, object]) -> None:
    """ComputerSystem.Reset; without a ResetType it is a restart (DSP0268)."""
    kind = RESET.read(body).text("ResetType", "ForceRestart")
    asked = PowerRequested(
        shown.RESET_TYPES[kind], restart=kind in shown.RESTARTS, turns_on=kind in shown.TURN_ON
    )
    done(await service.ask(served, lambda ticket: replace(asked, ticket=ticket)))


async def reset_manager(service: Service, served: Served, body: dict[str, object]) -> None:
    """Manager.Reset: the BMC restarts, its machine goes on."""
    RESET_MANAGER.read(body)
    done(await service.ask(served, RestartRequested))


async def reset_to_defaults(service: Service, served: Served, body: dict[str, object]) -> None:
    """Manager.ResetToDefaults: settings are as they were made, and the BMC restarts."""
    defaults = shown.MANAGER_DEFAULTS[TO_DEFAULTS.read(body).text("ResetType")]
    done(await service.ask(served, lambda ticket: RestartRequested(ticket, defaults)))


async def patch_system(service: Service, served: Served, body: Mapping[str, object]) -> None:
    """Check everything first, then change."""
    refuse_others(body, (*LIGHTS, "Boot", "AssetTag", _POLICY), partial(shown.system, served))
    await _change(service, served, [*_boot(served, body), *_settings(served, body), *_light(body)])


async def patch_manager(
    service: Service, served: Served, body: dict[str, object], known: Mapping[str, object]
) -> None:
    """`known`: how it looks. Its clock is that of the SEL (IPMI 2.0 §31.11), which has room for a
    time until 2106.
    """
    refuse_others(body, (CLOCK,), lambda: known)
    if CLOCK not in body:
        return
    settings = served.aggregate.runtime.settings
    ahead = _time(body[CLOCK]) - served.aggregate.state.clock(served.now())
    after = replace(settings, clock_offset=settings.clock_offset + ahead)
    await _change(service, served, [SettingsRequested(after)])


def _time(value: object) -> float:
    """Unix seconds of a date and time with its offset (RFC 3339)."""
    if not isinstance(value, str):
        raise errors.wrong_type(CLOCK, value)
    wrong = errors.wrong_format(CLOCK, value, "a date and time with its offset (RFC 3339)")
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise wrong from None
    if found.tzinfo is None:
        raise wrong
    unix = (found - EPOCH).total_seconds()
    if not 0 <= unix <= LATEST:
        raise errors.out_of_range(CLOCK, value)
    return unix


async def _change(service: Service, served: Served, wanted: Iterable[_Change]) -> None:
    """All in one step, so that nobody else's change is lost; durable when this returns."""

    def asked(event: _Change) -> asyncio.Future[Answer]:
        return service.ask(served, lambda ticket: replace(event, ticket=ticket))

    for answer in await asyncio.gather(*map(asked, wanted)):
        done(answer)


async def patch_chassis(service: Service, served: Served, body: dict[str, object]) -> None:
    """Its light and its tag are those of its system."""
    refuse_others(body, (*LIGHTS, "AssetTag"), partial(shown.chassis, served))
    await _change(service, served, [*_settings(served, body), *_light(body)])


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


_KNOWN = frozenset({"Actions", "Id", "Links", "Name", "Status"})
"""What most resources have."""


def _settings(served: Served, body: Mapping[str, object]) -> Iterator[SettingsRequested]:
    """Nothing when this body has nothing of them."""
    before = after = served.aggregate.runtime.settings
    if _POLICY in body:
        after = replace(after, policy=_policy(body[_POLICY]))
    if "AssetTag" in body:
        after = replace(after, asset_tag=_asset_tag(body["AssetTag"]))
    if after is not before:
        yield SettingsRequested(after)


def _policy(name: object) -> PowerPolicy:
    if not isinstance(name, str):
        raise errors.wrong_type(_POLICY, name)
    if name not in shown.POLICIES.values():
        raise errors.not_in_list(_POLICY, name, tuple(shown.POLICIES.values()))
    return next(each for each, told in shown.POLICIES.items() if told == name)


def _asset_tag(tag: object) -> str:
    """DCMI has room for 63 bytes of it (DCMI 1.5 §6.4.3); null is none."""
    if tag is None:
        return ""
    if not isinstance(tag, str):
        raise errors.wrong_type("AssetTag", tag)
    if not tag.isprintable():  # which half a surrogate pair is not either
        raise errors.wrong_format("AssetTag", tag, "printable characters")
    if len(tag.encode()) > LONGEST_TAG:
        raise errors.too_long("AssetTag", tag, LONGEST_TAG)
    return tag


def _light(body: Mapping[str, object]) -> Iterator[IdentifyRequested]:
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
        if led not in shown.INDICATORS:
            raise errors.not_in_list("IndicatorLED", led, shown.INDICATORS)
        return bool(led == "Lit")
    return None


def _boot(served: Served, body: Mapping[str, object]) -> Iterator[_BootChange]:
    boot = body.get("Boot", {})
    if not isinstance(boot, dict):
        raise errors.wrong_type("Boot", boot)
    for name in boot.keys() - _BOOT:
        known = name == "BootOptions"
        raise (errors.read_only if known else errors.unknown_property)(f"Boot/{name}")
    if _URI in boot:
        uri = _http_boot_uri(boot[_URI])
        if not uri or uri != shown.http_boot_uri(served):  # as it is shown: it stays
            yield HttpBootUriRequested(uri)
    if _ORDER in boot:
        yield BootOrderRequested(_order(served, boot[_ORDER]))
    if boot.keys() & _OVERRIDE:
        yield OverrideRequested(_override(served, boot))


def _http_boot_uri(given: object) -> str:
    """null takes it away."""
    uri = given if given is not None else ""
    if not isinstance(uri, str):
        raise errors.wrong_type(f"Boot/{_URI}", uri)
    if uri and not uris.is_web(uri):
        raise errors.wrong_format(f"Boot/{_URI}", uri, uris.SHAPE)
    return uri


def _order(served: Served, given: object) -> tuple[BootDevice, ...]:
    """Every boot option once."""
    options = {shown.boot_reference(each): each for each in served.aggregate.boot_order}
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise errors.wrong_type(f"Boot/{_ORDER}", given)
    for each in given:
        if each not in options:
            raise errors.not_in_list(f"Boot/{_ORDER}", each, tuple(options))
    if sorted(given) != sorted(options):
        expected = f"each of {', '.join(options)} once"
        raise errors.wrong_format(f"Boot/{_ORDER}", given, expected)
    return tuple(options[each] for each in given)


def _override(served: Served, boot: Mapping[str, object]) -> BootOverride:
    """The override after this PATCH; what it leaves out stays as it is."""
    now = served.override
    target_name = _choice(boot, _TARGET, tuple(shown.TARGETS), shown.TARGET_NAMES[now.target])
    enabled_name = _choice(boot, _ENABLED, shown.ENABLED, _enabled_default(boot, now))
    mode = BootMode(_choice(boot, _MODE, shown.modes(served), shown.mode_of(served)))
    target, enabled = shown.TARGETS[target_name], OverrideEnabled(enabled_name)
    if target is None or enabled is OverrideEnabled.DISABLED:
        return NO_OVERRIDE
    return BootOverride(target, enabled, mode)


def _enabled_default(boot: Mapping[str, object], now: BootOverride) -> str:
    """A target alone means once, where nothing else was said before."""
    if now.enabled is OverrideEnabled.DISABLED and _TARGET in boot:
        return str(OverrideEnabled.ONCE)
    return str(now.enabled)


def _choice(boot: Mapping[str, object], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = boot.get(name, default)
    if not isinstance(value, str):
        raise errors.wrong_type(f"Boot/{name}", value)
    if value not in allowed:
        raise errors.not_in_list(f"Boot/{name}", value, allowed)
    return value
