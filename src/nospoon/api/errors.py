"""Errors on the wire: one table, read by the server one way and by the client the other."""

from __future__ import annotations

from nospoon import errors
from nospoon.errors import NospoonError, PlanRefused, Problem, SpecError

STATUSES: tuple[tuple[type[NospoonError], int], ...] = (
    (errors.SpecError, 422),
    (errors.PlanRefused, 422),
    (errors.NotFound, 404),
    (errors.TooLarge, 413),
    (errors.UsageError, 400),
    (errors.Forbidden, 403),
    (errors.Busy, 503),
    (errors.Conflict, 409),
    (errors.HostUnreachable, 503),
    (errors.Transient, 503),
    (errors.OutOfSpace, 507),
    (errors.ProviderError, 502),
    (errors.NospoonError, 500),
)


def status_of(error: NospoonError) -> int:
    """The HTTP status of an error: that of its nearest class in the table."""
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def encode(error: NospoonError) -> dict[str, object]:
    """{"error": {"type", "message", "hint", "problems"?, "reasons"?}}."""
    body: dict[str, object] = {
        "type": type(error).__name__,
        "message": error.message,
        "hint": error.hint,
    }
    if isinstance(error, SpecError):
        body["problems"] = [
            {name: getattr(problem, name) for name in Problem.__slots__}
            for problem in error.problems
        ]
    if isinstance(error, PlanRefused):
        body["reasons"] = list(error.reasons)
    return {"error": body}


def decode(body: object) -> NospoonError:
    """The error that a server encoded."""
    said = body.get("error", {}) if isinstance(body, dict) else {}
    kind = getattr(errors, str(said.get("type", "")), None)
    if kind is SpecError:
        return SpecError([Problem(**problem) for problem in said.get("problems", [])])
    if kind is PlanRefused:
        return PlanRefused(said.get("reasons", []))
    if isinstance(kind, type) and issubclass(kind, NospoonError):
        return kind(said.get("message", ""), hint=said.get("hint", ""))
    return NospoonError(said.get("message") or "the daemon answered without saying what is wrong")
