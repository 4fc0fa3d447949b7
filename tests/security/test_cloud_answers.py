"""What a service that a member names may answer: so much, in such a time, from there only."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("openstack")
import requests
from keystoneauth1.adapter import Adapter
from keystoneauth1.discover import get_discovery
from keystoneauth1.exceptions import ConnectionError as NoAnswer

from nospoon.errors import HostUnreachable, NospoonError
from nospoon.model.ironic import IronicPlace
from nospoon.providers.answers import (
    LONG,
    LONGEST_NUMBER,
    MAX_TEXT,
    MAX_TOLD,
    MOST_AT_ONCE,
    MOST_NAMES,
    answered,
    decoded,
    judged,
    value_of,
    words_of,
)
from nospoon.providers.bounded_http import (
    MAX_ANSWER,
    MAX_KEPT,
    MAX_KEPT_VALUES,
    MAX_SECONDS,
    MAX_VALUES,
    BoundedAdapter,
)
from nospoon.providers.cloud_calls import Means
from nospoon.providers.clouds import FEW, connection
from nospoon.providers.ironic.api import Api
from nospoon.providers.ironic.errors import said

pytestmark = [
    pytest.mark.filterwarnings("ignore:Support for InfluxDB"),
    pytest.mark.filterwarnings("ignore:The 'service_type' parameter"),
]
Answering = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def service(answering: Answering) -> Iterator[str]:
    """A server on loopback, by its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                answering(self)
            except OSError:
                self.close_connection = True  # the other end had enough

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def giving(body: bytes, status: int = 200, **headers: str) -> Answering:
    def answer(to: BaseHTTPRequestHandler) -> None:
        to.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            to.send_header(name.replace("_", "-"), value)
        to.end_headers()
        to.wfile.write(body)

    return answer


def endless(to: BaseHTTPRequestHandler) -> None:
    to.send_response(200)
    to.end_headers()
    while True:
        to.wfile.write(b" " * (1 << 20))


def got(url: str, **how: Any) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        session.mount("http://", BoundedAdapter(**how))
        return session.get(url, timeout=20, allow_redirects=False)


@pytest.mark.parametrize(
    ("answering", "told"),
    [
        (endless, f"at most {MAX_ANSWER} bytes"),
        (giving(b"[" + b"{}," * MAX_VALUES + b"{}]"), f"at most {MAX_VALUES} values"),
        (giving(b"x", Content_Encoding="gzip"), "not packed, got Content-Encoding 'gzip'"),
        (giving(b"", 302, Location="http://127.0.0.2/x"), "one to 'http://127.0.0.2/x'"),
        (giving(b"", 301, Location="file:///etc/shadow"), "no redirect to another server"),
    ],
)
def test_an_answer_past_a_limit_is_refused(answering: Answering, told: str) -> None:
    with service(answering) as url, pytest.raises(requests.RequestException, match=told):
        got(f"{url}/x")


def test_an_answer_that_takes_too_long_is_refused() -> None:
    times = iter([0.0, MAX_SECONDS + 1])
    with service(giving(b"{}")) as url, pytest.raises(requests.RequestException, match="within"):
        got(url, now=lambda: next(times))


def test_what_is_within_the_limits_is_taken_and_read_as_utf_8() -> None:
    with service(giving(b'{"a": "\xc3\xa9"}', Content_Type="text/plain; charset=cp500")) as url:
        assert got(url).json() == {"a": "é"}
    with service(giving(b"", 302, Location="/v1/")) as url:
        assert got(url).headers["Location"] == "/v1/"
    with service(giving(b"\xe9" * 100_000, 503)) as url:
        answer = decoded(got(url))
    assert len(answer.text) == MAX_TEXT
    with pytest.raises(HostUnreachable, match="503"):
        judged(answer, "GET /", said=said)


def test_long_numbers_are_refused_before_they_are_read() -> None:
    """Thousands of 4,000 digits each took half a second without a turn for other threads."""
    for count in (1, MOST_AT_ONCE):
        with pytest.raises(ValueError, match="a number of 401 digits: expected 400 at most"):
            value_of(b"[" + b",".join([b"1"] * count + [b"9" * 401]) + b"]")
    assert value_of(b"9" * LONGEST_NUMBER) == int("9" * LONGEST_NUMBER)


@pytest.mark.parametrize("more", [1, MOST_AT_ONCE])
def test_what_no_store_takes_is_escaped_once_more(more: int) -> None:
    """Half of a surrogate pair in a name was an error of the API, for who looked at that cloud."""
    said = [
        *(r"a\ud800", r"\uDC00\uD800", r"\u0000b", r"\\\udfff", r"\ud83d\ud83d\ude00"),
        *(r"\\ud800", r"\u00e9\ud83d\ude00\n", "é\U0001f600"),
    ]
    body = '{"\\ud800": [' + ",".join([*(f'"{each}"' for each in said), *["0"] * more]) + "]}"
    (found,) = value_of(body.encode()).items()  # type: ignore[attr-defined]
    assert found[0] == r"\ud800"
    assert found[1][: len(said)] == [
        *(r"a\ud800", r"\uDC00\uD800", r"\u0000b", r"\\udfff", "\\ud83d\U0001f600"),
        *(r"\ud800", "é\U0001f600\n", "é\U0001f600"),
    ]
    with pytest.raises(ValueError, match="invalid"):
        value_of(b'"\xed\xa0\x80"')


