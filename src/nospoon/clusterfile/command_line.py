"""Command lines of kernels: what stands there is an argument of iPXE's `kernel`."""

from __future__ import annotations

from typing import Annotated
from unicodedata import category

from pydantic import BeforeValidator

from nospoon.clusterfile.section import parse_text

_CONTROLS = frozenset({"Cc", "Zl", "Zp"})
"""Unicode's categories of control characters, and separators of lines and paragraphs."""
_ENDS_A_COMMAND = frozenset({"||", "&&", ";", "#"})


def _command_line(value: object) -> object:
    """One line, without words that no kernel takes, and that iPXE would take for its own
    (ipxe.org/scripting). YAML's folded text ends in a line end, which is none of it.
    """
    line = parse_text(value).rstrip("\n")
    found = sorted(_ENDS_A_COMMAND & set(line.split()))
    if found:
        raise ValueError(f"expected a kernel command line, got the word {found[0]!r}")
    control = next((char for char in line if category(char) in _CONTROLS and char != "\t"), "")
    if control:
        raise ValueError(f"expected a kernel command line in one line, got {control!r} in it")
    return line


CommandLine = Annotated[str, BeforeValidator(_command_line)]
