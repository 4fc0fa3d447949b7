"""Answers for FastAPI, made of what `nospoon.model.rest` and others have as dataclasses."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


def record(answer: object) -> dict[str, object]:
    """A dataclass, with all that is in it, as JSON has it."""
    found: dict[str, object] = msgspec.to_builtins(answer)
    return found


def records(answers: Iterable[object]) -> list[dict[str, object]]:
    return [record(each) for each in answers]


def answered(model: object, *, status: int = 200) -> dict[int | str, dict[str, object]]:
    """What OpenAPI has of an answer: FastAPI compares none with it, which costs time for each."""
    return {status: {"model": model}}
