"""Enrolment in Ironic: what the file says of it, and what nospoon makes there.

Names are those of Ironic's API (https://docs.openstack.org/api-ref/baremetal/).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar
from uuid import UUID

from nospoon.model.declared import CallLimits

BLANK = "blank"
"""The state of a deployed node whose disk is removed or made again: nothing is on it any more."""
ORPHANED = "orphaned"
"""The state of a node that no file has any more, and whose BMC no one serves."""


class Standing(StrEnum):
    """How far a node is brought, in the order of Ironic's states."""

    ENROLL = "enroll"
    MANAGEABLE = "manageable"
    INSPECTED = "inspected"
    AVAILABLE = "available"
    ACTIVE = "active"


class Way(StrEnum):
    """How a node comes into Ironic: as we describe it, or as Ironic finds it by itself."""

    ENROL = "enrol"
    DISCOVER = "discover"


class IronicAuth(StrEnum):
    """How a standalone Ironic knows its callers."""

    NONE = "none"
    HTTP_BASIC = "http_basic"


@dataclass(frozen=True, slots=True)
class IronicPlace:
    """Which Ironic. `endpoint`: a standalone one's URL; else `cloud`: what openstacksdk is told of
    the cloud `name`, as JSON. `nova`: there may be flavors of ours in its Nova. `calls`: of it, and
    of the Nova and the Placement of its cloud, each.
    """

    calls: ClassVar = CallLimits()

    endpoint: str = ""
    auth: IronicAuth = IronicAuth.NONE
    username: str = ""
    password: str = field(default="", repr=False)
    cloud: str = field(default="", repr=False)
    name: str = ""
    nova: bool = False

    def __str__(self) -> str:
        return self.endpoint or f"cloud {self.name}"

    @property
    def where(self) -> tuple[str, str]:
        """Its URL, or its Keystone's, and region: the same for the same Ironic."""
        told = json.loads(self.cloud or "{}")
        auth = told.get("auth", {})
        url = (
            told.get("baremetal_endpoint_override") or auth.get("endpoint") or auth.get("auth_url")
        )
        return self.endpoint or str(url), str(told.get("region_name", ""))


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """One value by its name; `value` is JSON with sorted keys, so that equal values are equal."""

    name: str
    value: str


Settings = tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Enrolment:
    """What the file says of a node for Ironic. `driver` "": by what its BMC speaks.

    `automated_clean` None leaves it to the conductor. `instance`: what is deployed, as Ironic's
    `instance_info`, for the state ACTIVE. `name`, and texts of `connectors` and `targets` (volumes
    to boot from): with {cluster} and {node} in them.
    """

    way: Way = Way.ENROL
    driver: str = ""
    name: str = "{node}"
    interfaces: Settings = ()
    driver_info: Settings = ()
    properties: Settings = ()
    capabilities: Settings = ()
    extra: Settings = ()
    resource_class: str = "baremetal"
    conductor_group: str = ""
    shard: str = ""
    owner: str = ""
    lessee: str = ""
    description: str = ""
    automated_clean: bool | None = None
    connectors: tuple[Settings, ...] = ()
    targets: tuple[Settings, ...] = ()
    state: Standing = Standing.AVAILABLE
    instance: Settings = ()


@dataclass(frozen=True, slots=True)
class IronicNode:
    """A node. `settings` by their paths: `driver`, `driver_info/ipmi_port` …; only those are ours.

    Credentials are no part of it; `credentials_key` changes when they do.
    """

    uuid: UUID
    settings: Settings
    traits: tuple[str, ...] = ()
    credentials_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class IronicPortgroup:
    """A bond of a node's ports."""

    uuid: UUID
    node: UUID
    settings: Settings


@dataclass(frozen=True, slots=True)
class IronicPort:
    """A port of a node, in a portgroup or in none."""

    uuid: UUID
    node: UUID
    settings: Settings
    portgroup: UUID | None = None


@dataclass(frozen=True, slots=True)
class IronicConnector:
    """By what a node is known to a storage system (its iSCSI initiator, say)."""

    uuid: UUID
    node: UUID
    settings: Settings


@dataclass(frozen=True, slots=True)
class IronicTarget:
    """A volume that a node may boot from."""

    uuid: UUID
    node: UUID
    settings: Settings


@dataclass(frozen=True, slots=True)
class Held:
    """What an Ironic has, whosever: the UUIDs of its nodes by their names, and of ports and their
    nodes by MAC, in small letters.
    """

    names: Mapping[str, UUID]
    macs: Mapping[str, tuple[UUID, UUID]]


class Leaving(StrEnum):
    """What becomes of a cluster's nodes in Ironic when it goes down."""

    REMOVE = "remove"
    KEEP = "keep"
    """They stay there."""
    FORGET = "forget"
    """Ironic is gone for good, and is not asked."""


@dataclass(frozen=True, slots=True)
class IronicStanding:
    """How far a node is to be: `state` is a Standing, or Ironic's own word for
    where it is instead. `settings`: what is deployed on it, as its `instance_info`. `roots`: the
    volumes on one of which a deployment puts it, or has; None where that is not known. They say
    how it came about, and differ from nothing. `protected`: Ironic refuses to undeploy, rebuild or
    delete it.
    """

    node: UUID
    state: str
    settings: Settings = ()
    roots: tuple[str, ...] | None = field(default=None, compare=False)
    protected: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class IronicDiscovery:
    """A node that is on, from the network, for Ironic to find it; or that Ironic has found."""

    node: UUID
