"""Sections about nodes: their flavors, the groups of those that are alike, and single ones."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from nospoon.clusterfile.fields import Label, LabelValue, Name, Place, Trait
from nospoon.clusterfile.hardware import HardwareSection
from nospoon.clusterfile.section import (
    OneOrMore,
    Section,
    Text,
    Unique,
    Whole,
    each_once,
    few,
    listed,
    no_items,
)
from nospoon.model.cluster import Strategy
from nospoon.model.node_kind import NodeKind

MAX_CLUSTER = 20_000
"""Nodes of a cluster: what is planned in seconds, and beyond what anybody's conductor takes."""


class FlavorSection(HardwareSection):
    """A kind of node."""

    kind: NodeKind | None = Field(
        None, description="What its nodes are, unless their group says; default `baremetal`."
    )


class NodeSection(HardwareSection):
    """What may be said of one node by name, under `overrides`."""

    host: Place | None = Field(
        None,
        description="Host that it is made on; default: one that fits. Of a host with two "
        "connections, HOST is the first of libvirt, lxc, docker and simulated, HOST:KIND another.",
    )
    traits: (
        Annotated[list[Trait], Field(max_length=1000), AfterValidator(each_once), Unique()] | None
    ) = Field(None, description="Traits such as CUSTOM_GOLD.")
    labels: Annotated[dict[Label, LabelValue], few(64)] | None = Field(
        None, max_length=64, description="Free key-value labels, at most 64."
    )


class PlacementSection(Section):
    """How nodes find their hosts; a bare strategy is short for `{strategy: NAME}`."""

    strategy: Strategy = Field(
        Strategy.SPREAD,
        description="`spread` (fewest nodes; default), `balance` (least used) or `pack` (most "
        "used with enough capacity).",
    )
    affinity: Annotated[list[Name], BeforeValidator(listed), OneOrMore()] = Field(
        default_factory=no_items,
        max_length=64,
        description="Keys, `flavor` or a label's: nodes of equal value share a host; in a cloud, "
        "one of its compute hosts too.",
    )
    anti_affinity: Annotated[list[Name], BeforeValidator(listed), OneOrMore()] = Field(
        default_factory=no_items,
        max_length=64,
        description="Keys, `flavor` or a label's: no two nodes of equal value share a host; in a "
        "cloud, none of its compute hosts.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"strategy": value} if isinstance(value, str) else value


OF_ITS_OWNER = frozenset({
    "arch", "boot_order", "count", "cpus", "disks", "firmware", "flavor", "image", "kind", "memory",
    "nics", "overrides", "placement", "portgroups", "rollback", "ssh_keys", "start", "tpm",
    "user_data",
})  # fmt: skip
"""What may not be said of a machine that nospoon did not make."""


class AdoptSection(Section):
    """Machines that nospoon did not make; a bare name or UUID is short for `{machine: NAME}`."""

    machine: Annotated[Text, Field(min_length=1, max_length=255)] | None = Field(
        None, description="Name or UUID of one machine."
    )
    match: Annotated[Text, Field(min_length=1, max_length=255)] | None = Field(
        None, description="Pattern of names: `*`, `?` and `[…]`, as a shell's; one node each."
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"machine": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_of_them(self) -> AdoptSection:
        if (self.machine is None) == (self.match is None):
            raise ValueError("expected a machine, or a pattern to match: one of them")
        return self


class NodeGroupSection(NodeSection):
    """Nodes that are alike."""

    adopt: AdoptSection | None = Field(
        None,
        description="Machines that are there already, and get BMCs: nothing else of them is "
        "changed, and `down` leaves them as they are. Their shape may not be given.",
    )

    kind: NodeKind | None = Field(
        None,
        description="What its nodes are: `baremetal`: hardware with BMCs; `vm`: virtual machines "
        "that boot their image; `container`: system containers. Default: the flavor's, else "
        "`baremetal`.",
    )
    flavor: Name | None = Field(None, description="Flavor; may be left out where only one fits.")
    count: Annotated[Whole, Field(ge=0, le=MAX_CLUSTER)] = Field(
        1, description="How many; a cluster has at most 20,000 nodes."
    )
    name: Text = Field("node-{n}", description="Name; `{n}` counts from `start`, `{n:03}` pads.")
    start: Annotated[Whole, Field(ge=0)] = Field(0, description="First number in names.")
    placement: PlacementSection = Field(
        default_factory=PlacementSection, description="How its nodes find their hosts."
    )
    overrides: Annotated[dict[Name, NodeSection], few(MAX_CLUSTER)] = Field(
        default_factory=dict, description="Node name -> what is different for that node."
    )

    @model_validator(mode="after")
    def _shaped_by_its_owner(self) -> NodeGroupSection:
        if self.adopt is None:
            return self
        given = sorted(self.model_fields_set & OF_ITS_OWNER)
        if given:
            raise ValueError(f"an adopted machine is as its owner made it: drop {', '.join(given)}")
        if self.adopt.match is not None and "name" in self.model_fields_set:
            raise ValueError("nodes of a pattern are called as their machines: drop name")
        if self.adopt.match is not None and self.bmc is not None and self.bmc.port is not None:
            raise ValueError("nodes of a pattern have a port each: drop port")
        return self
