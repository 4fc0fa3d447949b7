"""What all sections of a cluster file are, and their plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    Strict,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema

Item = TypeVar("Item")

MAX_ERRORS = 1000
"""Of a piece of the file, after which nothing more is looked for in it: pydantic makes each error
while no other thread runs, and an alias may repeat them 20,000 times.
"""
MAX_KEYS = 200
"""Of a section; those with most have some 40 that are known."""


class TooManyErrors(Exception):
    """A piece of the file has so many errors that they are not listed. No `ValueError`, which
    pydantic would collect, and go on.
    """


@dataclass(slots=True)
class Errors:
    """What pydantic found wrong in a piece of the file so far: its `context`."""

    found: int = 0


class Section(BaseModel):
    """A section of the file: unknown keys are refused, numbers are not made of strings."""

    model_config = ConfigDict(extra="forbid", strict=False, frozen=True)

    @model_validator(mode="wrap")
    @classmethod
    def _few_errors(
        cls, value: object, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo
    ) -> Self:
        errors = info.context if isinstance(info.context, Errors) else Errors()
        before = errors.found
        if isinstance(value, dict) and len(value) > MAX_KEYS:
            raise TooManyErrors
        try:
            return handler(value)
        except ValidationError as error:
            errors.found = before + error.error_count()
            if errors.found > MAX_ERRORS:
                raise TooManyErrors from None
            raise


def few(most: int) -> BeforeValidator:
    """A list or mapping of so many entries: pydantic counts those of a mapping when it has read
    all of them.
    """

    def check(value: object) -> object:
        if isinstance(value, list | dict) and len(value) > most:
            raise ValueError(f"expected at most {most} entries, got {len(value)}")
        return value

    return BeforeValidator(check)


def characters(value: object) -> Iterator[int]:
    """Of each value in one, as it is written, one for each that is not text: together what JSON
    makes of it, about, with aliases written out.
    """
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, dict):
            left += each.values()
            yield from map(len, map(str, each))
        yield len(each) if isinstance(each, str) else 1


def short(most: int) -> Callable[[object], object]:
    """A value that has at most so many characters."""

    def check(value: object) -> object:
        size = 0
        for each in characters(value):
            size += each
            if size > most:
                raise ValueError(f"expected at most {most} characters, with aliases written out")
        return value

    return check


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
