"""What all sections of a cluster file are, and their plain values."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler, Strict
from pydantic_core import CoreSchema

Item = TypeVar("Item")


class Section(BaseModel):
    """A section of the file: unknown keys are refused, numbers are not made of strings."""

    model_config = ConfigDict(extra="forbid", strict=False, frozen=True)


def shown(value: object) -> str:
    """A value as a message shows it: short."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, str) else str(value).lower()
    quote = text[-1] if isinstance(value, str) else ""
    return text if len(text) <= 60 else f"{text[:57]}…{quote}"


def parse_whole(value: object) -> object:
    """A whole number; text and truth are none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected a whole number, got {shown(value)}")
    return value


def parse_text(value: object) -> str:
    """Text; what YAML takes for a number is none."""
    if not isinstance(value, str):
        hint = ". Put it in quotes" if isinstance(value, bool | int | float) else ""
        raise ValueError(f"expected text, got {shown(value)}{hint}")
    return value


Whole = Annotated[int, BeforeValidator(parse_whole)]
Text = Annotated[str, BeforeValidator(parse_text)]
Number = Annotated[float, Strict()]
"""A number; text is none."""
Flag = Annotated[bool, Strict()]
"""True or false; text and numbers are neither, and YAML 1.2 takes `yes` and `on` for text."""


def no_items() -> list[Item]:
    """Of a list that a file does not give. For `list` itself, pydantic has Python parse a signature
    in text, for which it compiles the patterns of its tokenizer: 50 ms of each start.
    """
    return []


def listed(value: object) -> object:
    """A list; a name that stands alone is one of one."""
    return [value] if isinstance(value, str) else value


def each_once(values: list[str]) -> list[str]:
    """A list without duplicates."""
    seen = set[str]()
    for each in values:
        if each in seen:
            raise ValueError(f"expected each once, got {each!r} twice")
        seen.add(each)
    return values


class Unique:
    """JSON Schema of `each_once`."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> object:
        return {**handler(core), "uniqueItems": True}


class OneOrMore:
    """JSON Schema of a list for which its only item may stand alone."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> object:
        several = handler(core)
        return {"anyOf": [several["items"], several]}
