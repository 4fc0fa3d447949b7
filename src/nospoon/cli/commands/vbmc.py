"""nospoon vbmc: the commands of virtualbmc, for scripts that call them.

Its configuration stays where it is (DOMAIN/config in ~/.vbmc) and says which BMCs there are to be.
Each command writes it (`vbmc_files`), and brings clusters to it (`vbmc_clusters`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

import click

from nospoon import __version__
from nospoon.cli import connect
from nospoon.cli.adoptions import refused
from nospoon.cli.cliff import Cell, Group, Style, ignored_options, list_options, print_list
from nospoon.cli.echo import echo
from nospoon.cli.interrupted import INTERRUPTED
from nospoon.cli.output import report
from nospoon.cli.vbmc_clusters import (
    cluster_of,
    node_of,
    request_for,
    revive,
    served_now,
    status_of,
    switch,
)
from nospoon.cli.vbmc_files import (
    alone,
    config_path,
    configurations,
    directory,
    is_broken,
    no_such,
    read_config,
    remove_config,
    reported,
    shows_passwords,
    write_config,
)
from nospoon.errors import NospoonError, PlanRefused, UsageError

LIST = ("Domain name", "Status", "Address", "Port")
SHOW = ("Property", "Value")
HIDDEN = "***"
NATIVE = {
    "add": "nodes: [{adopt: DOMAIN, bmc: {port: PORT, username: USER, password: PASSWORD}}]",
    "delete": "take the node out of the file, and `nospoon up`",
    "start": "`nospoon up FILE`",
    "stop": "`nospoon down CLUSTER`",
    "list": "`nospoon bmc list`",
    "show": "`nospoon node show NODE`",
}
"""What does the same with a cluster file."""
MOST_SAID = 1000
"""Characters of the file that has the names of commands of which that was said."""


class _Group(Group):
    """Each failure ends with status 1, as virtualbmc's do; a wrong option with 2."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except NospoonError as error:
            report(error)
            ctx.exit(1)
        except click.exceptions.Exit as ended:
            ctx.exit(ended.exit_code if ended.exit_code in {0, INTERRUPTED} else 1)


@click.group("vbmc", cls=_Group)
@click.version_option(__version__, prog_name="vbmc (nospoon)")
@click.option("--no-daemon", is_flag=True, hidden=True, expose_value=False)
@ignored_options
def command() -> None:
    """The commands of virtualbmc, over its own configuration (~/.vbmc)."""


@command.command("help", hidden=True)
@click.argument("name", required=False)
@click.pass_context
def help_(ctx: click.Context, name: str | None) -> None:
    """Show the help of a command."""
    about = command if name is None else command.get_command(ctx, name)
    if about is None:
        raise NospoonError(f"no such command {name!r}", hint="`nospoon vbmc help` lists them.")
    assert ctx.parent is not None, "it is a command of a group"
    shown = ctx.parent if name is None else click.Context(about, ctx.parent, name)
    echo(about.get_help(shown))


@command.command("add")
@click.argument("domain_name")
@click.option("--username", default="admin", show_default=True, help="The BMC's user name.")
@click.option("--password", default="password", show_default=True, help="The BMC's password.")
@click.option("--port", type=click.IntRange(1, 65535), default=623, show_default=True)
@click.option("--address", default="::", show_default=True, help="Where it answers.")
@click.option("--libvirt-uri", default="qemu:///system", show_default=True)
@ignored_options
@click.option("--libvirt-sasl-username", hidden=True)
@click.option("--libvirt-sasl-password", hidden=True)
@alone()
def add(
    domain_name: str,
    username: str,
    password: str,
    port: int,
    address: str,
    libvirt_uri: str,
    libvirt_sasl_username: str | None,
    libvirt_sasl_password: str | None,
) -> None:
    """Create a BMC for a virtual machine."""
    _once("add")
    if libvirt_sasl_username or libvirt_sasl_password:
        raise NospoonError(
            "nospoon logs in to libvirt with no user name and password (SASL)",
            hint="Use --libvirt-uri qemu+ssh://HOST/system, or libvirt's auth.conf.",
        )
    place = config_path(domain_name)
    if place.exists():
        raise NospoonError(f"domain {domain_name} has a BMC already")
    _check_apart(domain_name)
    _check_account(username, password)
    settings = {
        "username": username, "password": password, "address": address, "port": str(port),
        "domain_name": domain_name, "libvirt_uri": libvirt_uri, "active": "False",
    }  # fmt: skip
    try:
        connect.client().post("/v1/plan", request_for(cluster_of(settings), [settings]))
    except PlanRefused as error:
        raise NospoonError(refused(error, [domain_name])[domain_name]) from error
    place.parent.mkdir(parents=True, exist_ok=True)
    write_config(place, settings)


