"""Depth and size of what members send: cluster files, and bodies of the API."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, MutableMapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.security.asked import GROUP, OTHER, OWNER, STRANGER, _scope, a_daemon

from nospoon.api.gate import MAX_BESIDES, MAX_BODY, MAX_ESCAPES, MAX_HELD, MOST_REQUESTS, Gate
from nospoon.api.peer import Members
from nospoon.clusterfile.compose import MAX_DEPTH, MAX_NODES, BoundError, compose
from nospoon.clusterfile.document import MAX_PROBLEMS, Document
from nospoon.clusterfile.load import load
from nospoon.control.content.files import UPLOADS, Files
from nospoon.control.planning.identities import MOST_PROPOSED
from nospoon.errors import SpecError
from nospoon.model.principal import Administrators
from nospoon.runtime.log_rate import LINES, RateLimitedLog
from nospoon.runtime.slices import Slices

CONTENT = b"\0" * 2048
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def problem(text: str) -> tuple[int, int, str]:
    with pytest.raises(SpecError) as refused:
        load(text, file="f")
    first = refused.value.problems[0]
    return first.line, first.column, first.message


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 20_000, 60_000])
@pytest.mark.parametrize("closed", ["", "]"])
def test_lists_too_deep_are_an_error_at_the_level_that_is_too_deep(
    levels: int, closed: str
) -> None:
    line, column, message = problem(f"cluster: c\nnodes: {'[' * levels}{closed * levels}\n")
    assert (line, column) == (2, len("nodes: ") + MAX_DEPTH)
    assert message == f"lists and mappings nested more than {MAX_DEPTH} deep"


@pytest.mark.parametrize("step", ["- ", "? ", "{a: ", "[{a: "])
def test_any_nesting_too_deep_is_refused(step: str) -> None:
    assert "nested more than" in problem(step * 30_000)[2]


def test_aliases_that_deepen_what_they_stand_for_are_refused() -> None:
    deep = "a0: &a0 [" + "[" * 40 + "]" * 40 + "]\n"
    more = "".join(f"a{n}: &a{n} [[[[[*a{n - 1}]]]]]\n" for n in range(1, 1000))
    assert "nested more than" in problem(deep + more)[2]


def test_what_is_as_deep_as_may_be_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert json.dumps(Document(text, "f").value) == text


def test_too_many_values_and_aliases_are_refused_where_they_begin_to_be() -> None:
    for text in ("[" + "0,\n" * 99 + "]", "- &a x\n" + "- *a\n" * 99, "{" + "a: b,\n" * 50 + "}"):
        with pytest.raises(BoundError, match="more than 20 values") as refused:
            compose(text, most=20)
        assert refused.value.line in (10, 20)
    assert "values" in problem("[" + "0,\n" * MAX_NODES + "]")[2]


def test_a_file_with_very_many_problems_shows_the_first_ones() -> None:
    text = "cluster: c\nnodes:\n" + "- {cpu: 1}\n" * 5_000
    with pytest.raises(SpecError) as refused:
        load(text, file="f")
    assert MAX_PROBLEMS <= len(refused.value.problems) < 2 * MAX_PROBLEMS


@pytest.mark.parametrize("number", ["0x" + "f" * 50_000, "0o" + "7" * 50_000, "9" * 50_000])
def test_numbers_of_very_many_digits_are_an_error_of_the_file(number: str) -> None:
    assert problem(f"cluster: c\nnodes: [{{cpus: {number}}}]\n")[:2] == (2, 16)


@pytest.mark.parametrize("size", [f"{'9' * 400}TiB", f"{'9' * 25}TiB"])
def test_a_size_without_end_is_an_error_of_the_file(size: str) -> None:
    line, column, message = problem(f"cluster: c\nnodes: [{{disks: [{size}]}}]\n")
    assert (line, column) == (2, 18)
    assert message.startswith("expected a size of less than")


async def test_bodies_of_the_api_are_bounded(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        deep = b'{"file": "f", "text": ' + b"[" * 60_000
        many = b'{"file": "f", "text": "x", "uploads": [' + b"[]," * (MAX_BESIDES // 3) + b"[]]}"
        long = json.dumps({"file": "f", "text": "#" * (MAX_BODY + 1)}).encode()
        assert (await asked.ask(OWNER, "POST", "/v1/plan", deep)).status in (400, 422)
        for body in (many, long, many[:-9], b"[" * (MAX_BESIDES + 1)):
            refused = await asked.ask(OWNER, "POST", "/v1/plan", body)
            assert (refused.status, refused.json["error"]["type"]) == (413, "TooLarge")
        least = "cluster: c\nhosts: {s: simulated}\nnodes: [{}]\n"
        text = f"{'# a long file' * (MAX_BESIDES // 8)}\n{least}"
        taken = await asked.ask(OWNER, "POST", "/v1/plan", {"file": "f", "text": text})
        assert taken.status == 200
        assert (await asked.ask(STRANGER, "POST", "/v1/plan", many)).status == 403


async def test_bodies_of_each_route_are_bounded_whatever_its_method(tmp_path: Path) -> None:
    """All but uploads, of which nothing is decoded: a member's PUT of an image's name took as much
    memory as that member liked, and stopped all BMCs for a second for each 30 MB.
    """
    long = json.dumps({"sha256": "0" * MAX_BESIDES}).encode()
    async with a_daemon(tmp_path) as asked:
        decoded = [
            (path, method.upper())
            for path, methods in asked.app.openapi()["paths"].items()
            for method, about in methods.items()
            if "requestBody" in about
        ]
        assert ("/v1/images/{name}", "PUT") in decoded
        for path, method in decoded:
            refused = await asked.ask(OWNER, method, re.sub(r"{\w+}", "x", path), long)
            assert (refused.status, refused.json["error"]["type"]) == (413, "TooLarge"), path


async def test_line_ends_of_a_file_are_bounded(tmp_path: Path) -> None:
    """Python's decoder took 320 ms for 11 million, in which no BMC was answered."""
    least = "cluster: c\nhosts: {s: simulated}\nnodes: [{}]\n"
    ends = {"file": "f", "text": least + "\n" * (MAX_ESCAPES - 3)}
    async with a_daemon(tmp_path) as asked:
        assert (await asked.ask(OWNER, "POST", "/v1/plan", ends)).status == 200
        ends["text"] += "\n"
        refused = await asked.ask(OWNER, "POST", "/v1/plan", ends)
        assert (refused.status, refused.json["error"]["type"]) == (413, "TooLarge")


