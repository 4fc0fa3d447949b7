"""Kinds of fields in a cluster file: sizes, MACs, names, ranges; text in, values out."""

from __future__ import annotations

import re
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, WithJsonSchema

from nospoon.clusterfile.section import Text, parse_text, shown
from nospoon.model.cluster import MOST_USER_DATA
from nospoon.model.destinations import LibvirtUri, SshDestination
from nospoon.model.names import NAME_PATTERN
from nospoon.protocols import checksums

UNITS = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "KiB": 2**10,
    "MB": 10**6,
    "MiB": 2**20,
    "GB": 10**9,
    "GiB": 2**30,
    "TB": 10**12,
    "TiB": 2**40,
}
SIZES_END = 1 << 63
"""Bytes: sizes of files and volumes are signed 64-bit numbers (off_t)."""
MOST_DISK = 2048 * UNITS["TiB"]
"""`qemu-img create` makes no larger qcow2 volume: its L1 table has 32 MiB at most, which with
clusters of 64 KiB is 2 PiB (QEMU, block/qcow2.h, QCOW_MAX_L1_SIZE)."""
MOST_MEMORY = 64 * UNITS["TiB"]
"""What Linux addresses on x86-64 with page tables of four levels: 46 bits (Linux,
Documentation/arch/x86/x86_64/5level-paging.rst)."""
IPV4 = 4
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]*)\Z")
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}\Z")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(ms|s|min|h|d)\Z")
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
MOST_DAYS = 3660
"""Of a time: it is added to dates, which Python knows up to the year 9999."""
_PORTS = re.compile(r"([0-9]+) *- *([0-9]+)\Z")
TRAIT_PATTERN = r"^(CUSTOM|COMPUTE|HW|MISC|OWNER|STORAGE)_[A-Z0-9_]{1,240}$"
MAX_TRAIT = 240
_TRAIT = re.compile(TRAIT_PATTERN.removesuffix("$") + r"\Z")
MAC_PATTERN = r"^(?!(00[:-]){5}00$)[0-9a-fA-F][02468aceACE]([:-][0-9a-fA-F]{2}){5}$"
LABEL_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$"
SERIAL_PATTERN = r"^([A-Za-z0-9_.+-]([A-Za-z0-9_.+ -]*[A-Za-z0-9_.+-])?)?$"
"""Characters that libvirt takes in serial numbers (its schema's diskSerial)."""
MOUNT_PATTERN = r"^(/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+$"
"""Absolute paths without `.`, `..` and hidden directories."""
PLACE_PATTERN = NAME_PATTERN.removesuffix("$") + r"(:[a-z]+)?$"
SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)? *(B|kB|KB|KiB|MB|MiB|GB|GiB|TB|TiB)$"


LONGEST_AMOUNT = 500
"""Characters of a size or time: a pattern looks at a million for a tenth of a second, in which no
other thread runs.
"""


