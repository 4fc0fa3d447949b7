"""Settings of firmware: what is allowed, and that a boot applies what waits."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import msgspec
import pytest

from nospoon.bmc import firmware
from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.bios import ATTRIBUTES, DEFAULTS, Bios, Problem, problem
from nospoon.bmc.messages import (
    BiosRequested,
    CommandEnded,
    Event,
    MachineReported,
    PowerRequested,
    Verdict,
)
from nospoon.bmc.runtime import Runtime
from nospoon.model.boot import BootDevice
from nospoon.model.machine import MachineChange, MachineEvent, PowerCommand, PowerPolicy, PowerState

EPOCH = 1_000_000.0


def bmc(power: PowerState = PowerState.OFF) -> Bmc:
    made = Bmc(order=(BootDevice.DISK,), script=False)
    made.state.epoch = EPOCH
    tell(made, MachineChange.OBSERVED, power)
    return made


def feed(made: Bmc, event: Event, now: float = 5.0) -> list[object]:
    return list(made.receive(event, now))


def tell(made: Bmc, change: MachineChange, power: PowerState) -> list[object]:
    return feed(made, MachineReported(MachineEvent(UUID(int=1), change, power, "")))


def ask(made: Bmc, **changes: str | int) -> None:
    after = firmware.with_pending(made.runtime, dict(changes))
    feed(made, BiosRequested(after, 1))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("NumLock", "Off", None),
        ("NumLock", "off", Problem.NOT_IN_LIST),
        ("NumLock", 1, Problem.WRONG_TYPE),
        ("BootMode", "Bios", Problem.READ_ONLY),
        ("Turbo", "On", Problem.UNKNOWN),
        ("BootTimeout", 0, None),
        ("BootTimeout", 600, None),
        ("BootTimeout", 601, Problem.OUT_OF_RANGE),
        ("BootTimeout", -1, Problem.OUT_OF_RANGE),
        ("BootTimeout", True, Problem.WRONG_TYPE),
        ("BootTimeout", "5", Problem.WRONG_TYPE),
        ("AdminContact", "x" * 64, None),
        ("AdminContact", "x" * 65, Problem.TOO_LONG),
        ("AdminContact", None, Problem.WRONG_TYPE),
    ],
)
def test_the_registry_says_what_a_value_may_be(
    name: str, value: object, expected: Problem | None
) -> None:
    assert problem(name, value) is expected


def test_defaults_are_what_the_registry_allows() -> None:
    settable = [each for each in ATTRIBUTES if not each.read_only]
    assert [problem(each.name, each.default) for each in settable] == [None] * len(settable)


def test_what_waits_is_in_force_after_a_power_on() -> None:
    made = bmc()
    ask(made, NumLock="Off", BootTimeout=9)
    assert firmware.in_force(made.runtime) == DEFAULTS
    feed(made, PowerRequested(PowerCommand.ON, 2))
    assert firmware.in_force(made.runtime) == DEFAULTS, "nothing has booted yet"
    feed(made, CommandEnded(Verdict.DONE))
    assert firmware.in_force(made.runtime) == {**DEFAULTS, "NumLock": "Off", "BootTimeout": 9}
    assert made.runtime.bios.pending == ()
    assert made.runtime.bios.applied == EPOCH + 5


def test_a_reboot_by_the_guest_applies_what_waits() -> None:
    made = bmc(PowerState.ON)
    ask(made, QuietBoot="Enabled")
    tell(made, MachineChange.RESET, PowerState.ON)
    assert firmware.in_force(made.runtime)["QuietBoot"] == "Enabled"


def test_a_boot_with_nothing_waiting_changes_nothing() -> None:
    made = bmc(PowerState.ON)
    before = made.runtime.bios
    tell(made, MachineChange.RESET, PowerState.ON)
    assert made.runtime.bios is before


def test_power_recovery_is_the_power_restore_policy() -> None:
    made = bmc(PowerState.ON)
    ask(made, AcPowerRecovery="On")
    policies = [made.runtime.settings.policy]
    tell(made, MachineChange.RESET, PowerState.ON)
    policies.append(made.runtime.settings.policy)
    assert policies == [PowerPolicy.PREVIOUS, PowerPolicy.ALWAYS_ON]
    assert firmware.in_force(made.runtime)["AcPowerRecovery"] == "On"


def test_what_is_so_already_does_not_wait() -> None:
    made = bmc()
    ask(made, NumLock="Off")
    ask(made, NumLock="On")
    assert made.runtime.bios.pending == ()


def test_a_reset_to_defaults_forgets_what_waits_and_begins_the_next_boot_with_defaults() -> None:
    made = bmc(PowerState.ON)
    ask(made, NumLock="Off", AcPowerRecovery="Off")
    tell(made, MachineChange.RESET, PowerState.ON)
    ask(made, QuietBoot="Enabled")
    feed(made, BiosRequested(firmware.with_defaults(made.runtime), 3))
    assert (made.runtime.bios.pending, made.runtime.bios.to_defaults) == ((), True)
    ask(made, NumLock="Off")
    tell(made, MachineChange.RESET, PowerState.ON)
    assert firmware.in_force(made.runtime) == {**DEFAULTS, "NumLock": "Off"}
    assert made.runtime.settings.policy is PowerPolicy.PREVIOUS
    assert not made.runtime.bios.to_defaults


def test_settings_survive_the_store() -> None:
    bios = Bios(values=(("BootTimeout", 9),), pending=(("NumLock", "Off"),), applied=3.5)
    runtime = replace(Runtime(), bios=bios)
    stored = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(runtime)))
    assert msgspec.convert(stored, Runtime) == runtime


def test_state_of_an_earlier_version_has_defaults() -> None:
    assert msgspec.convert({}, Runtime).bios == Bios()