async def test_of_many_requests_a_few_begin_in_each_turn_of_the_loop() -> None:
    begun: list[int] = []
    turn = 0

    async def inner(*_: object) -> None:
        begun.append(turn)

    async def request() -> None:
        await gate(_scope("http", OWNER, "/v1/daemon"), receive, no_answer)

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b""}

    async def no_answer(message: MutableMapping[str, Any]) -> None:
        raise AssertionError(message)

    gate = Gate(inner, Members(GROUP, Administrators()), RateLimitedLog(), slices=Slices(seconds=0))
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(request())
        while len(begun) < 20:
            turn += 1
            await asyncio.sleep(0)
    assert len(set(begun)) == 20


async def test_a_few_uploads_of_one_user_are_read_at_a_time(tmp_path: Path) -> None:
    """What 250 of them had sent was written in one turn of the loop."""
    files, reading, go = Files.at(tmp_path), asyncio.Semaphore(0), asyncio.Event()
    begun = [0]

    async def chunks() -> AsyncIterator[bytes]:
        begun[0] += 1
        reading.release()
        await go.wait()
        yield CONTENT

    async with asyncio.TaskGroup() as group:
        for _ in range(2 * UPLOADS):
            group.create_task(files.receive(SHA256, chunks(), owner=OWNER))
        for _ in range(UPLOADS):
            await reading.acquire()
        group.create_task(files.receive(SHA256, chunks(), owner=OTHER))
        await reading.acquire()
        assert begun == [UPLOADS + 1]
        go.set()
    assert begun == [2 * UPLOADS + 1]
    assert files.has(SHA256)


