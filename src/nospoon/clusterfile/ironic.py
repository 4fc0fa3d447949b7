"""`ironic:` of the cluster file, of flavors, groups and nodes.

Names are those of Ironic's API (https://docs.openstack.org/api-ref/baremetal/).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from nospoon.clusterfile.cloud import CloudOrName, CloudSection
from nospoon.clusterfile.fields import MAX_URL, Url
from nospoon.clusterfile.section import Flag, Section, Text, Whole, few, no_items, short
from nospoon.model.ironic import Enrolment, IronicAuth, IronicPlace, Settings, Standing, Way
from nospoon.plan.enrollment.enrol import settings

INTERFACES = Literal[
    "bios", "boot", "console", "deploy", "firmware", "inspect", "management", "network", "power",
    "raid", "rescue", "storage", "vendor",
]  # fmt: skip
FILES = ("deploy_kernel", "deploy_ramdisk", "rescue_kernel", "rescue_ramdisk", "deploy_iso")
MAX_VALUES = 1 << 20
"""Characters of a mapping of any values, with aliases written out: each is written as JSON."""
_SECRETS = ("password", "secret", "kg_key", "auth_token", "community", "auth_key", "priv_key")


def _no_secrets(value: object) -> object:
    """Ironic shows secrets masked, so that they cannot be compared."""
    keys = value if isinstance(value, dict) else ()
    found = [key for key in keys if any(word in str(key) for word in _SECRETS)]
    if found:
        raise ValueError(
            f"Ironic shows no secrets, and those of the BMC are filled in: leave out {found[0]!r}"
        )
    return value


def _no_tag(value: object) -> object:
    if isinstance(value, dict) and "nospoon" in value:
        raise ValueError("the key 'nospoon' is where nospoon notes whose a node is")
    return value


ResourceClass = Annotated[str, StringConstraints(min_length=1, max_length=80)]
Called = Annotated[Text, Field(max_length=255)]
Description = Annotated[Text, Field(max_length=4096)]
"""As long as in Ironic's database (ironic/db/sqlalchemy/models.py, api/controllers/v1/node.py)."""
Place = Annotated[Text, Field(max_length=MAX_URL)]
Values = Annotated[dict[str, object], BeforeValidator(short(MAX_VALUES))]
"""What drivers and others make of it: any values."""


class ConnectorSection(Section):
    """By what a node is known to a storage system."""

    type: Literal["iqn", "ip", "mac", "wwnn", "wwpn", "port", "portgroup"] = Field(
        description="What `id` is: an iSCSI initiator's name (`iqn`), a Fibre Channel name …"
    )
    id: Called = Field(description="With `{cluster}` and `{node}` in it.")


class TargetSection(Section):
    """A volume that a node may boot from."""

    type: Literal["iscsi", "fibre_channel"] = Field("iscsi", description="Default `iscsi`.")
    boot_index: Annotated[Whole, Field(ge=0)] = Field(
        0, description="Its place in the order; 0 (default) is booted."
    )
    volume_id: Called = Field(description="Its name there, with `{cluster}` and `{node}` in it.")
    properties: Annotated[Values, BeforeValidator(_no_secrets)] = Field(
        default_factory=dict,
        description="Where it is (`target_iqn`, `target_portal`, `target_lun` …); texts with "
        "`{cluster}` and `{node}` in them.",
    )


class VolumesSection(Section):
    """Volumes to boot from."""

    connectors: list[ConnectorSection] = Field(
        default_factory=no_items,
        max_length=64,
        description="By what the node is known to the storage system.",
    )
    targets: list[TargetSection] = Field(
        default_factory=no_items,
        max_length=64,
        description="Its volumes, each with a `boot_index` of its own.",
    )

    @model_validator(mode="after")
    def _one_each(self) -> VolumesSection:
        indexes = [each.boot_index for each in self.targets]
        if len(set(indexes)) < len(indexes):
            raise ValueError("expected a boot_index of its own for each target")
        return self


