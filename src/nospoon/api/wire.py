"""What goes over the wire: request bodies, checked by pydantic."""

from __future__ import annotations

from collections.abc import Sized
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from nospoon.bmc.faults import Fault
from nospoon.bmc.faults import Kind as FaultKind
from nospoon.bmc.sensors import ALL_STATES, SENSORS, Discrete, named
from nospoon.clusterfile.node_groups import MAX_CLUSTER
from nospoon.model.boot import BootDevice, BootMode, OverrideEnabled
from nospoon.model.images import HypervisorType
from nospoon.model.ironic import Leaving
from nospoon.model.machine import PowerCommand
from nospoon.plan.identity import RESERVED

MAX_TEXT = 16 << 20
"""Characters of a cluster file; 20,000 nodes in full have some 10 million."""


MAX_REQUEST = 10 << 20
"""Characters of a lab scheduler's request."""
MAX_FIELDS = 32
"""Fields of a body, also unknown ones: each of those becomes an error of its own."""
MAX_HOSTS = 1000
"""Hosts of a request that looks for orphans."""
MAX_DIGESTS = 1000
"""Digests of a request that asks which of them are missing."""
UNWRITABLE = "{} has U+0000 or half of a surrogate pair"


def texts(most: int) -> BeforeValidator:
    """A list or mapping of at most so many texts, refused as one: pydantic makes an error of each
    wrong item, 28 us apiece, in which nothing else runs.
    """

    def check(given: object) -> object:
        if not isinstance(given, (list, dict)):
            return given
        _at_most(most, given, "entries")
        items = given.values() if isinstance(given, dict) else given
        wrong = next((type(each).__name__ for each in items if not isinstance(each, str)), "")
        if wrong:
            raise ValueError(f"expected entries that are text, got one that is {wrong}")
        if not _is_text("", given):
            raise ValueError(UNWRITABLE.format("an entry"))
        return given

    return BeforeValidator(check)


def _at_most(most: int, given: Sized, what: str) -> None:
    if len(given) > most:
        raise ValueError(f"expected at most {most} {what}, got {len(given)}")


NAME, DEPLOYMENT = r"^[a-z0-9-]{1,63}$", r"^[0-9a-f]{32}$"
SHA256 = r"^[0-9a-f]{64}$"
SET, LEASE = r"^[0-9]{1,9}\.[0-9]{1,6}$", r"^[0-9]{1,9}\.[0-9]{1,6}\.[0-9]{1,4}$"
PATTERNS = {
    SHA256: "the 64 hexadecimal digits of a SHA-256, with a to f in lower case",
    NAME: "1 to 63 lower-case letters, digits and hyphens",
    DEPLOYMENT: "32 digits of a hexadecimal number, with a to f in lower case",
    SET: "the id of a recipe set, such as 1.1",
    LEASE: "the id of a lease, such as 1.1.0",
}
"""Pattern of a text in a body or path -> what it expects."""
Digests = Annotated[list[str], texts(MAX_DIGESTS)]


