"""Where everything is, for root and for users; one table that documents are made from.

Root's daemon follows the FHS; a user's follows the XDG base directory specification.
"""

from __future__ import annotations

import difflib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from math import inf
from pathlib import Path
from typing import TypeVar

from nospoon.errors import UsageError


@dataclass(frozen=True, slots=True)
class Setting:
    """One environment variable, its defaults for root and for users, and what it is."""

    variable: str
    root: str
    user: str
    meaning: str


TABLE = (
    Setting(
        "NOSPOON_STATE_DIR",
        "/var/lib/nospoon",
        "$XDG_STATE_HOME/nospoon",
        "database, key file, uploads, network boot files, boot ISO and console records",
    ),
    Setting(
        "NOSPOON_RUNTIME_DIR",
        "/run/nospoon",
        "$XDG_RUNTIME_DIR/nospoon",
        "the daemon's socket and pid file",
    ),
    Setting(
        "NOSPOON_CACHE_DIR",
        "/var/cache/nospoon",
        "$XDG_CACHE_HOME/nospoon",
        "what can be made again: the probe, the KVM verdict",
    ),
    Setting(
        "NOSPOON_POOL_DIR",
        "/var/lib/nospoon/pools",
        "$XDG_DATA_HOME/nospoon/pools",
        "storage pools of local hosts",
    ),
    Setting(
        "NOSPOON_DATABASE",
        "sqlite:///$NOSPOON_STATE_DIR/nospoon.db",
        "sqlite:///$NOSPOON_STATE_DIR/nospoon.db",
        "SQLAlchemy URL of the store",
    ),
    Setting(
        "NOSPOON_GROUP",
        "libvirt",
        "",
        "group whose members may use root's daemon beside root",
    ),
    Setting(
        "NOSPOON_GRANTS",
        "/etc/nospoon/grants.yaml",
        "",
        "root's list of hosts, networks, ports and bridges that members of the group may use, too; "
        "a missing file grants nothing",
    ),
    Setting("NOSPOON_LOG", "info", "info", "log level: debug, info, warning or error"),
    Setting(
        "NOSPOON_BOOT_PORT",
        "8069",
        "0",
        "TCP port for boot scripts and files; 0: a free one on loopback, chosen at the first start "
        "and kept",
    ),
    Setting(
        "NOSPOON_LEASE",
        "15",
        "15",
        "seconds for which a daemon may be silent before another one on the same database may "
        "take over its hosts",
    ),
    Setting(
        "NOSPOON_BMC_RESTART",
        "2",
        "2",
        "seconds for which a restarting BMC does not answer",
    ),
    Setting(
        "NOSPOON_IRONIC_PATIENCE",
        "180",
        "180",
        "seconds for which operations wait for an Ironic that does not answer",
    ),
    Setting(
        "NOSPOON_MEDIA_NETWORKS",
        "",
        "",
        "comma-separated networks that BMC clients may have the daemon connect to besides: "
        "loopback, link-local, multicast and metadata addresses are refused otherwise",
    ),
    Setting(
        "NOSPOON_MEDIA_SIZE",
        "16",
        "16",
        "GiB of the largest image that a BMC client may have fetched",
    ),
    Setting(
        "NOSPOON_OWNER_SPACE",
        "200",
        "200",
        "GiB that cluster files, uploads and downloads of one user may take in the state "
        "directory; 0: no limit",
    ),
    Setting(
        "NOSPOON_MEMBER_NODES",
        "20000",
        "20000",
        "nodes that all clusters of one member of the group may have together; 0: no limit",
    ),
    Setting(
        "NOSPOON_FREE_SPACE",
        "1",
        "1",
        "GiB of the state directory's disk that uploads and downloads leave free; 0 for none",
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Resolved settings of one daemon and the clients that talk to it."""

    state: Path
    runtime: Path
    cache: Path
    pools: Path
    database: str
    group: str
    grants: Path
    log_level: str
    boot_port: int
    bmc_restart: float
    lease: float
    ironic_patience: float
    media_networks: tuple[IPv4Network | IPv6Network, ...]
    media_size: int
    """Bytes, as the next two."""
    owner_space: int
    free_space: int
    member_nodes: int
    privileged: bool
    digests: Mapping[str, str]
    """Variable -> digest of its text, by which a command sees whether a daemon has the same. The
    text may be a URL with a password.
    """

    @property
    def socket(self) -> Path:
        return self.runtime / SOCKET_NAME

    @property
    def pid_file(self) -> Path:
        return self.runtime / "nospoond.pid"

    @property
    def log_file(self) -> Path:
        return self.state / "nospoond.log"

    @property
    def default_uri(self) -> str:
        """libvirt URI of hosts that name none."""
        return "qemu:///system" if self.privileged else "qemu:///session"


READY, REFUSED = "ready", "refused: "
"""What a daemon sends to the command that started it; an error follows the second."""
LOG_LEVELS = ("debug", "info", "warning", "error")
GIB = 1 << 30
T = TypeVar("T")


def settings_for(environment: Mapping[str, str], *, uid: int) -> Settings:
    """The settings of a daemon with this environment and user. Raises `UsageError`, which names
    every variable that cannot be used.
    """
    values: dict[str, str] = {**_xdg(environment, uid)}
    for setting in TABLE:
        default = setting.root if uid == 0 else setting.user
        values[setting.variable] = environment.get(setting.variable) or _expand(default, values)
    read = _Reader(values)
    settings = Settings(
        state=read("NOSPOON_STATE_DIR", _absolute, ABSOLUTE, Path("/")),
        runtime=read("NOSPOON_RUNTIME_DIR", _for_socket, FOR_SOCKET, Path("/")),
        cache=read("NOSPOON_CACHE_DIR", _absolute, ABSOLUTE, Path("/")),
        pools=read("NOSPOON_POOL_DIR", _absolute, ABSOLUTE, Path("/")),
        database=values["NOSPOON_DATABASE"],
        group=values["NOSPOON_GROUP"],
        grants=Path(values["NOSPOON_GRANTS"] or "/etc/nospoon/grants.yaml"),
        log_level=read("NOSPOON_LOG", _level, f"one of {', '.join(LOG_LEVELS)}", "info"),
        boot_port=read("NOSPOON_BOOT_PORT", _port, "a TCP port from 0 to 65535", 0),
        bmc_restart=read("NOSPOON_BMC_RESTART", _number, "a number of seconds", 0.0),
        lease=read("NOSPOON_LEASE", _positive, "a number of seconds greater than 0", 0.0),
        ironic_patience=read("NOSPOON_IRONIC_PATIENCE", _number, "a number of seconds", 0.0),
        media_networks=read("NOSPOON_MEDIA_NETWORKS", _networks, "networks like 192.0.2.0/24", ()),
        media_size=read("NOSPOON_MEDIA_SIZE", _gib, "a number of GiB", 0),
        owner_space=read("NOSPOON_OWNER_SPACE", _gib, "a number of GiB", 0),
        free_space=read("NOSPOON_FREE_SPACE", _gib, "a number of GiB", 0),
        member_nodes=read("NOSPOON_MEMBER_NODES", _count, "a number of nodes", 0),
        privileged=uid == 0,
        digests={each.variable: digest(values[each.variable]) for each in TABLE},
    )
    if read.problems:
        raise UsageError("\n".join(read.problems))
    return settings


def digest(text: str) -> str:
    """Of a variable's text, as `Settings.digests` has it."""
    return hashlib.sha256(text.encode()).hexdigest()


def unknown_group(name: str) -> str:
    """What the absence of the group in NOSPOON_GROUP means."""
    return f"this system has no group {name!r}: only root and the daemon's own user may use it"


def misspelled(environment: Mapping[str, str]) -> dict[str, str]:
    """Variable that is no setting -> the setting that is spelled almost like it.

    Others that begin with NOSPOON_ may belong to another program.
    """
    known = {each.variable.removeprefix(PREFIX): each.variable for each in TABLE}
    given = {each.removeprefix(PREFIX) for each in environment if each.startswith(PREFIX)}
    found = {}
    for word in sorted(given - known.keys()):
        for near in difflib.get_close_matches(word[:MOST_LETTERS].upper(), known, n=1, cutoff=0.8):
            found[f"{PREFIX}{word}"] = known[near]
    return found


PREFIX = "NOSPOON_"
MOST_LETTERS = 64
ABSOLUTE = "an absolute path"
SOCKET_NAME = "nospoond.sock"
MOST_OF_DIRECTORY = 107 - len(f"/{SOCKET_NAME}")
"""Bytes: the path of a Unix socket has at most 107 (unix(7): `sun_path` with its NUL)."""
FOR_SOCKET = f"an absolute path of at most {MOST_OF_DIRECTORY} bytes, for the daemon's socket"


class _Reader:
    """Reads variables one by one, and collects what is wrong with them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.problems: list[str] = []

    def __call__(self, variable: str, parse: Callable[[str], T], expected: str, other: T) -> T:
        text = self._values[variable]
        try:
            return parse(text)
        except ValueError:
            self.problems.append(f"{variable}: expected {expected}, got {text!r}")
            return other


def _absolute(text: str) -> Path:
    """The daemon outlives the directory in which it was started, and libvirtd has another one."""
    path = Path(text)
    if not path.is_absolute():
        raise ValueError
    return path


def _for_socket(text: str) -> Path:
    path = _absolute(text)
    if len(os.fsencode(path)) > MOST_OF_DIRECTORY:
        raise ValueError(text)
    return path


def _level(text: str) -> str:
    return LOG_LEVELS[LOG_LEVELS.index(text)]


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise ValueError(text)
    return port


def _number(text: str) -> float:
    number = float(text)
    if not 0 <= number < inf:  # which refuses NaN as well
        raise ValueError(text)
    return number


def _positive(text: str) -> float:
    number = _number(text)
    if not number:
        raise ValueError(text)
    return number


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count


def _gib(text: str) -> int:
    """Bytes."""
    return int(_number(text) * GIB)


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    parts = [each.strip() for each in text.split(",")]
    return tuple(ip_network(each, strict=False) for each in parts if each)


def make_directory(directory: Path, mode: int) -> None:
    """A directory of one of the settings. Raises `UsageError` when it cannot be used."""
    if os.geteuid() == 0:
        _check_links(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=mode)
    except OSError as error:
        raise UsageError(
            f"cannot make the directory {directory}: {error.strerror}",
            hint="NOSPOON_STATE_DIR, NOSPOON_RUNTIME_DIR, NOSPOON_CACHE_DIR and NOSPOON_POOL_DIR "
            "say where nospoon keeps its files.",
        ) from error
    owner = directory.stat().st_uid
    if os.geteuid() == 0 and owner != 0:  # who may put links there, for root to follow
        raise UsageError(
            f"the directory {directory} belongs to user {owner}: root's daemon writes only in "
            "directories of root",
            hint=f"Name another one, or: chown root {directory}",
        )
    if os.geteuid() == 0:
        _check_links(directory)  # again: one may have come meanwhile
        _check_parents(directory)
    if not os.access(directory, os.W_OK | os.X_OK):
        read_only = os.statvfs(directory).f_flag & os.ST_RDONLY
        why = os.strerror(errno.EROFS if read_only else errno.EACCES)
        raise UsageError(f"cannot write to the directory {directory}: {why}")


def _check_links(directory: Path) -> None:
    """Where a link leads is its owner's choice. Linux may follow those of others in /tmp, too
    (proc_sys_fs(5), protected_symlinks).
    """
    for link in _links(directory.absolute()):
        owner = link.lstat().st_uid
        if owner != 0:
            raise UsageError(
                f"{link} is a link of user {owner}: root's daemon writes only where its own links "
                "lead",
                hint="Name another directory, or remove the link.",
            )


def _links(path: Path, seen: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Those on the way there, and on the ways where these lead; `seen` were on it already."""
    for each in (path, *path.parents):
        if each.is_symlink() and each not in seen:
            yield each
            yield from _links(each.parent / each.readlink(), seen | {each})


def _check_parents(directory: Path) -> None:
    """Who may write to one could put another directory in the place of root's. In sticky ones, as
    /tmp, only their owner and an entry's can (unlink(2), EPERM).
    """
    for parent in {*directory.absolute().parents, *directory.resolve().parents}:
        found = parent.stat()
        if found.st_uid != 0:  # who may take any rights there
            raise UsageError(
                f"{parent} belongs to user {found.st_uid}, who can put another directory in the "
                f"place of {directory}: root's daemon does not write there",
                hint=f"Name another one, or: chown root {parent}",
            )
        by_group = found.st_mode & stat.S_IWGRP and found.st_gid != 0
        if found.st_mode & stat.S_ISVTX or not (by_group or found.st_mode & stat.S_IWOTH):
            continue
        raise UsageError(
            f"other users may write to {parent}: root's daemon writes only where no one can put "
            f"another directory in the place of {directory}",
            hint=f"Name another one, or: chmod go-w {parent}",
        )


def _xdg(environment: Mapping[str, str], uid: int) -> dict[str, str]:
    home = environment.get("HOME") or str(Path.home())
    run = f"/run/user/{uid}"
    fallback = run if os.access(run, os.W_OK) else f"{home}/.cache/nospoon-run"
    return {
        "XDG_STATE_HOME": environment.get("XDG_STATE_HOME") or f"{home}/.local/state",
        "XDG_CACHE_HOME": environment.get("XDG_CACHE_HOME") or f"{home}/.cache",
        "XDG_DATA_HOME": environment.get("XDG_DATA_HOME") or f"{home}/.local/share",
        "XDG_RUNTIME_DIR": environment.get("XDG_RUNTIME_DIR") or fallback,
    }


def _expand(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"${name}", value)
    return text
