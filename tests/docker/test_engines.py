"""Which engine listens at a socket: Podman's has an API of its own besides Docker's."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nospoon.providers.docker.program.main import engine_at
from nospoon.providers.docker.program.moby import DockerEngine
from nospoon.providers.docker.program.podman import Podman
from nospoon.providers.docker.program.wire import EngineError

Answering = Callable[[str], str]


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Answering]:
    """What listens at a socket and gives one answer: a status and a text."""
    path, threads = tmp_path / "engine.sock", list[threading.Thread]()

    def begin(said: str) -> str:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.listen()

        def answer() -> None:
            with listening, listening.accept()[0] as taken:
                asked = taken.recv(4096).decode().split()[1]
                assert asked.startswith("/v4.0.0/libpod/"), "its version takes Podman half a second"
                status, _, text = said.partition(" ")
                taken.sendall(f"HTTP/1.1 {status} x\r\n\r\n{text}".encode())

        threads.append(threading.Thread(target=answer))
        threads[-1].start()
        return str(path)

    yield begin
    for each in threads:
        each.join(60)


@pytest.mark.parametrize(
    ("said", "engine"), [("200 OK", Podman), ("404 page not found", DockerEngine)]
)
def test_an_engine_without_podmans_api_is_docker_engine(
    answering: Answering, said: str, engine: type
) -> None:
    assert type(engine_at(answering(said))) is engine


def test_an_engine_that_fails_is_not_taken_for_another(answering: Answering) -> None:
    with pytest.raises(EngineError, match="out of memory"):
        engine_at(answering('500 {"message": "out of memory"}'))


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"],
    ids=["before its answer", "within it"],
)
def test_an_engine_that_ends_during_a_call_is_said_to_have_ended(
    tmp_path: Path, said: bytes
) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer() -> None:
            with listening.accept()[0] as taken:
                taken.recv(4096)
                taken.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(EngineError, match=f"the engine at {path} ended before it had answered"):
            engine_at(str(path))
        thread.join(60)
