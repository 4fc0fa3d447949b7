"""Bodies with very many errors, or of a size that their route has no use for: one short answer."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import pytest_asyncio
from pydantic import ValidationError
from tests.security.asked import OWNER, Asked, a_daemon

from nospoon.api.errors import decode
from nospoon.api.gate import MAX_SMALL
from nospoon.api.wire import (
    MAX_DIGESTS,
    MAX_FIELDS,
    PATTERNS,
    ClusterRequest,
    HostsRequest,
    VerifyRequest,
)
from nospoon.clusterfile.document import Document
from nospoon.clusterfile.node_groups import MAX_CLUSTER

MANY = 100_000
ONES = b"[" + b",".join([b"1"] * 500_000) + b"]"
PLAN = b'{"file": "f", "text": "", '
MAPPING = json.dumps({str(n): 1 for n in range(MAX_CLUSTER)}).encode()
WRONG = {
    "digests": ("/v1/files/missing", ONES),
    "empty digests": ("/v1/files/missing", json.dumps([""] * MANY).encode()),
    "targets": ("/v1/plan", PLAN + b'"targets": ' + ONES + b"}"),
    "uploads": ("/v1/plan", PLAN + b'"uploads": ' + MAPPING + b"}"),
    "fields": ("/v1/plan", PLAN + b",".join(b'"%d": 1' % n for n in range(90_000)) + b"}"),
    "nodes": ("/v1/clusters/c/verify", b'{"nodes": ' + ONES[: MAX_SMALL * 10] + b"1]}"),
}  # fmt: skip


@pytest_asyncio.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    async with a_daemon(tmp_path) as found:
        yield found


async def test_very_many_errors_are_one_short_answer(asked: Asked) -> None:
    for what, (path, body) in WRONG.items():
        refused = await asked.ask(OWNER, "POST", path, body)
        assert (refused.status, what) in ((400, what), (413, what))
        assert len(refused.body) < 1000, what


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("clusters/c/snapshots", {"name": "Bad Name"}, "1 to 63 lower-case letters, digits and"),
        ("recover", {"hosts": {"Bad Name": "simulated"}}, "1 to 63 lower-case letters, digits and"),
        ("recover/deployment", {"deployment": "Bad Name"}, "32 digits of a hexadecimal number"),
    ],
)
async def test_a_text_that_does_not_fit_is_told_what_it_has_to_be(
    asked: Asked, path: str, body: Any, said: str
) -> None:
    refused = await asked.ask(OWNER, "POST", f"/v1/{path}", body)
    assert refused.status == 400
    assert f"expected {said}" in refused.json["error"]["message"]
    assert "got 'Bad Name'" in refused.json["error"]["message"]


@pytest.mark.parametrize("digest", ["\ud800", "\0"])
async def test_texts_that_cannot_be_written_are_refused_in_lists_too(
    asked: Asked, digest: str
) -> None:
    refused = await asked.ask(OWNER, "POST", "/v1/files/missing", [digest])
    assert refused.status == 400
    assert "has U+0000 or half of a surrogate pair" in refused.json["error"]["message"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("requests/1", "expected the id of a recipe set, such as 1.1"),
        ("leases/1.1", "expected the id of a lease, such as 1.1.0"),
    ],
)
async def test_an_id_of_another_form_is_refused_and_not_logged(
    asked: Asked, path: str, said: str
) -> None:
    """It was an error of the daemon, with a traceback in its log, as often as it was asked."""
    refused = await asked.ask(OWNER, "GET", f"/v1/{path}")
    assert refused.status == 400
    assert refused.json["error"]["message"].startswith(said), "without names of the API's own"


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v1/lab", 404, "the API has no /v1/lab"),
        ("GET", "/", 404, "the API has no /"),
        ("PATCH", "/v1/labs", 405, "/v1/labs does not take PATCH"),
        ("GET", f"/{'x' * 5000}", 404, f"the API has no /{'x' * 199}"),
    ],
)
async def test_unknown_routes_are_errors_of_the_usual_form(
    asked: Asked, method: str, path: str, status: int, message: str
) -> None:
    refused = await asked.ask(OWNER, method, path)
    assert refused.status == status
    assert list(refused.json) == ["error"]
    assert refused.json["error"]["message"] == message
    assert decode(refused.json).hint == "GET /openapi.json lists all routes."


async def test_all_patterns_of_the_api_have_words(asked: Asked) -> None:
    spec = await asked.ask(OWNER, "GET", "/openapi.json")
    found, left = set[str](), [spec.json]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            found |= {each["pattern"]} if isinstance(each.get("pattern"), str) else set()
        if isinstance(each, dict | list):
            left += each.values() if isinstance(each, dict) else each
    assert found == PATTERNS.keys()


async def test_the_description_of_the_api_is_made_beside_the_event_loop(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first reader held up all BMCs for 90 ms."""
    made, threads = asked.app.openapi, list[int]()

    def noting() -> Any:
        threads.append(threading.get_ident())
        return made()

    monkeypatch.setattr(asked.app, "openapi", noting)
    assert (await asked.ask(OWNER, "GET", "/openapi.json")).json["info"]["title"] == "nospoon"
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (ClusterRequest, {"file": "f", "text": "", "targets": [1] * MAX_CLUSTER}),
        (ClusterRequest, {"file": "f", "text": "", "targets": ["n"] * (MAX_CLUSTER + 1)}),
        (ClusterRequest, {"file": "f", "text": "", "uploads": dict.fromkeys("abcdef", 1)}),
        (ClusterRequest, {str(n): 1 for n in range(MAX_FIELDS + 1)}),
        (HostsRequest, {"hosts": {f"H {n}": "simulated" for n in range(1001)}}),
        (VerifyRequest, {"nodes": [None] * 10}),
    ],
)
def test_what_is_wrong_many_times_is_one_error(model: Any, given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as wrong:
        model.model_validate(given)
    assert wrong.value.error_count() == 1


async def test_an_answer_tells_the_first_errors_only_and_each_in_short(asked: Asked) -> None:
    hosts = {f"H{n}{'x' * 500}": "simulated" for n in range(900)}
    refused = await asked.ask(0, "POST", "/v1/orphans", {"hosts": hosts})
    assert refused.status == 400
    assert refused.json["error"]["message"].endswith("and 880 more")
    assert len(refused.body) < 5000


async def test_a_body_larger_than_its_route_needs_is_too_large(asked: Asked) -> None:
    long = b'"' + b"x" * MAX_SMALL + b'"'
    for path in ("/v1/nodes/n/power", "/v1/nodes/n/media", "/v1/clusters/c/down", "/v1/nothing"):
        refused = await asked.ask(OWNER, "POST", path, long)
        assert (refused.status, refused.json["error"]["type"]) == (413, "TooLarge")


async def test_missing_digests_are_asked_for_a_thousand_at_a_time(asked: Asked) -> None:
    digests = [f"{n:064x}" for n in range(MAX_DIGESTS)]
    answer = await asked.ask(OWNER, "POST", "/v1/files/missing", digests)
    assert (answer.status, answer.json) == (200, digests)
    refused = await asked.ask(OWNER, "POST", "/v1/files/missing", [*digests, "0" * 64])
    assert "at most 1000 entries, got 1001" in refused.json["error"]["message"]


@contextmanager
def documents_here() -> Iterator[list[FrameType]]:
    """The documents that are parsed in this thread meanwhile, which is the event loop's."""
    found: list[FrameType] = []

    def called(frame: FrameType, event: str, argument: object) -> None:
        del argument
        if event == "call" and frame.f_code is Document.__init__.__code__:
            found.append(frame)

    sys.setprofile(called)
    try:
        yield found
    finally:
        sys.setprofile(None)


LEAST = "cluster: c\nhosts: {s: simulated}\nnodes: [{}]\n"
PARSED = {
    "plan": ("/v1/plan", LEAST, 200),
    "what a member may not have": ("/v1/plan", f"{LEAST}bmc: {{redfish_port: 80}}\n", 422),
    "hosts": ("/v1/hosts/check", f"{LEAST}bmc: {{redfish_port: 80}}\n", 422),
    "fetch": ("/v1/fetch", LEAST.replace("{}", "{disks: [{image: 'http://127.0.0.1:1/x'}]}"), 202),
}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/plan", '{"file": "f", "text": "cluster: \\ud800"}'),
        ("/v1/plan", '{"file": "\\udfff", "text": ""}'),
        ("/v1/plan", '{"file": "f", "text": "", "targets": ["a", "\\ud800"]}'),
        ("/v1/plan", '{"file": "f", "text": "", "uploads": {"\\ud800": "a"}}'),
        ("/v1/plan", '{"file": "f", "text": "", "\\ud800": 1}'),
        ("/v1/nodes/n/media", '{"url": "http://\\ud800/"}'),
        ("/v1/nodes/n/media", '{"url": "", "sha256": "a", "name": "a\\u0000b"}'),
        ("/v1/plan", '{"file": "a\\u0000b", "text": ""}'),
        ("/v1/nodes/n/faults", f'{{"kind": "drop", "count": 1{"0" * 400}}}'),
        ("/v1/clusters/a%00b/down", "{}"),
        ("/v1/clusters/a/down?then=a%00b", "{}"),
    ],
)
async def test_what_no_store_takes_is_refused(asked: Asked, path: str, body: str) -> None:
    refused = await asked.ask(OWNER, "POST", path, body.encode())
    assert (refused.status, refused.json["error"]["type"]) == (400, "UsageError")
    whole = json.dumps({"file": "f", "text": "cluster: \U0001f944\n"}).encode()
    assert "cluster" in str((await asked.ask(OWNER, "POST", "/v1/plan", whole)).json)


@pytest.mark.parametrize("path", ["/v1/nodes", "/v1/bmcs", "/v1/support-bundle"])
async def test_names_of_clusters_in_queries_are_text(asked: Asked, path: str) -> None:
    refused = await asked.ask(OWNER, "GET", f"{path}?cluster=a%00b")
    assert (refused.status, refused.json["error"]["type"]) == (400, "UsageError")


async def test_files_are_never_parsed_in_the_event_loop(asked: Asked) -> None:
    for path, text, status in PARSED.values():
        with documents_here() as found:
            answer = await asked.ask(OWNER, "POST", path, {"file": "f", "text": text})
        assert (answer.status, len(found)) == (status, 0), answer.body


@pytest.mark.parametrize("after", ["-1", str(2**31), "1" + "0" * 30, "x"])
async def test_the_number_of_an_event_is_one(asked: Asked, after: str) -> None:
    operation = (await asked.up(OWNER, LEAST)).json["operation"]["id"]
    path = f"/v1/operations/{operation}/events"
    assert (await asked.ask(OWNER, "GET", f"{path}?after={after}")).status == 400
    assert (await asked.ask(OWNER, "GET", f"{path}?after={2**31 - 1}")).status == 200
