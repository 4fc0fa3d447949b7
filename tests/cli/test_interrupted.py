"""Ctrl-C before the daemon has answered."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import msgspec
import pytest

from nospoon.cli import ansible
from nospoon.model.rest.plans import PlanDocument, ShownPlan
from nospoon.model.rest.upkeep import Orphan, OrphanReport
from nospoon.testing.ironic import until

COMMAND = ("env", "--default-signal=INT", sys.executable, "-m", "nospoon.cli.main")
EMPTY_PLAN = msgspec.to_builtins(
    ShownPlan(PlanDocument("x", "", "", {}, 0, (), False, (), (), ()), "")  # noqa: FBT003
)
ORPHAN = Orphan("h", "machine", "one", "x", "root", "", "")
COMMANDS = {
    "POST /v1/clusters/x/down": ("down", "x", "--yes"),
    "POST /v1/clusters/x/verify": ("verify", "x"),
    "POST /v1/clusters/x/snapshots": ("snapshot", "create", "x", "one"),
    "POST /v1/clusters/x/snapshots/one/restore": ("snapshot", "restore", "x", "one", "--yes"),
    "DELETE /v1/clusters/x/snapshots/one": ("snapshot", "delete", "x", "one"),
    "POST /v1/orphans/reap": ("orphans", "--reap", "--yes"),
}
ANSWERS = {
    "GET /v1/clusters/x/removal": EMPTY_PLAN,
    "POST /v1/orphans": msgspec.to_builtins(OrphanReport([ORPHAN], {}, {})),
    "POST /v1/requests": [{"set": "s-1"}],
}


class SilentDaemon:
    """Answers what a command asks first, and begins what it is for without an answer."""

    def __init__(self, directory: Path) -> None:
        others = {name: v for name, v in os.environ.items() if not name.startswith("NOSPOON_")}
        self.environment = {**others, "NOSPOON_RUNTIME_DIR": str(directory)}
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(directory / "nospoond.sock"))
        self.listener.listen()
        self.listener.settimeout(60)

    @contextmanager
    def asked(self, wanted: str) -> Iterator[None]:
        """A request like this is here, and has no answer while this lasts."""
        while True:
            client, _ = self.listener.accept()
            with client, client.makefile("rb") as lines:
                first = lines.readline().decode()
                if not first:  # a look whether anything answers
                    continue
                target = first.split("?")[0].removesuffix(" HTTP/1.1\r\n")
                if target == wanted:
                    yield
                    return
                body = json.dumps(ANSWERS.get(target, {})).encode()
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                client.sendall(head + body)

    def interrupted(self, wanted: str, *argv: str) -> tuple[int, str]:
        """The status and the messages of a command that is interrupted while it waits for this."""
        with subprocess.Popen(
            [*COMMAND, *argv], env=self.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        ) as running:  # fmt: skip
            try:
                with self.asked(wanted):
                    until_it_waits(running.pid)
                    running.send_signal(signal.SIGINT)
                    _, messages = running.communicate(timeout=240)
            finally:
                running.kill()
        return running.returncode, messages


def until_it_waits(pid: int) -> None:
    """Until it sleeps (proc(5)): a signal just before read(2) would not end that."""
    stat = Path(f"/proc/{pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[SilentDaemon]:
    silent = SilentDaemon(tmp_path)
    with silent.listener:
        yield silent


@pytest.mark.parametrize("request_line", COMMANDS)
def test_what_may_have_begun_is_said(daemon: SilentDaemon, request_line: str) -> None:
    status, messages = daemon.interrupted(request_line, *COMMANDS[request_line])
    assert status == 130
    assert messages.splitlines()[-1] == "It may have begun: `nospoon operation list` shows it."


def test_a_question_may_be_interrupted(daemon: SilentDaemon) -> None:
    terminal, stdin = os.openpty()
    with subprocess.Popen(
        [*COMMAND, "snapshot", "restore", "x", "one"], env=daemon.environment,
        stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as running:  # fmt: skip
        assert running.stderr is not None
        asked = b""
        while b"[y/N]" not in asked:
            asked += os.read(running.stderr.fileno(), 4096)
        until_it_waits(running.pid)
        running.send_signal(signal.SIGINT)
        _, rest = running.communicate(timeout=240)
    os.close(terminal)
    os.close(stdin)
    assert running.returncode == 130
    assert rest.split() == [b"Aborted."]


def test_a_request_of_a_lab_that_is_watched_continues(daemon: SilentDaemon) -> None:
    watched = "GET /v1/requests/s-1/events"
    status, messages = daemon.interrupted(watched, "request", "watch", "s-1")
    assert status == 130
    assert messages.splitlines()[-1] == (
        "The request continues. `nospoon request watch s-1` follows it, "
        "`nospoon request cancel s-1` ends it."
    )


def test_a_log_that_is_followed_ends_without_a_word(daemon: SilentDaemon) -> None:
    log = "GET /v1/leases/s-1.1/console"
    assert daemon.interrupted(log, "request", "console", "-f", "s-1.1") == (0, "")


def test_what_only_looks_has_the_status_of_ctrl_c(daemon: SilentDaemon) -> None:
    status, messages = daemon.interrupted("GET /v1/clusters/x", "status", "x")
    assert status == 130
    assert messages.split() == ["Aborted."]


def test_ctrl_c_while_it_starts_shows_no_traceback() -> None:
    code = """
