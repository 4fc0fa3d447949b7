"""MAC addresses as nospoon writes them: six pairs of lower-case hexadecimal digits, with colons."""

from __future__ import annotations

import re

MAC = re.compile("(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")


def is_mac(text: str) -> bool:
    """Of what hosts say, too: it becomes the name of a file of a boot server."""
    return MAC.fullmatch(text) is not None
