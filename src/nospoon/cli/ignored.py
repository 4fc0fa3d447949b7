"""Settings of a command that a daemon which runs already does not have.

The environment of the command that starts the daemon counts. A command that has another one later
warns that its own has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping

from nospoon.api.client import Client
from nospoon.cli.echo import echo
from nospoon.cli.units import SERVICE, Units
from nospoon.errors import Forbidden, NospoonError
from nospoon.runtime.users import is_group
from nospoon.settings import TABLE, digest, misspelled, unknown_group

CHOOSES = "NOSPOON_RUNTIME_DIR"
"""The daemon was found by it."""


def warn_of_ignored(client: Client, environment: Mapping[str, str], units: Units) -> None:
    """Name on stderr the variables of which this daemon has another value. `units`: those of a
    daemon of this user.
    """
    given = {
        each.variable: text
        for each in TABLE
        if each.variable != CHOOSES and (text := environment.get(each.variable))
    }
    if not given:
        return
    try:
        used = client.get("/v1/daemon/settings")
    except Forbidden:  # it is root's, and serves this user
        _warn(sorted(given), "it belongs to another user.")
        return
    except NospoonError:  # one of an earlier version; of others the command itself will hear
        return
    other = sorted(name for name, text in given.items() if used.get(name) != digest(text))
    if not other:
        return
    if units.are_installed() and units.manager_runs():
        manager = "systemctl" if units.system else "systemctl --user"
        _warn(other, f"set them in {units.environment}, then `{manager} restart {SERVICE}`.")
        return
    _warn(other, "stop it (`nospoon daemon stop`), and the next command starts one with them.")


def warn_of_misspelled(environment: Mapping[str, str]) -> None:
    """Name on stderr the variables that no setting has but one is meant by."""
    for given, meant in misspelled(environment).items():
        echo(f"Warning: there is no setting {given}. Did you mean {meant}?", err=True)


def warn_of_unknown_group(environment: Mapping[str, str]) -> None:
    """On stderr, that the group which this environment names is not there: it lets no one in."""
    group = environment.get("NOSPOON_GROUP", "")
    if group and not is_group(group):
        echo(f"Warning: NOSPOON_GROUP: {unknown_group(group)}", err=True)


def _warn(names: list[str], way_out: str) -> None:
    echo(f"Warning: the daemon runs already and ignores {', '.join(names)}: {way_out}", err=True)
