"""What commands such as ip(8) print, on hosts over ssh, too: who broke into one may have it print
anything.
"""

from __future__ import annotations

import asyncio
from typing import Any

from nospoon.errors import ProviderError
from nospoon.providers.answers import value_of
from nospoon.runtime.process import Finished, printed_by

LONGEST, MOST_ROWS = 16 << 20, 50_000
"""Characters; a host with thousands of links has some 2,000 for each."""
LONGEST_LINES = 1 << 20
"""Characters of a text that is taken line by line, in the event loop: 10 ms if all end lines."""


async def rows_of(done: Finished) -> list[dict[str, Any]]:
    """The objects of a list, [] for nothing. Decoded in a thread, with turns for others. Raises
    `ProviderError` for anything else, and for too many.
    """
    value = await value_in(done, done.stdout) if done.stdout.strip() else []
    if not isinstance(value, list) or len(value) > MOST_ROWS:
        raise _unexpected(done)
    return [each for each in value if isinstance(each, dict)]


async def value_in(done: Finished, text: str) -> Any:
    """JSON of this text of its output. Raises `ProviderError`."""
    if len(text) > LONGEST:
        raise _unexpected(done)
    try:
        return await asyncio.to_thread(lambda: value_of(text.encode()))
    except (ValueError, RecursionError) as error:
        raise _unexpected(done) from error


def lines_of(done: Finished) -> list[str]:
    """Raises `ProviderError` for more than any of these commands prints."""
    return printed_by(done, LONGEST_LINES).splitlines()


def _unexpected(done: Finished) -> ProviderError:
    return ProviderError(f"`{done.argv[0]}` printed what is not expected of it")
