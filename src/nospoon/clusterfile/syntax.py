"""What libyaml says of text that is not YAML, in words that say how to fix it."""

from __future__ import annotations

import yaml
from yaml.reader import ReaderError

from nospoon.errors import Problem

TEMPLATE_HINT = "This looks like a template: render the file first, or quote the text"
_QUOTE = "Put it in quotes"
_ALIGN = "Begin the entries of one list or mapping in the same column"

_NO_TOKEN = {
    "\t": ("a tab as indentation", "Indent with spaces"),
    "%": ("text that begins with '%'", TEMPLATE_HINT),
    "@": ("text that begins with '@'", _QUOTE),
    "`": ("text that begins with '`'", _QUOTE),
}
"""What no value begins with (yaml.org/spec/1.2.2 §5.3 and §6.1) -> what to do about it."""

_SAID = {
    ("did not find expected ',' or ']'", "while parsing a flow sequence"): (
        "expected ',' or ']' in the list that begins {there}",
        "Close it with ']'",
    ),
    ("did not find expected ',' or '}'", "while parsing a flow mapping"): (
        "expected ',' or '}}' in the mapping that begins {there}",
        "Close it with '}'",
    ),
    ("found unexpected end of stream", "while scanning a quoted scalar"): (
        "the text that begins {there} has no closing quote",
        "Add it",
    ),
    ("found unknown escape character", "while parsing a quoted scalar"): (
        "a backslash before a character that it cannot escape",
        "Write \\\\ for a backslash, or use single quotes",
    ),
    ("did not find expected hexdecimal number", "while parsing a quoted scalar"): (
        "expected hexadecimal digits after \\x, \\u or \\U",
        "Write \\\\ for a backslash, or use single quotes",
    ),
    ("mapping values are not allowed in this context", None): (
        "a second ': ' in one line, or a key with another indentation than the keys beside it",
        f"{_ALIGN}, one key a line; put text with ': ' in quotes",
    ),
    ("did not find expected key", "while parsing a block mapping"): (
        "expected a key in the column of the mapping that begins {there}",
        f"{_ALIGN}; in text in quotes write a quote twice",
    ),
    ("could not find expected ':'", "while scanning a simple key"): (
        "expected ': ' after the key {there}",
        "Write `KEY: VALUE`",
    ),
    ("did not find expected '-' indicator", "while parsing a block collection"): (
        "expected '- ' in the column of the list that begins {there}",
        _ALIGN,
    ),
    ("block sequence entries are not allowed in this context", None): (
        "'- ' where no list can begin",
        "Begin a list in a line of its own, or write [a, b]",
    ),
    ("did not find expected node content", "while parsing a block node"): (
        "expected a value",
        "Put text that begins with a special character in quotes",
    ),
    ("did not find expected node content", "while parsing a flow node"): (
        "expected a value",
        "Put text that begins with a special character in quotes",
    ),
    ("did not find expected <document start>", None): (
        "text after the end of the file's mapping",
        "A cluster file is one mapping; count its brackets",
    ),
    ("expected a single document, but found another one", None): (
        "expected one document, got another one after '---'",
        "Write each cluster into a file of its own",
    ),
    ("found undefined tag handle", "while parsing a node"): (
        "an unknown tag",
        "Tags have no meaning here: write the value itself, and text in quotes",
    ),
    ("found a tab character that violates indentation", "while scanning a plain scalar"): (
        *_NO_TOKEN["\t"],
    ),
}
"""libyaml's problem and context -> ours, where `there` is the place of the context, and a hint."""


def syntax_problem(error: yaml.YAMLError, text: str, file: str) -> Problem:
    """At its line and column, from 1."""
    if isinstance(error, ReaderError):  # libyaml counts bytes
        lines = text.encode()[: error.position].decode().split("\n")
        message = f"not YAML: expected no control character, got U+{error.character:04X}"
        return Problem(file, len(lines), len(lines[-1]) + 1, "", message)
    mark = getattr(error, "problem_mark", None)
    said = str(getattr(error, "problem", None) or error)
    context, begun = getattr(error, "context", None), getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    if mark is not None and "cannot start any token" in said:
        wrong, hint = _NO_TOKEN.get(text[mark.index : mark.index + 1], (said, ""))
    elif (said, context) in _SAID:
        wrong, hint = _SAID[said, context]
        there = f"in line {begun.line + 1}, column {begun.column + 1}" if begun is not None else ""
        wrong = wrong.format(there=there)
    else:
        wrong, hint = f"{said}{f' ({context})' if context else ''}", ""
    return Problem(file, line, column, "", f"not YAML: {wrong}", hint)