async def test_bodies_of_one_member_have_a_budget_together(tmp_path: Path) -> None:
    part = b"#" * (16 << 20)
    async with a_daemon(tmp_path) as asked:
        go, held, sent = asyncio.Event(), asyncio.Semaphore(0), list[MutableMapping[str, Any]]()

        async def hold(uid: int) -> None:
            """Sends most of a body, and nothing more until `go`."""
            given = [{"type": "http.request", "body": part, "more_body": True}]

            async def receive() -> MutableMapping[str, Any]:
                if given:
                    return given.pop()
                held.release()
                await go.wait()
                return {"type": "http.request", "body": b""}

            async def send(message: MutableMapping[str, Any]) -> None:
                sent.append(message)

            await asked.app(_scope("http", uid, "/v1/plan", "POST"), receive, send)

        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_HELD // len(part)):
                group.create_task(hold(OWNER))
            for _ in range(MAX_HELD // len(part)):
                await held.acquire()
            small = {"file": "f", "text": "cluster: c\nhosts: {s: simulated}\nnodes: [{}]\n"}
            refused = await asked.ask(OWNER, "POST", "/v1/plan", small)
            assert (refused.status, refused.json["error"]["type"]) == (503, "Busy")
            assert (await asked.ask(OWNER, "GET", "/v1/clusters")).status == 200
            assert (await asked.ask(OTHER, "POST", "/v1/plan", small)).status == 200
            go.set()
        assert (await asked.ask(OWNER, "POST", "/v1/plan", small)).status == 200


async def test_refusals_fill_no_log(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        with capture_logs() as lines:
            for _ in range(LINES * 2):
                assert (await asked.ask(OWNER, "GET", "/v1/nodes/x/show")).status == 404
                assert (await asked.ask(STRANGER, "GET", "/v1/nodes")).status == 403
        assert len([line for line in lines if line["event"] == "refused"]) == 2 * LINES


async def test_names_that_were_only_planned_are_forgotten(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        proposed = asked.daemon.parts.planner._observing.identities._proposed[OWNER]
        proposed |= {f"n{number}": UUID(int=number) for number in range(MOST_PROPOSED)}
        text = "cluster: c\nhosts: {s: simulated}\nnodes: [{}]\n"
        await asked.ask(OWNER, "POST", "/v1/plan", {"file": "f", "text": text})
        assert (len(proposed), "n0" in proposed, "c" in proposed) == (MOST_PROPOSED, False, True)


SHOW = """
import ctypes, resource
from nospoon.runtime.hardening import protect_memory
from nospoon.model.principal import Administrators
protect_memory()
print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""


def test_memory_with_passwords_is_dumped_nowhere() -> None:
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "(0, 0) 0"


async def test_requests_of_one_member_that_wait_are_bounded() -> None:
    """While the store hung, each that a caller left waited on: a member who asked again and
    again took 10 MB of the daemon's memory a second.
    """
    go, begun, statuses = asyncio.Event(), asyncio.Semaphore(0), list[int]()

    async def inner(*_: object) -> None:
        begun.release()
        await go.wait()

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    gate = Gate(inner, Members(GROUP, Administrators()), RateLimitedLog())

    async def asked(uid: int, method: str = "GET") -> None:
        await gate(_scope("http", uid, "/v1/operations", method=method), receive, send)

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for number in range(MOST_REQUESTS):
            group.create_task(asked(OWNER, "PUT" if number % 2 else "GET"))
        for _ in range(MOST_REQUESTS):
            await begun.acquire()
        await asked(OWNER)
        await asked(OWNER, "PUT")
        assert statuses == [503, 503]
        for uid in (OTHER, 0):
            group.create_task(asked(uid))
            await begun.acquire()
        go.set()
    await asked(OWNER)
    assert statuses == [503, 503]
