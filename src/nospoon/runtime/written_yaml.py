"""YAML for other programs, whatever version of YAML they read.

PyYAML quotes text that YAML 1.1 reads as something else. By YAML 1.2 (§10.3.2), and by the parser
of Kubernetes and other programs in Go, more is a number or a boolean: the name `1e3` is 1000.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import yaml

_READ_ELSEWHERE = re.compile(
    r"[-+]?(0[oO]?[0-7_]+|0[xX][0-9a-fA-F_]+|0[bB][01_]+|[0-9][0-9_]*)"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[yYnN]"
)

PIECE = 500
"""Values that are written at once."""
WIDTH = 80
INDENT = "  "
_LINE = re.compile(r"^(?=[^\n])", re.MULTILINE)


class Dumper(yaml.CSafeDumper):
    """Quotes text that any of them reads as something else."""


def quoted_text(dumper: yaml.CSafeDumper, value: str) -> yaml.Node:
    value = value.encode("utf-8", "backslashreplace").decode()  # surrogates are no text for libyaml
    style = "'" if _READ_ELSEWHERE.fullmatch(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


Dumper.add_representer(str, quoted_text)


def documents(values: Iterable[object], dumper: type[yaml.CSafeDumper] = Dumper) -> Iterator[str]:
    """Parts of the text of some documents, one after the other."""
    for value in values:
        yield "---\n"
        yield from parts(value, dumper)


def parts(
    value: object, dumper: type[yaml.CSafeDumper] = Dumper, indent: str = ""
) -> Iterator[str]:
    """Parts of the text of a value, one after the other. The C library has the interpreter's lock
    while it looks through a document, and so has Python while it frees what was made of it: a long
    mapping is written in pieces, so that BMCs have their turns.
    """
    if not isinstance(value, dict) or _count(value) <= PIECE:
        yield _text(value, dumper, indent)
        return
    some: dict[object, object] = {}
    room = PIECE
    for key, inside in value.items():
        long = isinstance(inside, dict) and _count(inside) > PIECE
        if some and (long or room <= 0):
            yield _text(some, dumper, indent)
            some, room = {}, PIECE
        if long:
            yield _text({key: None}, dumper, indent).removesuffix(" null\n") + "\n"
            yield from parts(inside, dumper, indent + INDENT)
        else:
            some[key] = inside
            room -= _count(inside)
    if some:
        yield _text(some, dumper, indent)


def _text(value: object, dumper: type[yaml.CSafeDumper], indent: str) -> str:
    width = WIDTH - len(indent)
    text = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=width)
    return _LINE.sub(indent, text) if indent else text


def _count(value: object, most: int = PIECE) -> int:
    """Values in one, itself too; beyond `most`, no more are counted."""
    inside: Iterator[object] = iter(())
    if isinstance(value, dict):
        inside = iter(value.values())
    elif isinstance(value, list | tuple):
        inside = iter(value)
    found = 1
    for each in inside:
        found += _count(each, most - found)
        if found > most:
            break
    return found
