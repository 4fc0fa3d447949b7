"""The configuration of one dnsmasq: DHCP and TFTP on one bridge, and no DNS.

Who gets which loader is told by three things in a DHCP request: the client's architecture (option
93, RFC 4578 and its registry: 0 BIOS, 7 and 9 x64 UEFI, 11 ARM 64-bit UEFI), whether it is iPXE
already (option 175), and whether its reservation says that it starts signed loaders only.

OVMF that leaves PXE empty-handed goes on with UEFI HTTP Boot (architectures 16, 19) and looks for a
server for a minute. It is told of one which has nothing, so that it goes on at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Address, IPv6Interface

from nospoon.errors import ProviderError
from nospoon.model.mac import MAC, is_mac
from nospoon.model.resources.netboot import Loader, NetbootService, Reservation

SECURE = "secure"
LEASE = "1h"
LEASE_WORDS, NO_NAME = 5, "*"
_OPTION = re.compile(r"ignore|infinite|[0-9]+[smhdw]?")
"""Names of hosts that are something else on a line of a host (dnsmasq(8), --dhcp-host)."""
LEASES6 = 1 << 16
"""As many of IPv6 there may be on one network."""
CLIENTS6, NEXT6 = 4, 1 << 32
"""Clients that may have addresses of one NIC at a time; from one's address to the next one's."""
ENTRY_SCRIPT = "boot.ipxe"
MOST_SHOWN = 40
"""Characters of a wrong MAC in an error."""
ARCHITECTURES = (("bios", 0), ("x64", 7), ("x64", 9), ("arm64", 11), ("http", 16), ("http", 19))
LOADERS = (
    # a signed chain also for iPXE in a NIC's ROM: it cannot start kernels under secure boot
    ("tag:x64,tag:secure", "shimx64.efi"),
    ("tag:arm64", "grubaa64.efi"),
    ("tag:ipxe,tag:!secure,tag:!arm64", ENTRY_SCRIPT),
    ("tag:!ipxe,tag:bios", "undionly.kpxe"),
    ("tag:!ipxe,tag:x64,tag:!secure", "snponly.efi"),
)


@dataclass(frozen=True, slots=True)
class Places:
    """Files and directories of one dnsmasq; `user` is whom it becomes, "" stays who it is.

    `log`: "" for the system's log, which has a bound of its own where the daemon can set none.
    """

    hosts: str
    leases: str
    tftp: str
    pid: str
    log: str
    user: str = ""


def configuration(service: NetbootService, places: Places, *, http_port: int) -> str:
    """dnsmasq.conf; each line is an option of dnsmasq(8) without its dashes.

    `http_port`: where the daemon answers on the service's address.
    """
    return _lines(
        *(() if service.routed else ("port=0",)),  # DNS for those who reach what names lead to
        f"interface={service.bridge}",
        "except-interface=lo",
        "bind-dynamic",  # beside other dnsmasqs, and also when the bridge comes later
        *([f"user={places.user}"] if places.user else []),
        f"pid-file={places.pid}",
        *([f"log-facility={places.log}"] if places.log else []),
        f"dhcp-hostsdir={places.hosts}",
        f"dhcp-leasefile={places.leases}",
        "dhcp-authoritative",
        f"dhcp-lease-max={_most_leases(service)}",
        "no-ping",  # addresses are ours to give; pinging each costs 3 s
        f"enable-tftp={service.bridge}",
        f"tftp-root={places.tftp}",
        "tftp-max=500",
        *(_ipv4(service, http_port) if service.address else ()),
        *(_ipv6(service) if service.address6 else ()),
    )


def _most_leases(service: NetbootService) -> int:
    """Of both families together, as dnsmasq counts them."""
    four = IPv4Interface(service.address).network.num_addresses if service.address else 0
    return four + (LEASES6 if service.address6 else 0)


def _ipv4(service: NetbootService, http_port: int) -> Iterator[str]:
    interface = IPv4Interface(service.address)
    first = str(interface.network.network_address)
    yield f"dhcp-range={_range(first, service.range)},{interface.netmask},{LEASE}"
    if service.router or not service.routed:  # none where it leads nowhere; else its own address
        yield f"dhcp-option=option:router{f',{service.router}' if service.router else ''}"
    for tag, number in ARCHITECTURES:
        yield f"dhcp-match=set:{tag},option:client-arch,{number}"
    yield "dhcp-match=set:ipxe,175"
    yield "dhcp-option=tag:ipxe,encap:175,176,1b"  # no-pxedhcp: don't wait for a ProxyDHCP server
    yield from (f"dhcp-boot={tags},{loader},,{interface.ip}" for tags, loader in LOADERS)
    yield "dhcp-option-force=tag:http,60,HTTPClient"
    yield f"dhcp-boot=tag:http,http://{interface.ip}:{http_port}/nothing"


def _ipv6(service: NetbootService) -> Iterator[str]:
    """DHCPv6 and router advertisements (RFC 8415, 4861, 5970). Machines may make addresses of their
    own, too (RFC 4862); a router of lifetime 0 is the default route of no one.
    """
    interface = IPv6Interface(service.address6)
    first = str(interface.network.network_address)
    yield f"dhcp-range={_range(first, service.range6)},slaac,{interface.network.prefixlen},{LEASE}"
    yield "enable-ra"
    if not service.routed:
        yield f"ra-param={service.bridge},0,0"
    for tag, number in ARCHITECTURES:
        yield f"dhcp-match=set:{tag},option6:61,00:{number:02x}"
    yield "dhcp-userclass=set:ipxe,iPXE"
    for tags, loader in LOADERS:
        yield f"dhcp-option={tags},option6:bootfile-url,tftp://[{interface.ip}]/{loader}"


def _range(network: str, addresses: tuple[str, str]) -> str:
    """Addresses for strangers, or none: then those who are known get theirs, and no one else."""
    first, last = addresses
    return f"{first},{last}" if first else f"{network},static"


def refuse_odd(reservations: Iterable[Reservation]) -> None:
    """Raises `ProviderError` for what a host takes for a MAC: it would be the name of a file."""
    for each in reservations:
        for mac in each.macs:
            if not is_mac(mac.lower()):
                shown = repr(mac[:MOST_SHOWN])
                raise ProviderError(f"node {each.hostname}: expected a MAC address, got {shown}")


def reservation(each: Reservation) -> str:
    """The content of one file in dhcp-hostsdir. Of several MACs on a line one at a time has the
    address, and takes it over from another that has leased it (dnsmasq(8), --dhcp-host).
    """
    macs = ",".join(each.macs).lower()
    tag = f"set:{SECURE}," if each.loader is Loader.SHIM else ""
    six = addresses6(each.address6) if each.address6 else ()
    where = ",".join(filter(None, (each.address, *(f"[{address}]" for address in six))))
    end = "." if _OPTION.fullmatch(each.hostname) else ""  # which is no part of a name
    return f"{macs},{tag}{where},{each.hostname}{end}\n"


def addresses6(first: str) -> Iterator[str]:
    """A NIC's addresses, the one that is given first at the end: dnsmasq reads them backwards.

    Firmware and operating system ask as different clients (RFC 8415 §11), which have different
    addresses as long as the lease of the earlier one lasts.
    """
    address = IPv6Address(first)
    yield from (str(address + number * NEXT6) for number in reversed(range(CLIENTS6)))


def reservation_file(each: Reservation) -> str:
    """The name of that file."""
    return each.mac.lower().replace(":", "-")


def without_left(leases: str, before: Iterable[str], now: Iterable[str]) -> str:
    """A file of leases without those of who had a reservation and has none any more: as long as
    they last, dnsmasq gives the address to no one. `before`, `now`: contents of dhcp-hostsdir.

    An address of which one of several MACs is let go may be leased by either, which nothing tells:
    who has it still gets it again.
    """
    had, has = _holders(before), _holders(now)
    left = {holder for holder, macs in had.items() if not macs <= has.get(holder, frozenset())}
    return "\n".join(line for line in leases.split("\n") if _holder(line) not in left)


def _holders(reservations: Iterable[str]) -> dict[str, frozenset[str]]:
    """What leases call who has a reservation -> his MACs. They tell the MAC itself; of IPv6, where
    they tell none, the address and the name, which only the last of several leases has.
    """
    found: dict[str, frozenset[str]] = {}
    for line in reservations:
        *words, name = line.strip().split(",")
        macs = frozenset(word for word in words if MAC.fullmatch(word))
        six = [word.strip("[]") for word in words if word.startswith("[")]
        found |= {mac: frozenset({mac}) for mac in macs}
        names = (name.rstrip("."), NO_NAME)
        found |= {f"{address} {each}": macs for address in six for each in names}
    return found


def _holder(lease: str) -> str:
    """A line: its end, the MAC or IAID, the address, the name or *, the client's ID."""
    words = lease.split()
    if len(words) < LEASE_WORDS:
        return ""
    return f"{words[2]} {words[3]}" if ":" in words[2] else words[1].lower()


def _lines(*lines: str) -> str:
    return "\n".join(("# written by nospoon, and written again at each start", *lines)) + "\n"