class Wire(BaseModel):
    """A request body; unknown fields are refused, and numbers and texts that are none."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, given: object) -> object:
        if isinstance(given, dict):
            _at_most(MAX_FIELDS, given, "fields")
            wrong = [name for name, value in given.items() if not _is_text(name, value)]
            if wrong:
                raise ValueError(UNWRITABLE.format(ascii(wrong[0])))
        return given


def _is_text(name: Any, value: Any) -> bool:
    """Whether all texts in these can be written: JSON may escape half of a surrogate pair, which is
    no character (RFC 8259 §8.2), and PostgreSQL takes no U+0000. What else is wrong with them is
    found afterwards.
    """
    inside = [*value, *value.values()] if isinstance(value, dict) else value
    try:
        text = "".join([name, inside] if isinstance(inside, str) else [name, *inside])
    except TypeError:
        return True  # they are no texts
    try:
        if name != "text" and "\0" in text:  # the file's reader says where it is in it
            return False
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _unreserved(given: UUID) -> UUID:
    if given in RESERVED:
        raise ValueError("this id is reserved")
    return given


class ClusterRequest(Wire):
    """A cluster file as its client read it.

    `uploads`: each local file that it names -> SHA-256 of its content, uploaded before.
    `cluster_id`: the id that a plan showed, so that a first `up` makes what was planned.
    `fingerprint`: refuse (409) unless the plan is still this one; "" carries out any.
    `rebalance`: place all nodes again, also those that are on a host already.
    `targets`: only these nodes and what they need; empty: all.
    `parallel`: driver calls at once on one host; null: the default.
    `force`: deployed nodes that are not in the file any more are undeployed in Ironic.
    """

    file: Annotated[str, Field(max_length=4096)]
    text: Annotated[str, Field(max_length=MAX_TEXT)]
    uploads: Annotated[dict[str, str], texts(MAX_CLUSTER)] = {}
    cluster_id: Annotated[UUID, AfterValidator(_unreserved)] | None = None
    fingerprint: Annotated[str, Field(max_length=256)] = ""
    rebalance: bool = False
    targets: Annotated[list[str], texts(MAX_CLUSTER)] = []
    parallel: Annotated[int, Field(ge=1, le=1000)] | None = None
    force: bool = False


class HostsRequest(Wire):
    """Hosts to look at. `hosts`: name -> libvirt URI, or `simulated`; and those of a file."""

    hosts: Annotated[dict[Annotated[str, Field(pattern=NAME)], str], texts(MAX_HOSTS)] = {}
    file: Annotated[str, Field(max_length=4096)] = ""
    text: Annotated[str, Field(max_length=MAX_TEXT)] = ""


class ReapRequest(HostsRequest):
    """`grace`: seconds until what is an orphan now, and still is one then, is removed."""

    grace: Annotated[float, Field(ge=0, le=7 * 86400)] = 60.0


class AdoptRequest(HostsRequest):
    """`deployment`: the id of the deployment whose state was lost."""

    deployment: Annotated[str, Field(pattern=DEPLOYMENT)]


class SnapshotRequest(Wire):
    """`name`: of the new snapshot."""

    name: Annotated[str, Field(pattern=NAME)]


class ImageRequest(Wire):
    """`sha256`: of the file that was uploaded; `hypervisor_type`: what the image is for."""

    sha256: Annotated[str, Field(pattern=SHA256)]
    hypervisor_type: HypervisorType | None = None


class LabRequest(Wire):
    """A request of a lab scheduler: `text` is XML or JSON, `file` its name for messages.

    `lab`: NAME or CLUSTER/NAME; "": any that fits. `owner`: who gets the machines, "": the caller.
    `key`: of idempotency. `flavor`: the only one that its machines may have, and no registered
    machine is taken; "": any that fits.
    """

    text: Annotated[str, Field(max_length=MAX_REQUEST)]
    file: Annotated[str, Field(max_length=255)] = "request"
    lab: Annotated[str, Field(max_length=200)] = ""
    owner: Annotated[str, Field(max_length=64)] = ""
    key: Annotated[str, Field(max_length=128)] = ""
    flavor: Annotated[str, Field(max_length=63)] = ""


class ExtendRequest(Wire):
    """`add`: to what is left, in place of from now on."""

    seconds: Annotated[float, Field(ge=0, le=366 * 86400)]
    add: bool = False


class DrainRequest(Wire):
    """Whether a lab starts nothing any more."""

    drained: bool = True


class MachineRequest(Wire):
    """Of a registered machine; null: unchanged, "": not any more."""

    broken: Annotated[str, Field(max_length=200)] | None = None
    reserved: Annotated[str, Field(max_length=64)] | None = None


class InventoryRequest(Wire):
    """`timeout`: seconds in which the probe reports."""

    timeout: Annotated[float, Field(gt=0, le=3600)] = 900.0


class DownRequest(Wire):
    """`purge` removes console records and uploads too. `force`: also nodes that are in use in
    Ironic.

    `enrolment`: what is in Ironic is removed, kept there, or was lost with it.
    """

    purge: bool = False
    force: bool = False
    enrolment: Leaving = Leaving.REMOVE


class VerifyRequest(Wire):
    """`nodes` empty: all. `reboot_running`: also nodes that are on. `timeout` in seconds."""

    nodes: Annotated[list[str], texts(MAX_CLUSTER)] = []
    reboot_running: bool = False
    timeout: Annotated[float, Field(gt=0, le=3600)] = 240.0


class PowerRequest(Wire):
    """A chassis command."""

    command: PowerCommand


class BootRequest(Wire):
    """A boot override; `target` null clears it."""

    target: BootDevice | None
    enabled: OverrideEnabled = OverrideEnabled.ONCE
    mode: BootMode | None = None


class MediaRequest(Wire):
    """Virtual media: a URL that the daemon fetches, or the digest of an uploaded image and its
    `name`."""

    url: str = ""
    sha256: str = ""
    name: Annotated[str, Field(max_length=255)] = ""
    username: str = ""
    password: str = Field("", repr=False)
    verify: bool = True

    @model_validator(mode="after")
    def _one_of_both(self) -> MediaRequest:
        if bool(self.url) is bool(self.sha256):
            raise ValueError("expected one of url and sha256")
        return self


class FaultRequest(Wire):
    """An injected fault. `for_seconds` null: until cleared; `count` null: every time.

    `sensor` and `value`: of kind sensor, its name and what it reads: in its unit, as near as it can
    show that, or its states as bits.
    """

    kind: FaultKind
    for_seconds: float | None = Field(None, gt=0, le=366 * 86400)
    probability: float = Field(1.0, gt=0, le=1)
    count: int | None = Field(None, ge=1, le=2**31)
    seconds: float = Field(5.0, ge=0, le=3600)
    sensor: str = ""
    value: float | None = None

    @model_validator(mode="after")
    def _of_a_sensor(self) -> FaultRequest:
        if self.kind is FaultKind.SENSOR:
            sensor = named(self.sensor)
            if sensor is None or self.value is None:
                names = ", ".join(each.name for each in SENSORS)
                raise ValueError(f"expected a value and a sensor, one of {names}")
            if isinstance(sensor, Discrete) and not _are_states(self.value):
                raise ValueError(
                    f"{sensor.name} has states: expected a whole number from 0 to {ALL_STATES}, "
                    f"got {self.value:g}"
                )
            if self.count is not None or self.probability < 1:
                raise ValueError("a sensor reads so always: expected no count and no probability")
        elif self.sensor or self.value is not None:
            raise ValueError(f"expected sensor and value with kind sensor only, not {self.kind}")
        return self

    def fault(self) -> Fault:
        """The fault, which holds until it is cleared."""
        sensor = named(self.sensor)
        return Fault(
            self.kind,
            probability=self.probability,
            count=self.count,
            seconds=self.seconds,
            sensor=sensor.number if sensor is not None else 0,
            value=self.value or 0.0,
        )


def _are_states(value: float) -> bool:
    return value.is_integer() and 0 <= value <= ALL_STATES
