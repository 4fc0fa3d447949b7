"""Consoles as a person uses them: a terminal joined to a real machine, and every byte kept."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nospoon.model.cluster import Arch
from nospoon.probe.build import build, command_line
from nospoon.runtime.clock import monotonic
from nospoon.testing import guests
from nospoon.testing import terminal as terminals
from nospoon.testing.rack import CACHE, Rack
from nospoon.testing.serial import Serial
from nospoon.testing.terminal import Terminal

pytestmark = [pytest.mark.libvirt, pytest.mark.boots]

ESCAPE = b"\x1d"
PROMPT = b"nospoon-probe# "
TICKS = 300


@contextmanager
def terminal(rack: Rack, *argv: str) -> Iterator[Terminal]:
    with terminals.terminal(["nospoon", *argv], env=rack.environment) as made:
        yield made


def probe_shell(rack: Rack) -> tuple[str, Serial]:
    """A node `n` that boots the probe and stays in its shell: the cluster and the serial port."""
    probe = asyncio.run(build(CACHE))
    name = rack.name()
    cmdline = command_line(Arch.X86_64, after="shell")
    profile = f'{{kernel: {probe.kernel}, initrd: {probe.initrd}, cmdline: "{cmdline}"}}'
    node = "{name: n, firmware: bios, memory: 256MiB, disks: [16MiB], boot: probe, "
    node += "boot_order: [network]}"
    networks = "networks: {provision: {netboot: builtin}}"
    text = f"cluster: {name}\n{networks}\nboot: {{probe: {profile}}}\nnodes: [{node}]\n"
    rack.run("up", "--yes", rack.file(text + rack.bmc(), f"{name}.yaml"))
    return name, serial_of(rack, name)


def talking_disk(rack: Rack) -> tuple[str, Serial]:
    """A node `n` whose disk says so when it boots, at once, and resets when `r` is typed."""
    (rack.directory / "disk.img").write_bytes(guests.speaking_disk())
    name = rack.name()
    node = "{name: n, firmware: bios, memory: 64MiB, disks: [{image: disk.img}]}"
    text = f"cluster: {name}\nnetworks: {{lan: {{}}}}\nnodes: [{node}]\n{rack.bmc()}"
    rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
    return name, serial_of(rack, name)


def serial_of(rack: Rack, name: str) -> Serial:
    uuid = rack.bmcs(name)["n"]["uuid"]
    return Serial(rack.directory / "state" / "consoles" / f"{uuid}.log")


def recorded(rack: Rack) -> bytes:
    """What `--log` prints, as bytes."""
    return subprocess.run(
        ["nospoon", "node", "console", "n", "--log"], env=rack.environment, capture_output=True,
        check=True,
    ).stdout  # fmt: skip


def until_off(rack: Rack) -> None:
    """A power command may be answered before it is done, as by hardware."""
    deadline = monotonic() + 60
    while rack.run("node", "power", "n", "status").stdout.strip() != "off":
        assert monotonic() < deadline, "it did not power off"


def files_of_records(rack: Rack) -> list[Path]:
    return [p for p in (rack.directory / "state" / "consoles").rglob("*.log*") if p.is_file()]


def test_a_shell_by_the_console_and_a_record_of_all_it_said_also_without_a_daemon(
    rack: Rack,
) -> None:
    name, serial = probe_shell(rack)
    rack.run("node", "power", "n", "on")
    serial.hears(PROMPT)
    with terminal(rack, "node", "console", "n") as screen:
        screen.shows(b"Ctrl-]")
        screen.types(b"\r")
        screen.shows(PROMPT)
        screen.types(b"echo $((6*7))-spoons\r")
        screen.shows(b"42-spoons")
        ticks = f"for i in $(seq {TICKS}); do echo tick-$i-; usleep 20000; done; echo all-$i-told"
        screen.types(ticks.replace("$(seq", "$(busybox seq").encode() + b"\r")
        screen.shows(b"tick-10-")
        screen.types(ESCAPE)
        assert screen.ends() == 0
    rack.crash()
    dead_from = serial.all()
    serial.hears(b"all-%d-told" % TICKS)
    assert len(serial.all()) > len(dead_from)  # it did speak while nobody lived
    said = recorded(rack)
    assert said == serial.all()
    told = [int(word) for word in said.split(b"-") if word.isdigit()]
    assert [n for n in told if 0 < n <= TICKS][-TICKS - 1 : -1] == list(range(1, TICKS + 1))

    rack.run("down", "--yes", name)
    (kept,) = {path.read_bytes() for path in files_of_records(rack)}
    assert kept == said
    rack.run("down", "--yes", "--purge", name)
    assert files_of_records(rack) == []


def test_what_the_machine_says_streams_to_those_who_follow(rack: Rack) -> None:
    talking_disk(rack)
    with terminal(rack, "node", "console", "n", "--log", "--follow") as screen:
        rack.run("node", "power", "n", "on")
        screen.shows(guests.BOOTED)
        rack.run("node", "power", "n", "reset")
        screen.shows(guests.BOOTED)
        os.killpg(screen.process.pid, signal.SIGINT)
        assert screen.ends() == 0


def test_a_console_may_be_opened_before_the_machine_is_on_and_shared(rack: Rack) -> None:
    talking_disk(rack)
    with (
        terminal(rack, "node", "console", "n") as one,
        terminal(rack, "node", "console", "n") as two,
    ):
        one.shows(b"Ctrl-]")
        two.shows(b"Ctrl-]")
        one.types(b"nobody hears this")
        rack.run("node", "power", "n", "on")
        for screen in (one, two):
            screen.shows(guests.BOOTED)
        two.types(b"r")  # the guest resets itself
        for screen in (one, two):
            screen.shows(guests.BOOTED)
        rack.run("node", "power", "n", "off")
        until_off(rack)
        rack.run("node", "power", "n", "on")
        for screen in (one, two):
            screen.shows(guests.BOOTED)
            screen.types(ESCAPE)
            assert screen.ends() == 0


def test_a_console_says_that_the_daemon_went_away_and_gives_the_terminal_back(rack: Rack) -> None:
    talking_disk(rack)
    with terminal(rack, "node", "console", "n") as screen:
        screen.shows(b"Ctrl-]")
        rack.crash()
        screen.shows(b"the daemon")
        assert screen.ends() == 1


def simulated_node(rack: Rack) -> str:
    name = rack.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}nodes: [{{name: n}}]\n"
    rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
    rack.run("node", "power", f"{name}/n", "on")
    return name


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_console_that_is_ended_by_a_signal_gives_the_terminal_back(
    shared: Rack, number: signal.Signals
) -> None:
    """As timeout(1) ends it."""
    name = simulated_node(shared)
    with terminal(shared, "node", "console", f"{name}/n") as screen:
        screen.shows(b"Ctrl-]")
        screen.process.send_signal(number)
        assert screen.ends() == 128 + number


def test_those_who_listen_learn_that_the_node_was_removed(shared: Rack) -> None:
    """A console and a log that is followed went on for ever, without a word."""
    name = simulated_node(shared)
    log = ["nospoon", "node", "console", f"{name}/n", "--log", "--follow"]
    with (
        terminal(shared, "node", "console", f"{name}/n") as screen,
        subprocess.Popen(log, env=shared.environment, stdout=subprocess.PIPE) as following,
    ):
        screen.shows(b"Ctrl-]")
        assert following.stdout is not None
        first = following.stdout.read(1)
        shared.run("down", "--yes", name)
        screen.shows(f"node {name}/n was removed".encode())
        assert screen.ends() == 1
        rest = first + following.stdout.read()
        assert following.wait(60) == 0
    again = shared.run("node", "console", f"{name}/n", "--log", "--follow")
    assert again.stdout.splitlines() == rest.decode().splitlines(), "nothing more comes of it"


def test_a_console_says_that_the_daemon_was_stopped(rack: Rack) -> None:
    name = simulated_node(rack)
    with terminal(rack, "node", "console", f"{name}/n") as screen:
        screen.shows(b"Ctrl-]")
        rack.run("daemon", "stop")
        screen.shows(b"the daemon ended; the record goes on")
        assert screen.ends() == 1
