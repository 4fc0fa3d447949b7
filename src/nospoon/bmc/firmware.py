"""What waits for the next boot of a machine, and what holds since the last one: a settings resource
is applied by a boot (DSP0266, settings resources).
"""

from __future__ import annotations

from dataclasses import replace

from nospoon.bmc import bios
from nospoon.bmc.bios import RECOVERY, Bios, Value
from nospoon.bmc.runtime import Runtime
from nospoon.bmc.software import Component, restarted
from nospoon.model.machine import PowerPolicy

POLICIES = {
    "On": PowerPolicy.ALWAYS_ON,
    "Last": PowerPolicy.PREVIOUS,
    "Off": PowerPolicy.ALWAYS_OFF,
}
"""Attribute AcPowerRecovery is the power restore policy of IPMI, in other words."""
_RECOVERIES = {policy: name for name, policy in POLICIES.items()}


def in_force(runtime: Runtime) -> dict[str, Value]:
    """Every attribute that can be set, with what it is now."""
    recovery = _RECOVERIES[runtime.settings.policy]
    return {**bios.DEFAULTS, **dict(runtime.bios.values), RECOVERY: recovery}


def defaults(runtime: Runtime) -> dict[str, Value]:
    """Every attribute that can be set, as a reset makes it."""
    return {**bios.DEFAULTS, RECOVERY: _RECOVERIES[runtime.filed_policy]}


def with_pending(runtime: Runtime, changes: dict[str, Value]) -> Bios:
    """After a client set these, besides those that wait already; what is so needs no waiting."""
    before = runtime.bios
    base = defaults(runtime) if before.to_defaults else in_force(runtime)
    asked = {**dict(before.pending), **changes}
    pending = tuple((name, value) for name, value in asked.items() if base[name] != value)
    return replace(before, pending=pending)


def with_defaults(runtime: Runtime) -> Bios:
    """After Bios.ResetBios: what waited is forgotten, the next boot begins with all defaults."""
    return replace(runtime.bios, pending=(), to_defaults=in_force(runtime) != defaults(runtime))


def booted(runtime: Runtime, at: float) -> Runtime:
    """After a boot at this time, in Unix seconds: what waited is in force."""
    if runtime.software.waiting:
        runtime = replace(runtime, software=restarted(runtime.software, Component.BIOS))
    return _applied(runtime, at) if runtime.bios.waits else runtime


def _applied(runtime: Runtime, at: float) -> Runtime:
    waited = runtime.bios
    before = defaults(runtime) if waited.to_defaults else in_force(runtime)
    now = {**before, **dict(waited.pending)}
    policy = POLICIES[str(now.pop(RECOVERY))]
    values = tuple((name, value) for name, value in now.items() if bios.DEFAULTS[name] != value)
    settings = runtime.settings
    if settings.policy is not policy:
        settings = replace(settings, policy=policy)
    return replace(runtime, bios=Bios(values=values, applied=at), settings=settings)
