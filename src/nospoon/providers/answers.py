"""What an OpenStack service answers, and the error that each refusal is."""

from __future__ import annotations

import json
import json.scanner
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

from nospoon.errors import Conflict, Gone, HostUnreachable, ProviderError, Transient
from nospoon.runtime.reasons import reason

if TYPE_CHECKING:
    import requests

PATIENCE = 60.0
"""Seconds until someone who says nothing is away; Ironic's API itself waits so long for its
conductor.
"""
MAX_TEXT = 16 << 10
"""Bytes of a refusal that are looked at."""
LONG = "X-Nospoon-Long"
"""Header of requests whose answers may be long, which is not sent. Those that keystoneauth makes by
itself, for tokens and versions of APIs, have none, and it keeps what they are answered.
"""
SENDS = "X-Nospoon-Sends"
"""Header of requests that send much: seconds that they may take beyond what others may. It is not
sent.
"""
BETWEEN = (b",", b"[", b"{")
"""Each value of a JSON text comes after one of these, or begins with it."""
LARGEST_NUMBER = 1 << 40
"""Of what clouds count: CPUs, MiB, GiB and things of a project."""
LONGEST_NUMBER = 400
"""Digits of one: thousands of long ones take half a second, without a turn for other threads."""
LONGEST_DELAY = 9
"""Characters of a Retry-After."""
MAX_TOLD = 500
"""Characters of it that are told."""
MOST_AT_ONCE = 150_000
"""Values that are decoded without a turn for other threads: 40 ms, if all are of one object."""
MOST_NAMES = 50_000
"""In one object, of an answer with more values."""
_LONG = Lock()
"""One long answer is decoded at a time: the event loop waits for each thread that is at work."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, decoded. `text`: the beginning of its body; `size`: of all of it, in bytes;
    `values`: in it, at most. `retry_after`: seconds until it may be asked again, None where it does
    not say.
    """

    status_code: int
    text: str
    size: int = 0
    value: object = None
    wrong: str = ""
    values: int = 0
    retry_after: float | None = None


class Adapter(Protocol):
    """What is used of a `keystoneauth1.adapter.Adapter`."""

    def request(self, url: str, method: str, **how: object) -> requests.Response: ...


class How(TypedDict, total=False):
    """How keystoneauth is to ask."""

    headers: Mapping[str, str]
    microversion: str
    data: bytes | Iterable[bytes]
    json: object
    status_code_retries: int


def answered(adapter: Adapter, path: str, method: str, **how: Unpack[How]) -> Answered:
    """What an adapter of keystoneauth's is answered, decoded. Run it in a thread."""
    return decoded(received(adapter, path, method, **how))


def received(adapter: Adapter, path: str, method: str, **how: Unpack[How]) -> requests.Response:
    """The answer of requests. A connection that was kept may be closed by the other end at any
    time: who only looks asks once more. Run it in a thread.
    """
    from keystoneauth1 import exceptions  # noqa: PLC0415  (an extra)

    how["headers"] = {**how.get("headers", {}), LONG: "yes"}
    try:
        return adapter.request(path, method, raise_exc=False, **how)
    except exceptions.ConnectFailure:
        if method != "GET":
            raise
        return adapter.request(path, method, raise_exc=False, **how)


def refusal(error: Exception) -> str:
    """Why a call of keystoneauth failed without an answer that could be judged."""
    status = getattr(error, "http_status", None)
    if status == 401:
        return "it refuses the login: check user, password and project of the cloud"
    if status:
        return f"it answered {status}"
    if type(error).__name__ in {"EndpointNotFound", "EmptyCatalog", "CatalogException"}:
        return "the cloud's catalog has no such service"
    return reason(error)


def decoded(answer: requests.Response) -> Answered:
    """Of an answer of requests, whose decoding may take a while."""
    status, body = answer.status_code, answer.content
    text = body[:MAX_TEXT].decode(errors="replace")
    if status >= 400:
        return Answered(status, text, len(body), retry_after=retry_after(answer))
    value, wrong = None, ""
    try:
        value = value_of(body) if body else None
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        wrong = str(error)[:200] or "no JSON"
    return Answered(status, text, len(body), value, wrong, _values(body))


def retry_after(answer: requests.Response) -> float | None:
    """Seconds (RFC 9110 §10.2.3); of a date, as of no header, None: clocks of clouds differ."""
    wanted = answer.headers.get("Retry-After", "")
    return float(wanted[:LONGEST_DELAY]) if wanted.isdecimal() else None


def _values(body: bytes) -> int:
    """No fewer than there are."""
    return sum(body.count(each) for each in BETWEEN)


