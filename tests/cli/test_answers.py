"""Answers of the daemon, as its clients read them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from nospoon.api.answers import record
from nospoon.api.client import Client
from nospoon.errors import NospoonError
from nospoon.model.rest.clusters import NodeStatus
from nospoon.model.rest.nodes import PowerResult
from nospoon.model.rest.operations import OperationEnd, OperationEvent


@contextmanager
def answering(directory: Path, body: bytes) -> Iterator[Client]:
    """A client of something that answers one request so."""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"

    def answer() -> None:
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


def test_an_answer_is_read_as_its_model_and_what_is_unknown_of_it_is_left_out(
    tmp_path: Path,
) -> None:
    with answering(tmp_path, b'{"node": "c/n", "result": "done", "later": 1}') as client:
        assert client.ask(PowerResult, "POST", "/v1/x", {}) == PowerResult("c/n", "done")


@pytest.mark.parametrize("body", [b'{"node": "c/n"}', b'{"node": 1, "result": ""}', b"[]", b"x"])
def test_what_another_version_answers_is_one_error(tmp_path: Path, body: bytes) -> None:
    with answering(tmp_path, body) as client:
        with pytest.raises(NospoonError, match="POST /v1/x with something else") as raised:
            client.ask(PowerResult, "POST", "/v1/x", {})
        assert "another version" in raised.value.hint


def test_events_are_read_as_what_they_are(tmp_path: Path) -> None:
    events = (
        {"seq": 1, "phase": "done", "message": "m", "what": "w", "node": "", "done": 1, "total": 2},
        {"state": "done", "message": "", "result": {"failures": [{"what": "w", "message": "m"}]}},
    )
    body = "".join(f"id: 1\ndata: {json.dumps(each)}\n\n" for each in events).encode()
    with answering(tmp_path, body) as client:
        event, end = client.operation_events("o")
    assert event == OperationEvent(1, "done", "m", "w", done=1, total=2)
    assert isinstance(end, OperationEnd)
    assert [(each.what, each.message) for each in end.result.failures] == [("w", "m")]


def test_what_could_not_be_looked_at_is_null_in_an_answer() -> None:
    node = record(NodeStatus("n", "h", "unknown", "on", "disk", "", ""))
    assert (node["portgroups"], node["floating_ips"]) == (None, None)


@pytest.mark.parametrize("event", [{"state": "done", "result": 7}, {"seq": "one"}])
def test_an_event_of_another_version_is_one_error_too(
    tmp_path: Path, event: dict[str, object]
) -> None:
    def read(client: Client, path: str) -> list[object]:
        of_operation = path.startswith("operations")
        return list(client.operation_events("o") if of_operation else client.set_events("1.1"))

    for path in ("operations/o/events", "requests/1[.]1/events"):
        with (
            answering(tmp_path, b"data: %s\n\n" % json.dumps(event).encode()) as client,
            pytest.raises(NospoonError, match=rf"GET /v1/{path} with something else"),
        ):
            read(client, path)
        (tmp_path / "s").unlink()
