"""Ansible as a subprocess: it reads inventories, and prepares hosts by our collection.

Ansible is not a dependency: who has hosts to prepare has it, or installs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

import nospoon
from nospoon.cli.echo import echo, echo_colours
from nospoon.cli.owners import is_own, is_own_with_place
from nospoon.errors import MissingTool, UsageError
from nospoon.importers.ansible_inventory import Inventory, members, variables_of

COLLECTIONS = Path(nospoon.__file__).parent
PREFIX = "nospoon_"
"""Variables of a host that begin so are its settings in the cluster file."""
OF_SETUP = frozenset(
    {
        "nospoon_packages",
        "nospoon_more_packages",
        "nospoon_pools",
        "nospoon_bridges",
        "nospoon_volume_group",
        "nospoon_volume_size",
    }
)
"""Variables of the collection, which are no settings."""
_SWITCHES = {"true": True, "yes": True, "false": False, "no": False}
"""What an inventory in INI has for text, and people mean otherwise."""
TEXT_ONLY = {
    "ANSIBLE_INVENTORY_ENABLED": "yaml,ini",
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
}
"""Environment in which Ansible neither runs an inventory nor loads a plugin that one names."""
COUNTS = ("ok", "changed", "failed", "unreachable")
_ODD = re.compile(r"[^a-z0-9-]+")
"""What a host of a cluster file may not have in its name."""
_RECAP = re.compile(r"(?P<host>\S+)\s+: (?P<counts>ok=\d.*)")
_COUNT = re.compile(r"(\w+)=(\d+)")


def inventory(path: str, *, playbooks: str | None = None) -> Inventory:
    """What Ansible itself makes of an inventory (`ansible-inventory --list`). `playbooks`: a
    directory whose host_vars and group_vars count, too. Nothing of another user's is run.

    Raises `MissingTool`, or `UsageError` with Ansible's own words.
    """
    argv = [_tool("ansible-inventory"), "--list", "-i", str(Path(path).absolute())]
    if playbooks is not None and not is_own(Path(playbooks)):
        echo(f"{playbooks} belongs to another user: variables there do not count", err=True)
        playbooks = None
    argv += ["--playbook-dir", playbooks] if playbooks is not None else []
    is_foreign = not is_own_with_place(Path(path))
    environment = {**os.environ, **(TEXT_ONLY if is_foreign else {})}
    done = subprocess.run(
        argv, env=environment, cwd=_place(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        hint = (
            "It is another user's: as such it may be text, but not a script." if is_foreign else ""
        )
        raise UsageError(f"ansible-inventory cannot read {path}: {done.stderr.strip()}", hint=hint)
    found: Inventory = json.loads(done.stdout)
    return found


def hosts_of(listed: Inventory, group: str) -> dict[str, dict[str, object]]:
    """A group's hosts as a cluster file's `hosts`. Raises `UsageError` for an unknown group, and
    for hosts that would have one name.
    """
    if group != "all" and group not in listed:
        known = ", ".join(sorted(each for each in listed if each != "_meta"))
        raise UsageError(f"no group {group!r} in the inventory. It has {known}")
    found: dict[str, str] = {}
    for name in sorted(members(listed, group)):
        ours = _ODD.sub("-", name.lower())
        if ours in found:
            raise UsageError(
                f"hosts {found[ours]} and {name} of the inventory are both {ours} in a cluster",
                hint="Rename one of them: names have small letters, digits and -.",
            )
        found[ours] = name
    return {ours: _settings(name, variables_of(listed, name)) for ours, name in found.items()}


def _settings(name: str, variables: Mapping[str, object]) -> dict[str, object]:
    """`nospoon_` variables are settings as they are; how Ansible gets there tells `ssh`."""
    given = {
        key.removeprefix(PREFIX): _SWITCHES.get(value, value) if isinstance(value, str) else value
        for key, value in variables.items()
        if key.startswith(PREFIX) and key not in OF_SETUP
    }
    if "simulated" in given or variables.get("ansible_connection") == "local":
        return given
    user, port = variables.get("ansible_user"), variables.get("ansible_port")
    address = str(variables.get("ansible_host", name))
    at = f"{user}@" if user else ""
    host = f"[{address}]" if ":" in address else address
    authority = f"{at}{host}{f':{port}' if port else ''}"
    ssh = f"ssh://{authority}" if port else f"{at}{address}"
    return {"ssh": ssh, "libvirt": f"qemu+ssh://{authority}/system"} | given


def play(
    name: str, hosts: Mapping[str, Mapping[str, object]], more: Sequence[str]
) -> list[dict[str, object]]:
    """Run a playbook of our collection on these hosts: their names and variables.

    What Ansible says goes to stderr while it runs; returns a row a host, with `COUNTS`.
    """
    with tempfile.TemporaryDirectory(prefix="nospoon-") as place:
        listed = Path(place, "inventory.json")
        listed.write_text(json.dumps({"all": {"hosts": hosts}}))
        argv = [_tool("ansible-playbook"), "-i", str(listed), f"nospoon.host.{name}", *more]
        with (
            _interruptible() as interruption,
            subprocess.Popen(
                argv, env=_environment(), cwd=_place(), stdout=subprocess.PIPE, text=True
            ) as ansible,
        ):
            interruption.ansible = ansible
            assert ansible.stdout is not None, "it was asked for"
            rows = list(_recap(_shown(ansible.stdout)))
        if interruption.is_there:
            raise KeyboardInterrupt
        if ansible.returncode and not rows:
            raise UsageError(f"ansible-playbook ended with status {ansible.returncode}")
    return rows


def _place() -> str:
    """Where Ansible is started: it runs what `ansible.cfg` there names. So not in a directory of
    another user, but for the one who calls sudo.
    """
    here = Path.cwd()
    return str(here) if is_own(here) else "/"


STEPS = ((2.0, signal.SIGINT), (20.0, signal.SIGTERM), (5.0, signal.SIGKILL))
"""How many seconds it may take, and what it is sent then. A terminal interrupts it too, and twice
would be once too often.
"""
LAST = 2.0
"""Seconds within which its output ends when it was killed."""
AGAIN = "What was begun may be half done: run the same command again, or with --undo."


@dataclass
class _Interruption:
    """Ctrl-C, which ends Ansible and not the reading of what it says: as an exception it could come
    when a line was read, and not shown yet.
    """

    ansible: subprocess.Popen[str] | None = None
    is_there: bool = False
    steps: Iterator[tuple[float, signal.Signals]] = field(default_factory=lambda: iter(STEPS))
    sends: signal.Signals | None = None
    """What is sent to it when it has not ended in time."""

    def begin(self, *_: object) -> None:
        if not self.is_there:
            self.is_there = True
            self._wait()

    def go_on(self, *_: object) -> None:
        if self.sends is None:
            raise KeyboardInterrupt  # another process has its output
        if self.ansible is not None:
            self.ansible.send_signal(self.sends)
        self._wait()

    def _wait(self) -> None:
        seconds, self.sends = next(self.steps, (LAST, None))
        signal.setitimer(signal.ITIMER_REAL, seconds)


@contextlib.contextmanager
def _interruptible() -> Iterator[_Interruption]:
    made = _Interruption()
    acts = {signal.SIGINT: made.begin, signal.SIGALRM: made.go_on}
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's, of what runs behind it
        acts = {}
    before = {number: signal.signal(number, act) for number, act in acts.items()}
    try:
        yield made
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        if made.is_there:
            echo(AGAIN, err=True)


def _environment() -> dict[str, str]:
    plain = {} if sys.stderr.isatty() else {"ANSIBLE_NOCOLOR": "1"}
    own = {
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "0",
        "ANSIBLE_SSH_TRANSFER_METHOD": "piped",  # no sftp is asked of a host
        "ANSIBLE_PIPELINING": "1",
    }
    colours = {"ANSIBLE_FORCE_COLOR": "1"} if not plain and "NO_COLOR" not in os.environ else {}
    return {**os.environ, "ANSIBLE_LOCALHOST_WARNING": "0", **own, **plain, **colours}


def _shown(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        echo_colours(line, nl=False, err=True)
        yield click.unstyle(line)


def _recap(lines: Iterable[str]) -> Iterator[dict[str, object]]:
    ended = False
    for line in lines:
        ended = ended or line.startswith("PLAY RECAP")
        found = _RECAP.match(line) if ended else None
        if found:
            counts = dict(_COUNT.findall(found["counts"]))
            yield {"host": found["host"], **{each: int(counts.get(each, 0)) for each in COUNTS}}


def _tool(name: str) -> str:
    """Beside our interpreter, else anywhere. Raises `MissingTool`."""
    beside = Path(sys.executable).parent / name
    places = [str(beside.parent), *os.environ.get("PATH", "").split(os.pathsep)]
    for place in places:
        if os.access(Path(place, name), os.X_OK):
            return str(Path(place, name))
    raise MissingTool(f"{name} is needed for this", hint="apt-get install -y ansible-core")
