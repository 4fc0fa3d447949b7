"""Command lines of kernels: what stands there is an argument of iPXE's `kernel`."""

from __future__ import annotations

from typing import Annotated
from unicodedata import category

from pydantic import BeforeValidator, Field

from nospoon.clusterfile.section import parse_text

LONGEST = 4096
"""Characters: what Linux takes at most (COMMAND_LINE_SIZE of arch/s390; others 2,048). Each machine
whose loader cannot ask has a file with it.
"""
_CONTROLS = frozenset({"Cc", "Zl", "Zp"})
"""Unicode's categories of control characters, and separators of lines and paragraphs."""
_ENDS_A_COMMAND = frozenset({"||", "&&", ";", "#"})


def _command_line(value: object) -> object:
    """One line, without words that no kernel takes, and that iPXE would take for its own
    (ipxe.org/scripting). YAML's folded text ends in a line end, which is none of it.
    """
    line = parse_text(value).rstrip("\n")
    if len(line) > LONGEST:
        raise ValueError(f"expected at most {LONGEST} characters, got {len(line)}")
    found = sorted(_ENDS_A_COMMAND & set(line.split()))
    if found:
        raise ValueError(f"expected a kernel command line, got the word {found[0]!r}")
    control = next((char for char in line if category(char) in _CONTROLS and char != "\t"), "")
    if control:
        raise ValueError(f"expected a kernel command line in one line, got {control!r} in it")
    return line


CommandLine = Annotated[str, BeforeValidator(_command_line), Field(max_length=LONGEST)]
