"""Text from others as a terminal may show it: what a server, guest or file sends moves no cursor,
sets no title and reorders no line.
"""

from __future__ import annotations

import re

CONTROLS = (
    *range(0x20), 0x7F, *range(0x80, 0xA0),  # C0, DEL and C1 (ECMA-48 §5)
    0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A),  # UAX #9 §2: bidi
    0x2028, 0x2029,  # line and paragraph separators
    *range(0xD800, 0xE000),  # halves of surrogate pairs, which no encoding takes
)  # fmt: skip
_LINE = {code: f"\\u{code:04x}" for code in CONTROLS}
_TEXT = {code: escape for code, escape in _LINE.items() if chr(code) not in "\n\t"}
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
"""Select Graphic Rendition (ECMA-48 §8.3.117), which changes nothing but looks."""


def visible(text: str) -> str:
    """Control characters as `\\u001b`, newlines and tabs as they are. JSON stays JSON."""
    # all of these are unprintable: most texts need no second look
    return text if text.isprintable() else text.translate(_TEXT)


def visible_line(text: str) -> str:
    """The same in one line: newlines and tabs are escaped, too."""
    return text.translate(_LINE)


def visible_colours(text: str) -> str:
    """As `visible`, with colours as they are: for programs that nospoon runs in the terminal."""
    parts = _COLOUR.split(text)
    return "".join(part if index % 2 else visible(part) for index, part in enumerate(parts))