def parse_size(value: object) -> int:
    """'8GiB' -> bytes. A bare number is refused: its unit would be a guess."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a size such as 8GiB, got {shown(value)}")
    text = str(value)
    match = _SIZE.match(text) if len(text) <= LONGEST_AMOUNT else None
    if match is None:
        raise ValueError(f"expected a size such as 8GiB, got {shown(value)}")
    number, unit = match.groups()
    if unit not in UNITS:
        guess = _unit_like(unit)
        raise ValueError(f"expected a size with a unit, got {shown(value)}. Write {number}{guess}")
    size = float(number) * UNITS[unit]
    if size >= SIZES_END:
        raise ValueError(f"expected a size of less than {SIZES_END // UNITS['TiB']}TiB")
    if size != int(size) or size <= 0:
        raise ValueError(f"expected a whole, positive number of bytes, got {shown(value)}")
    return int(size)


def parse_memory(value: object) -> int:
    """A size in whole mebibytes: hypervisors round what is finer, and drift would never end."""
    size = parse_size(value)
    if size % UNITS["MiB"]:
        raise ValueError(
            f"expected whole mebibytes, got {shown(value)}. Write {-(-size // UNITS['MiB'])}MiB"
        )
    return _at_most(size, MOST_MEMORY, value)


def parse_disk(value: object) -> int:
    """The size of a disk."""
    return _at_most(parse_size(value), MOST_DISK, value)


def _at_most(size: int, most: int, value: object) -> int:
    if size > most:
        raise ValueError(f"expected at most {most // UNITS['TiB']}TiB, got {value}")
    return size


def _unit_like(unit: str) -> str:
    letter = unit[:1].upper()
    return f"{letter}iB" if letter in set("KMGT") else "MiB or GiB"


def parse_mac(value: object) -> str:
    """A unicast MAC address, in lower case with colons (IEEE 802 §8.2)."""
    text = str(value).lower().replace("-", ":") if isinstance(value, str) else ""
    if not _MAC.match(text):
        raise ValueError(f"expected a MAC address such as 52:54:00:12:34:56, got {shown(value)}")
    if int(text[:2], 16) & 1:
        raise ValueError(
            f"expected a unicast MAC address, got the multicast address {shown(value)}"
        )
    if not int(text.replace(":", ""), 16):
        raise ValueError("00:00:00:00:00:00 is not a valid NIC address")
    return text


def parse_address(value: object) -> object:
    """An IPv4 or IPv6 address, as text or already one; without a zone, which may be any text."""
    if isinstance(value, IPv4Address | IPv6Address):
        return value
    wrong = f"expected an IPv4 or IPv6 address, got {shown(value)}"
    try:
        address = ip_address(parse_text(value))
    except ValueError:
        raise ValueError(wrong) from None
    if "%" in str(address):
        raise ValueError(wrong)
    return address


def parse_duration(value: object) -> float:
    """'1.5s', '200ms' or '2h' -> seconds."""
    is_short = isinstance(value, str) and len(value) <= LONGEST_AMOUNT
    match = _DURATION.match(str(value)) if is_short else None
    if match is None:
        raise ValueError(f"expected a time such as 2s, 200ms, 30min or 2h, got {shown(value)}")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > MOST_DAYS * 86400:  # also infinity: `float` makes it of 310 digits
        raise ValueError(f"expected at most {MOST_DAYS} days, got {shown(value)}")
    return seconds


def parse_ports(value: object) -> tuple[int, int]:
    """'6230-6330' -> (6230, 6330), both included."""
    match = _PORTS.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"expected a port range such as 6230-6330, got {shown(value)}")
    first, last = int(match[1]), int(match[2])
    if not 1 <= first <= last <= 65535:
        raise ValueError(f"expected ports from 1 to 65535, the lower one first, got {shown(value)}")
    return first, last


MAX_URL = 8000
"""Characters of a URL: what servers are to support at least (RFC 9110 §4.1)."""
MAX_SHOWN = 200
"""Of these, in a message."""


def parse_url(value: object) -> str:
    """An http or https URL of what is looked for below it, without slashes at its end."""
    return parse_whole_url(value).rstrip("/")


def parse_whole_url(value: object) -> str:
    """An http or https URL as it is: `/hook` and `/hook/` are two (RFC 3986 §6.2.3)."""
    url = parse_text(value)
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"expected a URL that begins with http:// or https://, got {shown(url)}")
    wrong = wrong_in_url(url)
    if wrong:
        raise ValueError(f"expected a URL, got {url[:MAX_SHOWN]!r}: {wrong}")
    return url


def wrong_in_url(url: str) -> str:
    """Why it is none by RFC 3986 §3, "" where it is one: a host, a port that may be, nothing that
    would have to be escaped.
    """
    if len(url) > MAX_URL:
        return f"it has more than {MAX_URL} characters"
    try:
        parts = urlsplit(url)
        wrong = "" if parts.hostname else "it names no host"
        _ = parts.port  # looked at here, where it is read
    except ValueError:
        wrong = "its host or port is wrong"
    if not wrong and any(char.isspace() or not char.isprintable() for char in url):
        wrong = "it has a blank; write %20"
    return wrong


def parse_checksum(value: object) -> str:
    """A SHA-256 or SHA-512 as `sha256:DIGITS`, or the URL of a list of them."""
    text = parse_text(value)
    if text.startswith(("http://", "https://")):
        return text
    found = checksums.parse(text)
    if found is None:
        raise ValueError(
            "expected a SHA-256 or SHA-512 in hexadecimal digits, as sha256:… or sha512:…, or the "
            f"URL of a list of them, got {shown(value)}"
        )
    return str(found)


def parse_volume(value: object) -> object:
    """POOL/VOLUME of libvirt's; no path, for the daemon opens none that a client names."""
    pool, _, name = parse_text(value).partition("/")
    if not pool or not name:
        raise ValueError(
            f"expected a volume of a libvirt storage pool as POOL/VOLUME, got {shown(value)}. "
            "A pool of a directory: `virsh pool-create-as POOL dir --target DIRECTORY`"
        )
    return value


