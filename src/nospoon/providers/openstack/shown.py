"""What Nova, Neutron and Glance show of things, as far as nospoon reads it.

So says the API (https://docs.openstack.org/api-ref/): a cloud may answer anything, so who reads a
value makes its type of it, and `nospoon.providers.understood` reports what fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

Metadata = Mapping[str, str]
Flavor = TypedDict(
    "Flavor",
    {
        "id": str,
        "name": str,
        "original_name": str,
        "vcpus": int,
        "ram": int,
        "disk": int,
        "ephemeral": int,
        "OS-FLV-EXT-DATA:ephemeral": int,
    },
    total=False,
)
"""By itself, and in a server, which shows it otherwise. `ram`: MiB; `disk`, `ephemeral`: GiB."""


class Enumerated(TypedDict):
    """What a property of a JSON schema may be."""

    enum: Sequence[str | None]


class ImageProperties(TypedDict):
    disk_format: Enumerated


class ImageSchema(TypedDict):
    """What Glance says of its images."""

    properties: ImageProperties


class VolumeType(TypedDict):
    """Of Cinder."""

    id: str
    name: str


class HypervisorShown(TypedDict):
    hypervisor_type: str


class HypervisorsShown(TypedDict, total=False):
    """A page of compute hosts, with a link to the next one."""

    hypervisors: Sequence[HypervisorShown]
    hypervisors_links: Sequence[Mapping[str, str]]


class Attachment(TypedDict):
    server_id: str


class VolumeShown(TypedDict):
    """`size`: GiB. `volume_type`: its name."""

    size: int
    volume_type: str | None
    attachments: Sequence[Attachment]


class CopyShown(TypedDict, total=False):
    """A volume or a snapshot of one."""

    id: str
    status: str
    metadata: Metadata


class Plugged(TypedDict):
    """A volume of a server."""

    device: str
    volumeId: str


class Fault(TypedDict, total=False):
    message: str


class GroupShown(TypedDict, total=False):
    """A server group: `policies` before microversion 2.64, `policy` and `rules` from then on."""

    id: str
    name: str
    policy: str
    policies: Sequence[str]
    rules: Mapping[str, int] | None
    members: Sequence[str]


class KeyPairShown(TypedDict):
    """Of a user."""

    name: str
    public_key: str


class Ref(TypedDict):
    id: str


ServerShown = TypedDict(
    "ServerShown",
    {
        "id": str,
        "name": str,
        "status": str,
        "updated": str,
        "metadata": Metadata,
        "flavor": Flavor,
        "image": Ref | None,
        "fault": Fault,
        "OS-EXT-STS:task_state": str | None,
        "OS-EXT-STS:power_state": int,
        "os-extended-volumes:volumes_attached": Sequence[Ref],
    },
    total=False,
)
