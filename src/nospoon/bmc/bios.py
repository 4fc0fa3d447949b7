"""Firmware settings of one machine: the attribute registry (DSP0268, AttributeRegistry), what was
set, and what waits for the next boot (DSP0266, settings resources).

Attributes that follow the machine's shape are read-only; most others are kept and have no effect,
which their help text says.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Value = str | int
Values = tuple[tuple[str, Value], ...]
REGISTRY_VERSION = "1.0.0"
REGISTRY = f"BiosAttributeRegistry.{REGISTRY_VERSION}"
_KEPT = "Kept, without an effect on a virtual machine."
_SHAPE = "Follows the node's firmware in the cluster file."
_SWITCH = ("Enabled", "Disabled")


@dataclass(frozen=True, slots=True)
class Choice:
    """An enumeration; the first value is the default."""

    name: str
    display: str
    values: tuple[str, ...]
    help: str = _KEPT
    read_only: bool = False

    @property
    def default(self) -> Value:
        return self.values[0]


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer between two bounds, both allowed."""

    name: str
    display: str
    lower: int
    upper: int
    default: Value
    help: str = _KEPT
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A string of at most so many characters; by default none."""

    name: str
    display: str
    longest: int
    help: str = _KEPT
    read_only: bool = False
    default: Value = ""


Attribute = Choice | Whole | Text
RECOVERY = "AcPowerRecovery"
ATTRIBUTES: tuple[Attribute, ...] = (
    Choice("BootMode", "Boot Mode", ("Uefi", "Bios"), _SHAPE, read_only=True),
    Choice("SecureBoot", "Secure Boot", _SWITCH, "As resource SecureBoot says.", read_only=True),
    Choice("Tpm", "Trusted Platform Module", _SWITCH, _SHAPE, read_only=True),
    Choice(
        RECOVERY,
        "AC Power Recovery",
        ("Last", "On", "Off"),
        "What the machine does when its AC power returns; the power restore policy of IPMI. "
        "A reset to defaults sets what the cluster file says.",
    ),
    Choice("NumLock", "Keyboard NumLock", ("On", "Off")),
    Choice("ProcTurboMode", "Turbo Mode", _SWITCH),
    Choice("ProcVirtualization", "Virtualization Technology", _SWITCH),
    Choice("QuietBoot", "Quiet Boot", ("Disabled", "Enabled")),
    Whole("BootTimeout", "Boot Menu Timeout in Seconds", 0, 600, 5),
    Text("AdminContact", "Administrator's Contact", 64),
)
"""All attributes, as the registry has them."""
BY_NAME = {attribute.name: attribute for attribute in ATTRIBUTES}
DEFAULTS = {each.name: each.default for each in ATTRIBUTES if not each.read_only}


class Problem(StrEnum):
    """Why a value is refused; the Base registry (DSP8011) has a message for each."""

    UNKNOWN = "unknown"
    READ_ONLY = "read-only"
    WRONG_TYPE = "wrong type"
    NOT_IN_LIST = "not in list"
    OUT_OF_RANGE = "out of range"
    TOO_LONG = "too long"


def problem(name: str, value: object) -> Problem | None:
    """Why this attribute cannot be set so, None when it can."""
    attribute = BY_NAME.get(name)
    if attribute is None:
        return Problem.UNKNOWN
    if attribute.read_only:
        return Problem.READ_ONLY
    match attribute:
        case Choice(values=values):
            if not isinstance(value, str):
                return Problem.WRONG_TYPE
            return None if value in values else Problem.NOT_IN_LIST
        case Whole(lower=lower, upper=upper):
            if not isinstance(value, int) or isinstance(value, bool):
                return Problem.WRONG_TYPE
            return None if lower <= value <= upper else Problem.OUT_OF_RANGE
        case Text(longest=longest):
            if not isinstance(value, str):
                return Problem.WRONG_TYPE
            return None if len(value) <= longest else Problem.TOO_LONG


@dataclass(frozen=True, slots=True)
class Bios:
    """What was set; shared by all machines of which nothing was.

    `values`: in force where they are not the default. `pending`: those of the next boot.
    `to_defaults`: that boot begins with all defaults. `applied`: Unix seconds of the boot that
    applied something last.
    """

    values: Values = ()
    pending: Values = ()
    to_defaults: bool = False
    applied: float | None = None

    @property
    def waits(self) -> bool:
        """The next boot changes something."""
        return self.to_defaults or bool(self.pending)


UNSET = Bios()
