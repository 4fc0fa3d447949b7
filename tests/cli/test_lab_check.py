"""What `nospoon lab check` and `lab list` show of a lab."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from nospoon.cli import connect
from nospoon.cli.commands.lab import _findings, command
from nospoon.model.rest.labs import FreeCapacity, LabDetails, LabLimits, MachineStatus

MACHINE = MachineStatus(
    machine="m1", state="idle", set="", reserved="", broken="", failures=0, arch="x86_64", cpus=1,
    memory_mib=1, disks_gib=[], macs=[], inventory=None, bmc="ipmi 192.0.2.1:623", console="",
)  # fmt: skip
LAB = LabDetails(
    lab="c/dev", host="", state="open", dynamic=0, limit=0, registered=1, loaned=0, broken=0,
    queued=0, flavors=[], disks="preclude", prefer="dynamic", lease_seconds=60,
    limits=LabLimits(machines=0, cpus=0, memory_mib=0, per_owner=0),
    free=FreeCapacity(machines=None, cpus=None, memory_mib=None), distros=["fedora"], users=[],
    operators=[], machines=[MACHINE],
)  # fmt: skip


@pytest.mark.parametrize(
    ("distros", "macs", "listed"),
    [(["fedora"], [], True), (["fedora"], ["52:54:00:00:00:01"], False), ([], [], False)],
)
def test_a_machine_that_gets_no_installer_is_listed(
    distros: list[str], macs: list[str], *, listed: bool
) -> None:
    """It is loaned, waits for `timeouts.boot`, and counts as broken after three recipes."""
    lab = replace(LAB, distros=distros, machines=[replace(MACHINE, macs=macs)])
    found = {str(each["what"]): each["state"] for each in _findings(lab, [])}
    assert found.get("installer of m1") == ("without" if listed else None)


def test_a_bmc_where_the_daemon_does_not_go_is_listed() -> None:
    """Each recipe set of it would fail."""
    why = "it is at 127.0.0.1, where the daemon does not go"
    lab = replace(LAB, machines=[MACHINE, replace(MACHINE, machine="m2", beyond=why)])
    refused = [each for each in _findings(lab, []) if each["state"] == "refused"]
    assert refused == [{"lab": "c/dev", "what": "BMC of m2", "state": "refused", "why": why}]


@pytest.mark.parametrize(("limit", "table", "json"), [(0, "", "0"), (7, "7", "7")])
def test_a_lab_without_a_limit_shows_none(
    limit: int, table: str, json: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of 0 reads as if there could be no machine. JSON has the number of the file."""

    class Daemon:
        def ask(self, *_: object) -> list[LabDetails]:
            return [replace(LAB, limit=limit)]

    monkeypatch.setattr(connect, "client", Daemon)
    shown = CliRunner().invoke(command, ["list", "-c", "limit", "-c", "lab"]).stdout
    assert shown.splitlines()[1].split() == [*filter(None, [table]), "c/dev"]
    assert f'"limit": {json}' in CliRunner().invoke(command, ["list", "-f", "json"]).stdout
