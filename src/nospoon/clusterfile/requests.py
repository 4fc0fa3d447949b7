"""Requests of lab schedulers: XML as Beaker's users write it -> elements with their places.

It is read by expat, without document types, entities and networks, and bounded in size, depth and
number of elements.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from xml.parsers import expat

from nospoon.clusterfile.section import shown
from nospoon.errors import Problem, SpecError
from nospoon.lab import asked, recipe
from nospoon.lab.asked import AskedSet, asked_sets
from nospoon.lab.element import Element
from nospoon.lab.grammar import BARE
from nospoon.lab.recipe import Recipe

MOST_BYTES = 10 << 20
MOST_DEPTH = 64
MOST_ELEMENTS = 100_000
MOST_ATTRIBUTES = 32
MOST_VALUE = 4096
"""Characters of an attribute: each machine of a lab is compared with it."""
MOST_NAME = 255
"""Characters of the name of an element, with its namespace, and of an attribute."""
MOST_PATHS = 32 << 20
"""Characters of the paths of all elements: each has those of the elements that it is in."""
MOST_PROBLEMS = 100
MOST_TOKEN = 128 << 10
"""Bytes of a start tag or comment: expat reads one at a time, in which no other thread runs."""
PIECE = 64 << 10
"""Bytes that expat reads at a time: other threads run in between."""
MOST_VALUES = 150_000
"""Values of JSON that are decoded at once: 40 ms, in which no other thread runs."""
BETWEEN = (b",", b"[", b"{")
"""Each value of a JSON text comes after one of these, or begins with it."""
ENCODINGS = frozenset({"utf-8", "utf-16", "iso-8859-1", "us-ascii"})
"""That expat reads itself (XML_ParserCreate). Python's codecs for others raise errors of their own
in the middle of its work, or read text as none does.
"""
KICKSTART = "kickstart"
WITH_TEXT = frozenset({KICKSTART, "whiteboard"})
"""Elements whose text is kept."""
ROOTS = ("job", recipe.SET, recipe.RECIPE, recipe.REQUIRES)
ATTRIBUTES = frozenset(
    {
        "op",
        "value",
        "units",
        "key",
        "force",
        "priority",
        "whiteboard",
        "kernel_options",
        "role",
        "panic",
        "duration",
        "owner",
        "vendor_id",
        "device_id",
        "bus",
        "driver",
        "type",
        "description",
        "subsys_vendor_id",
        "subsys_device_id",
    }
)
"""Keys of JSON that are attributes where their element is an object."""
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
    text: list[str] = field(default_factory=list)

    def closed(self) -> Element:
        return Element(
            self.name,
            self.name,
            self.line,
            self.column,
            self.attributes,
            tuple(self.children),
            self.namespace,
            "".join(self.text),
        )


def read_request(data: bytes, *, file: str) -> list[Recipe]:
    """Recipes of a job, recipe set, recipe or `hostRequires`. Raises `SpecError` with all that is
    wrong in it.
    """
    return [each for found in read_asked(data, file=file) for each in found.recipes]


def read_asked(data: bytes, *, file: str) -> list[AskedSet]:
    """Recipe sets of a request in XML, or in JSON (`read_json`), which begins with a brace. Raises
    `SpecError` with all that is wrong in it.
    """
    if data.lstrip()[:1] == b"{":
        root = read_json(data, file=file)
    else:
        root = read_element(data, file=file)
    problems = list(islice(_problems(root, file), MOST_PROBLEMS))
    if problems:
        raise SpecError(sorted(problems, key=lambda each: (each.line, each.column)))
    return asked_sets(root)


def _problems(root: Element, file: str) -> Iterator[Problem]:
    for each in chain(recipe.wrong(root), asked.wrong(root)):
        at = each.at
        yield Problem(file, at.line, at.column, at.path, each.message, each.hint)


def read_element(data: bytes, *, file: str) -> Element:
    """The root of a document. Raises `SpecError`."""
    if len(data) > MOST_BYTES:
        problem = Problem(file, 1, 1, "", f"expected at most {MOST_BYTES >> 20} MiB of XML")
        raise SpecError([problem])
    return _Reader(file).read(data)


def read_json(data: bytes, *, file: str) -> Element:
    """The same elements in JSON: an object's keys are names of elements, its texts and numbers are
    attributes where the element's value is an object, and `value` where they stand alone. A list is
    several elements of one name, or in a filter's and, or, not the elements in it. Raises
    `SpecError`.
    """
    if len(data) > MOST_BYTES:
        raise SpecError([Problem(file, 1, 1, "", f"expected at most {MOST_BYTES >> 20} MiB")])
    # commas in kickstarts are counted too: texts may have some
    if sum(data.count(each) for each in BETWEEN) > MOST_VALUES:
        message = f"expected at most {MOST_VALUES} commas, brackets and braces; write it in XML"
        raise SpecError([Problem(file, 1, 1, "", message)])
    try:
        value = json.loads(data, object_pairs_hook=_each_once)
    except _Twice as error:
        key = ascii(error.key[:40])[1:-1]
        message = f"expected each key of an object once, got {key!r} twice"
        hint = "A list has several elements of one name: [{…}, {…}]."
        raise SpecError([Problem(file, 1, 1, "", message, hint)]) from error
    except json.JSONDecodeError as error:
        raise SpecError([Problem(file, error.lineno, error.colno, "", "not JSON")]) from error
    except (RecursionError, ValueError) as error:
        raise SpecError([Problem(file, 1, 1, "", "not JSON that can be read")]) from error
    names = [key for key in value if key in ROOTS] if isinstance(value, dict) else []
    if len(names) != 1 or len(value) != 1:
        message = f"expected an object with one of {', '.join(ROOTS)}, and nothing else"
        raise SpecError([Problem(file, 1, 1, "", message)])
    return _JsonReader(file).read(names[0], value[names[0]])


@dataclass
class _Twice(Exception):
    key: str


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Python's reader keeps the last of several (RFC 8259 §4), and would pass over the others."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice(next(key for key, count in Counter(k for k, _ in pairs).items() if count > 1))
    return found


class _JsonReader:
    def __init__(self, file: str) -> None:
        self._file, self._count = file, 0

    def read(self, name: str, value: object) -> Element:
        return _Paths(self._file).placed(self._element(name, value, 1), name)

    def _element(self, name: str, value: object, depth: int) -> Element:
        self._count += 1
        self._text("", name, MOST_NAME)
        if self._count > MOST_ELEMENTS or depth > MOST_DEPTH:
            message = f"expected at most {MOST_ELEMENTS} elements and {MOST_DEPTH} levels of them"
            raise SpecError([Problem(self._file, 1, 1, name, message)])
        if isinstance(value, str | int | float) or value is None:
            return self._of_value(name, value)
        if isinstance(value, list):
            children = [child for part in value for child in self._parts(part, depth + 1)]
            return Element(name, name, 1, 1, {}, tuple(children))
        assert isinstance(value, dict), "JSON has nothing else"
        attributes, inner, text = {}, [], ""
        for key, each in value.items():
            named = key in ATTRIBUTES or key in BARE.get(name, ())
            if named and not isinstance(each, dict | list):
                attributes[key] = self._text(key, _written(each), MOST_VALUE)
            elif key == "text" and name == KICKSTART and isinstance(each, str):
                text = self._text(key, each, MOST_BYTES)
            else:
                inner += list(self._parts({key: each}, depth + 1))
        return Element(name, name, 1, 1, attributes, tuple(inner), text=text)

    def _of_value(self, name: str, value: object) -> Element:
        if name in WITH_TEXT and isinstance(value, str):
            return Element(name, name, 1, 1, text=self._text(name, value, MOST_BYTES))
        attributes = {}
        if value is not None:
            attributes["value"] = self._text(name, _written(value), MOST_VALUE)
        return Element(name, name, 1, 1, attributes)

    def _parts(self, part: object, depth: int) -> Iterator[Element]:
        if not isinstance(part, dict):
            message = f"expected an object, got {shown(part)}"
            raise SpecError([Problem(self._file, 1, 1, "", message)])
        for name, value in part.items():
            self._text("", name, MOST_NAME)
            several = name in (recipe.SET, recipe.RECIPE) and isinstance(value, list)
            for each in value if several else [value]:
                yield self._element(name, each, depth)

    def _text(self, name: str, text: str, most: int) -> str:
        """What can be written: JSON may escape half of a surrogate pair, which is no character (RFC
        8259 §8.2), and PostgreSQL takes no U+0000.
        """
        if len(text) > most:
            raise self._wrong(name, f"expected at most {most} characters")
        if not _UNWRITABLE.isdisjoint(text) or not _is_text(text):
            raise self._wrong(name, "expected text without U+0000 and halves of surrogate pairs")
        return text

    def _wrong(self, name: str, message: str) -> SpecError:
        return SpecError([Problem(self._file, 1, 1, ascii(name[:40])[1:-1], message)])


_UNWRITABLE = frozenset("\0")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Reader:
    def __init__(self, file: str) -> None:
        self._file = file
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.buffer_text = True  # else each line of a text is a call
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.XmlDeclHandler = self._look_at_encoding
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._open: list[_Open] = []
        self._count = 0
        self._root: Element | None = None

    def read(self, data: bytes) -> Element:
        try:
            for at in range(0, len(data), PIECE):
                self._parser.Parse(data[at : at + PIECE], False)  # noqa: FBT003  (not the last)
                if at + PIECE - self._parser.CurrentByteIndex > MOST_TOKEN:
                    raise self._wrong(f"expected tags and comments of {MOST_TOKEN} bytes at most")
            self._parser.Parse(b"", True)  # noqa: FBT003  (the last part)
        except expat.ExpatError as error:
            message = f"not XML: {expat.ErrorString(error.code)}"
            raise self._wrong(message, at=(error.lineno, error.offset + 1)) from error
        finally:
            self._let_go()
        assert self._root is not None, "expat refuses a document without an element"
        return self._root

    def _let_go(self) -> None:
        """Parser and reader have each other: what was read would stay until all is collected."""
        self._parser.StartElementHandler = self._parser.EndElementHandler = None
        self._parser.CharacterDataHandler = self._parser.XmlDeclHandler = None
        self._parser.StartDoctypeDeclHandler = None

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MOST_ELEMENTS:
            raise self._wrong(f"expected at most {MOST_ELEMENTS} elements")
        if len(self._open) == MOST_DEPTH:
            raise self._wrong(f"expected at most {MOST_DEPTH} levels of elements")
        if len(attributes) > MOST_ATTRIBUTES:
            raise self._wrong(f"expected at most {MOST_ATTRIBUTES} attributes")
        if max(map(len, (name, *attributes))) > MOST_NAME:
            raise self._wrong(f"expected names of at most {MOST_NAME} characters")
        if long := next((each for each, text in attributes.items() if len(text) > MOST_VALUE), ""):
            raise self._wrong(f"{long[:40]}: expected at most {MOST_VALUE} characters")
        namespace, _, local = name.rpartition(" ")
        line, column = self._place()
        self._open.append(_Open(local, namespace, line, column, attributes))

    def _end(self, name: str) -> None:
        del name
        element = self._open.pop().closed()
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = _Paths(self._file).placed(element, element.name)

    def _text(self, text: str) -> None:
        within = self._open[-1].name if self._open else ""
        of_filter = any(each.name == recipe.REQUIRES for each in self._open)
        if text.strip() and (of_filter or within in WITHOUT_TEXT):
            raise self._wrong(f"expected elements in <{within}>, got text {text.strip()[:40]!r}")
        if within in WITH_TEXT:
            self._open[-1].text.append(text)

    def _look_at_encoding(self, _version: str, encoding: str | None, _standalone: int) -> None:
        if encoding is not None and encoding.lower() not in ENCODINGS:
            message = f"expected an encoding of {', '.join(sorted(ENCODINGS))}"
            raise self._wrong(f"{message}, got {encoding[:40]!r}", hint="Write it in UTF-8.")

    def _refuse_doctype(self, *_: object) -> None:
        raise self._wrong("expected no document type: entities are not read", hint="Drop it.")

    def _place(self) -> tuple[int, int]:
        return self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber + 1

    def _wrong(
        self, message: str, *, at: tuple[int, int] | None = None, hint: str = ""
    ) -> SpecError:
        line, column = at or self._place()
        return SpecError([Problem(self._file, line, column, "", message, hint)])


@dataclass(slots=True)
class _Paths:
    """Of elements. `left`: characters that further ones may have."""

    file: str
    left: int = MOST_PATHS

    def placed(self, element: Element, path: str) -> Element:
        """With the paths of all that is in it. Raises `SpecError`."""
        self.left -= len(path)
        if self.left < 0:
            message = "expected fewer elements in others, or shorter names of them"
            problem = Problem(self.file, element.line, element.column, path, message)
            raise SpecError([problem])
        counts = Counter(each.name for each in element.children)
        numbers = Counter[str]()
        children = []
        for child in element.children:
            numbers[child.name] += 1
            number = f"[{numbers[child.name]}]" if counts[child.name] > 1 else ""
            children.append(self.placed(child, f"{path}/{child.name}{number}"))
        return replace(element, path=path, children=tuple(children))
