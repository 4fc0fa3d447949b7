"""nospoon vbmc: the commands of virtualbmc, for scripts that call them.

Its configuration stays where it is (DOMAIN/config in ~/.vbmc) and says which BMCs there are to be.
Each command writes it, and brings a cluster to it: one for each address and libvirtd, `vbmc` for
all addresses and this machine's. A BMC does not wait for others: a machine that is not there, or is
not to be had, is left out of its cluster.
"""

from __future__ import annotations

import configparser
import fcntl
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from nospoon import __version__
from nospoon.api.client import Client
from nospoon.cli import connect
from nospoon.cli.addresses import resolved
from nospoon.cli.adoptions import refused
from nospoon.cli.cliff import Cell, Group, Style, ignored_options, list_options, print_list
from nospoon.cli.echo import echo
from nospoon.cli.follow import finish, follow
from nospoon.cli.interrupted import INTERRUPTED
from nospoon.cli.output import report
from nospoon.errors import NospoonError, PlanRefused, UsageError
from nospoon.model.rest.clusters import ClusterSummary
from nospoon.model.rest.nodes import BmcAccess
from nospoon.model.rest.operations import OperationDetails
from nospoon.model.rest.plans import BegunPlan
from nospoon.runtime.reasons import reason

Served = tuple[str, str, str]
"""Cluster, node and IPMI port of a BMC."""
LIST = ("Domain name", "Status", "Address", "Port")
SHOW = ("Property", "Value")
HIDDEN = "***"
CONFIGURATIONS = ("~/.vbmc/virtualbmc.conf", "/etc/virtualbmc/virtualbmc.conf")
"""The first that is there is read, after the one that VIRTUALBMC_CONFIG names."""
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


@contextmanager
def _alone() -> Iterator[None]:
    """One command after the other, as vbmcd takes them: scripts start several at once."""
    place = _directory()
    try:
        place.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise NospoonError(f"cannot write in {place}: {reason(error)}") from error
    with os.fdopen(descriptor) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
@_alone()
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
    place = _place(domain_name)
    if place.exists():
        raise NospoonError(f"domain {domain_name} has a BMC already")
    _check_apart(domain_name)
    _check_account(username, password)
    settings = {
        "username": username, "password": password, "address": address, "port": str(port),
        "domain_name": domain_name, "libvirt_uri": libvirt_uri, "active": "False",
    }  # fmt: skip
    try:
        connect.client().post("/v1/plan", _request(_cluster(settings), [settings]))
    except PlanRefused as error:
        raise NospoonError(refused(error, [domain_name])[domain_name]) from error
    place.parent.mkdir(parents=True, exist_ok=True)
    _write(place, settings)


def _check_apart(name: str) -> None:
    """Nodes of one cluster have names of their own, in small letters."""
    for each in _configured():
        if _node(each["domain_name"]) == _node(name):
            raise NospoonError(
                f"domain {name} would be node {_node(name)}, as {each['domain_name']} is",
                hint="Rename one of them (`virsh domrename`).",
            )


def _check_account(username: str, password: str) -> None:
    """A BMC that is served with another account than it was given is no use to a script."""
    from nospoon.clusterfile.importers.accounts import (  # noqa: PLC0415  (imports pydantic)
        account,
    )

    wrong: list[str] = []
    account({"username": ("--username", username), "password": ("--password", password)}, wrong)
    if wrong:
        raise UsageError("; ".join(wrong))


@command.command("delete")
@click.argument("domain_names", nargs=-1, required=True)
@ignored_options
@_alone()
def delete(domain_names: Sequence[str]) -> None:
    """Delete BMCs of virtual machines."""
    _once("delete")
    broken = [name for name in domain_names if _is_broken(name)]
    failed = _switch([name for name in domain_names if name not in broken], active=False)
    for name in dict.fromkeys(domain_names):
        if name not in failed:
            _remove(_place(name).parent)
    _end(failed)


def _is_broken(name: str) -> bool:
    """Whether its configuration is none that could be served."""
    try:
        _read(_place(name))
    except UsageError:
        return _place(name).exists()
    return False


def _remove(place: Path) -> None:
    """A link goes, and not what it leads to."""
    try:
        place.unlink() if place.is_symlink() else shutil.rmtree(place)
    except OSError as error:
        raise NospoonError(f"cannot remove {place}: {reason(error)}") from error


