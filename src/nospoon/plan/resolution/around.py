"""What a resolution needs beside the file and what was decided: facts of hosts and images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from nospoon.model.host_facts import Adoptable, HostFacts
from nospoon.model.images import HypervisorType
from nospoon.model.resources.keys import Key
from nospoon.model.resources.machines import Machine


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What is known of an image that the file names: sizes in bytes; format as qemu-img says, or
    `ROOT_FORMAT`, of which `virtual_size` is that of the file. `hypervisor_type`: that a loaded
    image was given, None for none.
    """

    sha256: str
    format: str
    virtual_size: int
    hypervisor_type: HypervisorType | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the file does not say: where pools live, which images are which, and credentials.

    `pool_roots` by host; `images` by their `source`; `credentials_keys` by node;
    `facts` of hosts, by name. `certificate`: SHA-256 of that which the file gives. `boot_port`:
    where boot scripts are served by HTTP. `adopted`: machines of others that are nodes, by UUID.
    `made`: the machines that nodes have, by node. `seeds`: digests of what cloud-init gets, by
    node. `relay_keys`: of the keys of relays, by host. `unnoted`: machines that ask at a URL which
    is not known.
    """

    pool_roots: Mapping[str, str]
    images: Mapping[str, ImageFacts]
    credentials_keys: Mapping[str, str]
    facts: Mapping[str, HostFacts] = field(default_factory=dict)
    certificate: str = ""
    boot_port: int = 8069
    adopted: Mapping[UUID, Adoptable] = field(default_factory=dict)
    made: Mapping[str, Machine] = field(default_factory=dict)
    seeds: Mapping[str, str] = field(default_factory=dict)
    relay_keys: Mapping[str, str] = field(default_factory=dict)
    unnoted: frozenset[Key] = frozenset()
