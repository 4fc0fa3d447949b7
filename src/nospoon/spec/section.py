"""What all sections of a cluster file are, and their plain values."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Section(BaseModel):
    """A section of the file: unknown keys are refused, numbers are not made of strings."""

    model_config = ConfigDict(extra="forbid", strict=False, frozen=True)


def parse_whole(value: Any) -> Any:
    """A whole number; text and truth are none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected a whole number, got {value!r}")
    return value


def parse_text(value: Any) -> Any:
    """Text; what YAML takes for a number is none."""
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {value!r}. Put it in quotes")
    return value


Whole = Annotated[int, BeforeValidator(parse_whole)]
Text = Annotated[str, BeforeValidator(parse_text)]
