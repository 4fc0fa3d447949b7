"""nospoon vbmc: the commands of virtualbmc, for scripts that call them.

Its configuration stays where it is (DOMAIN/config in ~/.vbmc) and says which BMCs there are to be.
Each command writes it, and brings a cluster to it: one for each address, called `vbmc`.
"""

from __future__ import annotations

import configparser
import csv
import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from nospoon.api.client import Client
from nospoon.cli import connect
from nospoon.cli.echo import echo
from nospoon.cli.follow import finish, follow
from nospoon.cli.output import FORMATS, print_rows
from nospoon.errors import NospoonError, UsageError
from nospoon.runtime.reasons import reason

SECTION = "VirtualBMC"
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


@click.group("vbmc")
@click.option("--no-daemon", is_flag=True, hidden=True)
def command(no_daemon: bool) -> None:  # noqa: FBT001  (click passes options by name)
    """The commands of virtualbmc, over its own configuration (~/.vbmc)."""
    del no_daemon  # virtualbmc ignores it as well


def _formats(function: Any) -> Any:
    choice = click.Choice(FORMATS)
    function = click.option("-f", "--format", "format_", type=choice, default="table")(function)
    return click.option("-c", "--column", "columns", multiple=True, help="Only this column.")(
        function
    )


@command.command("add")
@click.argument("domain_name")
@click.option("--username", default="admin", show_default=True, help="The BMC's user name.")
@click.option("--password", default="password", show_default=True, help="The BMC's password.")
@click.option("--port", type=click.IntRange(1, 65535), default=623, show_default=True)
@click.option("--address", default="::", show_default=True, help="Where it answers.")
@click.option("--libvirt-uri", default="qemu:///system", show_default=True)
@click.option("--libvirt-sasl-username", hidden=True)
@click.option("--libvirt-sasl-password", hidden=True)
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
    place = _directory() / _domain(domain_name)
    if (place / "config").exists():
        raise NospoonError(f"domain {domain_name} has a BMC already")
    settings = {
        "username": username, "password": password, "address": address, "port": str(port),
        "domain_name": domain_name, "libvirt_uri": libvirt_uri, "active": "False",
    }  # fmt: skip
    place.mkdir(parents=True)
    try:
        _write(place / "config", settings)
        of_address = [each for each in _configured() if each["address"] == address]
        running = [each for each in of_address if _is_active(each) or each == settings]
        connect.client().post("/v1/plan", _request(address, running))
    except BaseException:
        shutil.rmtree(place)
        raise


@command.command("delete")
@click.argument("domain_names", nargs=-1, required=True)
def delete(domain_names: Sequence[str]) -> None:
    """Delete BMCs of virtual machines."""
    _once("delete")
    _switch(domain_names, active=False)
    for name in domain_names:
        shutil.rmtree(_directory() / _domain(name))


@command.command("start")
@click.argument("domain_names", nargs=-1, required=True)
@click.option("--no-daemon", is_flag=True, hidden=True)
def start(domain_names: Sequence[str], no_daemon: bool) -> None:  # noqa: FBT001
    """Start BMCs of virtual machines."""
    del no_daemon  # virtualbmc ignores it as well
    _once("start")
    _switch(domain_names, active=True)


@command.command("stop")
@click.argument("domain_names", nargs=-1, required=True)
def stop(domain_names: Sequence[str]) -> None:
    """Stop BMCs of virtual machines."""
    _once("stop")
    _switch(domain_names, active=False)


@command.command("list")
@_formats
def list_(format_: str, columns: tuple[str, ...]) -> None:
    """List all BMCs."""
    served = _served()
    rows = [
        {
            "Domain name": each["domain_name"],
            "Status": _status(each, served),
            "Address": each["address"],
            "Port": int(each["port"]),
        }
        for each in _configured()
    ]
    _print(rows, LIST, format_, columns)
    _once("list")


@command.command("show")
@click.argument("domain_name")
@_formats
def show(domain_name: str, format_: str, columns: tuple[str, ...]) -> None:
    """Show a BMC's properties."""
    found = _find(domain_name)
    shown = {
        **{name: found.get(name) or "None" for name in sorted(found)},
        "password": HIDDEN,
        "status": _status(found, _served()),
    }
    del shown["active"]
    rows = [{"Property": name, "Value": shown[name]} for name in sorted(shown)]
    _print(rows, SHOW, format_, columns)
    _once("show")


