"""A proxy in front of the API of a service, for tests of what is between them and a cloud: it
refuses, hangs, resets connections and loses answers.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from urllib.parse import urlsplit

SECONDS = 120.0
"""That a service may take for an answer."""
HOP_BY_HOP = {"content-length", "transfer-encoding", "connection"}
BODY = b'{"error": {"message": "a fault of the test"}}'


class LineFault(StrEnum):
    """What becomes of a call, beside a status that it is answered with."""

    HANG = "hang"  # it is carried out, and nothing is answered
    SWALLOW = "swallow"  # it is not carried out, and nothing is answered
    LATE = "late"  # it is carried out when the test says, and nothing is answered
    RESET = "reset"  # the connection is reset, and it is not carried out
    LOSE = "lose"  # it is carried out, and the connection is reset
    TRUNCATE = "truncate"  # it is carried out, and the answer ends in the midst


@dataclass
class Injected:
    """What happens to the next `times` calls whose `METHOD /path` matches."""

    pattern: str
    fault: LineFault | int
    times: int


@dataclass
class Front:
    """`url`: of the proxy, without a path, in the place of the service's. `met`: calls that a fault
    met, in order. `late`: set once those that are late are carried out.
    """

    url: str = ""
    injected: list[Injected] = field(default_factory=list)
    met: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    late: Event = field(default_factory=Event)
    _over: Event = field(default_factory=Event)

    def inject(self, pattern: str, fault: LineFault | int, *, times: int = 1) -> None:
        self.injected.append(Injected(pattern, fault, times))

    def clear(self) -> None:
        self.injected.clear()
        self.met.clear()

    def fault(self, call: str) -> LineFault | int | None:
        with self._lock:
            for each in self.injected:
                if each.times > 0 and re.search(each.pattern, call):
                    each.times -= 1
                    self.met.append(call)
                    return each.fault
        return None

    def hang(self) -> None:
        """Until the test is over."""
        self._over.wait()

    def close(self) -> None:
        self.late.set()
        self._over.set()


class _Answers(BaseHTTPRequestHandler):
    def keeps(self, fault: LineFault | int | None, front: Front) -> bool:
        """Whether the service is not to hear of it, and what becomes of it then."""
        if isinstance(fault, int):
            self.answer(fault, BODY, {"Content-Type": "application/json", "Retry-After": "1"})
            return True
        if fault is LineFault.SWALLOW:
            front.hang()
        if fault in {LineFault.RESET, LineFault.SWALLOW}:
            self.reset()
            return True
        return False

    def reset(self) -> None:
        """Without a farewell: RST (socket(7), SO_LINGER)."""
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()
        self.close_connection = True

    def answer(
        self, status: int, body: bytes, headers: dict[str, str], *, cut: bool = False
    ) -> None:
        """`cut`: half of it, of the length of all, also where it is empty."""
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        if status != 204 or cut:
            self.send_header("Content-Length", str(len(body) + cut))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        """Not a word."""
        del format, args


def _handler(front: Front, host: str, port: int) -> type[BaseHTTPRequestHandler]:
    class Handler(_Answers):
        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = front.fault(f"{self.command} {self.path}")
            if self.keeps(fault, front):
                return
            if fault is LineFault.LATE:
                front.late.wait()
            with closing(HTTPConnection(host, port, timeout=SECONDS)) as back:
                back.request(self.command, self.path, body, dict(self.headers))
                got = back.getresponse()
                said, headers = got.read(), dict(got.getheaders())
            match fault:
                case LineFault.HANG:
                    front.hang()
                    self.reset()
                case LineFault.LOSE | LineFault.LATE:
                    self.reset()
                case _:
                    self.answer(got.status, said, headers, cut=fault is LineFault.TRUNCATE)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one  # noqa: N815  (its names)

    return Handler


@contextmanager
def in_front_of(url: str) -> Iterator[Front]:
    """A proxy of the service at this URL; paths are the same."""
    place = urlsplit(url)
    assert place.hostname is not None
    front = Front()
    handler = _handler(front, place.hostname, place.port or 80)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever)
    thread.start()
    front.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield front
    finally:
        front.close()
        server.shutdown()
        thread.join()
        server.server_close()
