"""Consoles of registered machines of labs, by Serial over LAN with ipmitool, while leases have
them.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nospoon.control.labs.bmcs import user_of
from nospoon.runtime.clock import monotonic
from nospoon.testing.rack import Rack, private_rack

ACME = "<hostRequires><system><vendor value='Acme'/></system></hostRequires>"
PANIC = "Kernel panic - not syncing: VFS"
DISTRO = "distros: {debian: {kernel: http://127.0.0.1:1/k, initrd: http://127.0.0.1:1/i}}"
pytestmark = pytest.mark.tools


class Site:
    """A lab with one registered machine, which is a node of another cluster known by its BMC."""

    def __init__(self, rack: Rack) -> None:
        self.rack = rack
        self.metal, self.lab = rack.name(), rack.name()
        self.node = f"{self.metal}/node-0"
        self.bmc: dict[str, str] = {}

    def up(self, *, says: str, protocol: str = "ipmi", lab: str = "", password: str = "") -> None:
        text = f"""
cluster: {self.metal}
hosts: {{metal: {{simulated: {{console: "{says}"}}}}}}
nodes: [{{bmc: [{protocol}]}}]
{self.rack.bmc()}"""
        self.rack.run("up", "--yes", self.rack.file(text, f"{self.metal}.yaml"))
        self.bmc = self.rack.bmcs(self.metal)["node-0"]
        place = self.bmc[protocol].removeprefix("http://").partition("/")[0]
        address, _, port = place.partition(":")
        bmc = (
            f"{{protocol: {protocol}, address: {address}, port: {port}, tls: false, "
            f"password: {password or self.bmc['password']}}}"
        )
        text = f"""
cluster: {self.lab}
labs:
  dev:
    dynamic: false
    machines: {{m1: {{bmc: {bmc}, memory: 4GiB, attributes: {{system/vendor: Acme}}}}}}
    {lab}
