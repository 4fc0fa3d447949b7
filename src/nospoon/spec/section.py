"""What all sections of a cluster file are, and their plain values."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema


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


def listed(value: Any) -> Any:
    """A list; a name that stands alone is one of one."""
    return [value] if isinstance(value, str) else value


class OneOrMore:
    """JSON Schema of a list for which its only item may stand alone."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        several = handler(core)
        return {"anyOf": [several["items"], several]}
