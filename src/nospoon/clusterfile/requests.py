"""Requests of lab schedulers: XML as Beaker's users write it -> elements with their places.

It is read by expat, without document types, entities and networks, and bounded in size, depth and
number of elements.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from xml.parsers import expat

from nospoon.errors import Problem, SpecError
from nospoon.lab import recipe
from nospoon.lab.element import Element
from nospoon.lab.recipe import Recipe, recipes

MOST_BYTES = 10 << 20
MOST_DEPTH = 64
MOST_ELEMENTS = 100_000
MOST_ATTRIBUTES = 32
MOST_PROBLEMS = 100
WITHOUT_TEXT = frozenset({"job", "recipeSet", "recipe"})
"""Elements in which text means nothing and is refused, as it is in all of a filter."""


@dataclass(slots=True)
class _Open:
    """An element whose end was not read yet."""

    name: str
    namespace: str
    line: int
    column: int
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)

    def closed(self) -> Element:
        return Element(
            self.name,
            self.name,
            self.line,
            self.column,
            self.attributes,
            tuple(self.children),
            self.namespace,
        )


def read_request(data: bytes, *, file: str) -> list[Recipe]:
    """Recipes of a job, recipe set, recipe or `hostRequires`. Raises `SpecError` with all that is
    wrong in it.
    """
    root = read_element(data, file=file)
    problems = []
    for each in recipe.wrong(root):
        problems.append(
            Problem(file, each.at.line, each.at.column, each.at.path, each.message, each.hint)
        )
        if len(problems) == MOST_PROBLEMS:
            break
    if problems:
        raise SpecError(sorted(problems, key=lambda each: (each.line, each.column)))
    return recipes(root)


def read_element(data: bytes, *, file: str) -> Element:
    """The root of a document. Raises `SpecError`."""
    if len(data) > MOST_BYTES:
        problem = Problem(file, 1, 1, "", f"expected at most {MOST_BYTES >> 20} MiB of XML")
        raise SpecError([problem])
    return _Reader(file).read(data)


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._open: list[_Open] = []
        self._count = 0
        self._root: Element | None = None

    def read(self, data: bytes) -> Element:
        try:
            self._parser.Parse(data, True)  # noqa: FBT003  (the last part)
        except expat.ExpatError as error:
            message = f"not XML: {expat.ErrorString(error.code)}"
            raise self._wrong(message, at=(error.lineno, error.offset + 1)) from error
        assert self._root is not None, "expat refuses a document without an element"
        return self._root

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MOST_ELEMENTS:
            raise self._wrong(f"expected at most {MOST_ELEMENTS} elements")
        if len(self._open) == MOST_DEPTH:
            raise self._wrong(f"expected at most {MOST_DEPTH} levels of elements")
        if len(attributes) > MOST_ATTRIBUTES:
            raise self._wrong(f"expected at most {MOST_ATTRIBUTES} attributes")
        namespace, _, local = name.rpartition(" ")
        line, column = self._place()
        self._open.append(_Open(local, namespace, line, column, attributes))

    def _end(self, name: str) -> None:
        del name
        element = self._open.pop().closed()
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = _placed(element, element.name)

    def _text(self, text: str) -> None:
        within = self._open[-1].name if self._open else ""
        of_filter = any(each.name == recipe.REQUIRES for each in self._open)
        if text.strip() and (of_filter or within in WITHOUT_TEXT):
            raise self._wrong(f"expected elements in <{within}>, got text {text.strip()[:40]!r}")

    def _refuse_doctype(self, *_: object) -> None:
        raise self._wrong("expected no document type: entities are not read", hint="Drop it.")

    def _place(self) -> tuple[int, int]:
        return self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber + 1

    def _wrong(
        self, message: str, *, at: tuple[int, int] | None = None, hint: str = ""
    ) -> SpecError:
        line, column = at or self._place()
        return SpecError([Problem(self._file, line, column, "", message, hint)])


def _placed(element: Element, path: str) -> Element:
    """With the paths of all that is in it."""
    several = {
        name for name, count in Counter(e.name for e in element.children).items() if count > 1
    }
    numbers = Counter[str]()
    children = []
    for child in element.children:
        numbers[child.name] += 1
        number = f"[{numbers[child.name]}]" if child.name in several else ""
        children.append(_placed(child, f"{path}/{child.name}{number}"))
    return replace(element, path=path, children=tuple(children))
