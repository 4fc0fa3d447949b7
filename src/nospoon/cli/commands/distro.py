"""nospoon distro."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import click
import yaml

from nospoon.cli.echo import echo
from nospoon.errors import NotFound, UsageError
from nospoon.runtime.reasons import reason

if TYPE_CHECKING:
    from nospoon.lab.trees import Tree

SECONDS = 30
SCHEMES = ("http", "https")
Fetch = Callable[[str], str | None]


@click.group("distro")
def command() -> None:
    """Distributions that install machines of labs."""


@command.command("import")
@click.argument("url")
@click.option("--name", default="", help="Name in the lab; default: the tree's own.")
@click.option("--arch", default="x86_64", show_default=True, help="Architecture.")
def import_(url: str, name: str, arch: str) -> None:
    """Print an entry for `distros` of a lab, for the installation tree at URL.

    Trees have a .treeinfo (Fedora, CentOS, RHEL; a compose's .composeinfo leads to them), or are
    laid out as Debian's installer is: …/dists/SUITE/main/installer-ARCH.
    """
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise UsageError(f"expected an http or https URL, got {url!r}")
    if parts.query or parts.fragment:
        raise UsageError(f"expected the URL of a directory, without ? and #, got {url!r}")
    from nospoon.lab.trees import beneath  # noqa: PLC0415  (slow to import)

    tree = found_at(beneath(url), arch, name, _fetched)
    distro = tree.distro
    entry = {
        "kernel": distro.kernel, "initrd": distro.initrd, "tree": distro.tree,
        "cmdline": distro.cmdline,
    }  # fmt: skip
    text: str = yaml.safe_dump({name or distro.name: entry}, sort_keys=False, width=1000)
    echo(text.rstrip())


def found_at(url: str, arch: str, name: str, fetch: Fetch) -> Tree:
    """The tree at a URL that ends in a slash. Raises `NotFound` with what was looked for."""
    from nospoon.lab import trees  # noqa: PLC0415  (slow to import)

    try:
        for at in _candidates(url, arch, fetch):
            for file in (".treeinfo", "treeinfo"):
                if (text := fetch(urljoin(at, file))) is not None:
                    return trees.of_treeinfo(text, at, arch=arch)
    except trees.NoTree as error:
        raise NotFound(f"{url} is not a tree to install from: {error.args[0]}") from error
    for directory, (kernel, _) in trees.debian_paths(arch).items():
        base = trees.beneath(urljoin(url, directory)) if directory else url
        if fetch(urljoin(base, kernel)) is not None:
            return trees.of_debian(url, directory, arch=arch, name=name)
    raise NotFound(
        f"no installation tree at {url}",
        hint="Looked for .treeinfo, .composeinfo and Debian's images/netboot below it.",
    )


def _candidates(url: str, arch: str, fetch: Fetch) -> list[str]:
    """The tree itself, or those of the compose that it is."""
    from nospoon.lab import trees  # noqa: PLC0415  (slow to import)

    text = fetch(urljoin(url, ".composeinfo"))
    return [url] if text is None else list(trees.trees_of_composeinfo(text, url, arch=arch))


def _fetched(url: str) -> str | None:
    """The first mebibyte of what is there, None where nothing is."""
    from nospoon.lab.trees import MOST  # noqa: PLC0415  (slow to import)

    if urlsplit(url).scheme not in SCHEMES:  # a compose may name anything
        raise NotFound(f"expected an http or https URL, got {url!r}")
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:  # noqa: S310  (see above)
            return str(answer.read(MOST).decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        if error.code in (403, 404, 410):
            return None
        raise NotFound(f"{url}: HTTP {error.code}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NotFound(f"{url} does not answer: {reason(error)}") from error