@command.command("start")
@click.argument("domain_names", nargs=-1, required=True)
@click.option("--no-daemon", is_flag=True, hidden=True, expose_value=False)
@ignored_options
@_alone()
def start(domain_names: Sequence[str]) -> None:
    """Start BMCs of virtual machines."""
    _once("start")
    _end(_switch(domain_names, active=True))


@command.command("stop")
@click.argument("domain_names", nargs=-1, required=True)
@ignored_options
@_alone()
def stop(domain_names: Sequence[str]) -> None:
    """Stop BMCs of virtual machines."""
    _once("stop")
    _end(_switch(domain_names, active=False))


@command.command("list")
@list_options
def list_(style: Style) -> None:
    """List all BMCs."""
    configured = _reported()
    _revive(configured)
    served = _served()
    rows = [
        (each["domain_name"], _status(each, served), each["address"], int(each["port"]))
        for each in configured
    ]
    print_list(LIST, rows, style)
    _once("list")


@command.command("show")
@click.argument("domain_name")
@list_options
def show(domain_name: str, style: Style) -> None:
    """Show a BMC's properties."""
    from nospoon.clusterfile.importers.virtualbmc import SASL  # noqa: PLC0415  (imports pydantic)

    found = _read(_place(domain_name))
    if found is None:
        raise _missing(domain_name)
    shown: dict[str, Cell] = {
        **dict.fromkeys(SASL), **found, "port": int(found["port"]),
        "status": _status(found, _served()),
    }  # fmt: skip
    if not _shows_passwords():
        shown |= dict.fromkeys(("password", "libvirt_sasl_password"), HIDDEN)
    print_list(SHOW, sorted(shown.items()), style)
    _once("show")


def _settings() -> tuple[Path, configparser.ConfigParser]:
    """The file that virtualbmc reads, and what it says."""
    named = os.environ.get("VIRTUALBMC_CONFIG", "")
    paths = [Path(each).expanduser() for each in (named, *CONFIGURATIONS) if each]
    path = next((each for each in paths if each.is_file()), paths[-1])
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(path)
    except configparser.Error as error:
        raise UsageError(f"{path}: expected a configuration of virtualbmc (INI)") from error
    return path, parser


def _directory() -> Path:
    """Where virtualbmc's configuration says, `~/.vbmc` else."""
    _, parser = _settings()
    return Path(parser.get("default", "config_dir", fallback="~/.vbmc")).expanduser()


def _shows_passwords() -> bool:
    path, parser = _settings()
    try:
        return parser.getboolean("default", "show_passwords", fallback=False)
    except ValueError as error:
        raise UsageError(f"{path}: show_passwords: expected true or false") from error


def _domain(name: str) -> str:
    """A name that is a directory's (NAME_MAX of Linux: 255 bytes)."""
    is_long = len(os.fsencode(name)) > 255
    if not name or is_long or {"/", "\0", "\n"} & set(name) or name.startswith("."):
        raise UsageError(f"{name!r} is not the name of a domain")
    return name


def _configured(broken: dict[str, UsageError] | None = None) -> list[dict[str, str]]:
    """What can be read: one file that is broken is that BMC's trouble alone. `broken`: takes the
    others by their domains, and why.
    """
    configured = []
    for path in sorted(_directory().glob("*/config")):
        try:
            found = _read(path)
        except UsageError as error:
            if broken is not None:
                broken[path.parent.name] = error
        else:
            configured += [found] if found is not None else []
    return configured


def _reported(besides: Collection[str] = ()) -> list[dict[str, str]]:
    """What can be read, once a command: what cannot be is reported. `besides`: domains of which
    that is reported otherwise.
    """
    broken: dict[str, UsageError] = {}
    configured = _configured(broken)
    for name, error in broken.items():
        if name not in besides:
            echo(f"Left out: {error}", err=True)
    return configured


def _missing(name: str) -> NospoonError:
    return NospoonError(f"no domain {name} has a BMC", hint="`nospoon vbmc list` shows them.")


