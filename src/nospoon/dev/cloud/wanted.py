"""Which cloud is wanted, and where its services listen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

REGION = "RegionOne"
ADMIN_CLOUD, CLOUD = "nospoon-cloud-admin", "nospoon-cloud"
"""Names in clouds.yaml: the administrator, and a member of an ordinary project."""
PROJECT = "nospoon"
"""The ordinary project, and its user."""
INSIDE = Path("/run/cloud")
"""The state directory as the services see it. Short, and the same for every cloud: a UNIX socket
has 107 bytes (unix(7)), and the databases, which contain paths, can be kept for the next cloud.
"""


class Api(StrEnum):
    """What clients reach, in the order of its ports."""

    KEYSTONE = "keystone"
    PLACEMENT = "placement"
    GLANCE = "glance"
    NEUTRON = "neutron"
    NOVA = "nova"
    SERIAL = "serial"
    """The proxy of serial consoles (WebSocket)."""
    IRONIC = "ironic"
    """It answers where Ironic is in the cloud."""
    CINDER = "cinder"
    """It answers where volumes are in the cloud."""


LAST_BASE = 65535 - len(Api)
"""The last one that leaves a port for each, and one for Ironic's files."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A cloud.

    `port_base`: the first of its ports, on loopback. `public`: the range of its provider network;
    the host has the first address. `container`: the host gets no interface to that network.
    """

    port_base: int = 7770
    public: IPv4Network = IPv4Network("172.24.4.0/24")
    container: bool = False

    def port(self, api: Api) -> int:
        """Its port, both on the host and in the cloud's own network namespace."""
        index = list(Api).index(api)
        return self.port_base + index + (index > list(Api).index(Api.IRONIC))

    def url(self, api: Api) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port(api)}"

    @property
    def gateway(self) -> IPv4Address:
        """The first address of the provider network: the host's."""
        return self.public[1]

    @property
    def conductor(self) -> IPv4Address:
        """The second one: Ironic's, where machines reach it."""
        return self.public[2]

    @property
    def files_port(self) -> int:
        """Where Ironic's files are, at its address alone: the port after that of its API."""
        return self.port(Api.IRONIC) + 1
