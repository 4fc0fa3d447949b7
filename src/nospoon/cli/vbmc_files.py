"""The configuration of virtualbmc: a directory for each BMC, with its settings in `config`."""

from __future__ import annotations

import configparser
import fcntl
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from nospoon.cli.echo import echo
from nospoon.errors import NospoonError, UsageError
from nospoon.runtime.reasons import reason

CONFIGURATIONS = ("~/.vbmc/virtualbmc.conf", "/etc/virtualbmc/virtualbmc.conf")
"""The first that is there is read, after the one that VIRTUALBMC_CONFIG names."""


@contextmanager
def alone() -> Iterator[None]:
    """One command after the other, as vbmcd takes them: scripts start several at once."""
    place = directory()
    try:
        place.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(place / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise NospoonError(f"cannot write in {place}: {reason(error)}") from error
    with os.fdopen(descriptor) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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


def directory() -> Path:
    """Where virtualbmc's configuration says, `~/.vbmc` else."""
    _, parser = _settings()
    return Path(parser.get("default", "config_dir", fallback="~/.vbmc")).expanduser()


def shows_passwords() -> bool:
    path, parser = _settings()
    try:
        return parser.getboolean("default", "show_passwords", fallback=False)
    except ValueError as error:
        raise UsageError(f"{path}: show_passwords: expected true or false") from error


def config_path(name: str) -> Path:
    return directory() / _domain(name) / "config"


def _domain(name: str) -> str:
    """A name that is a directory's (NAME_MAX of Linux: 255 bytes)."""
    is_long = len(os.fsencode(name)) > 255
    if not name or is_long or {"/", "\0", "\n"} & set(name) or name.startswith("."):
        raise UsageError(f"{name!r} is not the name of a domain")
    return name


def is_broken(name: str) -> bool:
    """Whether its configuration is none that could be served."""
    try:
        read_config(config_path(name))
    except UsageError:
        return config_path(name).exists()
    return False


def configurations(broken: dict[str, UsageError] | None = None) -> list[dict[str, str]]:
    """What can be read: one file that is broken is that BMC's trouble alone. `broken`: takes the
    others by their domains, and why.
    """
    configured = []
    for path in sorted(directory().glob("*/config")):
        try:
            found = read_config(path)
        except UsageError as error:
            if broken is not None:
                broken[path.parent.name] = error
        else:
            configured += [found] if found is not None else []
    return configured


def reported(besides: Collection[str] = ()) -> list[dict[str, str]]:
    """What can be read, once a command: what cannot be is reported. `besides`: domains of which
    that is reported otherwise.
    """
    broken: dict[str, UsageError] = {}
    configured = configurations(broken)
    for name, error in broken.items():
        if name not in besides:
            echo(f"Left out: {error}", err=True)
    return configured


def no_such(name: str) -> NospoonError:
    return NospoonError(f"no domain {name} has a BMC", hint="`nospoon vbmc list` shows them.")


def read_config(path: Path) -> dict[str, str] | None:
    from nospoon.importers.libvirt_uris import (  # noqa: PLC0415  (imports pydantic)
        without_query,
    )
    from nospoon.importers.virtualbmc import settings_of  # noqa: PLC0415

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


def write_config(path: Path, settings: dict[str, str]) -> None:
    """The password is in it: its owner alone reads it. The directory may be another user's, whose
    links lead to no file of who writes.
    """
    from nospoon.importers.virtualbmc import text_of  # noqa: PLC0415  (pydantic)

    if path.parent.is_symlink() and path.parent.lstat().st_uid != os.geteuid():
        raise UsageError(f"cannot write {path}: {path.parent} is a link of another user")
    if any("\n" in value for value in settings.values()):
        raise UsageError("expected settings in one line each")
    new = path.with_name("config.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(text_of(settings))
    new.replace(path)


def remove_config(place: Path) -> None:
    """A link goes, and not what it leads to."""
    try:
        place.unlink() if place.is_symlink() else shutil.rmtree(place)
    except OSError as error:
        raise NospoonError(f"cannot remove {place}: {reason(error)}") from error