def parse_libvirt(value: object) -> object:
    """A libvirt connection URI without a query: that may name programs to run."""
    LibvirtUri.parse(parse_text(value))
    return value


def parse_ssh(value: object) -> str:
    """An ssh destination, "" for this machine; it ends in a command line."""
    text = parse_text(value)
    if text:
        SshDestination.parse(text)
    return text


def parse_user_data(value: object) -> object:
    """User data of cloud-init. A path is for the client, which writes the file's text in its place:
    the daemon opens none that a client names.
    """
    if isinstance(value, dict):
        raise ValueError(
            "expected user data as text: only the nospoon command reads a file that is named here"
        )
    if not USER_DATA.match(parse_text(value)):
        raise ValueError(
            f"expected user data of cloud-init, got {shown(value)}. Begin it with a line "
            "`#cloud-config`, or `#!` and a program"
        )
    return value


def parse_ssh_key(value: object) -> object:
    """A line of an authorized_keys file (sshd(8))."""
    if not SSH_KEY.match(parse_text(value)):
        raise ValueError(
            "expected a public ssh key in one line, such as `ssh-ed25519 AAAA… me@here`, got "
            f"{shown(value)}. `cat ~/.ssh/id_ed25519.pub` shows yours"
        )
    return value


def parse_nic_address(value: object) -> str:
    """`dhcp`, or an address of a host with the prefix length of its network."""
    text = parse_text(value)
    if text == "dhcp":
        return text
    address, slash, length = text.partition("/")
    try:
        ip_address(address)
        found = ip_interface(text)
    except ValueError:
        found = None
    if found is None or not slash or not length.isdecimal():
        raise ValueError(
            "expected dhcp, or an address with its prefix length such as 172.30.0.10/24, got "
            f"{shown(value)}"
        )
    network = found.network
    ends = {network.network_address, network.broadcast_address} if network.num_addresses > 2 else ()
    if found.ip in ends:
        raise ValueError(f"expected the address of a host, got {value}: it is that of its network")
    return str(found)


def parse_trait(value: object) -> str:
    """A trait's name."""
    if isinstance(value, str) and _TRAIT.match(value):
        return value
    begin = value[:MAX_TRAIT].upper() if isinstance(value, str) else ""
    own = re.sub(r"[^A-Z0-9_]", "_", begin)
    raise ValueError(
        f"expected a trait, CUSTOM_… or one that os-traits has, got {shown(value)}"
        + (f". Write CUSTOM_{own}" if own else "")
    )


def parse_networks(value: object) -> object:
    """One network, or a list of an IPv4 and an IPv6 one, in CIDR form without host bits."""
    listed = value if isinstance(value, list) else [value] if value is not None else []
    found = tuple(parse_network(each) for each in listed)
    if len({each.version for each in found}) < len(found):
        raise ValueError("expected at most one IPv4 and one IPv6 network")
    return found


def parse_network(value: object) -> IPv4Network | IPv6Network:
    """A network in CIDR form without host bits."""
    address, _, length = value.partition("/") if isinstance(value, str) else ("", "", "")
    try:
        known = ip_address(address)
    except ValueError:
        raise ValueError(
            "expected an IPv4 or IPv6 network such as 172.30.0.0/24 or fd00:30::/64, got "
            f"{shown(value)}"
        ) from None
    most, usual = known.max_prefixlen, 24 if known.version == IPV4 else 64
    if not length:
        around = ip_network(f"{address}/{usual}", strict=False)
        raise ValueError(f"expected a network, got the address {address}. Write {around}")
    if not (length.isascii() and length.isdecimal() and int(length[:4]) <= most):
        raise ValueError(
            f"expected a prefix length of 0 to {most} for IPv{known.version}, got {shown(length)}"
        )
    found = ip_network(f"{address}/{length}", strict=False)
    if found.network_address != known:
        raise ValueError(f"expected a network without host bits, got {value}. Write {found}")
    return found


