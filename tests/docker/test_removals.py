"""A container that its engine finds busy is removed when it is not any more; one that stays so is
reported with the engine's reason. The engine is a small server that has Docker's API for that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from threading import Thread

import pytest

from nospoon.providers.docker.program import roots
from nospoon.providers.docker.program.moby import DockerEngine
from nospoon.providers.docker.program.wire import EngineError

NAME = "pool.m0-0"
SAID = 'unlinkat "/containers/shm": device or resource busy'


@dataclass
class Busy:
    """An engine's only container, which cannot be removed for so many seconds after the first try.
    `answers`: statuses of the tries.
    """

    root: str
    seconds: float
    until: float = 0.0
    there: bool = True
    answers: list[int] = field(default_factory=list)

    def remove(self) -> tuple[int, object]:
        now = time.monotonic()
        self.until = self.until or now + self.seconds
        self.there = now < self.until
        return (500, {"message": SAID}) if self.there else (204, None)

    def inspect(self) -> tuple[int, object]:
        labels = {roots.LABEL: self.root, f"{roots.LABEL}.path": "pool/m0-0.volume"}
        state = {"Status": "exited", "Pid": 0, "ExitCode": 0}
        shown = {"State": state, "Config": {"Labels": labels}, "GraphDriver": None}
        return (200, shown) if self.there else (404, {"message": "No such container"})


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Busy]:
    container = Busy(str(tmp_path), seconds=0.3)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == f"/containers/{NAME}/json"
            self.answer(*container.inspect())

        def do_DELETE(self) -> None:
            assert self.path == f"/containers/{NAME}?force=1&v=1"
            status, said = container.remove()
            container.answers.append(status)
            self.answer(status, said)

        def answer(self, status: int, said: object) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"" if said is None else json.dumps(said).encode())

        def log_message(self, *_: object) -> None:
            """It logs nothing."""

    with ThreadingUnixStreamServer(str(tmp_path / "docker.sock"), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield container
        server.shutdown()
        thread.join(60)


def removed(busy: Busy) -> None:
    engine = DockerEngine(f"{busy.root}/docker.sock")
    roots.remove_root(engine, NAME, busy.root, "pool/m0-0.volume")


def test_a_container_that_is_busy_for_a_moment_is_removed_with_its_root(
    busy: Busy, tmp_path: Path
) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "m0-0.volume").touch()
    removed(busy)
    assert not busy.there
    assert busy.answers[0] == 500
    assert busy.answers[-1] == 204
    assert not (tmp_path / "pool" / "m0-0.volume").exists()


def test_one_that_stays_busy_keeps_its_root_and_its_engine_says_why(
    busy: Busy, tmp_path: Path
) -> None:
    busy.seconds = 600
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "m0-0.volume").touch()
    with pytest.raises(EngineError, match="device or resource busy"):
        removed(busy)
    assert set(busy.answers) == {500}
    assert (tmp_path / "pool" / "m0-0.volume").exists()
