"""What an OpenStack service answers, and the error that each refusal is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nospoon.errors import Conflict, Gone, HostUnreachable, ProviderError

PATIENCE = 60.0
"""Seconds until somebody who says nothing is away; Ironic's API itself waits so long for its
conductor.
"""


def answered(adapter: Any, path: str, method: str, **how: Any) -> Any:
    """What an adapter of keystoneauth's is answered. A connection that was kept may be closed by
    the other end at any time: who only looks asks once more.
    """
    from keystoneauth1 import exceptions  # noqa: PLC0415  (an extra)

    try:
        return adapter.request(path, method, **how)
    except exceptions.ConnectFailure:
        if method != "GET":
            raise
        return adapter.request(path, method, **how)


def judged(answer: Any, call: str, *, said: Callable[[str], str]) -> Any:
    """The body of an answer, decoded, None for an empty one. `call` says who was asked for what;
    `said` finds the words in the body of a refusal. Raises `Gone` (404), `Conflict` (409),
    `HostUnreachable` (502 to 504, which those in between answer; or what is no JSON: somebody else
    answers there), or `ProviderError`.
    """
    status = answer.status_code
    if status < 400:
        return _body(answer, call) if answer.text else None
    message = f"{call} was refused with {status}: {said(answer.text)}"
    match status:
        case 404:
            raise Gone(message)
        case 409:
            raise Conflict(message)
        case 502 | 503 | 504:
            raise HostUnreachable(message)
        case _:
            raise ProviderError(message)


def _body(answer: Any, call: str) -> Any:
    try:
        return answer.json()
    except ValueError as error:
        told = " ".join(answer.text.split())[:60]
        raise HostUnreachable(f"{call} was answered with no JSON: {told!r}") from error
