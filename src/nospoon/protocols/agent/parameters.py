"""What a ramdisk is told when it boots: kernel parameters, and the texts that carry them.

iPXE scripts as Ironic makes them (https://ipxe.org/scripting), grub.cfg and isolinux.cfg of its
virtual media.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

API = "ipa-api-url"
TOKEN = "ipa-agent-token"  # noqa: S105  (the parameter's name)
INSPECTION = "ipa-inspection-callback-url"
_CONTINUE = "/v1/continue_inspection"
# Servers of scripts and images may send anything: each of these looks at a character a few times
# only (possessive quantifiers, and one place where a match may begin), because no other thread runs
# meanwhile.
_PER_MAC = re.compile(r"(?<!\S)chain\s++(?:--\S++\s++)*+([^\s$]*+)\$\{\S*?mac:hexhyp\}([^\s$]*+)")
_MENU = re.compile(r"^[^\S\n]*+(?:linux|linuxefi|append)[^\S\n]++(.*)$", re.MULTILINE)
_ENDS = re.compile(r"\s(?:\|\||&&)\s")
_ISSET = re.compile(r"\$\{mac(?::[a-z]+)?\}")


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of an agent. `api` without a slash at its end; `inspection` "": no one asked."""

    api: str
    token: str = field(default="", repr=False)
    inspection: str = ""


@dataclass(frozen=True, slots=True)
class Ramdisk:
    """A script leads to a kernel with this command line."""

    cmdline: str


@dataclass(frozen=True, slots=True)
class LocalDisk:
    """A script leads to the machine's disk."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """A script leads nowhere."""


Target = Ramdisk | LocalDisk | Nothing


def parameters(cmdline: str, *, api: str = "") -> Parameters | None:
    """An agent's, of a kernel command line; `api` where that names none. None without any."""
    told = dict(_pairs(cmdline))
    where = told.get(API, "") or _api_of(told.get(INSPECTION, "")) or api
    if not where:
        return None
    return Parameters(where.rstrip("/"), told.get(TOKEN, ""), told.get(INSPECTION, ""))


def _api_of(callback: str) -> str:
    """Who inspects without managing the boot is told of the callback alone."""
    return callback.removesuffix(_CONTINUE) if callback.endswith(_CONTINUE) else ""


def _pairs(cmdline: str) -> Iterator[tuple[str, str]]:
    for word in cmdline.split():
        name, _, value = word.partition("=")
        yield name, value


def per_mac(script: str, mac: str) -> str | None:
    """The URL, relative to the script's, of the script for a MAC address; None: there is none."""
    found = _PER_MAC.search(script)
    return None if found is None else f"{found[1]}{mac.replace(':', '-')}{found[2]}"


def target(script: str, mac: str) -> Target:
    """Where an iPXE script leads: by its first unconditional `goto`, then what it boots first."""
    lines = [line.strip() for line in script.splitlines()]
    for line in lines[_start(lines) :]:
        match line.split():
            case ["kernel", *rest]:
                return Ramdisk(_ISSET.sub(mac, _after_url(rest)))
            case ["sanboot" | "exit", *_]:
                return LocalDisk()
            case _:
                continue
    return Nothing()


def _start(lines: list[str]) -> int:
    for line in lines:
        match line.split():
            case ["goto", label]:
                return lines.index(f":{label}") if f":{label}" in lines else len(lines)
            case ["kernel" | "sanboot" | "exit", *_]:
                return 0
            case _:
                continue
    return 0


def _after_url(words: list[str]) -> str:
    """Of `kernel`'s arguments those after its options and the URL, to the end of the command."""
    at = 0
    while at < len(words) and words[at].startswith("--"):
        at += 2
    return _ENDS.split(f" {' '.join(words[at + 1 :])} ")[0].strip()


def of_menu(text: str) -> str:
    """The kernel command line of a grub.cfg or isolinux.cfg, "" where there is none."""
    for found in _MENU.finditer(text):
        if "ipa-" in found[1]:
            return found[1].strip()
    return ""
