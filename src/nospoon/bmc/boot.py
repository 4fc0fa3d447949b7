"""The boot override of one BMC: who is told of it, and when Once is used up.

Rules:

- Once is used up by the boot that is observed and that followed it: of a command that was driven
  with it, or of a reset after the running machine was told of it. Each change of the override is
  an edition, so that a newer one of the same value is not taken for the older. Persistent
  overrides are kept.
- A machine that runs is told of a change; what it could not be told is told when it is seen again.
- The persistent order is the cluster file's until a client sets another one, and again when the
  file has another one.
- Boot flags that an IPMI client set once are cleared after 60 s without a chassis command, which
  starts the time again, unless parameter 3 says not to (§28.13). No time goes on while a command is
  under way, nor between a boot and the question of a machine that asks what it boots: a cloud takes
  longer for both.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from nospoon.bmc.messages import Effect, OverrideRequested, Reshaped, SetBoot
from nospoon.bmc.runtime import Runtime
from nospoon.bmc.state import State
from nospoon.model.boot import (
    NO_OVERRIDE,
    BootDevice,
    BootOverride,
    BootPlan,
    OverrideEnabled,
    next_boot,
    used_up,
)
from nospoon.model.machine import PowerState

FLAGS_TIMEOUT = 60.0
KEEP_AFTER_TIMEOUT = 0x08
"""Parameter 3, bit 3: do not clear the valid bit when no command comes within 60 s."""


class Boot:
    """`script`: the machine boots our ISO and tells when it booted; not so for its disk, if it
    `starts_disk` without it. `told`: the edition that the machine was told last.
    """

    __slots__ = ("_filed", "_state", "edition", "flags_expire", "script", "starts_disk", "told")

    def __init__(
        self,
        state: State,
        *,
        order: tuple[BootDevice, ...],
        script: bool,
        starts_disk: bool = False,
    ) -> None:
        self._state = state
        self._filed, self.script, self.starts_disk = order, script, starts_disk
        self.edition = 0
        self.told = -1 if state.runtime.override.active or state.runtime.boot_order else 0
        self.flags_expire: float | None = None

    @property
    def order(self) -> tuple[BootDevice, ...]:
        """The persistent one: a client's, as far as it is one of the devices that there are."""
        asked = self._state.runtime.boot_order
        return asked if sorted(asked) == sorted(self._filed) else self._filed

    @property
    def plan(self) -> BootPlan:
        """What the machine boots next, and afterwards."""
        runtime = self._state.runtime
        plan = next_boot(self.order, runtime.override)
        if runtime.volumes:
            plan = replace(plan, volumes=runtime.volumes)
        secure_boot = runtime.secure_boot
        if not secure_boot.reset and secure_boot.told is None:
            return plan
        return replace(plan, secure_boot=secure_boot.told, reset_keys=secure_boot.reset)

    @property
    def _asks(self) -> bool:
        """Whether the machine reports its boot of what is planned now."""
        return self.script and not (self.starts_disk and self.plan.now[:1] == (BootDevice.DISK,))

    def reshaped(self, event: Reshaped, *, busy: bool, now: float) -> Iterator[Effect]:
        """The persistent order may be another one now. Flags of before a restart of ours have their
        time again.
        """
        if self.flags_expire is None and self._timed:
            self.flags_expire = now + FLAGS_TIMEOUT
        if event.order != self._filed:
            self.edition += 1
            yield from self._state.persist(replace(self._state.runtime, boot_order=()))
        self._filed, self.script = event.order, event.script
        self.starts_disk = event.starts_disk
        yield from self.catch_up(busy=busy)

    @property
    def _timed(self) -> bool:
        """Whether there are flags of an IPMI client that are to be cleared after a while."""
        runtime = self._state.runtime
        once = runtime.override.enabled is OverrideEnabled.ONCE
        return bool(runtime.boot_flags) and once and not runtime.clearing & KEEP_AFTER_TIMEOUT

    def chassis_command(self, now: float) -> None:
        """Someone gave one: the time of boot flags starts again."""
        if self.flags_expire is not None:
            self.flags_expire = now + FLAGS_TIMEOUT

    def requested(
        self, event: OverrideRequested, now: float, *, busy: bool
    ) -> Generator[Effect, None, None]:
        """`busy`: a power command is under way."""
        once = event.override.enabled is OverrideEnabled.ONCE
        timed = event.flags and once and not self._state.runtime.clearing & KEEP_AFTER_TIMEOUT
        self.flags_expire = now + FLAGS_TIMEOUT if timed else None
        yield from self._change(event.override, event.flags, busy=busy)

    def ordered(self, order: tuple[BootDevice, ...], *, busy: bool) -> Iterator[Effect]:
        """A client sets the persistent order; with the file's own it follows the file again."""
        kept = order if order != self._filed else ()
        yield from self._keep(replace(self._state.runtime, boot_order=kept), busy=busy)

    def expire(self, now: float, *, busy: bool) -> Iterator[Effect]:
        """Clear flags that no one followed."""
        if self.flags_expire is not None and self.flags_expire <= now:
            if busy:
                self.flags_expire = now + FLAGS_TIMEOUT
                return
            self.flags_expire = None
            yield from self._change(NO_OVERRIDE, b"", busy=busy)

    def _change(self, override: BootOverride, flags: bytes, *, busy: bool) -> Iterator[Effect]:
        after = replace(self._state.runtime, override=override, boot_flags=flags)
        yield from self._keep(after, busy=busy)

    def _keep(self, after: Runtime, *, busy: bool) -> Iterator[Effect]:
        """Another edition; a machine that runs is told."""
        self.edition += 1
        yield from self._state.persist(after)
        if self._state.power is PowerState.ON or busy:
            yield SetBoot(self.plan, self.edition)

    def observed(self) -> Iterator[Effect]:
        """A machine that boots by script asked, and was answered by the override at hand."""
        yield from self._use_up(self.edition)
        self.told = self.edition

    def followed(self, edition: int) -> Iterator[Effect]:
        """The machine booted as this edition says; what it boots afterwards it was told with it."""
        self.told = edition
        yield from self._begins(edition)
        if self._asks and edition == self.edition:
            self.flags_expire = None
        elif not self._asks and (yield from self._use_up(edition)):
            self.told = self.edition

    def booted_by_itself(self, told: BootPlan | None, *, busy: bool) -> Iterator[Effect]:
        """The guest rebooted: it followed what the machine was told last.

        `told`: of a start that a daemon before us began; if we say the same, it followed that.
        """
        plan = self.plan
        if told is not None and (told.now, told.after) == (plan.now, plan.after):
            self.told = self.edition
        yield from self._begins(self.told)
        if not self._asks:
            yield from self._use_up(self.told)
        yield from self.catch_up(busy=busy)

    def _begins(self, edition: int) -> Iterator[Effect]:
        """A boot as this edition says: its loader will ask for a URI after Once was used up."""
        runtime = self._state.runtime
        http = edition == self.edition and runtime.override.target is BootDevice.HTTP
        after = replace(runtime, http_boot=runtime.http_boot_uri if http else "")
        yield from self._state.persist(after)

    def catch_up(self, *, busy: bool) -> Iterator[Effect]:
        """A running machine that was not told of the override, because of a bad day, is now."""
        if self._state.power is PowerState.ON and self.told != self.edition and not busy:
            yield SetBoot(self.plan, self.edition)

    def _use_up(self, edition: int) -> Generator[Effect, None, bool]:
        """The boot that was observed followed this edition; a newer one stays."""
        runtime = self._state.runtime
        if edition != self.edition or used_up(runtime.override) == runtime.override:
            return False
        self.flags_expire = None
        self.edition += 1
        after = replace(runtime, override=used_up(runtime.override), boot_flags=b"")
        yield from self._state.persist(after)
        return True
