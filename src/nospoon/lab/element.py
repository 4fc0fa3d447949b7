"""An element of a request, as its XML has it, with where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Element:
    """`path`: from the root, with a number where several siblings have one name (XPath's, from 1).
    `line` and `column` count from 1. `namespace` is "" for Beaker's own elements.
    `text`: what stands in it, without that of its children.
    """

    name: str
    path: str
    line: int
    column: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    children: tuple[Element, ...] = ()
    namespace: str = ""
    text: str = ""

    def find(self, name: str) -> Element | None:
        """Its first child of this name."""
        return next((each for each in self.children if each.name == name), None)

    def walk(self) -> Iterator[Element]:
        """Itself and all below it, in the order of the text."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(reversed(element.children))