def test_a_catalog_that_changes_is_not_kept_again_and_again() -> None:
    with service(versions("1.80")) as url:
        settings = {"auth_type": "none", "auth": {"endpoint": url}}
        session = connection(settings, purpose="test").session
        assert session.auth is not None
        for number in range(20):
            get_discovery(session, f"{url}/{number}")
        assert len(session._discovery_cache) == FEW
        assert len(session.auth._discovery_cache) == FEW


@pytest.mark.parametrize("junk", ["x" * MAX_KEPT, [[]] * MAX_KEPT_VALUES])
def test_what_keystoneauth_keeps_is_short(junk: object) -> None:
    def answer(to: BaseHTTPRequestHandler) -> None:
        assert LONG not in to.headers
        giving(json.dumps({"versions": [], "junk": junk}).encode())(to)

    with service(answer) as url:
        settings = {"auth_type": "none", "auth": {"endpoint": url}}
        session = connection(settings, purpose="test").session
        with pytest.raises(NoAnswer, match="at most"):
            get_discovery(session, url)
        assert answered(Adapter(session), url, "GET").value == {"versions": [], "junk": junk}


def test_json_that_is_too_deep_or_no_utf_8_is_no_json() -> None:
    for body in (b"[" * 500_000, b'"\xff"', b"[NaN"):
        with service(giving(body)) as url:
            answer = decoded(got(url))
        with pytest.raises(HostUnreachable, match="no JSON"):
            judged(answer, "GET /", said=str)


@pytest.mark.parametrize("words", [said, words_of])
def test_of_a_refusal_little_is_told(words: Callable[[str], str]) -> None:
    for text in ("[" * 1_000_000, "x" * 1_000_000, json.dumps({"error": ["y" * 9_000]})):
        assert len(words(text)) <= MAX_TOLD


def versions(version: str) -> Answering:
    def answer(to: BaseHTTPRequestHandler) -> None:
        links = [{"rel": "self", "href": f"http://{to.headers['Host']}/v1/"}]
        v1 = {
            "id": "v1",
            "status": "CURRENT",
            "version": "1.95",
            "min_version": "1.1",
            "links": links,
        }
        body = json.dumps({"versions": [v1], "version": v1, "default_version": v1}).encode()
        giving(body, X_OpenStack_Ironic_API_Maximum_Version=version)(to)

    return answer


def ironic(pages: Mapping[str, Answering]) -> Answering:
    """An Ironic that answers `/v1/nodes` and so on in its own way."""

    def answer(to: BaseHTTPRequestHandler) -> None:
        what = to.path.partition("?")[0].rpartition("/")[2]
        pages.get(what, versions("1.95"))(to)

    return answer


@pytest.mark.parametrize(
    ("answering", "told"),
    [
        (endless, f"at most {MAX_ANSWER} bytes"),
        (giving(b"[" * 900_000), "no JSON"),
        (giving(b"", 302, Location="http://127.0.0.2:9/"), "no redirect to another server"),
    ],
)
async def test_a_hostile_ironic_is_an_error_and_nothing_more(
    answering: Answering, told: str
) -> None:
    with service(ironic({"nodes": answering})) as url:
        api = Api(IronicPlace(endpoint=url), Means(ThreadPoolExecutor(1)))
        with pytest.raises(NospoonError, match=told) as refused:
            await api.listed("nodes", read=bool)
    assert len(str(refused.value)) < 1000


async def test_a_version_that_is_none_is_an_error() -> None:
    with service(versions("9" * 9000)) as url:
        api = Api(IronicPlace(endpoint=url), Means(ThreadPoolExecutor(1)))
        with pytest.raises(HostUnreachable, match=r"expected a version such as 1\.80"):
            await api.listed("nodes", read=bool)


def test_a_connection_is_bounded_and_has_no_proxy_of_the_daemon() -> None:
    made = connection({"auth_type": "none", "auth": {"endpoint": "http://i"}}, purpose="test")
    session = made.session.session
    assert session.trust_env is False
    assert {type(each) for each in session.adapters.values()} == {BoundedAdapter}
    assert made.session.verify in (True, os.environ.get("REQUESTS_CA_BUNDLE"))


def test_a_long_answer_is_decoded_with_turns_for_other_threads() -> None:
    """A decoder in C would hold the interpreter's lock: here another thread stops it half-way."""
    body = b"[" + b'{"a": [1.5, "\xc3\xa9", null, true]},' * (MOST_AT_ONCE // 4) + b"-2e3]"
    turns = list[int]()

    class Decoding(threading.Thread):
        value: object = None

        def run(self) -> None:
            sys.setprofile(lambda *_: turns.append(1))
            self.value = decoded(answer_of(body)).value

    decoding = Decoding()
    decoding.start()
    decoding.join()
    assert decoding.value == json.loads(body)
    assert len(turns) > MOST_AT_ONCE // 4, "Python's own code ran for each of the objects"


def test_one_object_of_a_long_answer_has_a_limited_number_of_names() -> None:
    names = ",".join(f'"{number}": 1' for number in range(MOST_AT_ONCE + 1))
    wrong = decoded(answer_of(f"{{{names}}}".encode())).wrong
    assert f"of {MOST_AT_ONCE + 1} names: expected {MOST_NAMES}" in wrong
    with service(giving(f"{{{names}}}".encode())) as url:
        answer = got(url)
        with pytest.raises(ValueError, match="names: expected"):  # so keystoneauth reads tokens
            answer.json()


def answer_of(body: bytes) -> requests.Response:
    answer = requests.Response()
    answer.status_code, answer._content = 200, body
    return answer
