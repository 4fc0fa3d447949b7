"""`services`: what nodes run, as sections of the file."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from nospoon.clusterfile.fields import Duration, Name
from nospoon.clusterfile.hardware import MOST_NICS, DiskSection, NicSection
from nospoon.clusterfile.node_groups import MAX_CLUSTER, NodeSection, PlacementSection
from nospoon.clusterfile.section import OneOrMore, Section, Text, Whole, few, listed, no_items
from nospoon.model.node_kind import NodeKind
from nospoon.model.service import MOST_ROLE

PATTERN = r"^[a-z0-9*?\[\]!-]{1,63}$"
"""Of names of nodes; `*`, `?` and `[…]` as a shell's."""
UNIT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
PATH_PATTERN = r"^/[!-~]*$"
MOST_VARIABLES = 64
LONGEST_VALUE = 4096


def _value(value: object) -> object:
    """One line of a file that systemd reads (systemd.exec(5), EnvironmentFile=)."""
    if not isinstance(value, str):  # which may be a password: it is not repeated
        raise ValueError("expected text. Put it in quotes")
    if not value.isprintable():
        raise ValueError("expected printable characters in one line")
    return value


def _role(value: object) -> object:
    """A script. A path is for the client, which writes the file's text in its place: the daemon
    opens none that a client names.
    """
    if not isinstance(value, str):
        raise ValueError("expected the path of a script, or its text")
    if not value.startswith(SCRIPT):  # it may have passwords: it is not repeated
        raise ValueError(
            "expected a script, which begins with a line `#!` and a program. Only the nospoon "
            "command reads a file that is named here"
        )
    if len(value) > MOST_ROLE:
        raise ValueError(f"expected at most {MOST_ROLE} characters, got {len(value)}")
    return value


SCRIPT = "#!"
"""How the text of a role begins; what begins otherwise is a path."""
Role = Annotated[
    str,
    BeforeValidator(_role),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MOST_ROLE}),
]
Variable = Annotated[str, Field(pattern=VARIABLE_PATTERN)]
Value = Annotated[Text, Field(max_length=LONGEST_VALUE), BeforeValidator(_value)]
NodePattern = Annotated[str, Field(pattern=PATTERN)]
Port = Annotated[Whole, Field(ge=1, le=65535)]


class HealthSection(Section):
    """How it is seen that a service answers; a bare port is short for `{port: PORT}`."""

    port: Port = Field(description="TCP port at the node's address.")
    path: Annotated[str, Field(max_length=1024, pattern=PATH_PATTERN)] | None = Field(
        None,
        description="Path of HTTP there, whose GET has to answer with a status 2xx or 3xx; "
        "default: a connection is enough.",
    )
    timeout: Duration = Field(120.0, description="How long `up` waits for it.")

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"port": value} if isinstance(value, int | float | str) else value


class ServiceSection(NodeSection):
    """What runs on nodes of kind `vm` and `container`: on those that it names, or on one of its
    own, which it describes here, such as by its `image`. An entry with `combine` describes the node
    of several services, and is none itself.
    """

    nodes: Annotated[list[NodePattern], BeforeValidator(listed), OneOrMore()] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="Names of its nodes, or patterns: `*`, `?` and `[…]`, as a shell's. Default: "
        "its own, else those called as the service, and as it with a number (`NAME-0`).",
    )
    combine: Annotated[list[Name], BeforeValidator(listed), OneOrMore()] | None = Field(
        None,
        min_length=1,
        max_length=64,
        description="Services that run together on the node described here, which is called as "
        "this entry. They describe none and name none.",
    )
    unit: Annotated[str, Field(pattern=UNIT_PATTERN)] | None = Field(
        None, description="Unit of systemd on its nodes; default: the service's name."
    )
    after: Annotated[list[Name], BeforeValidator(listed), OneOrMore()] = Field(
        default_factory=no_items,
        max_length=64,
        description="Services that `up` sees healthy before it starts nodes of this one.",
    )
    environment: Annotated[dict[Variable, Value], few(MOST_VARIABLES)] = Field(
        default_factory=dict,
        max_length=MOST_VARIABLES,
        description="Environment of the unit, which cloud-init sets: variable -> text.",
    )
    role: Role | None = Field(
        None,
        description="Path of a script beside the file that sets the service up, or its text: it "
        "begins with a line `#!` and a program. cloud-init runs it once on each root, as root, "
        "with `environment` and before it starts the unit. It needs `health`.",
    )
    health: HealthSection | None = Field(
        None, description="How it is seen that it answers; default: its node runs."
    )
    kind: NodeKind | None = Field(
        None,
        description="Of its own node: `vm` or `container`; default the flavor's, else container.",
    )
    flavor: Name | None = Field(None, description="Flavor of its own node; default: none.")
    count: Annotated[Whole, Field(ge=1, le=MAX_CLUSTER)] | None = Field(
        None,
        description="How many nodes of its own, called `NAME-0` and so on; default one, `NAME`.",
    )
    networks: Annotated[list[NicSection], BeforeValidator(listed), OneOrMore()] | None = Field(
        None, max_length=MOST_NICS, description="NICs of its own node, in place of `nics`."
    )
    volumes: list[DiskSection] | None = Field(
        None,
        max_length=23,
        description="Disks of its own node after the root, which is of its `image`, else the first "
        "of its flavor. In place of `disks`.",
    )
    placement: PlacementSection = Field(
        default_factory=PlacementSection, description="How its own nodes find their hosts."
    )


OF_SERVICES = frozenset({"nodes", "combine", "unit", "after", "environment", "role", "health"})
"""What is said of a service; all else is of its own node."""