class EnrolmentSection(Section):
    """How nodes are enrolled in Ironic. Mappings add to those of the sections above, by key."""

    driver: Literal["ipmi", "redfish", "snmp", "manual-management"] | None = Field(
        None,
        description="Hardware type; default: the first of `ipmi`, `redfish` and `snmp` (`pdu`) "
        "that `bmc` has, else `manual-management`.",
    )
    enrolment: Way | None = Field(
        None,
        description="`enrol` describes it to Ironic; `discover` only starts it from the "
        "network, for Ironic to find it by itself; default: `enrol`.",
    )
    state: Standing | None = Field(
        None,
        description="How far it is brought: `enroll`, `manageable`, `inspected`, `available` "
        "or `active`, deployed with `image`; default: `available`.",
    )
    image: Place | None = Field(
        None, description="What is deployed (`image_source`): a URL, or an image of Glance."
    )
    checksum: Place | None = Field(
        None,
        description="SHA-256 or SHA-512 of it in hexadecimal digits, or a URL of a list of them.",
    )
    instance_info: Annotated[Values, BeforeValidator(_no_secrets)] | None = Field(
        None, description="More for its deployment, such as `root_gb` or `kernel`."
    )
    name: Called | None = Field(
        None, description="Name in Ironic, with `{cluster}` and `{node}` in it; default `{node}`."
    )
    interfaces: Annotated[dict[INTERFACES, Called], few(64)] | None = Field(
        None, description="Interface -> implementation (`deploy: direct`); default: the driver's."
    )
    driver_info: Annotated[Values, BeforeValidator(_no_secrets)] | None = Field(
        None, description="More for the driver; the BMC's address and credentials are filled in."
    )
    deploy_kernel: Place | None = Field(None, description="Kernel of the deploy ramdisk: a URL.")
    deploy_ramdisk: Place | None = Field(None, description="Deploy ramdisk: a URL.")
    deploy_iso: Place | None = Field(None, description="Deploy ISO for virtual media: a URL.")
    rescue_kernel: Place | None = Field(None, description="Kernel of the rescue ramdisk: a URL.")
    rescue_ramdisk: Place | None = Field(None, description="Rescue ramdisk: a URL.")
    properties: Values | None = Field(
        None, description="More properties; cpus, memory_mb, local_gb, cpu_arch are filled in."
    )
    capabilities: Annotated[dict[str, Called], few(256)] | None = Field(
        None, description="More capabilities; boot_mode and secure_boot are filled in."
    )
    root_device: Values | None = Field(None, description="Hints for the root device.")
    resource_class: ResourceClass | None = Field(
        None, description="Resource class; default baremetal."
    )
    conductor_group: Called | None = Field(None, description="Conductor group; default none.")
    shard: Called | None = Field(
        None, description="Shard, for services that share nodes; default none."
    )
    owner: Called | None = Field(None, description="Project that owns it; default none.")
    lessee: Called | None = Field(None, description="Project that leases it; default none.")
    description: Description | None = Field(None, description="Description; default none.")
    extra: Annotated[Values, BeforeValidator(_no_tag)] | None = Field(
        None, description="Any other data."
    )
    volumes: VolumesSection | None = Field(
        None,
        description="Volumes to boot from; with `interfaces: {storage: external}` and "
        '`capabilities: {iscsi_boot: "true"}` they are made elsewhere.',
    )
    automated_clean: Flag | None = Field(
        None, description="Clean it when it becomes available; default: as the conductor says."
    )


class IronicSection(EnrolmentSection):
    """The Ironic in which nodes are enrolled, and what holds for all of them."""

    endpoint: Url | None = Field(None, description="URL of a standalone Ironic; or:")
    cloud: CloudOrName | None = Field(
        None,
        description="A cloud of your clouds.yaml; `envvars`: what `OS_*` says. The nospoon command "
        "puts its settings in place of the name.",
    )
    auth: IronicAuth = Field(
        IronicAuth.NONE, description="How it knows its callers: `none` (default) or `http_basic`."
    )
    username: Text = Field("", description="User name for `http_basic`.")
    password: Text = Field("", description="Password for `http_basic`.", repr=False)

    @model_validator(mode="after")
    def _one_of_both(self) -> IronicSection:
        if (self.endpoint is None) is (self.cloud is None):
            raise ValueError("expected one of endpoint and cloud")
        if self.auth is IronicAuth.HTTP_BASIC and not (self.username and self.password):
            raise ValueError("expected username and password with auth http_basic")
        return self


def place(section: IronicSection) -> IronicPlace:
    """Which Ironic it is; its cloud is one with settings (`check`)."""
    if section.endpoint is not None:
        return IronicPlace(section.endpoint, section.auth, section.username, section.password)
    assert isinstance(section.cloud, CloudSection), "a mere name was refused"
    told = json.dumps(section.cloud.told(), sort_keys=True)
    return IronicPlace(cloud=told, name=section.cloud.name)


def enrolment(layers: Sequence[EnrolmentSection | None]) -> Enrolment:
    """What the layers say, the nearest first."""
    given = [layer for layer in layers if layer is not None]

    def pick(name: str, default: Any) -> Any:
        values = (getattr(layer, name) for layer in given)
        return next((value for value in values if value is not None), default)

    info = {name: pick(name, None) for name in FILES} | _merged(given, "driver_info")
    volumes: VolumesSection = pick("volumes", VolumesSection())
    properties = {"root_device": pick("root_device", None)} | _merged(given, "properties")
    image = {"image_source": pick("image", None), "image_checksum": pick("checksum", None)}
    instance = image | _merged(given, "instance_info")
    return Enrolment(
        way=pick("enrolment", Way.ENROL),
        driver=pick("driver", ""),
        name=pick("name", "{node}"),
        interfaces=settings(_merged(given, "interfaces")),
        driver_info=settings(info),
        properties=settings(properties),
        capabilities=settings(_merged(given, "capabilities")),
        extra=settings(_merged(given, "extra")),
        resource_class=pick("resource_class", "baremetal"),
        conductor_group=pick("conductor_group", ""),
        shard=pick("shard", ""),
        owner=pick("owner", ""),
        lessee=pick("lessee", ""),
        description=pick("description", ""),
        automated_clean=pick("automated_clean", None),
        connectors=tuple(_connector(each) for each in volumes.connectors),
        targets=tuple(_target(each) for each in volumes.targets),
        state=pick("state", Standing.AVAILABLE),
        instance=settings(instance),
    )


def _connector(section: ConnectorSection) -> Settings:
    return settings({"type": section.type, "connector_id": section.id})


def _target(section: TargetSection) -> Settings:
    told = {f"properties/{name}": value for name, value in section.properties.items()}
    return settings(
        {
            "volume_type": section.type,
            "boot_index": section.boot_index,
            "volume_id": section.volume_id,
            **told,
        }
    )


def _merged(layers: Sequence[EnrolmentSection], name: str) -> dict[str, object]:
    """By key, the nearest layer's value."""
    return {key: value for layer in reversed(layers) for key, value in _items(layer, name)}


def _items(layer: EnrolmentSection, name: str) -> Iterator[tuple[str, object]]:
    yield from (getattr(layer, name) or {}).items()