def _print(
    rows: list[dict[str, Any]], names: Sequence[str], format_: str, columns: Sequence[str]
) -> None:
    """As virtualbmc's command line (cliff) prints them."""
    if format_ == "csv":
        wanted = [name for name in names if name in (columns or names)]
        out = csv.writer(sys.stdout, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        out.writerows([wanted, *([row[name] for name in wanted] for row in rows)])
        return
    if format_ != "table":
        print_rows(rows, format_=format_, columns=columns, names=names)
        return
    wanted = [name for name in names if name in (columns or names)]
    cells = [[str(row[name]) for name in wanted] for row in rows]
    widths = [max(len(line[i]) for line in (wanted, *cells)) for i in range(len(wanted))]
    rule = f"+{'+'.join('-' * (width + 2) for width in widths)}+"
    for line in (rule, wanted, rule, *cells, rule if cells else None):
        if isinstance(line, str):
            echo(line)
        elif line is not None:
            text = " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            echo(f"| {text} |")


def _directory() -> Path:
    """Where virtualbmc's configuration says, `~/.vbmc` else."""
    named = os.environ.get("VIRTUALBMC_CONFIG", "~/.vbmc/virtualbmc.conf")
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(Path(named).expanduser())
    except configparser.Error as error:
        raise UsageError(f"{named}: expected a configuration of virtualbmc (INI)") from error
    return Path(parser.get("default", "config_dir", fallback="~/.vbmc")).expanduser()


def _domain(name: str) -> str:
    """A name that is a directory's."""
    if not name or "/" in name or name.startswith("."):
        raise UsageError(f"{name!r} is not the name of a domain")
    return name


def _configured() -> list[dict[str, str]]:
    paths = sorted(_directory().glob("*/config"))
    return [found for path in paths if (found := _read(path)) is not None]


def _find(name: str) -> dict[str, str]:
    found = _read(_place(name))
    if found is None:
        raise NospoonError(f"no domain {name} has a BMC", hint="`nospoon vbmc list` shows them.")
    return found


def _read(path: Path) -> dict[str, str] | None:
    from nospoon.clusterfile.importers.virtualbmc import USUAL  # noqa: PLC0415  (imports pydantic)

    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {reason(error)}") from error
    except configparser.Error as error:
        raise UsageError(f"{path}: expected a configuration of virtualbmc (INI)") from error
    if SECTION not in parser:
        return None
    return {**USUAL, "domain_name": path.parent.name, **parser[SECTION]}


def _write(path: Path, settings: dict[str, str]) -> None:
    """The password is in it: its owner alone reads it."""
    lines = "".join(f"{name} = {value}\n" for name, value in settings.items())
    if any("\n" in value for value in settings.values()):
        raise UsageError("expected settings in one line each")
    new = path.with_name("config.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        opened.write(f"[{SECTION}]\n{lines}")
    new.replace(path)


def _switch(names: Iterable[str], *, active: bool) -> None:
    """Configure BMCs to be on or off, and bring them there. Where that is refused before anything
    was done, the configuration is what it was.
    """
    before = {name: _find(name) for name in names}
    try:
        for name, settings in before.items():
            _write(_place(name), {**settings, "active": str(active)})
        _bring()
    except NospoonError:
        for name, settings in before.items():
            _write(_place(name), settings)
        raise


def _place(name: str) -> Path:
    return _directory() / _domain(name) / "config"


def _is_active(settings: dict[str, str]) -> bool:
    return settings["active"].lower() in {"true", "1", "yes", "on"}


def _clusters() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Address -> what is active there; addresses where nothing is, too."""
    by_address: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    for each in _configured():
        by_address[each["address"]] += [each] if _is_active(each) else []
    yield from by_address.items()


def _cluster(address: str) -> str:
    from nospoon.clusterfile.importers.written import name_of  # noqa: PLC0415  (imports pydantic)

    return "vbmc" if address == "::" else f"vbmc-{name_of(address)}"


def _request(address: str, active: Iterable[dict[str, str]]) -> dict[str, Any]:
    from nospoon.clusterfile.importers import READERS, Source  # noqa: PLC0415  (imports pydantic)

    files = {
        f"{each['domain_name']}/config": (
            f"[{SECTION}]\n"
            + "".join(f"{name} = {value}\n" for name, value in {**each, "active": "True"}.items())
        )
        for each in active
    }
    name = str(_directory())
    made = READERS["virtualbmc"](Source(name, "", _cluster(address), files=files))
    for each in made.left_out:
        echo(f"Not carried over: {each}", err=True)
    return {"file": name, "text": made.text, "uploads": {}}


def _bring() -> None:
    """Each cluster is what the configuration says."""
    client = connect.client()
    known = {each["name"] for each in client.get("/v1/clusters")}
    for address, active in _clusters():
        name = _cluster(address)
        if active:
            _wait(client, client.post("/v1/clusters", _request(address, active)).get("operation"))
        elif name in known:
            how = {"purge": False, "force": False, "enrolment": "remove"}
            _wait(client, client.post(f"/v1/clusters/{name}/down", how))


def _wait(client: Client, operation: Any) -> None:
    if operation is not None:
        finish(follow(client, operation))


def _served() -> set[tuple[str, str]]:
    """(Cluster, IPMI port) of the BMCs that answer; none while no daemon runs."""
    client = connect.running_client()
    rows = client.get("/v1/bmcs") if client is not None else ()
    return {(row["cluster"], row["ipmi"].rpartition(":")[2]) for row in rows}


def _status(settings: dict[str, str], served: set[tuple[str, str]]) -> str:
    runs = (_cluster(settings["address"]), settings["port"]) in served
    return "running" if runs else "error" if _is_active(settings) else "down"


def _once(name: str) -> None:
    """Say how it is done with a cluster file, the first time that a command is used here."""
    place = _directory()
    marker = place / ".nospoon"
    said = marker.read_text().split() if marker.exists() else []
    if name not in said:
        echo(f"In nospoon's own words: {NATIVE[name]}", err=True)
        place.mkdir(parents=True, exist_ok=True)
        marker.write_text(" ".join([*said, name]) + "\n")
