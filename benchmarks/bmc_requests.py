"""CPU that the BMC service takes for a request, by IPMI and Redfish, with 1, 200 and 10,000 BMCs.

The server is a process of its own whose CPU clock is read; the client's work does not count.
Beside it, in the same run: a bare UDP echo on the same socket code, a fixed answer by aiohttp, and
a bare Starlette route on our own listener.
"""

from __future__ import annotations

import asyncio
import base64
import multiprocessing
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection

import structlog
from aiohttp import web
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from nospoon.runtime import loop
from nospoon.runtime.serve import HttpServer
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.udp import ANY, Peer, UdpSocket
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.service import BmcService
from nospoon.testing.bench import MemoryMachines, MemoryStore, config, free_port
from nospoon.testing.console import Console

POOL = "127.96.0.0/16"
REQUESTS, SESSIONS, GETS = 20_000, 1_000, 5_000
COUNTS = (1, 200, 10_000)
POWER_STATUS, CLOSE_SESSION = (0x00, 0x01), (0x06, 0x3C)
Serve = Callable[[], Awaitable[object]]


def address(number: int) -> str:
    return f"127.96.{number // 250}.{number % 250 + 1}"


def configs(count: int, *, ipmi_port: int, redfish_port: int) -> list[BmcConfig]:
    made = []
    for number in range(count):
        each = config(number, redfish_port=redfish_port)
        bmc = replace(each.bmc, address=address(number), ipmi_port=ipmi_port, pool=POOL)
        made.append(replace(each, bmc=bmc))
    return made


def _serve(serve: Serve, ready: Connection) -> None:
    """The child: serves until it is told to end."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())

    async def run() -> None:
        kept = await serve()
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        ready.send(kept is not None)
        await ended.wait()

    loop.run(run())


@contextmanager
def server(serve: Serve) -> Iterator[int]:
    """The pid of a process that serves."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_serve, args=(serve, theirs))
    child.start()
    assert child.pid is not None
    try:
        ours.recv()
        yield child.pid
    finally:
        child.terminate()
        child.join()


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has had (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def cost(pid: int, times: int, request: Callable[[int], object]) -> float:
    """Microseconds of the server's CPU for each of so many requests."""
    for number in range(min(times, 200)):
        request(number)
    before = cpu(pid)
    for number in range(times):
        request(number)
    return (cpu(pid) - before) / times * 1e6


class Line:
    """A UDP client."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(5)
        self.socket.connect((host, port))

    def ask(self, data: bytes) -> bytes:
        self.socket.send(data)
        return self.socket.recv(2048)


def log_in(line: Line, each: BmcConfig) -> Console:
    console = Console(each.bmc.username.encode(), each.password.encode())
    console.take_open(line.ask(console.open_request()))
    assert console.take_rakp2(line.ask(console.rakp1()))
    assert console.take_rakp4(line.ask(console.rakp3()))
    return console


def whole_session(each: BmcConfig) -> None:
    """What `ipmitool power status` does, less its look around."""
    line = Line(each.bmc.address, each.bmc.ipmi_port)
    console = log_in(line, each)
    assert console.take(line.ask(console.request(*POWER_STATUS)))[0] == 0
    line.ask(console.request(*CLOSE_SESSION, console.session.to_bytes(4, "little")))
    line.socket.close()


class Http:
    """A keep-alive HTTP client that does as little as can be."""

    def __init__(self, host: str, port: int, path: str, headers: str = "") -> None:
        self.socket = socket.create_connection((host, port), timeout=10)
        self.request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n{headers}\r\n".encode()

    def get(self) -> bytes:
        self.socket.sendall(self.request)
        data = self.socket.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += self.socket.recv(65536)
        return body


def redfish(each: BmcConfig) -> Http:
    login = base64.b64encode(f"{each.bmc.username}:{each.password}".encode()).decode()
    path = f"/redfish/v1/Systems/{each.bmc.uuid}"
    return Http(each.bmc.address, each.bmc.redfish_port, path, f"Authorization: Basic {login}\r\n")


def echo_cost() -> float:
    port = free_port(socket.SOCK_DGRAM)

    async def serve() -> object:
        def answer(data: bytes, peer: Peer) -> None:
            opened.send(data, peer)

        opened = UdpSocket(ANY, port, answer)
        return opened

    with server(serve) as pid:
        line = Line("127.0.0.1", port)
        return cost(pid, REQUESTS, lambda _: line.ask(bytes(64)))


def http_cost(serve: Serve, port: int) -> float:
    with server(serve) as pid:
        line = Http("127.0.0.1", port, "/")
        return cost(pid, GETS, lambda _: line.get())


def fixed_cost() -> float:
    port = free_port(socket.SOCK_STREAM)

    async def hello(request: web.Request) -> web.Response:
        del request
        return web.json_response({"hello": "world"})

    async def serve() -> object:
        app = web.Application()
        app.router.add_get("/", hello)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        return site

    return http_cost(serve, port)


def route_cost() -> float:
    port = free_port(socket.SOCK_STREAM)

    async def hello(request: Request) -> JSONResponse:
        del request
        return JSONResponse({"hello": "world"})

    async def serve() -> object:
        listener = socket.create_server(("127.0.0.1", port))
        http = HttpServer(Starlette(routes=[Route("/", hello)]), [listener], ws="none")
        await http.start()
        return http

    return http_cost(serve, port)


def pss(pid: int) -> float:
    """MiB (proc(5), smaps_rollup)."""
    with open(f"/proc/{pid}/smaps_rollup") as file:  # noqa: PTH123  (one line of one file)
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def service_costs(count: int, echo: float, fixed: float) -> None:
    ports = {
        "ipmi_port": free_port(socket.SOCK_DGRAM),
        "redfish_port": free_port(socket.SOCK_STREAM),
    }
    served = configs(count, **ports)

    async def serve() -> object:
        service = BmcService(MemoryMachines(), MemoryStore(), Tasks("bench"))
        for each in served:
            await service.put(each)
        return service

    with server(serve) as pid:
        lines = [Line(each.bmc.address, each.bmc.ipmi_port) for each in served[-50:]]
        consoles = [log_in(*pair) for pair in zip(lines, served[-50:], strict=True)]

        def status(number: int) -> None:
            line, console = lines[number % len(lines)], consoles[number % len(lines)]
            line.ask(console.request(*POWER_STATUS))

        show(count, "IPMI power status, in session", cost(pid, REQUESTS, status), echo, "UDP echo")
        session = cost(pid, SESSIONS, lambda number: whole_session(served[number % count]))
        show(count, "IPMI power status, whole session", session, echo, "UDP echo")
        http = redfish(served[-1])
        get = cost(pid, GETS, lambda _: http.get())
        show(count, "Redfish GET of a System, basic auth", get, fixed, "aiohttp")
        print(f"{count:>6} BMCs: memory of the server, PSS {pss(pid):30.1f} MiB", flush=True)


def show(count: int, what: str, took: float, reference: float, of: str) -> None:
    ratio = f"{took / reference:5.2f} x {of}"
    print(f"{count:>6} BMCs: {what:<38} {took:8.1f} us   {ratio}", flush=True)


def main() -> None:
    counts = [int(each) for each in sys.argv[1:]] or COUNTS
    echo, fixed, route = echo_cost(), fixed_cost(), route_cost()
    print(f"CPU of the server: UDP echo {echo:.1f}, aiohttp {fixed:.1f}, Starlette {route:.1f} us")
    for count in counts:
        service_costs(count, echo, fixed)


if __name__ == "__main__":
    main()