def _read(path: Path) -> dict[str, str] | None:
    from nospoon.clusterfile.importers.libvirt_uris import (  # noqa: PLC0415  (imports pydantic)
        without_query,
    )
    from nospoon.clusterfile.importers.virtualbmc import settings_of  # noqa: PLC0415

    try:
        found = settings_of(path.read_text(encoding="utf-8"), place=str(path))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {reason(error)}") from error
    except configparser.Error as error:
        raise UsageError(f"{path}: expected a configuration of virtualbmc (INI)") from error
    if found is None:
        return None
    settings = {"domain_name": path.parent.name, **found}
    port = settings["port"]
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise UsageError(f"{path}: port: expected a number from 1 to 65535, got {port[:80]!r}")
    try:
        without_query(settings["libvirt_uri"])
    except UsageError as error:
        raise UsageError(f"{path}: libvirt_uri: {error}") from error
    return settings


def _write(path: Path, settings: dict[str, str]) -> None:
    """The password is in it: its owner alone reads it. The directory may be another user's, whose
    links lead to no file of who writes.
    """
    from nospoon.clusterfile.importers.virtualbmc import text_of  # noqa: PLC0415  (pydantic)

    if path.parent.is_symlink() and path.parent.lstat().st_uid != os.geteuid():
        raise UsageError(f"cannot write {path}: {path.parent} is a link of another user")
    if any("\n" in value for value in settings.values()):
        raise UsageError("expected settings in one line each")
    new = path.with_name("config.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(text_of(settings))
    new.replace(path)


def _switch(names: Iterable[str], *, active: bool) -> dict[str, NospoonError]:
    """Configure BMCs to be on or off, and bring them there; the names of those that stayed as they
    were, and why.
    """
    before: dict[str, dict[str, str]] = {}
    failed: dict[str, NospoonError] = {}
    for name in names:
        try:
            settings = _read(_place(name))
        except UsageError as error:
            failed[name] = error
        else:
            if settings is None:
                failed[name] = _missing(name)
            else:
                before[name] = settings
    if before:
        _reported(besides=failed)
    for name, settings in before.items():
        _write(_place(name), {**settings, "active": str(active)})
    for cluster in dict.fromkeys(map(_cluster, before.values())):
        try:
            left_out = _bring(cluster, before)
        except NospoonError as error:
            left_out = {name: error for name in before if _cluster(before[name]) == cluster}
        for name, why in left_out.items():
            if name in before:
                failed[name] = why
            else:
                echo(f"The BMC of {name} is not served: {why}", err=True)
    for name in failed.keys() & before.keys():
        _write(_place(name), before[name])
    return failed


def _end(failed: dict[str, NospoonError]) -> None:
    """Raises what failed, if anything did."""
    if failed:
        raise NospoonError("\n".join(dict.fromkeys(map(str, failed.values()))))


def _place(name: str) -> Path:
    return _directory() / _domain(name) / "config"


def _is_active(settings: dict[str, str]) -> bool:
    from nospoon.clusterfile.importers.virtualbmc import (  # noqa: PLC0415  (imports pydantic)
        is_active,
    )

    return is_active(settings)


def _cluster(settings: dict[str, str]) -> str:
    """The name of the cluster that a BMC is in."""
    from nospoon.clusterfile.importers.libvirt_uris import (  # noqa: PLC0415  (imports pydantic)
        without_query,
    )
    from nospoon.clusterfile.importers.written import name_of  # noqa: PLC0415

    address, (uri, _) = settings["address"], without_query(settings["libvirt_uri"])
    parts = (address if address != "::" else "", uri if uri != "qemu:///system" else "")
    return "-".join(["vbmc", *(name_of(each) for each in parts if each)])[:63].rstrip("-")


def _request(cluster: str, active: Iterable[dict[str, str]]) -> dict[str, object]:
    from nospoon.clusterfile.importers import READERS, Source  # noqa: PLC0415  (imports pydantic)
    from nospoon.clusterfile.importers.virtualbmc import text_of  # noqa: PLC0415  (pydantic)

    files = {
        f"{each['domain_name']}/config": text_of({**each, "active": "True"}) for each in active
    }
    place = str(_directory())
    made = READERS["virtualbmc"](Source(place, "", cluster, files=files, resolve=resolved))
    for line in made.left_out:
        echo(f"Not carried over: {line}", err=True)
    return {"file": place, "text": made.text, "uploads": {}}


def _bring(cluster: str, named: Collection[str]) -> dict[str, NospoonError]:
    """The cluster is what the configuration says, but for BMCs that cannot be served: those, and
    why. `named`: domains of the command, behind which the others stand. Raises `NospoonError`.
    """
    client = connect.client()
    configured = [each for each in _configured() if _is_active(each) and _cluster(each) == cluster]
    active, left_out = _apart(sorted(configured, key=lambda each: each["domain_name"] in named))
    while active:
        try:
            answer = client.ask(
                BegunPlan, "POST", "/v1/clusters", _request(cluster, active.values())
            )
        except PlanRefused as error:
            for name, why in refused(error, active, nodes=_nodes(active)).items():
                left_out[name] = NospoonError(why)
                del active[name]
        else:
            _wait(client, answer.operation)
            return left_out
    if cluster in {each.name for each in client.ask(list[ClusterSummary], "GET", "/v1/clusters")}:
        how = {"purge": False, "force": False, "enrolment": "remove"}
        path = f"/v1/clusters/{cluster}/down"
        _wait(client, client.ask(OperationDetails, "POST", path, how))
    return left_out


def _apart(
    configured: Iterable[dict[str, str]],
) -> tuple[dict[str, dict[str, str]], dict[str, NospoonError]]:
    """Domain -> settings, and those whose port or node is that of one before, as vbmcd's process
    for them would end: why.
    """
    active: dict[str, dict[str, str]] = {}
    left_out: dict[str, NospoonError] = {}
    ports: dict[tuple[str, str], str] = {}
    for each in configured:
        name, port = each["domain_name"], (each["address"], each["port"])
        node = _node(name)
        if port in ports:
            left_out[name] = NospoonError(f"port {each['port']} is that of {ports[port]}'s BMC")
        elif node in (nodes := _nodes(active)):
            left_out[name] = NospoonError(f"it would be node {node}, as {nodes[node]} is")
        else:
            active[name], ports[port] = each, name
    return active, left_out


def _node(domain: str) -> str:
    from nospoon.clusterfile.importers.written import name_of  # noqa: PLC0415  (imports pydantic)

    return name_of(domain)


def _nodes(domains: Iterable[str]) -> dict[str, str]:
    """Name of the node -> domain."""
    return {_node(each): each for each in domains}


def _revive(configured: Iterable[dict[str, str]]) -> None:
    """vbmcd starts what should run and does not whenever it looks. Here that is a BMC whose machine
    its owner made again; other hosts than this are not waited for.
    """
    client = connect.running_client()
    if client is None:
        return
    rows = client.ask(list[BmcAccess], "GET", "/v1/bmcs")
    alive = {_served_at(row) for row in rows if row.power not in {"absent", "unknown"}}
    lost: dict[str, list[str]] = {}
    for each in configured:
        here = _is_active(each) and each["libvirt_uri"].startswith("qemu:///")
        if here and _to_be_served(each) not in alive:
            lost.setdefault(_cluster(each), []).append(each["domain_name"])
    for cluster, names in lost.items():
        try:
            with _alone():
                _bring(cluster, names)
        except NospoonError as error:
            echo(f"Cluster {cluster}: {error}", err=True)


def _wait(client: Client, operation: OperationDetails | None) -> None:
    if operation is not None:
        finish(follow(client, operation.id))


def _served() -> set[Served]:
    """The BMCs that answer; none while no daemon runs."""
    client = connect.running_client()
    rows = client.ask(list[BmcAccess], "GET", "/v1/bmcs") if client is not None else ()
    return {_served_at(row) for row in rows}


def _served_at(row: BmcAccess) -> Served:
    return row.cluster, row.node, row.ipmi.rpartition(":")[2]


def _to_be_served(settings: dict[str, str]) -> Served:
    return _cluster(settings), _node(settings["domain_name"]), settings["port"]


def _status(settings: dict[str, str], served: set[Served]) -> str:
    runs = _to_be_served(settings) in served
    return "running" if runs else "error" if _is_active(settings) else "down"


def _once(name: str) -> None:
    """Say how it is done with a cluster file, the first time that a command is used here."""
    place = _directory()
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
