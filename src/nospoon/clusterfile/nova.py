"""`nova:` of the cluster file: flavors by which Nova gives out the nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from nospoon.clusterfile.fields import Duration, Trait
from nospoon.clusterfile.section import Flag, Section, Text, Whole, few
from nospoon.model.nova import WantedFlavor
from nospoon.plan.enrollment.enrol import settings

Size = Annotated[Whole, Field(ge=0)]
Spec = Annotated[Text, Field(max_length=255)]


class NovaFlavorSection(Section):
    """A flavor of Nova; it asks for one node of a resource class, and for no standard resources."""

    resource_class: Spec = Field(description="Resource class of the nodes that it gives.")
    traits: Annotated[dict[Trait, Literal["required", "forbidden"]], few(256)] = Field(
        default_factory=dict, description="Trait -> `required` or `forbidden`."
    )
    extra_specs: Annotated[dict[Spec, Spec], few(256)] = Field(
        default_factory=dict, description="More extra specs (`capabilities:boot_mode: uefi`)."
    )
    vcpus: Size | None = Field(None, description="Shown to people; default: the smallest node's.")
    ram: Size | None = Field(None, description="In MiB; default: the smallest node's.")
    disk: Size | None = Field(None, description="In GiB; default: the smallest node's.")
    public: Flag = Field(default=True, description="Whether all projects may use it; default yes.")


class NovaSection(Section):
    """Nova of the cloud of `ironic`."""

    flavors: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=255)], NovaFlavorSection], few(1000)
    ] = Field(description="Name -> flavor.")
    wait: Duration = Field(
        600.0,
        description="Time in which Placement is to have the available nodes of each flavor; "
        "`0s`: it is not waited for. Default 10min.",
    )


def wanted(section: NovaSection | None) -> tuple[WantedFlavor, ...]:
    """The flavors, in the order of the file."""
    if section is None:
        return ()
    return tuple(
        WantedFlavor(
            name=name,
            resource_class=each.resource_class,
            traits=tuple(sorted(each.traits.items())),
            specs=settings(each.extra_specs),
            vcpus=each.vcpus,
            ram=each.ram,
            disk=each.disk,
            public=each.public,
            wait=section.wait,
        )
        for name, each in section.flavors.items()
    )
