"""What a BMC is told (past participles) and what it wants done (imperatives)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nospoon.bmc.bios import Bios
from nospoon.bmc.fru import Inventory
from nospoon.bmc.log import Record
from nospoon.bmc.runtime import Runtime, Settings
from nospoon.bmc.secure_boot import SecureBoot
from nospoon.bmc.software import Software
from nospoon.bmc.watchdog import WatchdogSettings
from nospoon.model.boot import BootDevice, BootOverride, BootPlan
from nospoon.model.machine import MachineEvent, Outcome, PowerCommand, PowerPolicy
from nospoon.model.volumes import AddedVolume


class Verdict(StrEnum):
    """How a request is answered. ACCEPTED: under way, its outcome shows in the power fault."""

    DONE = "done"
    ACCEPTED = "accepted"
    BUSY = "busy"
    WRONG_STATE = "wrong state"
    GONE = "gone"
    UNREACHABLE = "unreachable"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """To the request with this ticket. `reason` is for people, "" when all is well."""

    ticket: int
    verdict: Verdict
    reason: str = ""
    outcome: Outcome = Outcome.CHANGED


@dataclass(frozen=True, slots=True)
class PowerRequested:
    """Someone asks for a chassis command; the answer carries the ticket.

    `restart`: with SOFT, start the machine again once its guest has shut down. `turns_on`: a
    machine that is off is switched on instead.
    """

    command: PowerCommand
    ticket: int = 0
    restart: bool = False
    turns_on: bool = False


@dataclass(frozen=True, slots=True)
class OverrideRequested:
    """Someone sets the boot override. `flags`: the raw IPMI parameter, b"" from elsewhere."""

    override: BootOverride
    ticket: int = 0
    flags: bytes = b""


@dataclass(frozen=True, slots=True)
class BootOrderRequested:
    """Someone sets the persistent boot order: all devices of the cluster file's, in any order."""

    order: tuple[BootDevice, ...]
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class HttpBootUriRequested:
    """Someone sets the URI that boot target HTTP boots; "" for none."""

    uri: str
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class MediaChanged:
    """Media were put into the CD drive, or with "" taken out."""

    name: str
    ticket: int


@dataclass(frozen=True, slots=True)
class ClearingRequested:
    """An IPMI client writes boot option parameter 3: when flags are cleared by themselves."""

    clearing: int
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class IdentifyRequested:
    """The identify light is switched; `seconds` None: until it is switched again."""

    lit: bool
    ticket: int = 0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SettingsRequested:
    """Someone changes what clients may set: these are all settings, with the change."""

    settings: Settings
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class BiosRequested:
    """Someone changes what the next boot makes of the firmware's settings: this is all of it."""

    bios: Bios
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class SoftwareRequested:
    """Firmware was updated, or is to be at the next restart: these are all versions."""

    software: Software
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class SecureBootRequested:
    """Someone switches secure boot, or resets its keys, from the next start on: all of it."""

    secure_boot: SecureBoot
    ticket: int = 0


class Defaults(StrEnum):
    """What of its settings a BMC forgets; where it answers, the cluster file says for good."""

    NONE = "none"
    ALL = "all"
    BUT_USERS = "but users"


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """Someone restarts the BMC itself (§20.2, §20.3; Redfish Manager.Reset)."""

    ticket: int = 0
    defaults: Defaults = Defaults.NONE


@dataclass(frozen=True, slots=True)
class VolumesRequested:
    """Someone makes or removes volumes: these are all of them, with the change."""

    volumes: tuple[AddedVolume, ...]
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class LogAddRequested:
    """A client adds a record to the log: 16 bytes (IPMI 2.0 §31.6)."""

    raw: bytes
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class LogEraseRequested:
    """Someone erases the record with this number, or with None the whole log."""

    number: int | None = None
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class WatchdogRequested:
    """A client sets the watchdog timer (§27.6)."""

    settings: WatchdogSettings
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class WatchdogReset:
    """A client starts the watchdog timer, or starts it again (§27.5)."""

    ticket: int = 0


@dataclass(frozen=True, slots=True)
class AcLost:
    """The outlet that feeds the machine and its BMC was switched off."""

    ticket: int = 0


@dataclass(frozen=True, slots=True)
class AcReturned:
    """The outlet was switched on again."""

    ticket: int = 0


@dataclass(frozen=True, slots=True)
class HostSeen:
    """The machine's host runs, does not shut down, and this is the id of its boot."""

    boot: str


@dataclass(frozen=True, slots=True)
class MachineReported:
    """The connection told something of the machine."""

    event: MachineEvent


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The node's shape changed; its runtime state did not. `script`, `starts_disk`: as `Bmc` has
    them. `inventory`, `policy` None: that stays, too. `policy`: the cluster file's power restore
    policy.
    """

    order: tuple[BootDevice, ...]
    script: bool
    inventory: Inventory | None = None
    policy: PowerPolicy | None = None
    starts_disk: bool = False


@dataclass(frozen=True, slots=True)
class BootObserved:
    """A machine that boots by script fetched what it shall boot."""


@dataclass(frozen=True, slots=True)
class BootTold:
    """`SetBoot` of this edition was carried out."""

    edition: int


@dataclass(frozen=True, slots=True)
class CommandEnded:
    """The command under way ended; `verdict` DONE, or why not. `lied`: DONE, and nothing was."""

    verdict: Verdict
    reason: str = ""
    lied: bool = False
    outcome: Outcome = Outcome.CHANGED


@dataclass(frozen=True, slots=True)
class FaultsChanged:
    """Faults on demand were put or cleared."""


Request = (
    PowerRequested
    | OverrideRequested
    | BootOrderRequested
    | HttpBootUriRequested
    | MediaChanged
    | ClearingRequested
    | IdentifyRequested
    | SettingsRequested
    | BiosRequested
    | VolumesRequested
    | SoftwareRequested
    | SecureBootRequested
    | RestartRequested
    | LogAddRequested
    | LogEraseRequested
    | WatchdogRequested
    | WatchdogReset
    | AcLost
    | AcReturned
)
"""Events that carry a ticket and are answered."""
Event = (
    Request
    | MachineReported
    | HostSeen
    | Reshaped
    | BootObserved
    | BootTold
    | CommandEnded
    | FaultsChanged
)


@dataclass(frozen=True, slots=True)
class Persist:
    """Make this durable before anything that follows.

    `happened`: nothing was asked for, so it is so even where it cannot be stored.
    """

    runtime: Runtime
    happened: bool = False


@dataclass(frozen=True, slots=True)
class Append:
    """Keep this record of the log. It may be written a moment later, with others."""

    record: Record


@dataclass(frozen=True, slots=True)
class Erase:
    """Forget the record with this number, or with None the whole log."""

    number: int | None


@dataclass(frozen=True, slots=True)
class Drive:
    """Give the machine this command; tell `CommandEnded` when its outcome is known.

    `unplugs`: no BMC has a say in it, AC power is gone. `believed`: as far as is known the machine
    is so already, and only one that is not changes.
    """

    command: PowerCommand
    boot: BootPlan
    unplugs: bool = False
    believed: bool = False


@dataclass(frozen=True, slots=True)
class SetBoot:
    """Tell the running machine what its next reset boots, and those after it; then `BootTold`.

    Carried out after every earlier `SetBoot` and `Drive` of this BMC, never beside them.
    """

    boot: BootPlan
    edition: int


@dataclass(frozen=True, slots=True)
class EndSessions:
    """Everybody who logged in to this BMC is logged out."""


Effect = Persist | Append | Erase | Drive | SetBoot | Answer | EndSessions
