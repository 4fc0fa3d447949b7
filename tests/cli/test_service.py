"""Commands of services, as they see a daemon's answers."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from nospoon.api.client import Client
from nospoon.cli.commands.service import until_healthy
from nospoon.errors import NospoonError
from nospoon.model.rest.services import ServiceStatus

ON = {"power": "on", "health": "", "timeout": 0}
OFF = {**ON, "power": "off"}
WELL, ILL = {**ON, "health": "healthy", "timeout": 60}, {**ON, "health": "unhealthy", "timeout": 60}
GIVEN_UP = {**ILL, "why": "it is silent", "timeout": 0}


def row(**values: object) -> dict[str, object]:
    texts = dict.fromkeys(("kind", "power", "health", "why", "unit", "address"), "")
    return {"service": "web", "cluster": "c", "node": "web-0", **texts, "after": [], **values}


def status(values: Mapping[str, object]) -> ServiceStatus:
    return ServiceStatus(**row(**values))  # type: ignore[arg-type]


@contextmanager
def listing(directory: Path, *rows: Mapping[str, object]) -> Iterator[Client]:
    """A client of something that lists the service so, one time after the other, and no more."""

    def answer() -> None:
        for values in rows:
            body = json.dumps([row(**values)]).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            peer, _ = listener.accept()
            with peer:
                peer.recv(1 << 16)
                peer.sendall(head.encode() + body)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "s"))
        listener.listen()
        thread = Thread(target=answer)
        thread.start()
        yield Client(directory / "s")
        thread.join()


@pytest.mark.parametrize("rows", [[ILL, WELL], [ON, ON, ON], [{**ON, "power": "unknown"}]])
def test_a_service_is_waited_for(tmp_path: Path, rows: list[Mapping[str, object]]) -> None:
    """Where nothing is looked at, it is healthy when its node is seen to run some times."""
    with listing(tmp_path, *rows) as client:
        assert until_healthy(client, status(ON), looks=3) == status(rows[-1])


def test_a_service_has_the_time_that_its_file_gives_it(tmp_path: Path) -> None:
    with (
        listing(tmp_path, GIVEN_UP) as client,
        pytest.raises(NospoonError, match="service web is not healthy: it is silent"),
    ):
        until_healthy(client, status(ON))


@pytest.mark.parametrize("rows", [[ON, OFF], [ILL, OFF]])
def test_a_service_is_not_healthy_where_its_node_ended(
    tmp_path: Path, rows: list[Mapping[str, object]]
) -> None:
    """As one does whose init cannot go on: the next node is not upgraded to that."""
    why = "service web is not healthy: node web-0 was on, and is off now"
    with (
        listing(tmp_path, *rows) as client,
        pytest.raises(NospoonError, match=why) as raised,
    ):
        until_healthy(client, status(ON), looks=3)
    assert "nospoon node console --log c/web-0" in raised.value.hint


def test_a_node_that_was_off_is_not_waited_for(tmp_path: Path) -> None:
    with listing(tmp_path, OFF) as client:
        assert until_healthy(client, status(OFF), looks=3).power == "off"
