"""A BMC that restarts: who asked is answered, all are logged out, and the machine goes on."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.log import Kind
from nospoon.bmc.messages import (
    Answer,
    Append,
    Defaults,
    EndSessions,
    MachineReported,
    OverrideRequested,
    RestartRequested,
    SettingsRequested,
    Verdict,
)
from nospoon.bmc.runtime import OutletSettings, Settings
from nospoon.bmc.users import User
from nospoon.model.boot import BootDevice, BootOverride, OverrideEnabled
from nospoon.model.machine import MachineChange, MachineEvent, PowerPolicy, PowerState

USER = User(id=3, name="joe", password="secret", privilege=4)
OUTLET = OutletSettings(reboot=9, name="rack")
SET = Settings(policy=PowerPolicy.ALWAYS_OFF, asset_tag="x", users=(USER,), kg="00ff",
               outlet=OUTLET)  # fmt: skip


def bmc() -> Bmc:
    made = Bmc(order=(BootDevice.DISK,), script=False, restart_seconds=3)
    seen = MachineEvent(UUID(int=1), MachineChange.OBSERVED, PowerState.ON, "")
    list(made.receive(MachineReported(seen), 0.0))
    return made


def test_who_asked_is_answered_before_all_are_logged_out() -> None:
    made = bmc()
    told = list(made.receive(RestartRequested(7), 10.0))
    assert [type(each) for each in told] == [Append, Answer, EndSessions]
    assert told[1] == Answer(7, Verdict.DONE)
    assert made.log.records[-1].kind is Kind.BMC_RESTARTED


def test_it_answers_nobody_for_as_long_as_the_restart_takes() -> None:
    made = bmc()
    list(made.receive(RestartRequested(7), 10.0))
    assert (made.answers, made.deadline) == (False, 13.0)
    list(made.expire(12.9))
    still = made.answers
    list(made.expire(13.0))
    assert (still, made.answers, made.deadline) == (False, True, None)


def test_the_machine_and_what_is_set_go_on() -> None:
    made = bmc()
    list(made.receive(SettingsRequested(SET), 1.0))
    list(made.receive(RestartRequested(7), 10.0))
    assert made.power is PowerState.ON
    assert made.runtime.settings == SET


def test_defaults_forget_what_clients_set_but_not_the_outlet() -> None:
    made = bmc()
    list(made.receive(SettingsRequested(SET), 1.0))
    cd = BootOverride(BootDevice.CDROM, OverrideEnabled.CONTINUOUS)
    list(made.receive(OverrideRequested(cd), 2.0))
    list(made.receive(RestartRequested(7, Defaults.ALL), 10.0))
    assert made.runtime.settings == Settings(outlet=OUTLET)
    assert not made.runtime.override.active


def test_defaults_may_leave_users_and_their_key() -> None:
    made = bmc()
    list(made.receive(SettingsRequested(SET), 1.0))
    list(made.receive(RestartRequested(7, Defaults.BUT_USERS), 10.0))
    wanted = Settings(users=(USER,), kg="00ff", outlet=OUTLET)
    assert made.runtime.settings == replace(wanted)
