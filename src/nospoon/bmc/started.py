"""A boot was seen, or is sure: what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nospoon.bmc import firmware
from nospoon.bmc.boot import Boot
from nospoon.bmc.log import Kind
from nospoon.bmc.messages import Effect
from nospoon.bmc.power_command import Pending
from nospoon.bmc.restart_cause import CAUSE_SOFT_RESET, CAUSE_UNKNOWN
from nospoon.bmc.state import State
from nospoon.model.boot import BootPlan
from nospoon.model.machine import MachineChange, MachineEvent, PowerCommand


def followed(state: State, boot: Boot, pending: Pending, now: float) -> Iterator[Effect]:
    """The boot that the command causes was seen, or is sure."""
    reset = pending.command is PowerCommand.RESET
    yield from state.record(Kind.RESET if reset else Kind.BOOTED, now)
    yield from _begun(state, now)
    yield from _secured(state, pending.plan)
    yield from boot.followed(pending.edition)


def booted_by_itself(
    state: State, boot: Boot, event: MachineEvent, now: float, *, busy: bool
) -> Iterator[Effect]:
    """The guest did it. `busy`: a command is under way."""
    reset = event.change is MachineChange.RESET
    cause = CAUSE_SOFT_RESET if reset else CAUSE_UNKNOWN
    yield from state.persist(replace(state.runtime, restart_cause=cause))
    yield from state.record(Kind.REBOOTED if reset else Kind.BOOTED, now)
    yield from _begun(state, now)
    yield from boot.booted_by_itself(event.told, busy=busy)


def _secured(state: State, told: BootPlan) -> Iterator[Effect]:
    """The machine started as it was told."""
    runtime = state.runtime
    after = runtime.secure_boot
    if told.secure_boot is not None:
        after = replace(after, current=told.secure_boot)
    if told.reset_keys:
        after = replace(after, reset=False)
    if after != runtime.secure_boot:
        yield from state.persist(replace(runtime, secure_boot=after))


def _begun(state: State, now: float) -> Iterator[Effect]:
    """A boot begins: its firmware applies what waited for it."""
    yield from state.persist(firmware.booted(state.runtime, state.epoch + now))
