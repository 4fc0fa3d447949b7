"""Debian packages as raw material: versions, downloads and unpacking, all without root.

The system's own package lists serve where they know the package. Otherwise (no lists, or another
architecture) apt is given private directories and fetches lists for itself there; the system's apt
state is never written. Sources, keys and proxies are the system's in both cases.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from nospoon.errors import ProviderError
from nospoon.model.cluster import Arch
from nospoon.runtime import process
from nospoon.runtime.telling import tell

DEBIAN_ARCH = {Arch.X86_64: "amd64", Arch.AARCH64: "arm64"}
UPDATE_SECONDS = 300.0
DOWNLOAD_SECONDS = 900.0
BUSYBOX = "busybox-static"
T = TypeVar("T")
_CACHES = ("pkgcache", "srcpkgcache")
_VERSION = re.compile(r"^Version: (\S+)$", re.MULTILINE)
_DEPENDS = re.compile(r"^Depends: .*?(linux-image-[0-9]\S*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Package:
    """One package in one version, of one architecture."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Apt:
    """apt for one architecture; `options` make it use private directories."""

    arch: Arch
    options: tuple[str, ...] = ()

    async def newest(self, name: str) -> Package | None:
        """The newest version of the package that the lists know, if any."""
        said = await self._show(name)
        version = _VERSION.search(said)
        return Package(name, version.group(1)) if version else None

    async def kernel(self) -> Package | None:
        """The package with the kernel that Debian's meta package stands for now."""
        depends = _DEPENDS.search(await self._show(f"linux-image-{DEBIAN_ARCH[self.arch]}"))
        return await self.newest(depends.group(1)) if depends else None

    async def download(self, package: Package, directory: Path) -> Path:
        """Fetch a package file (apt checks its signature) and return its path."""
        tell(f"downloading the package {package.name}")
        name = f"{package.name}:{DEBIAN_ARCH[self.arch]}={package.version}"
        # the sandbox user of a root apt cannot write to a private directory
        argv = ["apt-get", *self.options, "-o", "APT::Sandbox::User=root", "-q", "download", name]
        await process.run(argv, cwd=str(directory), timeout=DOWNLOAD_SECONDS)
        found = sorted(directory.glob(f"{package.name}_*.deb"))
        if not found:
            raise ProviderError(f"`{' '.join(argv)}` left no package file in {directory}")
        return found[-1]

    async def _show(self, name: str) -> str:
        argv = ["apt-cache", *self.options, "show", "--no-all-versions"]
        done = await process.run([*argv, f"{name}:{DEBIAN_ARCH[self.arch]}"], check=False)
        return done.stdout if done.status == 0 else ""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where packages come from, and the newest ones there: a kernel and busybox."""

    apt: Apt
    kernel: Package
    busybox: Package

    @property
    def packages(self) -> tuple[Package, ...]:
        return (self.kernel, self.busybox)


async def find_sources(arch: Arch, *, directory: Path) -> Sources:
    """A kernel and busybox for this architecture; private lists are kept in `directory`."""
    found = await _first(_sources, arch, directory)
    if found is None:
        raise ProviderError(
            f"no package source of this machine has {BUSYBOX} and a Linux kernel for"
            f" {DEBIAN_ARCH[arch]}",
            hint="Debian's `main` archive must be among the apt sources.",
        )
    return found


async def _sources(apt: Apt) -> Sources | None:
    kernel, busybox = await asyncio.gather(apt.kernel(), apt.newest(BUSYBOX))
    return Sources(apt, kernel, busybox) if kernel and busybox else None


async def fetch(name: str, arch: Arch, *, directory: Path, into: Path) -> Path:
    """Download the newest package of this name into a directory, and return its path."""

    async def known(apt: Apt) -> tuple[Apt, Package] | None:
        package = await apt.newest(name)
        return (apt, package) if package else None

    found = await _first(known, arch, directory)
    if found is None:
        raise ProviderError(
            f"no package source of this machine has {name} for {DEBIAN_ARCH[arch]}",
            hint="Debian's `main` archive must be among the apt sources.",
        )
    apt, package = found
    return await apt.download(package, into)


async def _first(
    look: Callable[[Apt], Awaitable[T | None]], arch: Arch, directory: Path
) -> T | None:
    """What the system's lists know, else the private ones, else those when they are new."""
    private = Apt(arch, options=_private(arch, directory))
    found = await look(Apt(arch, options=_options(_parsed(directory)))) or await look(private)
    if found is None:
        await _update(private)
        found = await look(private)
    return found


def _parsed(directory: Path) -> dict[str, str]:
    """Where apt keeps what it has parsed of its lists. In images of containers it keeps nothing of
    that, and takes most of a second for it each time.
    """
    return {f"Dir::Cache::{each}": str(directory / f"{each}.bin") for each in _CACHES}


def _options(settings: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))


def _private(arch: Arch, directory: Path) -> tuple[str, ...]:
    for part in ("lists/partial", "cache/archives/partial"):
        (directory / part).mkdir(parents=True, exist_ok=True)
    (directory / "status").touch()  # apt wants to know what is installed: nothing
    settings = {
        "APT::Architecture": DEBIAN_ARCH[arch],
        "APT::Architectures": DEBIAN_ARCH[arch],
        "Dir::State": str(directory),
        "Dir::State::lists": str(directory / "lists"),
        "Dir::State::status": str(directory / "status"),
        "Dir::Cache": str(directory / "cache"),
        **_parsed(directory / "cache"),
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
    }
    return _options(settings)


async def _update(apt: Apt) -> None:
    argv = ["apt-get", *apt.options, "-q", "update"]
    tell("fetching the lists of Debian's packages")
    done = await process.run(argv, timeout=UPDATE_SECONDS, check=False)
    if done.status != 0:
        raise ProviderError(
            "the lists of Debian's packages could not be fetched:"
            f" {' / '.join(done.stderr.strip().splitlines()[-2:])}",
            hint="The probe is built from Debian packages: a package mirror must be reachable.",
        )


async def unpack(package: Path, directory: Path) -> None:
    """Unpack the files of a package file into a directory."""
    await process.run(["dpkg-deb", "-x", str(package), str(directory)], timeout=DOWNLOAD_SECONDS)