import sys

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
from nospoon.cli.start import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_the_command_of_the_package_is_the_one_that_starts_so() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["nospoon"] == "nospoon.cli.start:main"
    command = [sys.executable, "-m", "nospoon.cli.start", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("nospoon, version")


FAKE = """#!/bin/sh
trap 'echo interrupted; echo ended >"$ENDED"; exit 99' INT
echo begun
while :; do sleep 0.1; done
"""


@pytest.mark.parametrize("by_terminal", [True, False])
def test_host_setup_ends_once_ansible_has_ended(tmp_path: Path, *, by_terminal: bool) -> None:
    """A terminal interrupts both. Ansible went on without anyone where the command alone was."""
    fake, ended = tmp_path / "ansible-playbook", tmp_path / "ended"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    file = tmp_path / "x.yaml"
    file.write_text("cluster: x\nhosts: {h: {ssh: h, libvirt: 'qemu+ssh://h/system'}}\nnodes: []\n")
    with subprocess.Popen(
        [*COMMAND, "host", "setup", str(file)], start_new_session=True, text=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "ENDED": str(ended)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as running:  # fmt: skip
        assert running.stderr is not None
        try:
            begun = running.stderr.readline()
            (os.killpg if by_terminal else os.kill)(running.pid, signal.SIGINT)
            running.wait(60)
            assert ended.exists(), begun
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
        messages = running.stderr.read()
    assert running.returncode == 130
    assert "interrupted" in messages
    assert "run the same command again, or with --undo" in messages


STUBBORN = """#!/bin/sh
trap 'echo no' INT TERM
HOLD
echo begun >"$BEGUN"
while :; do sleep 0.1; done
"""


@pytest.fixture
def interrupted_by_ctrl_c() -> Iterator[None]:
    """A shell ignores Ctrl-C for what it starts behind itself, these tests perhaps."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupted_by_ctrl_c")
@pytest.mark.parametrize(
    "held", ["", "sleep 20 &"], ids=["alone", "with a child that has its output"]
)
def test_an_ansible_that_does_not_end_is_killed_and_all_that_it_said_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], held: str
) -> None:
    fake, begun = tmp_path / "ansible-playbook", tmp_path / "begun"
    fake.write_text(STUBBORN.replace("HOLD", held))
    monkeypatch.setattr(ansible, "LAST", 0.5)
    fake.chmod(0o755)
    steps = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    monkeypatch.setattr(ansible, "STEPS", [(0.5, each) for each in steps])
    monkeypatch.setattr(ansible, "_tool", lambda _: str(fake))
    monkeypatch.setenv("BEGUN", str(begun))

    def interrupt() -> None:
        while not begun.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    user = Thread(target=interrupt)
    user.start()
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        ansible.play("setup", {"h": {}}, [])
    user.join()
    said = capsys.readouterr().err
    assert said.count("no\n") == 2
    assert "with --undo" in said
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
