"""Nova's flavors: what the file says of them, and what nospoon makes there.

https://docs.openstack.org/ironic/latest/install/configure-nova-flavors.html
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from nospoon.model.ironic import Settings


@dataclass(frozen=True, slots=True)
class WantedFlavor:
    """A flavor of the file. `traits`: name and `required` or `forbidden`. Sizes None: those of the
    nodes of its resource class; `ram` in MiB, `disk` in GiB.
    """

    name: str
    resource_class: str
    traits: tuple[tuple[str, str], ...] = ()
    specs: Settings = ()
    vcpus: int | None = None
    ram: int | None = None
    disk: int | None = None
    public: bool = True
    wait: float = 0.0
    """Seconds in which Placement is to have its nodes; 0: that is not waited for."""


@dataclass(frozen=True, slots=True)
class NovaFlavor:
    """A flavor in Nova. `settings`: its extra specs. `ram` in MiB, `disk` in GiB."""

    id: UUID
    name: str
    vcpus: int
    ram: int
    disk: int
    public: bool
    settings: Settings


@dataclass(frozen=True, slots=True)
class NovaInventory:
    """The nodes that a flavor gives, as Placement has them: a resource provider each, whose UUID is
    the node's, with one of `resource_class` (`CUSTOM_…`). `traits` as in `WantedFlavor`; `nodes`:
    name and UUID.
    """

    resource_class: str
    traits: tuple[tuple[str, str], ...]
    nodes: tuple[tuple[str, UUID], ...]
