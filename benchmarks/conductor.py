"""What a conductor does to ten thousand simulated BMCs: a power sync with a session for each node,
as Ironic's ipmi driver makes them; the answers of a BMC while 50 others start, ten times; and ten
thousand power cycles, of which no event may be lost. Needs root: BMCs have addresses of a pool, at
port 623.

The reference is the same for 100 nodes in the same run, so that what grows shows. That of a BMC's
answers is a bare UDP echo, a process of its own, asked while 50 others start: what the machine's
scheduler alone costs. `--nodes N` takes another number.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from measure import addresses_of, asked, private_daemon, timed
from nospoon.testing.console import Console

FEW, MANY, STARTING, ROUNDS = 150, 10_000, 50, 10
FILE = """
cluster: bench
hosts: {{sim: simulated}}
bmc: {{pool: 127.64.0.0/17, username: admin, password: secret}}
nodes: [{{count: {count}}}]
"""
STATUS, CONTROL, CLOSE, PRIVILEGE = (0x00, 0x01), (0x00, 0x02), (0x06, 0x3C), (0x06, 0x3B)
ADMINISTRATOR = 4
ON, CYCLE = 1, 2


class Session:
    """One RMCP+ session with a BMC."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(5)
        self.socket.connect((address, 623))
        self.console = console = Console(b"admin", b"secret")
        console.take_open(self._ask(console.open_request()))
        assert console.take_rakp2(self._ask(console.rakp1()))
        assert console.take_rakp4(self._ask(console.rakp3()))
        assert self.ask(PRIVILEGE, bytes([ADMINISTRATOR]))[0] == 0

    def _ask(self, data: bytes) -> bytes:
        self.socket.send(data)
        return self.socket.recv(2048)

    def ask(self, command: tuple[int, int], data: bytes = b"") -> tuple[int, bytes]:
        return self.console.take(self._ask(self.console.request(*command, data)))

    def close(self) -> None:
        self.ask(CLOSE, self.console.session.to_bytes(4, "little"))
        self.socket.close()


@dataclass(frozen=True, slots=True)
class Measured:
    """Milliseconds a node, of the wall clock and of the daemon's CPU; of answers, a BMC's and the
    echo's, the 99th percentile; seconds for all power cycles, and how many of them left no trace.
    """

    sync: float
    sync_cpu: float
    slowest_on: float
    others_p99: float
    echo_p99: float
    cycles: float
    lost: int


def measure(count: int) -> Measured:
    with private_daemon() as env, tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "bench.yaml")
        file.write_text(FILE.format(count=count))
        timed("up", "--yes", str(file), env=env)
        addresses = addresses_of(env)
        pid = int(Path(env["NOSPOON_RUNTIME_DIR"], "nospoond.pid").read_text())
        sync, sync_cpu = _sync(addresses, pid)
        slowest_on, others, echo = _while_starting(addresses)
        cycles, lost = _cycles(addresses, env)
        timed("down", "--yes", "--purge", "bench", env=env)
    return Measured(sync, sync_cpu, slowest_on, others, echo, cycles, lost)


def _cpu(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3)


def _sync(addresses: Sequence[str], pid: int) -> tuple[float, float]:
    """Power status of every node, a session each, one after the other."""
    began, before = time.perf_counter(), _cpu(pid)
    for address in addresses:
        session = Session(address)
        assert session.ask(STATUS)[0] == 0
        session.close()
    wall, cpu = time.perf_counter() - began, _cpu(pid) - before
    return wall / len(addresses) * 1e3, cpu / len(addresses) * 1e3


def _while_starting(addresses: Sequence[str]) -> tuple[float, float, float]:
    """The slowest answer to `on`, and meanwhile the 99th percentile of another BMC's answers and
    of the echo's, by turns; milliseconds.
    """
    watched, echo = Session(addresses[-1]), echo_process()
    asks = {"bmc": lambda: watched.ask(STATUS), "echo": lambda: (echo.send(b"?"), echo.recv(16))}
    answers = {name: list[float]() for name in asks}
    slowest = 0.0
    for number in range(min(2 * ROUNDS, len(addresses) // STARTING - 1)):
        name = ("bmc", "echo")[number % 2]
        start = number * STARTING
        slow, told = _watched_while(addresses[start : start + STARTING], asks[name])
        slowest, answers[name] = max(slowest, slow), answers[name] + told
    watched.close()
    return slowest * 1e3, _p99(answers["bmc"]), _p99(answers["echo"])


def _p99(seconds: Sequence[float]) -> float:
    """Milliseconds."""
    return statistics.quantiles(seconds, n=100)[98] * 1e3 if seconds else 0.0


def echo_process() -> socket.socket:
    """A socket that is connected to a process which sends back what it gets."""
    server, client = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    server.bind(("127.0.0.1", 0))
    client.connect(server.getsockname())
    client.settimeout(5)
    multiprocessing.get_context("fork").Process(
        target=_send_back, args=(server,), daemon=True
    ).start()
    return client


def _send_back(server: socket.socket) -> None:
    while True:
        data, peer = server.recvfrom(2048)
        server.sendto(data, peer)


def _watched_while(
    addresses: Sequence[str], ask: Callable[[], object]
) -> tuple[float, list[float]]:
    """The slowest answer of those that start, and all of the one that is watched; seconds.

    Who starts and who watches are processes of their own: neither waits for the other.
    """
    answers = []
    ours, theirs = multiprocessing.Pipe()
    starter = multiprocessing.get_context("fork").Process(target=_start, args=(addresses, theirs))
    starter.start()
    ours.recv()
    while not ours.poll():
        began = time.perf_counter()
        ask()
        answers.append(time.perf_counter() - began)
    slowest: float = ours.recv()
    starter.join()
    return slowest, answers


def _start(addresses: Sequence[str], pipe: Connection) -> None:
    """Switch all of these on at once; tell when it begins, and the longest wait."""
    sessions = [Session(address) for address in addresses]
    pipe.send(None)
    began = time.perf_counter()
    for session in sessions:
        session.socket.send(session.console.request(*CONTROL, bytes([ON])))
    took = []
    for session in sessions:
        assert session.console.take(session.socket.recv(2048))[0] == 0
        took.append(time.perf_counter() - began)
    for session in sessions:
        session.close()
    pipe.send(max(took))


def _cycles(addresses: Sequence[str], env: Mapping[str, str]) -> tuple[float, int]:
    """Every node on, then cycled; a node has lost something that is not on and booted twice."""
    began = time.perf_counter()
    for command in (ON, CYCLE):
        for address in addresses:
            session = Session(address)
            assert session.ask(CONTROL, bytes([command]))[0] == 0
            session.close()
    took = time.perf_counter() - began
    nodes = asked(env, "node", "list")
    lost = sum(1 for node in nodes if node["power"] != "on")
    records = Path(env["NOSPOON_STATE_DIR"], "consoles")
    for node in nodes:
        said = (records / f"{node['uuid']}.log").read_text().count("boots disk")
        lost += said != 2
    return took, lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=MANY)
    count = parser.parse_args().nodes
    few, many = measure(FEW), measure(count)
    for name in Measured.__slots__:
        small, large = getattr(few, name), getattr(many, name)
        ratio = f"{large / small:6.2f} x" if small else "      -"
        print(f"{count} nodes: {name:<12} {large:10.2f}  {ratio} of {FEW} nodes ({small:.2f})")


if __name__ == "__main__":
    main()
