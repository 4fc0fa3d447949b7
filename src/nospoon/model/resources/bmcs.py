"""Shapes of BMCs, and of the outlets of PDUs that feed their nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from nospoon.model.cluster import BmcProtocol
from nospoon.model.machine import PowerPolicy


@dataclass(frozen=True, slots=True)
class Outlet:
    """The outlet that feeds a node: its number on a PDU, which answers SNMP at address and port.

    `v2c`: SNMP v1 and v2c as well as v3.
    """

    pdu: UUID
    name: str
    address: str
    port: int
    number: int
    v2c: bool = True


@dataclass(frozen=True, slots=True)
class Bmc:
    """A node's BMC. `uuid` is its machine's. `ipmi_port` 0: IPMI is not served, likewise Redfish.

    `pool`: the network (CIDR) from which it has an address of its own, "" when it shares one.
    `disk_sizes`: what its inventory tells of the machine's disks, in bytes, in their order.
    `tls`: Redfish is spoken over TLS. `certificate`: SHA-256 of that which the cluster file gives,
    "" for one of its own. `restore`: the power restore policy of the cluster file, None where that
    has none. `redfish_login` False: Redfish answers without a login.

    Credentials are not part of the shape: they live encrypted in the store, and
    `credentials_key` changes when they do (a digest, never the password).
    """

    uuid: UUID
    protocols: tuple[BmcProtocol, ...]
    address: str
    ipmi_port: int
    redfish_port: int
    username: str
    credentials_key: str = field(default="", repr=False)
    pool: str = ""
    outlet: Outlet | None = None
    disk_sizes: tuple[int, ...] = ()
    tls: bool = False
    certificate: str = ""
    restore: PowerPolicy | None = None
    redfish_login: bool = True

    @property
    def policy(self) -> PowerPolicy:
        """The power restore policy that it starts with. What a PDU's outlet feeds goes on with it,
        as drivers that switch machines by their PDUs expect.
        """
        fed = PowerPolicy.ALWAYS_ON if self.outlet is not None else PowerPolicy.PREVIOUS
        return self.restore or fed

    @property
    def ipmi(self) -> str:
        """Where IPMI answers, as host:port; "" when it is not served."""
        return _place(self.address, self.ipmi_port)

    @property
    def redfish(self) -> str:
        """Where Redfish answers, as host:port; "" when it is not served."""
        return _place(self.address, self.redfish_port)


@dataclass(frozen=True, slots=True)
class Secrets:
    """What a client needs to log in to a node's BMC and its PDU. `k_g` in hexadecimal digits; ""
    for what there is none of.
    """

    password: str = field(repr=False)
    k_g: str = field(default="", repr=False)
    pdu_secret: str = field(default="", repr=False)


def _place(address: str, port: int) -> str:
    """IPv6 addresses go in brackets (RFC 3986 §3.2.2)."""
    host = f"[{address}]" if ":" in address else address
    return f"{host}:{port}" if port else ""