def _number(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits: expected {LONGEST_NUMBER} at most")
    return int(digits)


class _Names(dict[str, str]):
    """Names that were seen, of which there may be a million: beyond some, they are not kept."""

    def setdefault(self, name: str, default: str = "") -> str:
        return (
            super().setdefault(name, default) if len(self) < MOST_NAMES else self.get(name, default)
        )


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(pairs) > MOST_NAMES:
        raise ValueError(f"an object of {len(pairs)} names: expected {MOST_NAMES} at most")
    return dict(pairs)


class _Slow(json.JSONDecoder):
    """In Python, ten times as slowly: other threads run in between. What is in C holds the
    interpreter's lock until the end of the text, 0.8 s for one object of a million values.
    """

    def __init__(self) -> None:
        super().__init__(object_pairs_hook=_object, parse_int=_number)
        self.memo = _Names()
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


_ODD = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
"""Of this begins each escape of what no answer or store takes, and some others."""
_ESCAPE = re.compile(
    r"\\(?:\\|u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}"
    r"|(?P<odd>u0000|u[dD][89a-fA-F][\da-fA-F]{2}))"
)
"""A backslash, a pair of surrogates, or U+0000 or half of such a pair (RFC 8259 §7, §8.2)."""


def _writable(text: str) -> str:
    """JSON of which all texts can be written: an odd escape says itself, not what it stands for. In
    pieces, between which other threads run.
    """
    if _ODD.search(text) is None:
        return text
    written, at = StringIO(), 0
    for match in _ESCAPE.finditer(text):
        if match["odd"] is not None:
            written.write(f"{text[at : match.start()]}\\")
            at = match.start()
    written.write(text[at:])
    return written.getvalue()


def value_of(body: bytes) -> object:
    """What a body says as JSON. Raises `ValueError`, `RecursionError`. Run it in a thread."""
    text = _writable(body.decode(json.detect_encoding(body)))
    if _values(body) <= MOST_AT_ONCE:
        return json.loads(text, parse_int=_number)
    with _LONG:
        return _Slow().decode(text)


def text_of(value: object) -> str:
    """A value that should be a text or a number, as a text; of a list or an object, whether it has
    anything: what Python writes of a million numbers holds up all threads for a second.
    """
    return str(bool(value) if isinstance(value, list | dict) else value)


def number_of(value: str | float) -> int:
    """A whole number, of which a cloud may say 400 digits: no float and no store holds that. Raises
    `TypeError`, `ValueError`, `OverflowError`.
    """
    return max(-LARGEST_NUMBER, min(int(value), LARGEST_NUMBER))


def undo(value: object) -> None:
    """Free a decoded answer of which nothing is needed any more, piece by piece: Python frees all
    of it at once, with its lock held, a tenth of a second for a million values. Run it in a thread.
    """
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left.extend(inner for inner in each.values() if isinstance(inner, list | dict))
            each.clear()
        elif isinstance(each, list):
            left.extend(inner for inner in each if isinstance(inner, list | dict))
            each.clear()


def said_json(text: str) -> object:
    """A refusal's body as JSON, None for anything else."""
    try:
        return json.loads(text[:MAX_TEXT])
    except (ValueError, RecursionError):
        return None


def words_of(text: str) -> str:
    """The words of a fault: Nova and Neutron wrap them in one key, Placement in a list of errors as
    well; Glance answers with HTML.
    """
    told = said_json(text)
    if told is None:
        return " ".join(text.split())[:MAX_TOLD]
    inner = next(iter(told.values()), "") if isinstance(told, dict) else told
    if isinstance(inner, list) and inner:
        inner = inner[0]
    if isinstance(inner, dict):
        inner = inner.get("message") or inner.get("detail") or inner
    return str(inner)[:MAX_TOLD]


def judged(answer: Answered, call: str, *, said: Callable[[str], str]) -> Any:
    """The body of an answer, decoded, None for an empty one. `call` says who was asked for what;
    `said` finds the words in the body of a refusal. Raises `Gone` (404), `Conflict` (409),
    `Transient` (429), `HostUnreachable` (502 to 504, which those in between answer; or what is no
    JSON: someone else answers there), or `ProviderError`.
    """
    status = answer.status_code
    if status < 400:
        if answer.wrong:
            told = " ".join(answer.text[:MAX_TOLD].split())[:60]
            raise HostUnreachable(f"{call} was answered with no JSON: {told!r}")
        return answer.value
    message = f"{call} was refused with {status}: {said(answer.text)}"
    match status:
        case 404:
            raise Gone(message)
        case 409:
            raise Conflict(message)
        case 429:
            raise Transient(message, retry_after=answer.retry_after)
        case 502 | 503 | 504:
            raise HostUnreachable(message, status=status, retry_after=answer.retry_after)
        case _:
            raise ProviderError(message, status=status)
