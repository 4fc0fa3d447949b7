"""nospoon dev cloud: a real OpenStack on this machine."""

from __future__ import annotations

import asyncio
from ipaddress import IPv4Network
from pathlib import Path

import click

from nospoon.cli import connect
from nospoon.cli.echo import echo
from nospoon.cli.output import output_options, print_record, print_rows
from nospoon.dev.cloud import cloud, computes, joining
from nospoon.dev.cloud.cloud import Cloud
from nospoon.dev.cloud.computes import Virt
from nospoon.dev.cloud.wanted import ADMIN_CLOUD, CLOUD, LAST_BASE, Api, Wanted
from nospoon.errors import UsageError

_DEFAULT = Wanted()
_ALTERNATIVES = {"lxc": Virt.LXC, "kvm": Virt.QEMU}
"""Hypervisor types of images -> what runs them here: guests are emulated."""
SMALLEST = 28
"""Bits of the prefix that leave addresses for a rack."""


@click.group("cloud")
def command() -> None:
    """A real OpenStack on this machine: Keystone, Glance, Placement, Neutron and Nova.

    Cinder and Ironic may join it.

    It runs in namespaces of its own, with its own database, message broker, Open vSwitch and
    libvirtd. Needs root.
    """


@command.command("up")
@click.option("--port-base", type=click.IntRange(1024, LAST_BASE), default=_DEFAULT.port_base,
              show_default=True, help=f"First of {len(Api)} TCP ports on loopback.")  # fmt: skip
@click.option("--public", default=str(_DEFAULT.public), show_default=True, metavar="RANGE",
              help="Addresses of its provider network; this machine has the first.")  # fmt: skip
@click.option("--container", is_flag=True,
              help="Give this machine no interface to the provider network.")  # fmt: skip
@click.option("--alt", type=click.Choice(list(_ALTERNATIVES)),
              help="Add a compute host for images of this type: see `compute`.")  # fmt: skip
@click.option("--ironic", is_flag=True, help="Add Ironic, and a compute host for its nodes.")
@click.option("--cinder", is_flag=True, help="Add Cinder, with volumes that are files.")
@output_options
def up(
    port_base: int, public: str, container: bool, alt: str | None, ironic: bool, cinder: bool, format_: str, columns: tuple[str, ...]  # noqa: E501, FBT001  (click passes options by name)
) -> None:  # fmt: skip
    """Start it, repair it, or find it running; with other settings it is made again, empty.

    The first run downloads its Python packages (340 MB) and creates its databases. It runs until
    `down`. Compute hosts that joined it stay, and so does Cinder.
    """
    settings = connect.current_settings()
    wanted = Wanted(port_base, _range(public), container)
    kinds = [*([_ALTERNATIVES[alt]] if alt else []), *([Virt.IRONIC] if ironic else [])]
    for virt in kinds:
        joining.need(wanted, virt)
    echo("OpenStack: environment, databases, services …", err=True)
    state = settings.state / "dev/cloud"
    found = asyncio.run(cloud.up(wanted, state=state, cache=settings.cache, cinder=cinder))
    for virt in kinds:
        added = computes.chosen(virt)
        asyncio.run(joining.join(found.wanted, found.where, found.made, added))
    print_record(_described(found, problems=[]), format_=format_, columns=columns)
    echo(f"Use it: export OS_CLIENT_CONFIG_FILE={found.clouds_file} OS_CLOUD={CLOUD}", err=True)


@command.command("down")
@click.option("--purge", is_flag=True, help="Remove its Python environment and the databases "
              "that are kept for the next cloud, too.")  # fmt: skip
def down(purge: bool) -> None:  # noqa: FBT001  (click passes options by name)
    """End it and remove everything of it, servers included. Harmless when repeated."""
    settings = connect.current_settings()
    state = settings.state / "dev/cloud"
    there = asyncio.run(cloud.down(state=state, cache=settings.cache, purge=purge))
    echo("the cloud was removed" if there else "no cloud is here: nothing to remove", err=True)