nodes: []
"""
        self.rack.run("up", "--yes", self.rack.file(text, f"{self.lab}.yaml"))

    def submit(self, watchdog: str = "") -> str:
        file = self.rack.file(f"<recipe>{watchdog}{ACME}</recipe>", "request.xml")
        (row,) = self.rack.json("request", "submit", file, "--lab", f"{self.lab}/dev")
        return str(row["set"])

    def show(self, set_id: str) -> Any:
        return self.rack.client.get(f"/v1/requests/{set_id}")

    def until(self, set_id: str, reached: Callable[[Any], object], seconds: float = 240) -> Any:
        end = monotonic() + seconds
        while not reached(shown := self.show(set_id)):
            assert monotonic() < end, f"{json.dumps(shown, indent=1)}\n{self.log(set_id)}"
            time.sleep(0.2)
        return shown

    def running(self, set_id: str) -> Any:
        return self.until(set_id, lambda shown: shown["state"] == "running")

    def ended(self, set_id: str) -> Any:
        return self.until(set_id, lambda shown: shown["state"] == "ended")

    def log(self, set_id: str) -> str:
        return self.rack.run("request", "console", f"{set_id}.0").stdout

    def logged(self, set_id: str, text: str, times: int = 1, seconds: float = 240) -> str:
        end = monotonic() + seconds
        while (log := self.log(set_id)).count(text) < times:
            assert monotonic() < end, log
            time.sleep(0.2)
        return log

    def clients(self) -> list[int]:
        """Processes that have this machine's console or ask for it."""
        port = self.bmc["ipmi"].rpartition(":")[2]
        found = []
        for each in Path("/proc").iterdir():
            if each.name.isdigit():
                try:
                    argv = (each / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if argv[0].endswith(b"ipmitool") and port.encode() in argv and b"sol" in argv:
                    found.append(int(each.name))
        return found


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with private_rack() as made:
        yield made


@pytest.fixture
def site(rack: Rack) -> Iterator[Site]:
    made = Site(rack)
    yield made
    for row in rack.json("request", "list"):
        if row["state"] != "ended":
            rack.run("request", "cancel", row["set"])
            made.ended(row["set"])
    rack.run("down", "--yes", "--purge", made.lab)
    rack.run("down", "--yes", "--purge", made.metal)


def test_a_console_is_recorded_from_before_it_is_on_until_its_lease_ends(site: Site) -> None:
    boot = "firmware\\r\\n" + "".join(f"line {n}\\r\\n" for n in range(200)) + "login:"
    site.up(says=boot)
    set_id = site.submit()
    shown = site.running(set_id)
    assert shown["leases"][0]["console"] == "recorded"
    site.logged(set_id, "login:")
    for times in (2, 3):
        site.rack.run("request", "power", f"{set_id}.0", "cycle")
        site.logged(set_id, "login:", times)
    log = site.log(set_id)
    assert log == site.rack.run("node", "console", "--log", site.node).stdout, "as it is there"
    assert log.count("line 0\n") == log.count("line 199\n") == 3
    (client,) = site.clients()
    status = Path(f"/proc/{client}/status").read_text()
    assert os.geteuid() != 0 or f"Uid:\t{user_of(0)}\t{user_of(0)}" in status
    assert site.bmc["password"].encode() not in Path(f"/proc/{client}/cmdline").read_bytes()
    with subprocess.Popen(
        ["nospoon", "request", "console", "-f", f"{set_id}.0"],
        env=site.rack.environment, stdout=subprocess.PIPE, text=True,
    ) as follower:  # fmt: skip
        site.rack.run("request", "release", set_id)
        assert site.ended(set_id)["result"] == "completed"
        assert (follower.communicate(timeout=240)[0]).startswith(log), "it ends with the lease"
    assert site.clients() == []
    assert site.log(set_id).startswith(log), "the log is kept"
    assert site.show(set_id)["leases"][0]["console"] == ""
    other = site.submit()
    site.running(other)
    assert site.logged(other, "login:").count("firmware") == 1, "of another lease, another log"


def panics(shown: Any) -> int:
    return [each["event"] for each in shown["history"]].count("panic")


def test_a_panic_ends_the_lease_once_and_early(site: Site) -> None:
    site.up(says=f"SeaBIOS (version 1)\\r\\n{PANIC}\\r\\n{PANIC}\\r\\n")
    ignored = site.submit("<watchdog panic='ignore'/>")
    shown = site.until(ignored, lambda found: found["leases"][0]["panic"])
    assert shown["leases"][0]["panic"] == PANIC
    site.rack.run("request", "power", f"{ignored}.0", "cycle")
    site.logged(ignored, PANIC, 4)
    shown = site.until(ignored, lambda found: panics(found) > 1)
    assert (panics(shown), shown["state"]) == (2, "running"), "one each time that it was started"
    site.rack.run("request", "release", ignored)
    site.ended(ignored)
    ending = site.submit("<watchdog panic='end'/>")
    ended = site.ended(ending)
    assert ended["leases"][0]["stage"] == "expired"
    assert ended["leases"][0]["why"] == f"kernel panic: {PANIC}"
    assert site.clients() == []


def test_a_failed_installation_is_seen(site: Site) -> None:
    site.up(says="Pane is dead\\r\\n", lab=DISTRO)
    set_id = site.submit()
    ended = site.ended(set_id)
    assert ended["result"] == "failed"
    assert ended["leases"][0]["why"] == "the console shows: Pane is dead"


def test_a_console_that_another_client_takes_is_recorded_again_afterwards(site: Site) -> None:
    site.up(says="login:")
    set_id = site.submit()
    site.running(set_id)
    site.logged(set_id, "login:")
    site.rack.ipmitool(site.bmc, "sol", "deactivate")
    log = site.logged(set_id, "the console is recorded again")
    lost = "[nospoon: the console is not recorded from here on: Error: No response to keepalive"
    assert log.count(lost) == 1
    site.rack.run("request", "power", f"{set_id}.0", "cycle")
    assert "login:" in site.logged(set_id, "login:", 2).partition("recorded again]")[2]


def test_a_killed_daemon_leaves_no_session_and_the_next_one_goes_on(site: Site) -> None:
    site.up(says="login:")
    set_id = site.submit()
    site.running(set_id)
    site.logged(set_id, "login:")
    (client,) = site.clients()
    site.rack.until_kept("metal", '"on"')
    site.rack.crash()
    while Path(f"/proc/{client}").exists():
        time.sleep(0.05)
    log = site.logged(set_id, "the console is recorded again")
    assert log.count("is not recorded from here on: the daemon was restarted]") == 1
    site.rack.run("request", "power", f"{set_id}.0", "cycle")
    assert "login:" in site.logged(set_id, "login:", 2).partition("recorded again]")[2]
    site.rack.run("request", "release", set_id)
    site.ended(set_id)
    assert site.clients() == []


def test_a_lease_goes_on_where_its_bmc_has_no_console(site: Site) -> None:
    site.up(says="login:")
    site.rack.ipmitool(site.bmc, "sol", "set", "enabled", "false", "1")
    set_id = site.submit()
    shown = site.running(set_id)
    why = "Info: SOL payload disabled"
    assert shown["leases"][0]["console"] == f"not recorded: {why}"
    assert why in site.log(set_id)
    assert why in site.rack.run("lab", "check", f"{site.lab}/dev", status=1).stdout
    site.rack.ipmitool(site.bmc, "sol", "set", "enabled", "true", "1")
    site.until(set_id, lambda found: found["leases"][0]["console"] == "recorded")


def test_a_machine_of_redfish_says_why_it_has_no_console(site: Site) -> None:
    site.up(says="login:", protocol="redfish", lab=DISTRO)
    why = "Serial over LAN is IPMI's, and its BMC is registered with redfish"
    checked = site.rack.run("lab", "check", f"{site.lab}/dev").stdout
    assert f"console of m1 without {why}" in " ".join(checked.split())
    set_id = site.submit()
    assert site.running(set_id)["leases"][0]["console"] == f"not recorded: {why}"
    refused = site.rack.run("request", "console", f"{set_id}.0", status=2).stderr
    assert f"recipe {set_id}.0 has no console log: {why}" in refused
