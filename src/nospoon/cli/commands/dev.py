"""nospoon dev: services for development and CI."""

from __future__ import annotations

import asyncio
import hashlib
from ipaddress import ip_address
from pathlib import Path

import click

from nospoon.cli import connect
from nospoon.cli.commands import dev_cloud
from nospoon.cli.echo import echo
from nospoon.cli.output import output_options, print_record
from nospoon.dev import disk_image, ironic, ramdisk
from nospoon.dev.configuration import CLOUD, Auth, Wanted
from nospoon.dev.ironic import Ironic
from nospoon.runtime.logs import configure


@click.group("dev")
def command() -> None:
    """Services for development and CI: a standalone Ironic with what it deploys, an OpenStack."""
    configure(connect.current_settings().log_level)


command.add_command(dev_cloud.command)


@command.group("ironic")
def ironic_group() -> None:
    """A standalone Ironic of your own: API and conductor, without Keystone and Neutron."""


@ironic_group.command("up")
@click.option("--address", default="127.0.0.1", show_default=True, help="Where its API listens.")
@click.option("--port", type=click.IntRange(1, 65535), default=6385, show_default=True,
              help="TCP port of its API.")  # fmt: skip
@click.option("--files-port", type=click.IntRange(1, 65535), help="TCP port of boot scripts, "
              "media and images; default: the one after the API's.")  # fmt: skip
@click.option("--advertise", default="", help="Address that nodes get; default: --address.")
@click.option("--auth", type=click.Choice([str(each) for each in Auth]), default="none",
              show_default=True, help="How callers authenticate.")  # fmt: skip
@click.option("--set", "options", multiple=True, metavar="SECTION.OPTION=VALUE",
              help="An option of ironic.conf; may be repeated.")  # fmt: skip
@click.option("--database", default="", help="SQLAlchemy URL; default: SQLite of its own.")
@output_options
def up(
    address: str, port: int, files_port: int | None, advertise: str, auth: str,
    options: tuple[str, ...], database: str, format_: str, columns: tuple[str, ...],
) -> None:  # fmt: skip
    """Start it, or find it running; with other settings it is restarted.

    The first run downloads its Python packages (400 MB). It runs until `down`.
    """
    settings = connect.current_settings()
    wanted = Wanted(
        address, port, Auth(auth), database, files_port or 0, options, advertise,
        disk_image.kept_loader(settings.cache), str(settings.cache),
    )  # fmt: skip
    echo("Ironic: environment, database, API and conductor …", err=True)
    state = settings.state / "dev" / "ironic"
    found = asyncio.run(ironic.up(wanted, state=state, cache=settings.cache))
    print_record(_told(found, answers=True), format_=format_, columns=columns)
    echo(f"Use it: export OS_CLIENT_CONFIG_FILE={found.clouds_file} OS_CLOUD={CLOUD}", err=True)
    told = ip_address(advertise or address)
    if told.is_loopback and not any(told in each for each in settings.media_networks):
        echo(
            f"Its media are at {told}, where BMCs do not reach by default. For virtual media and "
            f"HTTP boot start nospoon's daemon with NOSPOON_MEDIA_NETWORKS={told}, or give "
            "--advertise.",
            err=True,
        )


@ironic_group.command("down")
@click.option("--purge", is_flag=True, help="Remove its Python environment, too.")
def down(purge: bool) -> None:  # noqa: FBT001  (click passes options by name)
    """End it and remove everything of it. Harmless when repeated."""
    settings = connect.current_settings()
    state = settings.state / "dev" / "ironic"
    there = asyncio.run(ironic.down(state=state, cache=settings.cache, purge=purge))
    echo("Ironic was removed" if there else "no Ironic is here: nothing to remove", err=True)


@ironic_group.command("status")
@output_options
def status(format_: str, columns: tuple[str, ...]) -> None:
    """Show where it answers; exit status 1 when it does not run, or not all of it."""
    found = ironic.running(connect.current_settings().state / "dev" / "ironic")
    if found is None:
        echo("no Ironic runs. Start it with `nospoon dev ironic up`.", err=True)
        raise click.exceptions.Exit(1)
    told = _told(found, answers=asyncio.run(ironic.answers(found)))
    print_record(told, format_=format_, columns=columns)
    if not found.whole:
        echo("what serves its files has ended; `nospoon dev ironic up` starts it again", err=True)
        raise click.exceptions.Exit(1)


@command.group("ipa")
def ipa_group() -> None:
    """The deploy agent of real machines (ironic-python-agent), and an image to deploy."""


@ipa_group.command("build")
@output_options
def build(format_: str, columns: tuple[str, ...]) -> None:
    """Build kernel and ramdisk of the agent, a small disk image, and a loader for virtual media.

    From Debian's packages and PyPI. What was built from the same inputs is reused.
    """
    settings = connect.current_settings()
    echo("Deploy agent, disk image, loader …", err=True)
    print_record(asyncio.run(_built(settings.cache)), format_=format_, columns=columns)


async def _built(cache: Path) -> dict[str, object]:
    agent = await ramdisk.ensure(cache)
    image = await disk_image.disk_image(cache)
    with image.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return {
        "deploy_kernel": str(agent.kernel),
        "deploy_ramdisk": str(agent.initramfs),
        "bootloader": str(await disk_image.medium_loader(cache)),
        "image": str(image),
        "image_sha256": digest,
    }


@ipa_group.command("remove")
def remove() -> None:
    """Remove everything that `build` made, also for other inputs. Harmless when repeated."""
    cache = connect.current_settings().cache
    ramdisk.remove(cache)
    disk_image.remove(cache)


def _told(found: Ironic, *, answers: bool) -> dict[str, object]:
    return {
        "endpoint": found.endpoint,
        "answers": answers,
        "files": found.wanted.files_url,
        "auth": str(found.wanted.auth),
        "pid": found.process.pid,
        "clouds": str(found.clouds_file),
        "cloud": CLOUD,
        "log": str(found.log_file),
    }
