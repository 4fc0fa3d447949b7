"""Everything that nospoon raises on purpose.

    NospoonError                 something a person can act on; has a message and a hint
    ├── SpecError                the cluster file is wrong; carries every problem at once
    ├── PlanRefused              the plan asks for what cannot be; carries every reason at once
    ├── UsageError               the request itself is wrong (an unknown node, a bad argument)
    │   ├── NotFound             what was named does not exist, or is not the caller's
    │   └── TooLarge             a body or file is larger than is taken
    ├── Forbidden                the caller may not do this
    ├── Conflict                 another operation is in progress
    │   ├── Busy                 very much of the caller's is under way: try again later
    │   ├── QuotaUsed            a user has as much as one may have: give something back
    │   ├── Superseded           another daemon controls these hosts now: this one makes no changes
    │   └── Stale                what was agreed on has changed since: plan again
    ├── ProviderError            a connection could not do what was asked
    │   ├── Transient            the host takes no more calls now; try again later
    │   │   └── HostUnreachable  it does not answer
    │   ├── MissingTool          a program or package is not installed there
    │   ├── Unfetchable          the content of a URL is not available
    │   ├── OutOfSpace           a pool, quota, disk or cloud is full
    │   │   └── NoComputeHost    no computer of a cloud takes a machine of this shape now
    │   ├── NotOurs              the resource exists and has no nospoon tag
    │   └── Gone                 the resource existed and is gone
    └── OperationFailed          a plan was carried out in part, or not at all

A front end maps them with one table: `nospoon.api.errors` to HTTP statuses,
`nospoon.protocols.ipmi` to completion codes, `nospoon.cli.main` to exit codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MOST_REASONS = 200
"""Why a plan is refused, or what it skips: as many as problems of a file are reported."""


_UNWRITABLE = {code: f"\\u{code:04x}" for code in (0, *range(0xD800, 0xE000))}


def writable(text: str) -> str:
    """Words that others may have chosen, as every encoding and store takes them: PostgreSQL takes
    no U+0000, and JSON may say half of a surrogate pair, which is no character (RFC 8259 §8.2).
    """
    if text.isascii() and "\0" not in text:
        return text
    return text.translate(_UNWRITABLE)


class NospoonError(Exception):
    """Something went wrong that a person can act on."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        message = writable(message)
        super().__init__(message)
        self.message = message
        self.hint = writable(hint)

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return f"{self.message.rstrip('.')}. {self.hint}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a cluster file; line and column count from 1."""

    file: str
    line: int
    column: int
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}:{self.column}"
        path = f"{self.path}: " if self.path else ""
        return f"{where}: {path}{self.message}{'. ' + self.hint if self.hint else ''}"


class SpecError(NospoonError):
    """The cluster file is wrong in one or several places."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class NoCapacity(str):
    """A reason that can pass: hosts have too little left now, and have enough when others give back
    what they have there; or they are drained or unreachable.
    """

    __slots__ = ()


class PlanRefused(NospoonError):
    """These hosts cannot provide what the file asks for. The first 200 reasons are kept, and how
    many more there are.

    `passes`: all of them are want of capacity, which can pass.
    """

    def __init__(self, reasons: Sequence[str]) -> None:
        self.passes = bool(reasons) and all(isinstance(each, NoCapacity) for each in reasons)
        more = len(reasons) - MOST_REASONS
        if more > 1:  # a client is given that line with the others
            reasons = [*reasons[:MOST_REASONS], f"and {more} more"]
        super().__init__("\n".join(reasons))
        self.reasons = tuple(writable(str(each)) for each in reasons)


def refuse(reasons: Sequence[str]) -> None:
    """Raises `PlanRefused` for the reasons, if any."""
    if reasons:
        raise PlanRefused(reasons)


class UsageError(NospoonError):
    """The request itself is wrong."""


class NotFound(UsageError):
    """What was named does not exist, or does not belong to the caller."""


class TooLarge(UsageError):
    """A body is larger than is taken."""


class Forbidden(NospoonError):
    """The caller may not do this."""


class Conflict(NospoonError):
    """Another operation is in progress."""


class Busy(Conflict):
    """So much of the caller's is under way already; the same request works later."""


class QuotaUsed(Conflict):
    """A user has as much as one may have; the same request works when something is given back."""


class Superseded(Conflict):
    """Another daemon controls these hosts now; this one may do nothing more."""


class Stale(Conflict):
    """The plan is not what would be carried out now; a new one may be had at once."""


class ProviderError(NospoonError):
    """A connection could not do what was asked. `status`: of HTTP, by which it was refused; 0 for
    none.
    """

    def __init__(self, message: str, *, hint: str = "", status: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Transient(ProviderError):
    """The host takes no more calls now; the same request may work later.

    `retry_after`: in so many seconds, as the host says itself; None where it says nothing.
    """

    def __init__(
        self, message: str, *, hint: str = "", status: int = 0, retry_after: float | None = None
    ) -> None:
        super().__init__(message, hint=hint, status=status)
        self.retry_after = retry_after


class HostUnreachable(Transient):
    """The host does not answer; the same request may work later."""


class MissingTool(ProviderError):
    """A program or package is not installed on the host."""


class Obstacle(StrEnum):
    """What stands between us and what is at a URL."""

    UNREACHABLE = "unreachable"
    """No connection, or none that may be trusted."""
    UNAUTHORIZED = "unauthorized"
    MISSING = "missing"
    BROKEN = "broken"
    """There is an answer, and it is not all of what was asked for."""


class Unfetchable(ProviderError):
    """What a URL names is not available. `url`: without the account that it may hold."""

    def __init__(
        self, message: str, *, url: str = "", why: Obstacle = Obstacle.BROKEN, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.url, self.why = url, why


class OutOfSpace(ProviderError):
    """A pool, a quota, a disk or all hosts of a cloud are full; it can pass."""


class NoComputeHost(OutOfSpace):
    """A cloud finds no computer for a machine of this shape; it may for one of another."""


class NotOurs(ProviderError):
    """Something of that name exists and has no nospoon tag: it is left unchanged."""


class Gone(ProviderError):
    """The thing existed and does no more."""


class OperationFailed(NospoonError):
    """A plan was carried out in part, or not at all."""
