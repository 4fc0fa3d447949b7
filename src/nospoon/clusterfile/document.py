"""YAML text -> plain values, and from a path back to its line and column.

PyYAML's C scanner does the reading; what a plain scalar means is decided here, by the YAML 1.2
core schema (yaml.org/spec/1.2.2 §10.3.2). PyYAML's own YAML 1.1 rules turn some MAC addresses
into integers (sexagesimal) and `on` into true. Duplicate keys are refused (§3.2.1.3: keys are
unique), `<<` has no meaning, and a document that grows by aliases beyond reason is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from nospoon.clusterfile.compose import MAX_DEPTH, BoundError, compose
from nospoon.clusterfile.syntax import TEMPLATE_HINT, syntax_problem
from nospoon.errors import Problem, SpecError
from nospoon.model.visible import visible_line

MAX_VALUES = 2_000_000
"""Values a file may hold with its aliases written out; 10,000 nodes in full are some 300,000."""

MAX_PROBLEMS = 200
"""Problems of a file after which the rest of it is not read: to find and word each takes time."""

MAX_KEY = 100
"""Characters of a key in the path of a problem: an alias may repeat a long one."""

TOO_DEEP = f"lists and mappings nested more than {MAX_DEPTH} deep"

Plain = str | int | float | bool | None
Value = Plain | list["Value"] | dict[str, "Value"]
Path = tuple[str | int, ...]

_SCALARS: tuple[tuple[re.Pattern[str], Callable[[str], Plain]], ...] = (
    (re.compile(r"(?:null|Null|NULL|~|)\Z"), lambda _: None),
    (re.compile(r"(?:true|True|TRUE)\Z"), lambda _: True),
    (re.compile(r"(?:false|False|FALSE)\Z"), lambda _: False),
    (re.compile(r"[-+]?[0-9]{1,100}\Z"), int),
    (re.compile(r"0o[0-7]{1,100}\Z"), lambda text: int(text, 0)),
    (re.compile(r"0x[0-9a-fA-F]{1,100}\Z"), lambda text: int(text, 0)),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"), float),
)
_YAML_TAG = "tag:yaml.org,2002:"
_TAG_HINT = "Tags have no meaning here: write the value itself, and text in quotes"

_MERGE_HINT = "Write what nodes have in common as a flavor"

_MAYBE_NOT_TEXT = frozenset("nN~tTfF+-.0123456789")


class _Built(NamedTuple):
    """A node's value, how many values it holds, and how many levels with aliases written out."""

    value: Value
    size: int
    height: int


def _around(value: Value, parts: Iterable[_Built]) -> _Built:
    sizes = [(part.size, part.height) for part in parts]
    size, height = 1 + sum(each for each, _ in sizes), 1 + max((h for _, h in sizes), default=0)
    return _Built(value, size, height)


