"""For all tests: what may be skipped is written down; any other skip fails the run."""

from __future__ import annotations

import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Generator, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from nospoon.testing.alone import alone
from nospoon.testing.postgresql import PostgreSql
from nospoon.testing.rack import Rack
from nospoon.testing.trees import remove_tree

ALLOWED = Path(__file__).parent / "skips.toml"
TOGETHER = {
    "tests/e2e/test_changes.py": "changes",
    "tests/fleet/": "fleet",
    "tests/ironic/test_agents.py": "agents",
    "tests/ironic/test_deploy.py": "deployed machines",
    "tests/ironic/": "ironic",
    "tests/nova/": "ironic",
    "tests/cloud/": "cloud",
}
"""Where tests are -> what they share, of which one at a time is enough for a machine of CI: all of
these are run by one worker, the first of those that match. What has more tests is begun earlier;
tests of Ironic that took a third of the whole run together are apart, or it would end with them.
(xdist's own groups are lost with pytest 9.2, which has no `_nodeid`.)
"""

LONGEST_LOG = 8000
"""Characters of a daemon's log, its last ones, that a failure shows."""

settings.register_profile(
    "ci",
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no failure
)
settings.load_profile("ci")


def _allowed() -> list[str]:
    return [entry["reason"] for entry in tomllib.loads(ALLOWED.read_text())["skip"]]


class SkipGuard:
    """Counts skips whose reason is not in tests/skips.toml."""

    def __init__(self) -> None:
        self.allowed = _allowed()
        self.strange: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            if not any(allowed in reason for allowed in self.allowed):
                self.strange.append(f"{report.nodeid}: {reason}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.strange.append(f"{report.nodeid}: skipped as a whole")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.strange and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.strange:
            terminalreporter.write_line(f"SKIP NOT ON THE LIST tests/skips.toml: {line}", red=True)


class Seconds:
    """Where a whole run's time goes: the files that took longest, before pytest's closing line."""

    SHOWN = 15

    def __init__(self) -> None:
        self.of: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.of[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self.of) > self.SHOWN:
            all_of_them = sum(self.of.values())
            terminalreporter.write_line(f"{all_of_them:.0f} s of tests, of these:")
            for file, seconds in sorted(self.of.items(), key=itemgetter(1), reverse=True)[
                : self.SHOWN
            ]:
                terminalreporter.write_line(f"{seconds:6.0f} s {file}")


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Work units are single tests, but for those that share something."""

    def _split_scope(self, nodeid: str) -> str:
        shared = (what for place, what in TOGETHER.items() if nodeid.startswith(place))
        return next(shared, nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Together:
    return Together(config, log)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipGuard())
        config.pluginmanager.register(Seconds())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what the daemons said that it used."""
    report = yield
    if report.failed and call.when == "call":
        for each in getattr(item, "funcargs", {}).values():
            if isinstance(each, Rack):
                report.sections.append(("The daemon's log", each.log()[-LONGEST_LOG:]))
    return report


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSql]:
    """A PostgreSQL server of this run's own."""
    place = Path(tempfile.mkdtemp(prefix="nospoon-postgresql-"))
    server = PostgreSql(place)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        remove_tree(place)


@pytest.fixture
def port_623() -> Iterator[None]:
    """For BMCs at IPMI's own port: one daemon on a machine has it, for all addresses."""
    with alone("port-623"):
        yield
