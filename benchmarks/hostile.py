"""What others notice of hostile requests: how late IPMI is while each of them goes on.

`hostile.py COUNT WORD...` makes so many BMCs, and runs the attacks
with one of these words in their names.

The server is a process of its own with 1,000 BMCs of one account behind one Redfish port. A probe
asks one BMC for Get Chassis Status, over and over. In the server, a timer of a millisecond measures
the longest stall: the CPU that the event loop's thread took between two of its turns, so that what
else runs on this machine does not count. Beside each attack, in the same run: the quiet server. The
goal is a longest stall below 50 ms. The last attack is a plan of 20,000 nodes, as many as a file
may have; there the probe asks the daemon's socket, and only its latency is known.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

from bmc_requests import CLOSE_SESSION, POWER_STATUS, Line, log_in, server
from measure import NOSPOON, private_daemon, timed
from nospoon.runtime.gc_freeze import starting
from nospoon.runtime.http_limits import raise_descriptor_limit
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.certificates import Certificates
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.redfish.resources.event_service import MOST_COMPARISONS, MOST_FILTERED
from nospoon.services.bmcs.service import BmcService
from nospoon.testing.bench import (
    MemoryConsoles,
    MemoryLine,
    MemoryMachines,
    MemoryStore,
    config,
    free_port,
)

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
WORDS = sys.argv[2:]
SECONDS = 5.0
GOAL = 0.050
ROOT = "/redfish/v1"
EVENTS = f"{ROOT}/EventService"
ACTIVATE, SOL = (0x06, 0x48), 0x01
TERMS = 120
IDLE = 3000
PARALLEL, OF_SOURCE = 1000, 200
PLANNED = 20_000
TLS_PORT = free_port(socket.SOCK_STREAM)

Attack = Callable[[BmcConfig], None]
Probe = Callable[[], None]


def configs() -> list[BmcConfig]:
    """One Redfish port for all, but with TLS another one of the last; IPMI of the first only."""
    port, made = free_port(socket.SOCK_STREAM), []
    for number in range(COUNT):
        each = config(number, redfish_port=port)
        ipmi = each.bmc.ipmi_port if not number else 0
        made.append(replace(each, bmc=replace(each.bmc, ipmi_port=ipmi), password="password-0"))
    made[-1] = replace(made[-1], bmc=replace(made[-1].bmc, redfish_port=TLS_PORT, tls=True))
    return made


@contextmanager
def connected(to: BmcConfig) -> Iterator[socket.socket]:
    place = to.bmc.address, to.bmc.redfish_port
    with contextlib.suppress(OSError), socket.create_connection(place, timeout=30) as line:
        yield line


def ask(to: BmcConfig, method: str, path: str, body: bytes = b"", *, known: bool = True) -> bytes:
    """The answer, of a connection of its own."""
    login = base64.b64encode(f"{to.bmc.username}:{to.password}".encode()).decode()
    head = f"{method} {path} HTTP/1.1\r\nHost: b\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    head += f"Authorization: Basic {login}\r\n\r\n" if known else "\r\n"
    found = b""
    with connected(to) as line:
        line.sendall(head.encode() + body)
        while data := line.recv(1 << 16):
            found += data
    return found


def filtered(to: BmcConfig) -> None:
    terms = quote(" or ".join(["Name eq 'x'"] * TERMS))
    ask(to, "GET", f"{ROOT}/Systems?$filter={terms}")


def expanded(to: BmcConfig) -> None:
    ask(to, "GET", f"{ROOT}/Systems?$expand=*($levels=2)")


def accounts(to: BmcConfig) -> None:
    body = {"UserName": "bob", "Password": "hunter2222", "RoleId": "Operator"}
    place = f"{ROOT}/AccountService/Accounts"
    ask(to, "POST", place, json.dumps(body).encode())
    ask(to, "PATCH", f"{place}/3", b'{"UserName": "rob"}')
    ask(to, "GET", place)
    ask(to, "GET", f"{place}/3")
    ask(to, "DELETE", f"{place}/3")


def nested(to: BmcConfig) -> None:
    ask(to, "POST", f"{ROOT}/SessionService/Sessions", b"[" * (1 << 20), known=False)


def wide(to: BmcConfig) -> None:
    body = b"[" + b"[]," * (1 << 18) + b"[]]"
    ask(to, "POST", f"{ROOT}/SessionService/Sessions", body, known=False)


def malformed(to: BmcConfig) -> None:
    """Lines that look like the beginning of a request for as long as may be."""
    for line_ in (b"GET " + b" " * 60000, b"G" * 60000, b"GET /" + b"/ " * 30000, b"\r\n" * 30000):
        with connected(to) as line:
            line.sendall(line_ + b"\r\n\r\n")
            line.recv(100)


def endless(to: BmcConfig) -> None:
    """Bodies of strings that begin and never end, as large as strangers' and clients' may be."""
    for begin in (b'{"UserName": "', b'["', b'{"', b'"\\', b'"\\u'):
        body = begin + b'\\"' * (8 << 10)
        ask(to, "POST", f"{ROOT}/SessionService/Sessions", body[: 16 << 10], known=False)
        ask(to, "PATCH", f"{ROOT}/Systems/{to.bmc.uuid}", (body * 4)[: 64 << 10])


def headers(to: BmcConfig) -> None:
    with connected(to) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: b\r\n" + b"a: b\r\n" * (1 << 16))
        line.recv(100)


def idle(to: BmcConfig) -> None:
    """As many connections that say nothing as there may be."""
    held = []
    for _ in range(IDLE):
        with contextlib.suppress(OSError):
            held.append(socket.create_connection((to.bmc.address, to.bmc.redfish_port), 5))
    for each in held:
        each.close()


def handshakes(to: BmcConfig) -> None:
    """Of TLS: as many as there may be that begin and do not go on."""
    held = []
    for number in range(IDLE):
        source = f"127.0.1.{1 + number // OF_SOURCE}", 0
        with contextlib.suppress(OSError):
            held.append(socket.create_connection((to.bmc.address, TLS_PORT), 5, source))
            held[-1].sendall(b"\x16\x03\x01\x02\x00\x01\x00")
    for each in held:
        each.close()


def chunks(to: BmcConfig) -> None:
    """Bodies in chunks of one byte, on as many connections as a source may have, at one moment."""
    head = f"POST {ROOT}/SessionService/Sessions HTTP/1.1\r\nHost: b\r\n".encode()
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    held = []
    for _ in range(OF_SOURCE):
        with contextlib.suppress(OSError):
            held.append(socket.create_connection((to.bmc.address, to.bmc.redfish_port), 5))
            held[-1].setblocking(False)  # noqa: FBT003  (socket's own signature)
    for each in held:
        with contextlib.suppress(OSError):
            each.send(head + b"1\r\na\r\n" * 60_000)
    time.sleep(1.0)
    for each in held:
        each.close()


def guesses(to: BmcConfig) -> None:
    """Eight at once: they wait for one another."""
    wrong = replace(to, password="wrong")
    for _ in range(8):
        with connected(wrong) as line:
            login = base64.b64encode(b"admin:wrong").decode()
            line.sendall(
                f"GET {ROOT}/Systems HTTP/1.1\r\nHost: b\r\nAuthorization: Basic {login}\r\n\r\n"
                .encode()
            )  # fmt: skip


def sessions(to: BmcConfig) -> None:
    """Many, which are listed, expanded and looked for."""
    place = f"{ROOT}/SessionService/Sessions"
    body = json.dumps({"UserName": to.bmc.username, "Password": to.password}).encode()
    for _ in range(100):
        ask(to, "POST", place, body, known=False)
    for query in ("", "?$expand=.", "/none"):
        ask(to, "GET", place + query)


def selected(to: BmcConfig) -> None:
    for query in ("$select=Members", "excerpt", "only", "$top=9000&$skip=1"):
        ask(to, "GET", f"{ROOT}/Systems?{query}")


def nested_lists(to: BmcConfig) -> None:
    for query in ("$expand=.", "$expand=.($levels=3)"):
        ask(to, "GET", f"{ROOT}/?{query}")
        ask(to, "GET", f"{ROOT}/Managers?{query}&$filter=Name%20ne%20'x'&$select=Name,Links")


def locations(to: BmcConfig) -> None:
    for query in ("", "?$select=Links/Certificates", "?$expand=~"):
        ask(to, "GET", f"{ROOT}/CertificateService/CertificateLocations{query}")


def parallel(to: BmcConfig) -> None:
    """Of one account, from as many addresses as its connections need."""
    place, held = (to.bmc.address, to.bmc.redfish_port), []
    login = base64.b64encode(f"{to.bmc.username}:{to.password}".encode()).decode()
    head = f"GET {ROOT}/Systems?$expand=. HTTP/1.1\r\nHost: b\r\nConnection: close\r\n"
    head += f"Authorization: Basic {login}\r\n\r\n"
    for number in range(PARALLEL):
        source = f"127.0.1.{1 + number // OF_SOURCE}", 0
        with contextlib.suppress(OSError):
            held.append(socket.create_connection(place, 30, source))
            held[-1].sendall(head.encode())
    for each in held:
        with contextlib.suppress(OSError), each:
            each.recv(1 << 16)


def told(to: BmcConfig) -> None:
    """Events that a client makes up: their arguments name one another, and their place is deep.
    They are compared with the longest filters of as many streams as there may be.
    """
    term = quote("MessageId eq 'ResourceEvent'")
    query = "?$filter=" + quote(" or ").join([term] * MOST_COMPARISONS)
    login = base64.b64encode(f"{to.bmc.username}:{to.password}".encode()).decode()
    head = f"GET {EVENTS}/SSE{query} HTTP/1.1\r\nHost: b\r\nAuthorization: Basic {login}\r\n\r\n"
    place, held = (to.bmc.address, to.bmc.redfish_port), []
    for _ in range(MOST_FILTERED):
        held.append(socket.create_connection(place, 30))
        held[-1].sendall(head.encode())
    named = {
        "MessageId": "ResourceEvent.1.3.TestMessage",
        "Message": "%1",
        "MessageArgs": [*(f"%{n}" * 10 for n in range(2, 8)), "x"],
    }
    deep = {**named, "OriginOfCondition": "/a" * 15}
    deepest = {**named, "OriginOfCondition": "/" * 3000}
    for body in (named, deep, deepest) * 10:
        path = f"{EVENTS}/Actions/EventService.SubmitTestEvent"
        ask(to, "POST", path, json.dumps(body).encode())
    for each in held:
        each.close()


def typed(to: BmcConfig) -> None:
    """Characters by SOL for a guest that reads nothing. Of two attackers one has the console."""
    line = Line(to.bmc.address, to.bmc.ipmi_port)
    console = log_in(line, to)
    line.socket.settimeout(0.2)
    with line.socket, contextlib.suppress(TimeoutError):
        line.ask(console.request(*ACTIVATE, bytes([1, 1, 0xC0, 0, 0, 0])))
        for number in range(2000):
            console.sequence += 1
            packet = bytes([number % 15 + 1, 0, 0, 0]) + b"x" * 200
            line.ask(console.sealed(packet, kind=SOL))
        line.ask(console.request(*CLOSE_SESSION, console.session.to_bytes(4, "little")))


ATTACKS: tuple[tuple[str, Attack], ...] = (
    (f"$filter with {TERMS} terms", filtered),
    ("$expand of two levels", expanded),
    ("an account on all BMCs", accounts),
    ("1 MiB of nested JSON by a stranger", nested),
    ("1 MiB of empty lists by a stranger", wide),
    ("malformed request lines", malformed),
    ("strings that never end", endless),
    ("64 Ki headers", headers),
    (f"{IDLE} idle connections", idle),
    (f"{IDLE} idle handshakes of TLS", handshakes),
    (f"chunks of one byte on {OF_SOURCE} connections", chunks),
    ("wrong passwords", guesses),
    ("many sessions", sessions),
    ("$select, only and excerpt of a long list", selected),
    ("$expand of the root, nested lists", nested_lists),
    ("CertificateLocations", locations),
    (f"{PARALLEL} parallel requests of one account", parallel),
    ("test events and filters of streams", told),
    ("SOL at a guest that reads nothing", typed),
)


def latencies(probe: Probe, goes_on: Callable[[], bool]) -> list[float]:
    """Seconds of each answer, sorted."""
    found = []
    while goes_on():
        began = time.perf_counter()
        probe()
        found.append(time.perf_counter() - began)
        time.sleep(0.0005)
    return sorted(found)


def until(end: float) -> Callable[[], bool]:
    return lambda: time.perf_counter() < end


@contextmanager
def under(attack: Attack, to: BmcConfig) -> Iterator[None]:
    """The attack, again and again, by two processes of their own."""

    def run() -> None:
        while True:
            attack(to)

    context = multiprocessing.get_context("fork")
    attackers = [context.Process(target=run, daemon=True) for _ in range(2)]
    for each in attackers:
        each.start()
    try:
        time.sleep(0.3)
        yield
    finally:
        for each in attackers:
            each.kill()
            each.join()


class Silent(MemoryConsoles):
    """Consoles of guests that never read what is typed."""

    async def attach(self, machine: UUID, *, user: int) -> MemoryLine:
        """Nothing that is written there is ever taken."""
        line = await super().attach(machine, user=user)
        line.write = self._never  # type: ignore[method-assign]
        return line

    async def _never(self, data: bytes) -> None:
        del data
        await asyncio.Event().wait()


class Stalls:
    """The longest stall of the server's loop, which the probing process reads and resets."""

    def __init__(self) -> None:
        self._longest = multiprocessing.Value("d", 0.0)

    def watch(self) -> None:
        """Called in the server."""
        loop, before = asyncio.get_running_loop(), time.thread_time()

        def tick() -> None:
            nonlocal before
            now = time.thread_time()
            self._longest.value = max(self._longest.value, now - before)
            before = now
            loop.call_later(0.001, tick)

        tick()

    def take(self) -> float:
        found = float(self._longest.value)
        self._longest.value = 0.0
        return found


