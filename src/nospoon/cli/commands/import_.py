"""nospoon import."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from nospoon.cli import ansible
from nospoon.cli.addresses import resolved
from nospoon.cli.echo import echo, echo_file
from nospoon.cli.output import STANDARD_OUTPUT, writable, write_private
from nospoon.errors import UsageError
from nospoon.runtime.reasons import reason

if TYPE_CHECKING:
    from nospoon.importers.ansible_inventory import Inventory
from nospoon.importers import Source

FORMATS = ("tenks", "instackenv", "ovb", "virtualbmc", "sushy-tools")
MOST_DOMAINS = 10_000
"""Whose configurations are read of a directory."""
MOST_BYTES = 16 << 20
"""Of one file that is imported."""


@click.command("import")
@click.argument("file", type=click.Path(exists=True))
@click.option("--from", "tool", required=True, type=click.Choice(FORMATS), help="What wrote FILE.")
@click.option("--inventory", type=click.Path(exists=True), help="Tenks's Ansible inventory.")
@click.option(
    "--state",
    type=click.Path(exists=True, dir_okay=False),
    help="Tenks's state.yml; default: beside.",
)
@click.option(
    "--cloud",
    default="",
    help="Enroll Tenks's nodes in this cloud; envvars: by OS_*. Or OVB's cloud; default: OS_CLOUD.",
)
@click.option(
    "--env",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="OVB: another environment file, after FILE; repeatable.",
)
@click.option(
    "--role",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="OVB: environment file of a role; repeatable.",
)
@click.option(
    "--virtualbmc",
    type=click.Path(exists=True, file_okay=False),
    help="sushy-tools: directory of virtualbmc, which serves IPMI of the same machines.",
)
@click.option("--name", default="imported", show_default=True, help="Name of the cluster.")
@click.option(
    "-o", "--out", type=click.Path(dir_okay=False), help="Output file; -: standard output."
)
def command(
    file: str,
    tool: str,
    inventory: str | None,
    state: str | None,
    cloud: str,
    env: tuple[str, ...],
    role: tuple[str, ...],
    virtualbmc: str | None,
    name: str,
    out: str | None,
) -> None:
    """Make a cluster file of another tool's FILE, and list what it could not carry over.

    FILE of virtualbmc is its directory of domains, such as ~/.vbmc; of sushy-tools, its --config.
    """
    from nospoon.importers import READERS, Source  # noqa: PLC0415  (imports YAML)

    if cloud and tool not in {"tenks", "ovb"}:
        raise click.UsageError("--cloud goes with --from tenks or ovb")
    if (env or role) and tool != "ovb":
        raise click.UsageError("--env and --role go with --from ovb")
    if virtualbmc is not None and tool != "sushy-tools":
        raise click.UsageError("--virtualbmc goes with --from sushy-tools")
    target = _new(out) if out is not None else STANDARD_OUTPUT
    listed = {} if inventory is None else _listed(Path(inventory))
    beside = Path(file).with_name("state.yml")
    if state is None and tool == "tenks" and beside.is_file():
        state = str(beside)
        echo(f"Its cluster runs: nodes and their hosts are taken from {beside}", err=True)
    running = _text(state) if state is not None else ""
    if tool == "virtualbmc":
        source = _of_virtualbmc(file, name)
    elif Path(file).is_dir():
        raise click.UsageError(f"{file} is a directory: expected a file")
    elif tool == "ovb":
        cloud = cloud or os.environ.get("OS_CLOUD") or "envvars"
        more, roles = (
            [Source(Path(each).name, _text(each), name) for each in files] for files in (env, role)
        )
        source = Source(Path(file).name, _text(file), name, cloud=cloud, more=more, roles=roles)
    else:
        served = _of_virtualbmc(virtualbmc, name) if virtualbmc is not None else None
        source = Source(
            Path(file).name, _text(file), name, listed, running, cloud,
            read=text_beside(file), beside=served, resolve=resolved,
        )  # fmt: skip
    imported = READERS[tool](source)
    for each in imported.left_out:
        echo(f"Not carried over: {each}", err=True)
    if target == STANDARD_OUTPUT:
        echo_file(imported.text)
        return
    write_private(target, imported.text.encode())
    echo(f"Wrote {out}. See what it would make: nospoon plan {out}", err=True)


def _of_virtualbmc(directory: str, name: str) -> Source:
    from nospoon.importers import Source  # noqa: PLC0415  (imports YAML)

    files = _configurations(Path(directory))
    return Source(Path(directory).name, "", name, files=files, resolve=resolved)


def _configurations(directory: Path) -> dict[str, str]:
    """DOMAIN/config -> its text."""
    if not directory.is_dir():
        raise click.UsageError(f"{directory} is a file: expected a directory of domains")
    found = sorted(directory.glob("*/config"))[:MOST_DOMAINS]
    return {str(path.relative_to(directory)): _found(str(path)) for path in found}


def _new(path: str) -> Path:
    """A file that was made here may have been worked on since."""
    target = writable(path)
    if target != STANDARD_OUTPUT and target.is_file() and target.stat().st_size:
        raise UsageError(f"{path} is there already", hint="Remove it, or name another.")
    return target


def _listed(inventory: Path) -> Inventory:
    """With the variables of hosts beside Tenks's playbooks, as ansible/host_vars/HOST."""
    place = inventory.resolve()
    playbooks = place.parent if place.is_dir() else place.parent.parent
    known = any((playbooks / each).is_dir() for each in ("host_vars", "group_vars"))
    return ansible.inventory(str(inventory), playbooks=str(playbooks) if known else None)


def text_beside(file: str) -> Callable[[str], str]:
    """Reads a file that `file` names, which is beside it where its path is relative."""

    def read(path: str) -> str:
        return _found(str(Path(file).parent / path))

    return read


def _text(path: str) -> str:
    """Of a file that the caller names."""
    try:
        with Path(path).open("rb") as opened:
            return _decoded(path, opened)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {reason(error)}") from error


def _found(path: str) -> str:
    """Of a file that is found, or that a file names: it may be another user's FIFO or device."""
    if "\0" in path:
        raise UsageError(f"cannot read {path!r}: it is not a path")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with open(descriptor, "rb", closefd=True) as opened:  # noqa: PTH123  (a descriptor)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UsageError(f"cannot read {path}: it is not a regular file")
            return _decoded(path, opened)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {reason(error)}") from error


def _decoded(path: str, opened: BinaryIO) -> str:
    content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UsageError(f"cannot read {path}: it has more than {MOST_BYTES >> 20} MiB")
    return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
