"""YAML events -> nodes, with bounds on depth and size before anything is built.

PyYAML's own composer is recursive C: nested brackets overflow its stack, and it lets no other
thread run until it has ended. This one is a loop over the parser's events, so the daemon's other
threads have their turns, and what is too deep or too large ends it at once, with its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import yaml
from yaml.composer import ComposerError
from yaml.error import Mark
from yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

MAX_DEPTH = 64
"""Levels of lists and mappings; a cluster file has some 8."""
PIECE = 16 << 10
"""Characters that the parser is given at a time: other threads run in between."""
BREAKS = "\n\r\x85\u2028\u2029"
"""Where lines end for the parser (YAML 1.1 §4.1.4)."""
TAG_DIRECTIVE = "%TAG"
MAX_TEXT = 1 << 20
"""Characters of one value, which what looks at it goes through while no other thread runs."""
MAX_NODES = 600_000
"""Values and aliases that a document has as it is written; 20,000 nodes in full are that many."""


class BoundError(Exception):
    """A document is too deep or too large, or would be. `line` and `column` from 1."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line, self.column = line, column

    @classmethod
    def at(cls, event: Event, message: str) -> BoundError:
        mark = _mark(event.start_mark)
        return cls(message, mark.line + 1, mark.column + 1)


@dataclass(slots=True)
class _Composing:
    """`most`: nodes that there may be; `open`: lists and mappings that are not ended; `keys`: of
    each, the key that waits.
    """

    most: int
    root: Node | None = None
    open: list[Node] = field(default_factory=list)
    keys: list[Node | None] = field(default_factory=list)
    anchors: dict[str, Node] = field(default_factory=dict)
    documents: int = 0
    nodes: int = 0

    def take(self, event: object) -> None:
        if isinstance(event, AliasEvent | ScalarEvent | CollectionStartEvent):
            self._take_node(event)
        elif isinstance(event, SequenceEndEvent | MappingEndEvent):
            ended = self.open.pop()
            self.keys.pop()
            ended.end_mark = event.end_mark
        elif isinstance(event, DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise _wrong("expected a single document, but found another one", event)

    def _take_node(self, event: AliasEvent | ScalarEvent | CollectionStartEvent) -> None:
        self.nodes += 1
        if self.nodes > self.most:
            raise BoundError.at(event, f"more than {self.most} values")
        if isinstance(event, AliasEvent):
            self._attach(self._known(event))
            return
        if isinstance(event, ScalarEvent) and len(event.value) > MAX_TEXT:
            raise BoundError.at(event, f"a value of more than {MAX_TEXT} characters")
        node = _node_of(event)
        self._name(event, node)
        self._attach(node)
        if not isinstance(event, ScalarEvent):
            self.open.append(node)
            self.keys.append(None)
            if len(self.open) > MAX_DEPTH:
                said = f"lists and mappings nested more than {MAX_DEPTH} deep"
                raise BoundError.at(event, said)

    def _known(self, event: AliasEvent) -> Node:
        node = self.anchors.get(event.anchor or "")
        if node is None:
            raise _wrong(f"found undefined alias {event.anchor!r}", event)
        return node

    def _name(self, event: NodeEvent, node: Node) -> None:
        if event.anchor is None:
            return
        if event.anchor in self.anchors:
            raise _wrong(f"found duplicate anchor {event.anchor!r}", event)
        self.anchors[event.anchor] = node

    def _attach(self, node: Node) -> None:
        """To the list or mapping in which it stands: keys and values take turns in the latter."""
        if not self.open:
            self.root = node
        elif isinstance(self.open[-1], SequenceNode):
            self.open[-1].value.append(node)
        elif (key := self.keys[-1]) is None:
            self.keys[-1] = node
        else:
            self.open[-1].value.append((key, node))
            self.keys[-1] = None


def _wrong(said: str, event: Event) -> ComposerError:
    return ComposerError(None, None, said, _mark(event.start_mark))


def _mark(mark: object) -> Mark:
    """That of the parser in C, which has what Python's has."""
    return cast("Mark", mark)


def _node_of(event: ScalarEvent | CollectionStartEvent) -> Node:
    """With the tag that is written there, None for none: what a value is, is decided later."""
    start, end, tag = _mark(event.start_mark), _mark(event.end_mark), cast("str", event.tag)
    if isinstance(event, ScalarEvent):
        return ScalarNode(tag, event.value, start, end, style=event.style)
    kind = SequenceNode if isinstance(event, SequenceStartEvent) else MappingNode
    return kind(tag, [], start, end)


def compose(text: str, *, most: int = MAX_NODES) -> Node | None:
    """The root of the only document, None for an empty one. Raises `BoundError`, `YAMLError`.

    Tags mean nothing, and a %TAG directive is costly: its prefix would be written out for each
    value, and the parser compares directives with one another while no other thread runs.
    """
    at = text.find(TAG_DIRECTIVE)
    while at >= 0:
        if text[max(at - 2, 0) : at].removesuffix("\ufeff")[-1:] in ("", *BREAKS):
            ends = sum(text.count(each, 0, at) for each in BREAKS) - text.count("\r\n", 0, at)
            message = f"a {TAG_DIRECTIVE} directive: tags have no meaning here"
            raise BoundError(message, ends + 1, 1)
        at = text.find(TAG_DIRECTIVE, at + 1)
    composing = _Composing(most)
    for event in yaml.parse(_Pieces(text), Loader=yaml.CSafeLoader):
        composing.take(event)
    return composing.root


@dataclass(slots=True)
class _Pieces:
    """A text as a stream. What the parser reads in one go stops all other threads meanwhile: 16 MiB
    of one value took 0.2 s.
    """

    text: str
    at: int = 0

    def read(self, size: int = PIECE, /) -> str:
        del size  # bytes; what is too much is kept for the next time
        begin, self.at = self.at, self.at + PIECE
        return self.text[begin : self.at]
