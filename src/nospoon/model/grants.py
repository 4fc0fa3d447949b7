"""What members of the group of root's daemon may use: the defaults, and what root's file adds.

A member is a user whom NOSPOON_GROUP lets in; whoever runs the daemon, and root, are not limited.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from nospoon.model.cluster import Host
from nospoon.model.destinations import LibvirtUri, SshDestination

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
FIRST_UNPRIVILEGED = 1024
"""The first port that any user may listen on (ip-sysctl: ip_unprivileged_port_start)."""
PRIVATE: tuple[Network, ...] = tuple(
    ip_network(each)
    for each in (
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",  # RFC 1918
        "100.64.0.0/10",  # RFC 6598
        "127.0.0.0/8", "::1/128",  # loopback, RFC 1122 §3.2.1.3, RFC 4291 §2.5.3
        "fc00::/7",  # RFC 4193
    )
)  # fmt: skip
"""Networks that no one else on the internet has, link-local ones apart."""
SESSION = LibvirtUri("session")
SYSTEM = LibvirtUri("system")


@dataclass(frozen=True, slots=True)
class GrantedHost:
    """A host that members may use: commands run there by `ssh`, here for None. `address`: to which
    tunnels of their networks may lead, "" for none.
    """

    libvirt: LibvirtUri
    ssh: SshDestination | None = None
    address: str = ""


@dataclass(frozen=True, slots=True)
class Grants:
    """What members may use beyond the defaults. `ports`: ranges, both ends included. `bridges`:
    bridges and interfaces of hosts that networks may plug into, each with all its VLANs.
    `machines`: patterns (fnmatch) of names of machines of others that may be adopted.
    """

    hosts: tuple[GrantedHost, ...] = ()
    networks: tuple[Network, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    bridges: frozenset[str] = frozenset()
    machines: tuple[str, ...] = ()

    def has_machine(self, name: str) -> bool:
        """Whether members may adopt machines of this name, on the hosts that they may use."""
        return any(fnmatchcase(name, pattern) for pattern in self.machines)

    def why_not_host(self, host: Host) -> str:
        """Why members may not use a host, "" where they may."""
        if host.connection.login:
            return ""  # it is the file's, and no other is used
        if not host.declares.is_real:
            return "" if not host.ssh else "a simulated host runs no commands by ssh"
        if host.declares.shares_networks:
            return self._why_not_beside(host)
        try:
            uri = LibvirtUri.parse(host.where)
            ssh = SshDestination.parse(host.ssh) if host.ssh else None
        except ValueError as error:
            return str(error)
        if uri == SESSION:
            return f"{uri} is the session of the user who runs the daemon"
        if uri == SYSTEM and ssh is None:
            return ""
        listed = any(each.libvirt == uri and ssh in (None, each.ssh) for each in self.hosts)
        return "" if listed else "the daemon would connect with its own user's keys"

    def _why_not_beside(self, host: Host) -> str:
        """Of a connection beside a libvirt, by the way to its machine."""
        if host.connection.socket:
            return "what listens at a socket that a file names would be obeyed as root's engine"
        if not host.ssh:
            return ""
        try:
            ssh = SshDestination.parse(host.ssh)
        except ValueError as error:
            return str(error)
        listed = any(each.ssh == ssh for each in self.hosts)
        return "" if listed else "the daemon would connect with its own user's keys"

    def has_tunnels(self, host: Host) -> bool:
        """Whether tunnels of members may lead to the address that a file gives a host: what is sent
        there reaches everyone who has a tunnel of that number (RFC 7348 §7).
        """
        try:
            uri = LibvirtUri.parse(host.where)
            ssh = SshDestination.parse(host.ssh) if host.ssh else None
        except ValueError:
            return False
        return any(
            each.libvirt == uri and ssh in (None, each.ssh) and each.address == host.address
            for each in self.hosts
        )

    def has_network(self, network: Network) -> bool:
        """Whether members may take addresses of this network."""
        return any(
            isinstance(network, type(each)) and network.subnet_of(each)  # type: ignore[arg-type]
            for each in (*PRIVATE, *self.networks)
        )

    def has_ports(self, first: int, last: int) -> bool:
        """Whether members may listen on all of these ports; 0 is any free one."""
        privileged = range(first, min(last, FIRST_UNPRIVILEGED - 1) + 1)
        return all(port == 0 or any(a <= port <= b for a, b in self.ports) for port in privileged)


DEFAULTS = Grants()
