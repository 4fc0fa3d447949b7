"""A daemon of one's own, used as its user would: by the command line and by foreign tools.

For end-to-end tests: everything lies in one directory, and nothing is shared but the cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from nospoon.api.client import Client
from nospoon.testing import commands
from nospoon.testing.alone import held
from nospoon.testing.ironic import until
from nospoon.testing.trees import remove_tree

BLOCKS, PORTS, FIRST = 44, 500, 10_000
"""Blocks of ports from 10,000 on, below those of outgoing connections (32,768 and more, ip(7))."""

BIN = Path(sys.executable).parent
OWN_CACHE = "/var/cache/nospoon" if os.geteuid() == 0 else Path.home() / ".cache/nospoon-tests"
CACHE = Path(os.environ.get("NOSPOON_TEST_CACHE", OWN_CACHE))
"""The probe and the KVM verdict are shared by all tests: they are made once a machine."""
PATIENCE = float(os.environ.get("NOSPOON_TEST_PATIENCE") or 1)
"""How many times as long as elsewhere is waited: on an emulated machine."""


@dataclass
class Rack:
    """One private daemon; `run` is the command line."""

    directory: Path
    environment: dict[str, str]
    names: list[str] = field(default_factory=list)
    prefix: list[str] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    """Descriptors of sockets, each of which holds a block of ports."""
    forks: bool = True
    """Whether commands and the daemon may be forked: not where their start is what is tested."""

    @classmethod
    def at(cls, directory: Path, **more: str) -> Rack:
        places = {
            f"NOSPOON_{n}_DIR": f"{directory}/{n.lower()}" for n in ("STATE", "RUNTIME", "POOL")
        }
        port = {
            "NOSPOON_BOOT_PORT": "0",
            "NOSPOON_IRONIC_PATIENCE": "60",  # tests that take an Ironic away wait for no more
            "NOSPOON_CACHE_DIR": str(CACHE),
            "NOSPOON_MEDIA_NETWORKS": "127.0.0.0/8, ::1",  # where tests serve images
        }
        path = f"{BIN}:/usr/sbin:/sbin:{os.environ['PATH']}"
        return cls(directory, {**os.environ, **places, **port, "PATH": path, **more})

    def run(
        self, *argv: str, status: int = 0, stdin: str | None = None, seconds: float = 500
    ) -> subprocess.CompletedProcess[str]:
        done = self.attempt(*argv, stdin=stdin, seconds=seconds)
        assert done.returncode == status, (
            f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.log()[-4000:]}"
        )
        return done

    def attempt(
        self, *argv: str, stdin: str | None = None, seconds: float = 500
    ) -> subprocess.CompletedProcess[str]:
        """As `run`, however it ends."""
        if self.forks and not self.prefix and commands.can_fork(self.environment):
            return commands.run(
                argv, self.environment, self.directory, stdin=stdin, timeout=seconds * PATIENCE
            )
        return subprocess.run(
            [*self.prefix, "nospoon", *argv], env=self.environment, input=stdin, text=True,
            capture_output=True, timeout=seconds * PATIENCE, check=False, cwd=self.directory,
            errors="replace",
        )  # fmt: skip

    @property
    def client(self) -> Client:
        """Of its daemon, which a command starts: one that asks again and again costs a thousandth
        of a command's time.
        """
        return Client(self.directory / "runtime" / "nospoond.sock")

    def json(self, *argv: str) -> Any:
        return json.loads(self.run(*argv, "-f", "json").stdout)

    def file(self, text: str, name: str = "cluster.yaml") -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def bmc(self, **more: str) -> str:
        """A `bmc:` section with ports that no other test has until this rack is down, not even
        while its daemon is.
        """
        block = self._block()
        first, snmp = FIRST + block * PORTS, 5_000 + block * 100
        settings = {
            "redfish_port": str(first), "pdu": f"{{ports: {snmp}-{snmp + 99}}}", **more,
        }  # fmt: skip
        if "pool" not in more:
            settings["ports"] = f"{first + 1}-{first + PORTS - 1}"
        return f"bmc: {{{', '.join(f'{key}: {value}' for key, value in settings.items())}}}\n"

    def _block(self) -> int:
        """A block of ports that no test holds, and that no daemon was left on."""
        for block in random.sample(range(BLOCKS), BLOCKS):
            descriptor = held(f"ports-{block}")
            if descriptor is None:
                continue
            if _is_free(FIRST + block * PORTS):
                self.held.append(descriptor)
                return block
            os.close(descriptor)
        raise AssertionError(f"all {BLOCKS} blocks of ports are held by other tests")

    def _release(self) -> None:
        while self.held:
            os.close(self.held.pop())

    def name(self) -> str:
        """A cluster name that no other test uses."""
        name = f"t{uuid4().hex[:8]}"
        self.names.append(name)
        return name

    def bmcs(self, cluster: str) -> dict[str, dict[str, str]]:
        """Its nodes' BMCs with their passwords; none of a cluster that is down."""
        rows = self.json("bmc", "list", "--show-secrets")
        return {row["node"]: row for row in rows if row["cluster"] == cluster}

    def power(self, node: str, command: str) -> None:
        """Give a power command once the one before it is over, and wait until it is done: it is
        answered after 250 ms at the latest.
        """
        power = "off" if command == "off" else "on"
        until(lambda: not self.json("node", "show", node)["power_commands"])
        if "accepted" in self.run("node", "power", node, command).stderr:
            until(lambda: self._power_in_the_end(node) == power)

    def _power_in_the_end(self, node: str) -> str:
        """Its power, "" while a command is under way. Another one would take that one's place."""
        shown = self.json("node", "show", node)
        return "" if shown["power_commands"] else shown["power"]

    def ipmitool(self, bmc: dict[str, str], *argv: str, status: int = 0) -> str:
        """What it says; of one that ends with another status than 0, what it says of that."""
        host, port = bmc["ipmi"].rsplit(":", 1)
        host = host.strip("[]")
        secret = self.directory / "secret"
        secret.write_text(bmc["password"])
        done = subprocess.run(
            ["ipmitool", "-I", "lanplus", "-H", host, "-p", port, "-U", bmc["username"], "-f",
             str(secret), *argv], text=True, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == status, f"{argv}: {done.stdout}\n{done.stderr}"
        return done.stderr if status else done.stdout

    def daemon_pid(self) -> int:
        return int((self.directory / "runtime" / "nospoond.pid").read_text())

    @property
    def log_file(self) -> Path:
        return self.directory / "state" / "nospoond.log"

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def down(self) -> None:
        """Take down every cluster that was named here."""
        while self.names:
            self.run("down", "--yes", "--purge", self.names.pop())
        self._release()

    def close(self) -> None:
        self.down()
        self.run("daemon", "stop")

    def until_kept(self, host: str, *texts: str) -> None:
        """Wait until the file of a simulated host has these: what changes there is written down a
        moment later.
        """
        kept = self.directory / "state" / "simulated" / f"{host}.json"
        until(lambda: kept.exists() and all(each in kept.read_text() for each in texts), seconds=60)

    def crash(self) -> None:
        """End its daemon as a loss of power does. It has closed its sockets by then: the next
        command finds none.
        """
        daemon = os.pidfd_open(self.daemon_pid())
        signal.pidfd_send_signal(daemon, signal.SIGKILL)
        select.select([daemon], [], [])
        os.close(daemon)

    def use_own_key(self) -> None:
        """Have ssh log in by a key of this rack's, `key` and `key.pub` of its directory."""
        key = str(self.directory / "key")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        ssh = self.directory / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -i {key} "$@"\n')
        ssh.chmod(0o755)
        self.environment["PATH"] = f"{self.directory}:{self.environment['PATH']}"

    def kill(self) -> None:
        """End a daemon that a failed test left running."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(self.daemon_pid(), signal.SIGTERM)
        self._release()


@contextlib.contextmanager
def broken_certificate(rack: Rack, address: str = "127.0.0.1") -> Iterator[None]:
    """Redfish with TLS cannot be served at this address, which no plan foresees."""
    path = rack.directory / "state" / "certificates" / f"{address}.pem"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text("no certificate")
    try:
        yield
    finally:
        path.unlink()


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) != 0


@contextlib.contextmanager
def private_rack(**environment: str) -> Iterator[Rack]:
    """A daemon of a test's own. Its directory is searchable: the hypervisor opens disks."""
    directory = Path(tempfile.mkdtemp(prefix="nospoon-test-"))
    directory.chmod(0o711)
    made = Rack.at(directory, **environment)
    try:
        yield made
        made.close()
    except BaseException:
        print(made.log()[-20_000:], file=sys.stderr)  # noqa: T201  (what its reader needs)
        raise
    finally:
        made.kill()
    remove_tree(directory)
