"""YAML for other programs, whatever version of YAML they read.

PyYAML quotes text that YAML 1.1 reads as something else. By YAML 1.2 (§10.3.2), and by the parser
of Kubernetes and other programs in Go, more is a number or a boolean: the name `1e3` is 1000.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import lru_cache

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
    lines = list[str]()
    if isinstance(value, dict) and value and _Plain(dumper, width).write(value, lines, set()):
        text = "".join(lines)
    else:
        text = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=width)
    return _LINE.sub(indent, text) if indent else text


class _Plain:
    """Writes what PyYAML would, in a fifth of its time: mappings and sequences of short text and
    numbers. What is long, or is there twice (`&id001`), is its own.
    """

    def __init__(self, dumper: type[yaml.CSafeDumper], width: int) -> None:
        self._dumper, self._width = dumper, width

    def write(
        self, value: object, lines: list[str], seen: set[int], indent: str = "", head: str = ""
    ) -> bool:
        """Add lines of a collection that is not empty. `head`: of the first line, in place of
        `indent`. Returns whether all of it could be written.
        """
        if self._is_seen(value, seen):
            return False
        head = head or indent
        if type(value) is dict:
            for key, inside in value.items():
                is_known = type(key) is str and _is_plain_key(key)
                name = key if is_known else self._scalar(key, head)
                deeper = indent if type(inside) in (list, tuple) else indent + INDENT
                if name is None or not self._entry(f"{head}{name}:", inside, lines, seen, deeper):
                    return False
                head = indent
            return True
        assert isinstance(value, list | tuple)
        for inside in value:
            if inside and type(inside) in _COLLECTIONS:
                if not self.write(inside, lines, seen, indent + INDENT, f"{head}- "):
                    return False
            elif not self._entry(f"{head}-", inside, lines, seen, indent):
                return False
            head = indent
        return True

    def _entry(
        self, head: str, value: object, lines: list[str], seen: set[int], indent: str
    ) -> bool:
        """What is behind `head`, which ends with no space."""
        if type(value) in _COLLECTIONS and value:
            lines.append(f"{head}\n")
            return self.write(value, lines, seen, indent)
        text = _EMPTY.get(type(value)) or self._scalar(value, head)
        if text is None or (type(value) in _COLLECTIONS and self._is_seen(value, seen)):
            return False
        lines.append(f"{head} {text}\n")
        return True

    @staticmethod
    def _is_seen(value: object, seen: set[int]) -> bool:
        """Of a collection; there is one empty tuple, which PyYAML writes as often as it comes."""
        is_seen = id(value) in seen and value != ()
        seen.add(id(value))
        return is_seen

    def _scalar(self, value: Hashable, head: str) -> str | None:
        """None for what PyYAML has to write: it folds long lines at spaces."""
        if type(value) is str:
            if not value.isprintable():  # it may have several lines
                return None
            if _is_plain(value):
                return value
        elif type(value) not in _SCALARS:
            return None
        # mypy takes the hash of the dumper's instances for that of the class
        text = _written_alone(self._dumper, type(value), value)  # type: ignore[arg-type]
        fits = "\n" not in text and len(text) < LONGEST_KEY
        return text if fits and (" " not in text or len(head) + len(text) < self._width) else None


_COLLECTIONS = {dict, list, tuple}
_EMPTY: Mapping[type, str] = {dict: "{}", list: "[]", tuple: "[]"}
_SCALARS = {bool, int, float, type(None)}
LONGEST_KEY = 100
"""Characters: libyaml writes longer keys in another way (`yaml_emitter_check_simple_key`)."""
_SIMPLE = re.compile(r"[A-Za-z0-9/](?:[A-Za-z0-9_./+=@:-]*[A-Za-z0-9_./+=@-])?")
"""Text that needs no quotes, if it is not read as something else."""


def _is_plain(text: str) -> bool:
    """Whether no reader takes it for a number, a boolean or a date."""
    if len(text) >= LONGEST_KEY or not _SIMPLE.fullmatch(text):
        return False
    for _, other in Dumper.yaml_implicit_resolvers.get(text[0], ()):
        if other.match(text):
            return False
    return not _READ_ELSEWHERE.fullmatch(text)


_is_plain_key = lru_cache(maxsize=1024)(_is_plain)
"""Of ten thousand nodes, the same few keys come again and again."""


@lru_cache(maxsize=4096)
def _written_alone(dumper: type[yaml.CSafeDumper], kind: type, value: Hashable) -> str:
    """`kind`: of the value, for 1 and True are equal."""
    del kind
    text = yaml.dump(value, Dumper=dumper, allow_unicode=True, width=LONGEST_LINE)
    return text.removesuffix("\n").removesuffix("\n...")


LONGEST_LINE = 1 << 20


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
