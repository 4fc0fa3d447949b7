"""`hosts: NAME: openstack:` of the cluster file: a project of a cloud, whose servers are nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from nospoon.clusterfile.cloud import CloudOrName, CloudSection
from nospoon.clusterfile.fields import Address
from nospoon.clusterfile.section import Flag, Section, Text
from nospoon.errors import UsageError
from nospoon.model.cloud import URLS
from nospoon.model.connections import OpenStack, WhenOff

WHO = (
    "user_id", "username", "user_domain_id", "user_domain_name", "project_id", "project_name",
    "project_domain_id", "project_domain_name", "application_credential_id",
    "application_credential_name", "system_scope", "trust_id",
)  # fmt: skip
"""Who logs in, and where to: what is no secret of `auth`."""


class OpenStackSection(Section):
    """Nodes are servers of Nova, with ports of Neutron, which boot an image of nospoon's."""

    cloud: CloudOrName = Field(
        description="A cloud of your clouds.yaml; `envvars`: what `OS_*` says. The nospoon command "
        "puts its settings in place of the name."
    )
    region: Text | None = Field(
        None, description="Region; default: the one that clouds.yaml names for this cloud."
    )
    flavors: Annotated[list[Text], Field(min_length=1)] | None = Field(
        None,
        description="Flavors that nodes may have, by name or id; the smallest that fits is taken. "
        "Default: all that the project sees.",
    )
    availability_zone: Text = Field("", description="Availability zone; default: Nova's choice.")
    boot_address: Address | None = Field(
        None,
        description="Address of the daemon's machine as guests reach it: they ask there at each "
        "power-on what to boot. Needed for nodes that are made there; without it adopted servers "
        "boot their disks alone.",
    )
    external_network: Annotated[Text, Field(max_length=255)] = Field(
        "",
        description="External network to which routers of networks with `nat` lead, by name or id. "
        "Default: the only one that the project sees.",
    )
    volumes: Annotated[Flag | Text, Field(union_mode="left_to_right")] = Field(
        default=False,
        description="Disks are volumes of Cinder, of any size, deleted with their server: `true`, "
        "or the volume type. Default: they are parts of the flavor.",
    )
    off: WhenOff = Field(
        WhenOff.STOP,
        description="What a power-off does with a VM. `stop`: its server stays on its compute "
        "host, which most clouds bill. `shelve`: its root is an image meanwhile, and a power-on "
        "takes longer. Bare metal, and VMs with ephemeral disks, are stopped.",
    )


MOST_SETTINGS = 16 << 10
"""Characters of the settings of a cloud, as JSON: secrets too are kept by the daemon."""


def connection(section: OpenStackSection) -> tuple[OpenStack, str]:
    """The host's connection, and the settings of its cloud as JSON, which have secrets."""
    assert isinstance(section.cloud, CloudSection), "a mere name was refused"
    settings = section.cloud.told() | ({"region_name": section.region} if section.region else {})
    text = json.dumps(settings, sort_keys=True)
    if len(text) > MOST_SETTINGS:
        raise UsageError(f"settings of cloud {section.cloud.name!r} have more than 16 KiB")
    made = OpenStack(
        cloud=section.cloud.name or "cloud",
        at=_at(settings),
        flavors=tuple(section.flavors or ()),
        zone=section.availability_zone,
        boot_address=str(section.boot_address or ""),
        external=section.external_network,
        has_volumes=bool(section.volumes),
        off=section.off,
        volume_type=section.volumes if isinstance(section.volumes, str) else "",
    )
    return made, text


def _at(settings: Mapping[str, object]) -> str:
    """The same for the same user, project and region of a cloud."""
    auth = settings.get("auth")
    auth = auth if isinstance(auth, Mapping) else {}
    who = [f"{key}={auth[key]}" for key in WHO if auth.get(key)]
    who += [f"{key}={settings[key]}" for key in sorted(URLS) if settings.get(key)]
    who += [f"endpoint={auth['endpoint']}"] if auth.get("endpoint") else []
    return " ".join([str(auth.get("auth_url", "")), str(settings.get("region_name", "")), *who])