def _text_like(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern})


USER_DATA_PATTERN = r"^(#|Content-Type:|MIME-Version:)"
USER_DATA = re.compile(USER_DATA_PATTERN)
"""What cloud-init knows by its first line
(https://docs.cloud-init.io/en/latest/explanation/format.html).
"""
SSH_KEY_PATTERN = r"^(ssh|ecdsa|sk)-[!-~]+ [!-~]+( [ -~]*)?$"
SSH_KEY = re.compile(SSH_KEY_PATTERN.removesuffix("$") + r"\Z")
UserData = Annotated[
    str,
    BeforeValidator(parse_user_data),
    Field(max_length=MOST_USER_DATA),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": USER_DATA_PATTERN, "maxLength": MOST_USER_DATA},
                {
                    "type": "object",
                    "properties": {"file": {"type": "string"}},
                    "required": ["file"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
SshKey = Annotated[
    str, BeforeValidator(parse_ssh_key), Field(max_length=8192),
    WithJsonSchema({"type": "string", "pattern": SSH_KEY_PATTERN, "maxLength": 8192}),
]  # fmt: skip
NicAddress = Annotated[
    str, BeforeValidator(parse_nic_address), _text_like(r"^(dhcp|[0-9a-fA-F.:]+/[0-9]+)$")
]
Url = Annotated[str, BeforeValidator(parse_url), _text_like("^https?://")]
WholeUrl = Annotated[str, BeforeValidator(parse_whole_url), _text_like("^https?://")]
Address = Annotated[IPv4Address | IPv6Address, BeforeValidator(parse_address)]
Pool = Annotated[
    IPv4Network, BeforeValidator(parse_text), _text_like(r"^\d+\.\d+\.\d+\.\d+(/\d+)?$")
]
Checksum = Annotated[
    str,
    BeforeValidator(parse_checksum),
    _text_like("^(https?://|(sha256:)?[0-9a-fA-F]{64}$|(sha512:)?[0-9a-fA-F]{128}$)"),
]
VolumeName = Annotated[str, BeforeValidator(parse_volume), _text_like("^[^/]+/")]
Uri = Annotated[
    str,
    BeforeValidator(parse_libvirt),
    _text_like(r"^qemu(:///|\+(ssh|tls)://[^/?#]+/)(system|session)$"),
]
Size = Annotated[
    int, BeforeValidator(parse_disk), WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN})
]
Memory = Annotated[
    int, BeforeValidator(parse_memory), WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN})
]
Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? *(ms|s|min|h|d)$"}),
]
_CIDR = {"type": "string", "pattern": r"^[0-9a-fA-F.:]+/\d+$"}
Networks = Annotated[
    tuple[IPv4Network | IPv6Network, ...],
    BeforeValidator(parse_networks),
    WithJsonSchema(
        {"anyOf": [_CIDR, {"type": "array", "items": _CIDR, "maxItems": 2}, {"type": "null"}]}
    ),
]
"""What a network is in CIDR form: nothing, one of a kind, or one of each."""
Mac = Annotated[
    str,
    BeforeValidator(parse_mac),
    WithJsonSchema({"type": "string", "pattern": MAC_PATTERN}),
]
Ports = Annotated[
    tuple[int, int],
    BeforeValidator(parse_ports),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+ *- *[0-9]+$"}),
]
Trait = Annotated[
    str, BeforeValidator(parse_trait), WithJsonSchema({"type": "string", "pattern": TRAIT_PATTERN})
]
"""A trait of one's own or of os-traits' namespaces (https://docs.openstack.org/os-traits/)."""
LabelValue = Annotated[Text, Field(max_length=255)]
Label = Annotated[str, Field(pattern=LABEL_PATTERN)]
"""The key of a label, as Kubernetes has them."""
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
"""A name by RFC 1123 §2.1, in lower case: it becomes a host name and part of a domain's name."""
Place = Annotated[str, Field(pattern=PLACE_PATTERN)]
"""The name of a host, or of a connection that it has besides its first."""