@command.command("status")
@output_options
def status(format_: str, columns: tuple[str, ...]) -> None:
    """Show where it answers; exit status 1 when it does not run, or not all of it."""
    found = cloud.recorded(connect.current_settings().state / "dev/cloud")
    if found is None or not found.where.alive:
        echo("no cloud runs. Start it with `nospoon dev cloud up`.", err=True)
        raise click.exceptions.Exit(1)
    problems = asyncio.run(cloud.problems(found))
    print_record(_described(found, problems=problems), format_=format_, columns=columns)
    if problems:
        echo(f"{'; '.join(problems)}. `nospoon dev cloud up` repairs it.", err=True)
        raise click.exceptions.Exit(1)


@command.group("compute", invoke_without_command=True)
@click.option(
    "--join", "file", metavar="CLOUDFILE", help="clouds.yaml of the cloud, as `up` prints it."
)
@click.option(
    "--virt",
    type=click.Choice([str(each) for each in Virt]),
    help="What it runs: containers, QEMU, or Ironic for bare metal.",
)
@click.option("--name", default="", help="Its name in the cloud.  [default: cloud-VIRT]")
@click.pass_context
def compute(context: click.Context, file: str | None, virt: str | None, name: str) -> None:
    """Start a further compute host, which joins a cloud of `dev cloud up` on this machine.

    An image's property `img_hv_type` decides which compute host a server runs on.
    """
    if context.invoked_subcommand is not None:
        if file or virt or name:
            raise UsageError("--join, --virt and --name are of `compute` alone")
        return
    if file is None or virt is None:
        raise UsageError("compute needs --join CLOUDFILE and --virt lxc|qemu|ironic")
    found = _running(Path(file).resolve().parent)
    added = computes.chosen(Virt(virt), name)
    asyncio.run(joining.join(found.wanted, found.where, found.made, added))
    echo(f"compute host {added.name} ({added.virt}) is in the cloud", err=True)


@compute.command("leave")
@click.argument("name")
@click.option("--cloud", "file", metavar="CLOUDFILE", help="clouds.yaml of the cloud.  "
              "[default: that of `dev cloud up`]")  # fmt: skip
def leave(name: str, file: str | None) -> None:
    """Take a compute host out of the cloud; refused while it has servers."""
    found = _running(_state(file))
    asyncio.run(joining.leave(found.wanted, found.where, found.made, name))
    echo(f"compute host {name} was removed", err=True)


@compute.command("list")
@click.option("--cloud", "file", metavar="CLOUDFILE", help="clouds.yaml of the cloud.  "
              "[default: that of `dev cloud up`]")  # fmt: skip
@output_options
def list_(file: str | None, format_: str, columns: tuple[str, ...]) -> None:
    """List the compute hosts that joined the cloud."""
    joined = computes.recorded(_state(file))
    rows = [{"name": each.name, "virt": str(each.virt)} for each in joined]
    print_rows(rows, names=("name", "virt"), format_=format_, columns=columns)


def _state(file: str | None) -> Path:
    if file is not None:
        return Path(file).resolve().parent
    return connect.current_settings().state / "dev/cloud"


def _running(state: Path) -> Cloud:
    """The cloud that runs there."""
    found = cloud.recorded(state)
    if found is None:
        raise UsageError(
            f"no cloud of `nospoon dev cloud up` is in {state}",
            hint="A compute host needs the cloud's message broker and the services' account, which "
            "the clouds.yaml of another cloud does not have.",
        )
    if not found.where.alive or not found.is_filled:
        raise UsageError("the cloud does not run", hint="Start it: nospoon dev cloud up.")
    return found


def _range(text: str) -> IPv4Network:
    try:
        public = IPv4Network(text)
    except ValueError:
        raise UsageError(
            f"--public: expected a range of IPv4 addresses like {_DEFAULT.public}, got {text!r}"
        ) from None
    if public.prefixlen > SMALLEST:
        raise UsageError(f"--public: {public} is too small; a /{SMALLEST} is the smallest")
    return public


def _described(found: Cloud, *, problems: list[str]) -> dict[str, object]:
    return {
        **{api: found.wanted.url(api) for api in found.apis},
        "works": not problems,
        "public": str(found.wanted.public),
        "interface": found.interface,
        "pid": found.where.process.pid,
        "clouds": str(found.clouds_file),
        "cloud": CLOUD,
        "admin_cloud": ADMIN_CLOUD,
        "logs": str(found.state / "log"),
    }
