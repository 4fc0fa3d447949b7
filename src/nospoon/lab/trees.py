"""Installation trees of distributions: where their kernel and initial ramdisk are.

`.treeinfo` and `.composeinfo` are productmd's (https://productmd.readthedocs.io), versions 0 and 1;
Debian's installer has a layout of its own (images/netboot of its installer-ARCH directory).
"""

from __future__ import annotations

import configparser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urljoin

from nospoon.lab.provision import KICKSTART_OPTION
from nospoon.model.lab import Distro

ARCHES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
"""Architecture -> Debian's name of it."""
PRESEED = "auto=true priority=critical url={{kickstart}}"
MOST, MOST_LINE = 1 << 20, 1024
"""Bytes of a file that describes a tree, and characters of a line of it."""


class NoTree(ValueError):
    """Why a file describes no tree that can be installed from."""


@dataclass(frozen=True, slots=True)
class Tree:
    """What was found. `arch`: as the tree calls it."""

    distro: Distro
    arch: str


def beneath(url: str) -> str:
    """The URL as that of a directory."""
    return url if url.endswith("/") else f"{url}/"


def of_treeinfo(text: str, url: str, *, arch: str = "x86_64") -> Tree:
    """Of the file `.treeinfo` of the tree at a URL. Raises `NoTree`."""
    parser = _parsed(text)
    found = _first(parser, ("tree", "arch"), ("general", "arch")) or arch
    section = f"images-{found}"
    kernel, initrd = _first(parser, (section, "kernel")), _first(parser, (section, "initrd"))
    if not kernel or not initrd:
        have = ", ".join(sorted(parser.sections())) or "nothing"
        raise NoTree(f"expected kernel and initrd in [{section}], got sections {have}")
    called = _first(parser, ("release", "name"), ("general", "family")) or "distro"
    version = _first(parser, ("release", "version"), ("general", "version"))
    base = beneath(url)
    distro = Distro(
        name=name_of(f"{called} {version} {found}"),
        kernel=urljoin(base, kernel),
        initrd=urljoin(base, initrd),
        tree=base,
        cmdline=f"inst.repo={base} {KICKSTART_OPTION}{{{{kickstart}}}}",
    )
    return Tree(distro, found)


def trees_of_composeinfo(text: str, url: str, *, arch: str = "x86_64") -> Iterator[str]:
    """URLs of the trees of a compose (`.composeinfo`) for an architecture. Raises `NoTree`."""
    parser = _parsed(text)
    found = False
    for section in parser.sections():
        key = f"{arch}.os_tree"
        place = parser.get(section, key, fallback="") or parser.get(section, "os_dir", fallback="")
        if section.endswith(f".{arch}") and not place:
            place = parser.get(section, "os_tree", fallback="")
        if place:
            found = True
            yield beneath(urljoin(beneath(url), place))
    if not found:
        raise NoTree(f"expected a variant with an os_tree for {arch}")


def debian_paths(arch: str) -> Mapping[str, tuple[str, str]]:
    """Directory below a tree of Debian's or Ubuntu's installer -> its kernel and ramdisk there."""
    called = ARCHES.get(arch, arch)
    inner = f"debian-installer/{called}"
    places = ("images/netboot", "current/images/netboot", "netboot", "")
    return dict.fromkeys(places, (f"{inner}/linux", f"{inner}/initrd.gz"))


def of_debian(url: str, directory: str, *, arch: str, name: str = "") -> Tree:
    """Of an installer whose files are in this directory below a URL."""
    kernel, initrd = debian_paths(arch)[directory]
    base = beneath(urljoin(beneath(url), directory)) if directory else beneath(url)
    suite = _suite_of(url)
    distro = Distro(
        name=name or name_of(f"debian {suite} {arch}"),
        kernel=urljoin(base, kernel),
        initrd=urljoin(base, initrd),
        tree=url.partition("/dists/")[0] + "/" if "/dists/" in url else beneath(url),
        cmdline=PRESEED,
    )
    return Tree(distro, arch)


def _suite_of(url: str) -> str:
    return url.partition("/dists/")[2].partition("/")[0]


def name_of(text: str) -> str:
    """A name by RFC 1123 §2.1 of any text."""
    kept = "".join(char if char.isascii() and char.isalnum() else "-" for char in text.lower())
    return "-".join(filter(None, kept.split("-")))[:63].strip("-") or "distro"


def _parsed(text: str) -> configparser.ConfigParser:
    if any(len(line) > MOST_LINE for line in text.splitlines()):
        # configparser takes time in proportion to the square of a line
        raise NoTree(f"it has lines of more than {MOST_LINE} characters")
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise NoTree("it is not in INI format") from error
    return parser


def _first(parser: configparser.ConfigParser, *keys: tuple[str, str]) -> str:
    """The first value that is there."""
    values = (parser.get(section, key, fallback="").strip() for section, key in keys)
    return next(filter(None, values), "")
