"""What an OpenStack service answers, and the error that each refusal is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nospoon.errors import Conflict, Gone, HostUnreachable, ProviderError


def judged(answer: Any, call: str, *, said: Callable[[str], str]) -> Any:
    """The body of an answer, decoded, None for an empty one. `call` says who was asked for what;
    `said` finds the words in the body of a refusal. Raises `Gone` (404), `Conflict` (409),
    `HostUnreachable` (502 to 504, which those in between answer), or `ProviderError`.
    """
    status = answer.status_code
    if status < 400:
        return answer.json() if answer.text else None
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
