"""nospoon image."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from nospoon.cli import connect
from nospoon.cli.echo import echo
from nospoon.cli.files import upload
from nospoon.cli.output import output_options, print_record, print_rows
from nospoon.errors import UsageError
from nospoon.model.images import LOADED, NAME, HypervisorType

COLUMNS = ("name", "hypervisor_type", "format", "size", "created", "sha256")
IN_CLOUD = ("name", "hypervisor_type", "format", "size", "created", "id")


@click.group("image")
def command() -> None:
    """Images of VMs and containers: build, load, list, show, remove.

    A cluster file means a loaded image by `image: store:NAME`.
    """


def _cloud_option(function: Callable[..., None]) -> Callable[..., None]:
    option = click.option(
        "--os-cloud", "cloud", metavar="NAME",
        help="In Glance of this cloud of clouds.yaml, not in nospoon's own store.",
    )  # fmt: skip
    return option(function)


@command.command("load")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--hypervisor-type", "kind", type=click.Choice([str(t) for t in HypervisorType]),
              help="What runs it; without, whatever can begin with its format.")  # fmt: skip
@click.option("--name", default="", help="Its name.  [default: that of FILE, without its ending]")
@_cloud_option
@output_options
def load(
    file: Path, kind: str | None, name: str, cloud: str | None, format_: str,
    columns: tuple[str, ...],
) -> None:  # fmt: skip
    """Load FILE: a disk (raw, qcow2), or a root file system (tar; plain, gzip, xz or zstd).

    It takes the place of an image of that name; clusters get it at their next `up`. Nova, too,
    runs servers of an image in Glance where its type is run.
    """
    name = name or file.name.partition(".")[0].lower()
    wanted = HypervisorType(kind) if kind is not None else None
    if cloud is not None:
        from nospoon.cli import glance  # noqa: PLC0415  (imports what looks at images)

        _readable(file)
        row = glance.load(cloud, file, name, wanted)
    else:
        if not NAME.match(name):
            raise UsageError(
                f"{name!r} is not a name for an image: up to 63 lower-case letters, digits, dots, "
                "hyphens and underscores",
                hint="Give one with --name.",
            )
        client = connect.client()
        body = {"sha256": upload(client, file), "hypervisor_type": kind}
        row = _shown(client.put(f"/v1/images/{name}", body))
        echo(f"Use it: image: {LOADED}{name}", err=True)
    print_record(row, format_=format_, columns=columns)


@command.command("list")
@_cloud_option
@output_options
def list_(cloud: str | None, format_: str, columns: tuple[str, ...]) -> None:
    """List the images, by name."""
    if cloud is not None:
        from nospoon.cli import glance  # noqa: PLC0415

        print_rows(glance.images(cloud), format_=format_, columns=columns, names=IN_CLOUD)
        return
    rows = [_shown(row) for row in connect.client().get("/v1/images")]
    print_rows(rows, format_=format_, columns=columns, names=COLUMNS)


@command.command("show")
@click.argument("name")
@_cloud_option
@output_options
def show(name: str, cloud: str | None, format_: str, columns: tuple[str, ...]) -> None:
    """Show one."""
    if cloud is not None:
        from nospoon.cli import glance  # noqa: PLC0415

        row = glance.image(cloud, name)
    else:
        row = _shown(connect.client().get(f"/v1/images/{name}"))
    print_record(row, format_=format_, columns=columns)


@command.command("remove")
@click.argument("name")
@_cloud_option
def remove(name: str, cloud: str | None) -> None:
    """Remove one; refused while a cluster uses it."""
    if cloud is not None:
        from nospoon.cli import glance  # noqa: PLC0415

        glance.remove(cloud, name)
    else:
        connect.client().delete(f"/v1/images/{name}")
    echo(f"image {name} is gone", err=True)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """In the order of the columns, with a time that people read."""
    created = datetime.fromtimestamp(row["created"], UTC).isoformat(timespec="seconds")
    return {**{name: row[name] for name in COLUMNS}, "created": created}


def _readable(file: Path) -> None:
    try:
        with file.open("rb"):
            return
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