def show(
    what: str, found: list[float], quiet: list[float] | None = None, stall: float | None = None
) -> float:
    """Returns what counts for the goal: the stall where it is known, else the longest latency."""
    middle, p99 = found[len(found) // 2], found[int(len(found) * 0.99)]
    line = f"{what:<42} latency {middle * 1e3:7.2f}, p99 {p99 * 1e3:7.2f}"
    line += f", most {found[-1] * 1e3:8.2f} ms"
    if quiet is not None:
        line += f"  {p99 / quiet[int(len(quiet) * 0.99)]:6.1f} x quiet"
    counts = stall if stall is not None else found[-1]
    if stall is not None:
        line += f"  stall {stall * 1e3:7.2f} ms"
    print(line + ("" if counts < GOAL else "  above the goal"), flush=True)
    return counts


def bmcs() -> float:
    with tempfile.TemporaryDirectory() as certificates:
        return _bmcs(Certificates(Path(certificates)))


def _bmcs(certificates: Certificates) -> float:
    served, stalls = configs(), Stalls()

    async def serve() -> object:
        raise_descriptor_limit()
        service = BmcService(
            MemoryMachines(),
            MemoryStore(),
            Tasks("bench"),
            certificates=certificates,
            consoles=Silent(),
        )
        with starting():  # as the daemon does
            for each in served:
                await service.put(each)
        stalls.watch()
        return service

    with server(serve):
        first = served[0]
        line = Line(first.bmc.address, first.bmc.ipmi_port)
        console = log_in(line, first)

        def probe() -> None:
            line.ask(console.request(*POWER_STATUS))

        quiet = latencies(probe, until(time.perf_counter() + SECONDS))
        stalls.take()
        show(f"quiet, {COUNT} BMCs", quiet)
        worst = 0.0
        for name, attack in ATTACKS:
            if WORDS and not any(each in name for each in WORDS):
                continue
            with under(attack, first):
                found = latencies(probe, until(time.perf_counter() + SECONDS))
            worst = max(worst, show(name, found, quiet, stalls.take()))
        return worst


def plan_of(count: int) -> float:
    """How late the daemon's socket is while somebody plans."""
    with private_daemon() as environment, tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "cluster.yaml"
        file.write_text(
            "cluster: hostile\nbmc: {pool: 127.64.0.0/12}\nhosts:\n  here: {simulated: {}}\n"
            f"nodes: [{{name: 'n-{{n}}', count: {count}}}]\n"
        )
        timed("daemon", "start", env=environment)
        path = f"{environment['NOSPOON_RUNTIME_DIR']}/nospoond.sock"

        def probe() -> None:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(60)
                line.connect(path)
                line.sendall(b"GET /v1/none HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")
                while line.recv(1 << 16):
                    pass

        quiet = latencies(probe, until(time.perf_counter() + SECONDS))
        show("quiet, the daemon's socket", quiet)
        planning = subprocess.Popen(
            [NOSPOON, "plan", str(file)],
            env=dict(environment),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        found = latencies(probe, lambda: planning.poll() is None)
        _, said = planning.communicate()
        print(said.decode().strip()[:200] or "planned")
        return show(f"a plan of {count} nodes", found, quiet)


def main() -> None:
    worst = bmcs()
    if not WORDS:
        plan_of(PLANNED)
    print(f"longest stall {worst * 1e3:.2f} ms; the goal is below {GOAL * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
