"""nospoon image."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click

from nospoon.cli import connect
from nospoon.cli.echo import echo
from nospoon.cli.ended import until_signal
from nospoon.cli.files import upload
from nospoon.cli.output import check_columns, output_options, print_record, print_rows
from nospoon.errors import ProviderError, UsageError
from nospoon.model.images import LOADED, NAME, HypervisorType
from nospoon.model.rest.images import ImageSummary
from nospoon.runtime import clock
from nospoon.runtime.reasons import reason

EPOCH = "SOURCE_DATE_EPOCH"
LAST = 2**32 - 1
"""In the year 2106: not all formats have later times."""
COLUMNS = ("name", "hypervisor_type", "format", "size", "created", "sha256")
BUILT = ("file", "format", "size", "sha256")
IN_CLOUD = ("name", "hypervisor_type", "format", "size", "created", "id")


@click.group("image")
def command() -> None:
    """Images of VMs and containers: build, load, list, show, remove.

    A cluster file names a loaded image by `image: store:NAME`.
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
              help="What runs it; default: whatever boots its format.")  # fmt: skip
@click.option("--name", default="", help="Its name.  [default: that of FILE, without its ending]")
@_cloud_option
@output_options
def load(
    file: Path, kind: str | None, name: str, cloud: str | None, format_: str,
    columns: tuple[str, ...],
) -> None:  # fmt: skip
    """Load FILE: a disk (raw, qcow2), or a root file system (tar; plain, gzip, xz or zstd; ext4 for
    containers of a cloud).

    In nospoon's store it replaces an image of that name, and clusters get it at their next `up`;
    Glance may have none of it. Nova chooses compute hosts for an image in Glance by its type, too.
    """
    check_columns(columns, COLUMNS if cloud is None else IN_CLOUD)
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
        row = _shown(client.ask(ImageSummary, "PUT", f"/v1/images/{name}", body))
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
    found = connect.client().ask(list[ImageSummary], "GET", "/v1/images")
    rows = [_shown(each) for each in found]
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
        row = _shown(connect.client().ask(ImageSummary, "GET", f"/v1/images/{name}"))
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
    echo(f"image {name} was removed", err=True)


@command.command("build")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--as", "formats", multiple=True, required=True,
              type=click.Choice(["lxc", "ext4", "oci", "raw", "qcow2"]),
              help="lxc: a packed root (.tar.zst); ext4: for Nova's LXC driver; oci: an archive "
              "for Docker and Podman; raw, qcow2: a disk for UEFI. Repeatable.")  # fmt: skip
@click.option("--name", default="debian", show_default=True, help="Name of the files.")
@click.option("--suite", default="bookworm", show_default=True, help="Debian's release.")
@click.option("--mirror", default="", help="URL of the packages.  [default: this machine's]")
@click.option("--include", "packages", multiple=True, metavar="PACKAGE",
              help="Package to install, too. Repeatable.")  # fmt: skip
@click.option("--copy", "copies", multiple=True, metavar="FILE:DIRECTORY",
              help="Copy a file into a directory of the root. Repeatable.")  # fmt: skip
@click.option("--run", "commands", multiple=True, metavar="COMMAND",
              help="Run a shell command in the root, at the end. Repeatable.")  # fmt: skip
@click.option("--size", default="", help="Size of disks and ext4, such as 4GiB.  "
              "[default: as small as possible; disks grow at the first boot]")  # fmt: skip
@output_options
def build(
    directory: Path, formats: tuple[str, ...], name: str, suite: str, mirror: str,
    packages: tuple[str, ...], copies: tuple[str, ...], commands: tuple[str, ...], size: str,
    format_: str, columns: tuple[str, ...],
) -> None:  # fmt: skip
    """Build images of one root of Debian in DIRECTORY, with systemd, cloud-init and sshd.

    You build it, not the daemon; an ordinary user needs ids in /etc/subuid. The same packages and
    SOURCE_DATE_EPOCH make the same image.
    """
    from nospoon.dev.images import build as images  # noqa: PLC0415
    from nospoon.dev.images.root import PACKAGES, Root  # noqa: PLC0415
    from nospoon.runtime.logs import configure  # noqa: PLC0415

    configure(connect.current_settings().log_level)
    check_columns(columns, BUILT)
    if not NAME.match(name):
        raise UsageError(f"--name: {name!r} is not a name for an image")
    copied = [_copy(each) for each in copies]
    epoch = _epoch()
    echo(f"Building with {EPOCH}={epoch}: packages, then {', '.join(formats)} …", err=True)
    root = Root(
        suite, mirror, (*PACKAGES, *packages), copies=copied, commands=commands,
    )  # fmt: skip
    wanted, bytes_ = {images.Format(each) for each in formats}, _bytes(size)
    work = images.build(root, wanted, directory, name=name, epoch=epoch, size=bytes_)
    try:
        built = until_signal(work)
    except OSError as error:
        raise ProviderError(f"cannot write images to {directory}: {reason(error)}") from error
    rows = [
        {"file": str(each.file), "format": str(each.format), "size": each.file.stat().st_size,
         "sha256": each.sha256} for each in built
    ]  # fmt: skip
    print_rows(rows, format_=format_, columns=columns, names=BUILT)


def _copy(text: str) -> tuple[Path, str]:
    """FILE:DIRECTORY, split at the last colon."""
    file, colon, directory = text.rpartition(":")
    if not colon or not directory.startswith("/"):
        raise UsageError(f"--copy: expected FILE:DIRECTORY, such as setup:/usr/sbin, got {text!r}")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"--copy: {path} is not a file")
    return path, directory


def _bytes(size: str) -> int:
    from nospoon.clusterfile.fields import parse_size  # noqa: PLC0415  (imports pydantic)

    try:
        return parse_size(size) if size else 0
    except ValueError:
        raise UsageError(f"--size: expected a size such as 8GiB, got {size!r}") from None


def _epoch() -> int:
    """The time of all files that are newer; mmdebstrap and others read it as well.

    https://reproducible-builds.org/specs/source-date-epoch/
    """
    given = os.environ.setdefault(EPOCH, str(int(clock.unix())))
    if not (given.isascii() and given.isdigit()) or int(given) > LAST:
        raise UsageError(f"{EPOCH}: expected seconds since 1970, got {given!r}")
    return int(given)


def _shown(image: ImageSummary) -> dict[str, object]:
    """In the order of the columns, with a time that people read."""
    created = datetime.fromtimestamp(image.created, UTC).isoformat(timespec="seconds")
    return {**{name: getattr(image, name) for name in COLUMNS}, "created": created}


def _readable(file: Path) -> None:
    try:
        with file.open("rb"):
            return
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
