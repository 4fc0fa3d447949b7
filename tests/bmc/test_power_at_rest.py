"""Whatever happens to a BMC and its machine: once nothing is under way, what it tells is so."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.faults import POWER, Fault, Faults
from nospoon.bmc.faults import Kind as FaultKind
from nospoon.bmc.messages import (
    AcLost,
    AcReturned,
    CommandEnded,
    Drive,
    Effect,
    Event,
    FaultsChanged,
    MachineReported,
    PowerRequested,
    Verdict,
)
from nospoon.bmc.runtime import Runtime, Settings
from nospoon.model.boot import BootDevice
from nospoon.model.machine import MachineChange, MachineEvent, PowerCommand, PowerPolicy, PowerState
from nospoon.testing.bench import CLUSTER

ON, OFF = PowerState.ON, PowerState.OFF
_SEEN = {
    PowerCommand.ON: ((MachineChange.STARTED, ON),),
    PowerCommand.OFF: ((MachineChange.STOPPED, OFF),),
    PowerCommand.SOFT: ((MachineChange.SHUTDOWN, OFF),),
    PowerCommand.CYCLE: ((MachineChange.STOPPED, OFF), (MachineChange.STARTED, ON)),
    PowerCommand.RESET: ((MachineChange.RESET, ON),),
    PowerCommand.DIAG: (),
}
"""What a machine goes through, when it was in a state for it."""


@dataclass
class World:
    """A BMC, its machine, and what is on its way between them."""

    policy: PowerPolicy
    now: float = 0.0
    power: PowerState = OFF
    reachable: bool = True
    drives: deque[Drive] = field(default_factory=deque)
    seen: deque[MachineEvent] = field(default_factory=deque)

    def __post_init__(self) -> None:
        settings = Settings(policy=self.policy)
        order = (BootDevice.DISK,)
        self.bmc = Bmc(order=order, script=False, runtime=Runtime(settings=settings))
        self.bmc.state.faults = None
        self.observe()
        self.hear()

    def tell(self, event: Event) -> None:
        self.take(list(self.bmc.receive(event, self.now)))

    def take(self, effects: list[Effect]) -> None:
        self.drives.extend(each for each in effects if isinstance(each, Drive))

    def observe(self) -> None:
        self.happen(MachineChange.OBSERVED, self.power)

    def happen(self, change: MachineChange, power: PowerState) -> None:
        self.power = power
        self.seen.append(MachineEvent(CLUSTER, change, power))

    def reach(self, *, reachable: bool) -> None:
        """The machine's host goes away, or comes back."""
        self.reachable = reachable
        if reachable:
            self.observe()
        else:
            gone = MachineEvent(CLUSTER, MachineChange.UNREACHABLE, PowerState.UNKNOWN)
            self.seen.append(gone)

    def hear(self) -> None:
        """The next event of the machine arrives."""
        if self.seen:
            self.tell(MachineReported(self.seen.popleft()))

    def drive(self) -> None:
        """The next command is carried out, or a fault strikes; its outcome arrives at once."""
        if not self.drives:
            return
        drive, faults = self.drives.popleft(), self.bmc.state.faults
        struck = faults.strike(POWER, now=self.now, chance=0.0) if faults is not None else None
        if struck is None or drive.unplugs:
            self.carry_out(drive.command)
        elif struck.kind is FaultKind.POWER_LIES:
            self.tell(CommandEnded(Verdict.DONE, lied=True))
        else:
            self.tell(CommandEnded(Verdict.FAILED, "stuck"))

    def carry_out(self, command: PowerCommand) -> None:
        if not self.reachable:
            self.tell(CommandEnded(Verdict.UNREACHABLE, "no route"))
            return
        needs_on = command not in {PowerCommand.ON, PowerCommand.CYCLE}
        no_change = (command is PowerCommand.ON) is (self.power is ON)
        if needs_on and self.power is OFF and command not in {PowerCommand.OFF, PowerCommand.SOFT}:
            self.tell(CommandEnded(Verdict.FAILED, "it is off"))
            return
        if not (no_change and command in {PowerCommand.ON, PowerCommand.OFF, PowerCommand.SOFT}):
            for change, power in _SEEN[command]:
                self.happen(change, power)
        self.tell(CommandEnded(Verdict.DONE))

    def settle(self) -> None:
        """Everything that is on its way arrives, and nobody waits any more."""
        for _ in range(100):
            if not (self.drives or self.seen):
                return
            self.drive()
            self.hear()
        raise AssertionError("it never comes to rest")

    def put(self, fault: Fault | None) -> None:
        if fault is None:
            self.bmc.state.faults = None
        else:
            self.bmc.state.faults = self.bmc.state.faults or Faults()
            self.bmc.state.faults.put(fault)
        self.tell(FaultsChanged())

    def wait(self, seconds: float) -> None:
        self.now += seconds
        while (deadline := self.bmc.deadline) is not None and deadline <= self.now:
            self.take(list(self.bmc.expire(self.now)))


Step = tuple[str, object]
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(PowerCommand)),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("ac"), st.booleans()),
    st.tuples(st.just("host"), st.booleans()),
    st.tuples(st.just("drive"), st.none()),
    st.tuples(st.just("hear"), st.none()),
    st.tuples(st.just("outside"), st.sampled_from([ON, OFF])),
    st.tuples(
        st.just("fault"),
        st.one_of(
            st.none(),
            st.builds(
                Fault,
                st.sampled_from([FaultKind.POWER_LIES, FaultKind.POWER_STUCK]),
                until=st.none() | st.floats(0, 100),
                count=st.none() | st.integers(1, 3),
            ),
        ),
    ),
    st.tuples(st.just("wait"), st.floats(0, 300)),
)


def step(world: World, what: str, value: object) -> None:
    match what, value:
        case "ask", PowerCommand() as command:
            world.tell(PowerRequested(command, 1))
        case "restart", _:
            world.tell(PowerRequested(PowerCommand.SOFT, 1, restart=True))
        case "ac", bool(returns):
            world.tell(AcReturned() if returns else AcLost())
        case "host", bool(reachable):
            world.reach(reachable=reachable)
        case "drive", _:
            world.drive()
        case "hear", _:
            world.hear()
        case "outside", PowerState() as power:
            change = MachineChange.STARTED if power is ON else MachineChange.SHUTDOWN
            if world.reachable and power is not world.power:
                world.happen(change, power)
        case "fault", Fault() | None as fault:
            world.put(fault)
        case "wait", float(seconds):
            world.wait(seconds)


@given(st.sampled_from(PowerPolicy), st.lists(STEPS, max_size=30))
def test_at_rest_and_without_faults_a_bmc_tells_what_is_so(
    policy: PowerPolicy, steps: list[Step]
) -> None:
    world = World(policy)
    for what, value in steps:
        step(world, what, value)
    world.put(None)
    world.reach(reachable=True)
    world.settle()
    assert world.bmc.power is world.power
    assert world.bmc.has_power or world.power is OFF
    world.wait(400)
    world.settle()
    assert world.bmc.deadline is None
    assert world.bmc.power is world.power
    assert world.bmc.runtime.last_power_event & ~0x11 == 0
