"""The shape of the relay of a cloud."""

from __future__ import annotations

from dataclasses import dataclass, field

from nospoon.model.resources.keys import Key, Kind

RELAY = "relay"
"""Name of a relay, its port and its floating IP on their host. Those of nodes end in a number."""


@dataclass(frozen=True, slots=True)
class Relay:
    """A machine of a cloud by which guests reach this daemon's boot server. `image`, `flavor`: by
    name or id. `mac`: of its port; `address`: of that; `listens`: the TCP port there that leads to
    the boot server. `ssh`: the port of its sshd. `key`: changes with the keys by which it and the
    daemon know each other. `bmcs`: the network (CIDR) whose addresses BMCs have there, too, "" for
    none, and the port of their Redfish, 0 for none. `netboot`: it serves DHCP and TFTP there.
    `key_pair`: of the cloud, of others, "" for none.
    """

    image: str
    flavor: str
    mac: str
    address: str
    listens: int
    ssh: int = 22
    key: str = field(default="", repr=False)
    zone: str = ""
    bmcs: str = ""
    redfish: int = 0
    netboot: bool = False
    key_pair: str = ""


def relay_of(host: str) -> Key:
    """Names the relay of a host."""
    return Key(Kind.RELAY, host, RELAY)
