"""`hosts: NAME: openstack:` of the cluster file: a project of a cloud, whose servers are nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from nospoon.clusterfile.cloud import CloudOrName, CloudSection
from nospoon.clusterfile.fields import Address
from nospoon.clusterfile.section import Flag, OneOrMore, Section, Text, Whole, listed
from nospoon.errors import UsageError
from nospoon.model.affinity import GroupRules, Strictness
from nospoon.model.cloud import URLS
from nospoon.model.connections import OpenStack, RelaySpec, WhenOff

WHO = (
    "user_id", "username", "user_domain_id", "user_domain_name", "project_id", "project_name",
    "project_domain_id", "project_domain_name", "application_credential_id",
    "application_credential_name", "system_scope", "trust_id",
)  # fmt: skip
"""Who logs in, and where to: what is no secret of `auth`."""


class RelaySection(Section):
    """A small server on a network of the file, by which nodes there reach this daemon. nospoon
    makes it, and reaches it by ssh.
    """

    network: Text = Field(
        description="Network of the file on which it is: with `nat`, or one of the cloud's with "
        "DHCP. Each node has a NIC there, best the first."
    )
    image: Annotated[Text, Field(max_length=255)] = Field(
        description="Image of the cloud, by name or id: one of a distribution, with cloud-init and "
        "OpenSSH's server."
    )
    flavor: Annotated[Text, Field(max_length=255)] = Field(
        description="Flavor of the cloud, by name or id; of all that the project sees."
    )
    floating_ip: Annotated[Text, Field(max_length=255)] = Field(
        "",
        description="External network of the cloud, by name or id, of which it gets an address "
        "by which the daemon reaches it. Default: by the one on its network.",
    )
    floating_address: Address | None = Field(
        None, description="Which address of `floating_ip`, as of a NIC; default: a new one."
    )
    address: Address | None = Field(
        None,
        description="Its address on its network. Default: the last one that is free there; needed "
        "on networks that exist.",
    )
    port: Annotated[Whole, Field(ge=1, le=65535)] = Field(
        22, description="TCP port of its ssh server."
    )
    bmcs: Flag = Field(
        default=False,
        description="BMCs answer IPMI and Redfish on its network, too, each at its address of "
        "`bmc.pool`. Default: on the daemon's machine alone.",
    )
    nameservers: Annotated[list[Address], Field(max_length=3)] = Field(
        [],
        description="Name servers (IPv4) that it asks if its network has `netboot: builtin`, "
        "for then the cloud names none there. An image without dnsmasq needs them.",
    )

    @field_validator("nameservers")
    @classmethod
    def _of_ipv4(cls, value: list[Address]) -> list[Address]:
        for each in value:
            if each.version != 4:
                raise ValueError(f"expected IPv4 addresses, got {each}")
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.floating_address is not None and not self.floating_ip:
            raise ValueError("`floating_address` is of a network: name it as `floating_ip`")
        return self

    def spec(self) -> RelaySpec:
        return RelaySpec(
            network=self.network,
            image=self.image,
            flavor=self.flavor,
            floating_ip=self.floating_ip,
            floating_address=str(self.floating_address or ""),
            address=str(self.address or ""),
            port=self.port,
            bmcs=self.bmcs,
            nameservers=tuple(map(str, self.nameservers)),
        )


class OpenStackSection(Section):
    """Nodes are servers of Nova, with ports of Neutron, which boot an image of nospoon's."""

    cloud: CloudOrName = Field(
        description="A cloud of your clouds.yaml; `envvars`: what `OS_*` says. The nospoon command "
        "puts its settings in place of the name."
    )
    region: Text | None = Field(
        None, description="Region; default: the one that clouds.yaml names for this cloud."
    )
    flavors: Annotated[list[Text], Field(min_length=1, max_length=1000)] | None = Field(
        None,
        description="Flavors that nodes may have, by name or id; the smallest that fits is taken. "
        "Default: all that the project sees.",
    )
    availability_zone: Annotated[
        list[Text], BeforeValidator(listed), OneOrMore(), Field(max_length=16)
    ] = Field(
        [],
        description="Availability zone, or several: the first is taken, and a further one for a "
        "server for which Nova finds no host there. Default: Nova's choice.",
    )
    boot_address: Address | None = Field(
        None,
        description="Address of the daemon's machine as guests reach it: they ask there at each "
        "power-on what to boot. It or a `relay` is needed for nodes that are made there; without "
        "either, adopted servers boot their disks alone.",
    )
    relay: RelaySection | None = Field(
        None, description="What nodes ask that reach no address of the daemon's machine."
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

    server_groups: Strictness = Field(
        Strictness.STRICT,
        description="How `affinity` and `anti_affinity` of nodes hold among the compute hosts of "
        "the cloud, by server groups. `strict`: a server without a compute host is not made. "
        "`soft`: it is made on another one.",
    )
    per_compute_host: Annotated[Whole, Field(ge=1, le=1000)] = Field(
        1,
        description="How many nodes that `anti_affinity` keeps apart one compute host may have; "
        "more than one needs strict groups, and Nova of Rocky or later.",
    )

    key_pair: Annotated[Text, Field(max_length=255)] = Field(
        "",
        description="Key pair of the login's user that VMs and the relay get, by name; it stays "
        "what it is. Default: one that nospoon makes of the first of a VM's `ssh_keys`.",
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.boot_address is not None and self.relay is not None:
            raise ValueError("expected one of boot_address and relay, got both")
        if self.per_compute_host > 1 and self.server_groups is Strictness.SOFT:
            raise ValueError("`per_compute_host` is of strict `server_groups`: drop one of them")
        return self


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
        zone=next(iter(section.availability_zone), ""),
        further_zones=tuple(section.availability_zone[1:]),
        boot_address=str(section.boot_address or ""),
        external=section.external_network,
        has_volumes=bool(section.volumes),
        off=section.off,
        key_pair=section.key_pair,
        groups=GroupRules(section.server_groups, section.per_compute_host),
        relay=section.relay.spec() if section.relay is not None else None,
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
