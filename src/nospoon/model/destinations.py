"""Where hosts are: libvirt connection URIs and ssh destinations, in the only forms that are used.

Both end in command lines and in libvirt's remote driver, where a query runs programs (`?command=`,
`?socket=`, `?netcat=`, https://libvirt.org/uri.html) and a word that begins with `-` is an option
(ssh(1)). So text becomes these values first, and nothing else is connected to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address
from typing import Self

_USER = r"(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]{0,63})"
_NAME = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}"
"""A name or IPv4 address; an alias of ssh_config(5) may have underscores."""
_IPV6 = r"[0-9A-Fa-f:][0-9A-Fa-f:.]{1,44}"
_PORT = r"(?P<port>[1-9][0-9]{0,4})"
_AUTHORITY = rf"(?:{_USER}@)?(?:(?P<name>{_NAME})|\[(?P<ipv6>{_IPV6})\])(?::{_PORT})?"
_URI = re.compile(rf"qemu\+(?P<transport>ssh|tls)://{_AUTHORITY}/(?P<mode>system|session)")
_LOCAL = re.compile(r"qemu:///(?P<mode>system|session)")
_SSH_URI = re.compile(rf"ssh://{_AUTHORITY}")
_SSH = re.compile(rf"(?:{_USER}@)?(?:(?P<name>{_NAME})|(?P<ipv6>{_IPV6}))")
_URI_FORM = "Write qemu:///system, qemu:///session, or qemu+ssh://HOST/system (or qemu+tls)"
_SSH_FORM = "Write HOST, USER@HOST or ssh://USER@HOST:PORT"


class Transport(StrEnum):
    """How libvirt is reached."""

    LOCAL = ""
    SSH = "ssh"
    TLS = "tls"


@dataclass(frozen=True, slots=True)
class Authority:
    """A machine on the network. `user` "" and `port` 0: the usual ones."""

    host: str
    user: str = ""
    port: int = 0

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{f'{self.user}@' if self.user else ''}{host}{f':{self.port}' if self.port else ''}"


@dataclass(frozen=True, slots=True)
class LibvirtUri:
    """A libvirtd of QEMU: here, where `authority` is None, or on another machine."""

    mode: str
    transport: Transport = Transport.LOCAL
    authority: Authority | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `ValueError`, which says what is wrong and how to write it."""
        local = _LOCAL.fullmatch(text)
        if local is not None:
            return cls(local["mode"])
        remote = _URI.fullmatch(text)
        authority = _authority(remote) if remote is not None else None
        if remote is None or authority is None:
            raise ValueError(
                f"expected a libvirt URI, got {_shown(text)}: {_wrong(text)}. {_URI_FORM}"
            )
        return cls(remote["mode"], Transport(remote["transport"]), authority)

    def __str__(self) -> str:
        if self.authority is None:
            return f"qemu:///{self.mode}"
        return f"qemu+{self.transport}://{self.authority}/{self.mode}"


@dataclass(frozen=True, slots=True)
class SshDestination:
    """Where ssh(1) connects to."""

    authority: Authority

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `ValueError`, which says how to write it."""
        found = _SSH_URI.fullmatch(text) or _SSH.fullmatch(text)
        authority = _authority(found) if found is not None else None
        if authority is None:
            raise ValueError(f"expected an ssh destination, got {_shown(text)}. {_SSH_FORM}")
        return cls(authority)


def _authority(found: re.Match[str]) -> Authority | None:
    """None for a port or an IPv6 address that cannot be."""
    given = found.groupdict()
    port, ipv6 = int(given.get("port") or 0), given["ipv6"]
    if port > 0xFFFF or (ipv6 is not None and not _is_ipv6(ipv6)):
        return None
    return Authority((ipv6 or given["name"]).lower(), given["user"] or "", port)


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}…")


def _wrong(text: str) -> str:
    """The first thing in a URI that keeps it from being used."""
    scheme, _, rest = text.partition("://")
    authority, _, path = rest.partition("/")
    if scheme not in ("qemu", "qemu+ssh", "qemu+tls"):
        return "its scheme is not qemu, qemu+ssh or qemu+tls"
    if "?" in rest or "#" in rest:
        return "a query (?…) or fragment (#…) is not allowed"
    if path not in ("system", "session"):
        return "its path is not /system or /session"
    if scheme == "qemu":
        return f"qemu:// takes no host, {scheme}+ssh:// does"
    return "its host, user or port is not valid" if authority else "it names no host"