class Document:
    """A parsed file: its value, and where each part of it stands."""

    freed_in_parts = True
    """By `nospoon.runtime.freeing`: it may have 600,000 values."""

    def __init__(self, text: str, file: str) -> None:
        self.file, self._text = file, text
        self.problems: list[Problem] = []
        self._root = self._compose(text)
        self._built: dict[int, _Built] = {}
        self._keys: dict[int, dict[str, tuple[Node, Node]]] = {}
        self._open: set[int] = set()
        self._is_template = False
        self.value: Value = self._build(self._root, ()).value if self._root is not None else {}
        if self._is_template:  # more is wrong with what is in its place, and says nothing
            raise SpecError(self.problems)

    def problem(self, path: Path, message: str, hint: str = "", *, at_key: bool = False) -> Problem:
        """A problem at this path, or at its nearest enclosing part that is in the file."""
        line, column = self.locate(path, at_key=at_key)
        return Problem(self.file, line, column, dotted(path), message, hint)

    def locate(self, path: Path, *, at_key: bool = False) -> tuple[int, int]:
        """Line and column, from 1, of the value (or the key) at a path."""
        node: Node | None = self._root
        key: Node | None = None
        for part in path:
            found = self._child(node, part)
            if found is None:
                continue
            key, node = found
        chosen = key if at_key and key is not None else node
        if chosen is None:
            return 1, 1
        return chosen.start_mark.line + 1, chosen.start_mark.column + 1

    def has(self, path: Path) -> bool:
        """Whether all of a path is in the file."""
        node: Node | None = self._root
        for part in path:
            found = self._child(node, part)
            if found is None:
                return False
            node = found[1]
        return True

    def place_of(self, value: str) -> str:
        """FILE:LINE:COLUMN of the first text that is this value; the file where there is none."""
        found = min(_marks(self._root, value, set()), default=None)
        return self.file if found is None else f"{self.file}:{found[0] + 1}:{found[1] + 1}"

    def replaced(self, path: Path, by: str) -> str:
        """The text with what stands at a path replaced."""
        node: Node | None = self._root
        for part in path:
            found = self._child(node, part)
            node = found[1] if found is not None else node
        assert node is not None, "a path that is in the file"
        start, end = node.start_mark.index, node.end_mark.index
        end -= len(self._text[start:end]) - len(self._text[start:end].rstrip())  # of blocks
        return self._text[:start] + by + self._text[end:]

    def _child(self, node: Node | None, part: str | int) -> tuple[Node | None, Node] | None:
        if isinstance(node, MappingNode):
            if id(node) not in self._keys:
                pairs = reversed(node.value)
                self._keys[id(node)] = {
                    key.value: (key, value) for key, value in pairs if isinstance(key, ScalarNode)
                }
            return self._keys[id(node)].get(part) if isinstance(part, str) else None
        if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
            return None, node.value[part]
        return None

    def _compose(self, text: str) -> Node | None:
        try:
            return compose(text)
        except BoundError as error:
            problem = Problem(self.file, error.line, error.column, "", str(error))
            raise SpecError([problem]) from error
        except yaml.YAMLError as error:
            raise SpecError([syntax_problem(error, text, self.file)]) from error

    def _build(self, node: Node, path: Path) -> _Built:
        known = self._built.get(id(node))
        if len(path) + (known.height if known is not None else 0) > MAX_DEPTH:
            raise SpecError([self.problem(path[:MAX_DEPTH], TOO_DEEP)])
        if known is not None:
            return known
        if id(node) in self._open:
            raise SpecError([self.problem(path, "an alias that contains itself")])
        self._open.add(id(node))
        built = self._construct(node, path)
        self._open.discard(id(node))
        if built.size > MAX_VALUES:
            raise SpecError([self.problem(path, f"more than {MAX_VALUES} values, through aliases")])
        if not isinstance(node, ScalarNode):
            self._built[id(node)] = built
        return built

    def _construct(self, node: Node, path: Path) -> _Built:
        self._refuse_tag(node, path)
        if isinstance(node, ScalarNode):
            return _Built(self._scalar(node), 1, 0)
        if isinstance(node, SequenceNode):
            built = [self._build(item, (*path, index)) for index, item in enumerate(node.value)]
            return _around([each.value for each in built], built)
        assert isinstance(node, MappingNode)
        return self._mapping(node, path)

    def _mapping(self, node: MappingNode, path: Path) -> _Built:
        result: dict[str, Value] = {}
        parts: list[_Built] = []
        for key_node, value_node in node.value:
            name = key_node.value if isinstance(key_node, ScalarNode) else None
            if name is None:
                message = "expected a plain key, got a list or mapping"
                rendered = not self._text.startswith("{{", node.start_mark.index)
                self._refuse(key_node, path, message, "" if rendered else TEMPLATE_HINT)
                self._is_template = self._is_template or not rendered
                continue
            if name == "<<" and not key_node.style:
                self._refuse(key_node, path, "YAML 1.2 has no merge keys (`<<`)", _MERGE_HINT)
                continue
            if name in result:
                first = self.locate((*path, name), at_key=True)[0]
                self._refuse(
                    key_node,
                    (*path, name),
                    f"duplicate key {name[:MAX_KEY]!r}",
                    f"First used on line {first}.",
                )
                continue
            self._refuse_tag(key_node, path)
            parts.append(self._build(value_node, (*path, name)))
            result[name] = parts[-1].value
        return _around(result, parts)

    def _scalar(self, node: ScalarNode) -> Plain:
        text: str = node.value
        return text if node.style else resolve(text)

    def _refuse_tag(self, node: Node, path: Path) -> None:
        if node.tag is not None:
            self._refuse(node, path, f"unknown tag {_as_written(node.tag)!r}", _TAG_HINT)

    def _refuse(self, node: Node, path: Path, message: str, hint: str = "") -> None:
        mark = node.start_mark
        self.problems.append(
            Problem(self.file, mark.line + 1, mark.column + 1, dotted(path), message, hint)
        )
        if len(self.problems) > MAX_PROBLEMS:
            raise SpecError(self.problems)


def resolve(text: str) -> Plain:
    """What a plain scalar means under the YAML 1.2 core schema."""
    if text and text[0] not in _MAYBE_NOT_TEXT:
        return text
    for pattern, convert in _SCALARS:
        if pattern.match(text):
            return convert(text)
    return text


def dotted(path: Path) -> str:
    """('nodes', 0, 'cpus') -> 'nodes[0].cpus'."""
    return "".join(_segments(path)).removeprefix(".")


def _segments(path: Path) -> Iterator[str]:
    for part in path:
        yield f"[{part}]" if isinstance(part, int) else f".{visible_line(part[:MAX_KEY])}"


def _as_written(tag: str) -> str:
    """Of a tag that PyYAML has resolved: `!!str` for tag:yaml.org,2002:str."""
    return f"!!{tag.removeprefix(_YAML_TAG)}" if tag.startswith(_YAML_TAG) else tag


def _marks(node: Node | None, value: str, seen: set[int]) -> Iterator[tuple[int, int]]:
    """Line and column, from 0, of each scalar of this value; what aliases repeat counts once."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, ScalarNode):
        if node.value == value:
            yield node.start_mark.line, node.start_mark.column
        return
    for part in node.value:
        for each in part if isinstance(part, tuple) else (part,):
            yield from _marks(each, value, seen)


def as_sequence(value: Value) -> Sequence[Value]:
    """The value when it is a list, else nothing: for checks that go on after an error."""
    return value if isinstance(value, list) else ()