def _check_apart(name: str) -> None:
    """Nodes of one cluster have names of their own, in small letters."""
    for each in configurations():
        if node_of(each["domain_name"]) == node_of(name):
            raise NospoonError(
                f"domain {name} would be node {node_of(name)}, as {each['domain_name']} is",
                hint="Rename one of them (`virsh domrename`).",
            )


def _check_account(username: str, password: str) -> None:
    """A BMC that is served with another account than it was given is no use to a script."""
    from nospoon.importers.accounts import (  # noqa: PLC0415  (imports pydantic)
        account,
    )

    wrong: list[str] = []
    account({"username": ("--username", username), "password": ("--password", password)}, wrong)
    if wrong:
        raise UsageError("; ".join(wrong))


@command.command("delete")
@click.argument("domain_names", nargs=-1, required=True)
@ignored_options
@alone()
def delete(domain_names: Sequence[str]) -> None:
    """Delete BMCs of virtual machines."""
    _once("delete")
    broken = [name for name in domain_names if is_broken(name)]
    failed = switch([name for name in domain_names if name not in broken], active=False)
    for name in dict.fromkeys(domain_names):
        if name not in failed:
            remove_config(config_path(name).parent)
    _end(failed)


@command.command("start")
@click.argument("domain_names", nargs=-1, required=True)
@click.option("--no-daemon", is_flag=True, hidden=True, expose_value=False)
@ignored_options
@alone()
def start(domain_names: Sequence[str]) -> None:
    """Start BMCs of virtual machines."""
    _once("start")
    _end(switch(domain_names, active=True))


@command.command("stop")
@click.argument("domain_names", nargs=-1, required=True)
@ignored_options
@alone()
def stop(domain_names: Sequence[str]) -> None:
    """Stop BMCs of virtual machines."""
    _once("stop")
    _end(switch(domain_names, active=False))


@command.command("list")
@list_options
def list_(style: Style) -> None:
    """List all BMCs."""
    configured = reported()
    revive(configured)
    served = served_now()
    rows = [
        (each["domain_name"], status_of(each, served), each["address"], int(each["port"]))
        for each in configured
    ]
    print_list(LIST, rows, style)
    _once("list")


@command.command("show")
@click.argument("domain_name")
@list_options
def show(domain_name: str, style: Style) -> None:
    """Show a BMC's properties."""
    from nospoon.importers.virtualbmc import SASL  # noqa: PLC0415  (imports pydantic)

    found = read_config(config_path(domain_name))
    if found is None:
        raise no_such(domain_name)
    shown: dict[str, Cell] = {
        **dict.fromkeys(SASL), **found, "port": int(found["port"]),
        "status": status_of(found, served_now()),
    }  # fmt: skip
    if not shows_passwords():
        shown |= dict.fromkeys(("password", "libvirt_sasl_password"), HIDDEN)
    print_list(SHOW, sorted(shown.items()), style)
    _once("show")


def _end(failed: dict[str, NospoonError]) -> None:
    """Raises what failed, if anything did."""
    if failed:
        raise NospoonError("\n".join(dict.fromkeys(map(str, failed.values()))))


def _once(name: str) -> None:
    """Say how it is done with a cluster file, the first time that a command is used here."""
    place = directory()
    marker, options = place / ".nospoon", os.O_NOFOLLOW | os.O_NONBLOCK  # it may be a FIFO
    try:
        with os.fdopen(os.open(marker, os.O_RDONLY | options), errors="replace") as opened:
            said = opened.read(MOST_SAID).split()
    except OSError:
        said = []
    if name not in said:
        echo(f"In nospoon's own words: {NATIVE[name]}", err=True)
        with suppress(OSError):  # of another user, who reads it: it is said again
            place.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | options, 0o644)
            with os.fdopen(descriptor, "w") as opened:
                opened.write(" ".join([*said, name]) + "\n")
