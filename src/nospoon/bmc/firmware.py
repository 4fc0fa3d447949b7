"""What waits for the next boot of a machine, and what holds since the last one: a settings resource
is applied by a boot (DSP0266, settings resources).
"""

from __future__ import annotations

from dataclasses import replace

from nospoon.bmc.bios import DEFAULTS, RECOVERY, Bios, Value
from nospoon.bmc.runtime import PowerPolicy, Runtime
from nospoon.bmc.software import Component, restarted

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
    return {**DEFAULTS, **dict(runtime.bios.values), RECOVERY: recovery}


def with_pending(runtime: Runtime, changes: dict[str, Value]) -> Bios:
    """After a client set these, besides those that wait already; what is so needs no waiting."""
    bios = runtime.bios
    base = DEFAULTS if bios.to_defaults else in_force(runtime)
    asked = {**dict(bios.pending), **changes}
    pending = tuple((name, value) for name, value in asked.items() if base[name] != value)
    return replace(bios, pending=pending)


def with_defaults(runtime: Runtime) -> Bios:
    """After Bios.ResetBios: what waited is forgotten, the next boot begins with all defaults."""
    return replace(runtime.bios, pending=(), to_defaults=in_force(runtime) != DEFAULTS)


def booted(runtime: Runtime, at: float) -> Runtime:
    """After a boot at this time, in Unix seconds: what waited is in force."""
    if runtime.software.waiting:
        runtime = replace(runtime, software=restarted(runtime.software, Component.BIOS))
    return _applied(runtime, at) if runtime.bios.waits else runtime


def _applied(runtime: Runtime, at: float) -> Runtime:
    bios = runtime.bios
    before = DEFAULTS if bios.to_defaults else in_force(runtime)
    now = {**before, **dict(bios.pending)}
    policy = POLICIES[str(now.pop(RECOVERY))]
    values = tuple((name, value) for name, value in now.items() if DEFAULTS[name] != value)
    settings = runtime.settings
    if settings.policy is not policy:
        settings = replace(settings, policy=policy)
    return replace(runtime, bios=Bios(values=values, applied=at), settings=settings)
