"""Work that commands do themselves, and that Ctrl-C or a closed terminal ends only once it has
removed what it made.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import TypeVar

from nospoon.cli.echo import echo

T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def until_signal(work: Coroutine[object, object, T]) -> T:
    """The result of work. Raises `KeyboardInterrupt` where a signal ended it; further signals end
    nothing.
    """

    async def run() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "it runs"

        def end() -> None:
            if not task.cancelling():
                echo("Interrupted: removing what was made so far …", err=True)
                task.cancel()

        for number in SIGNALS:
            loop.add_signal_handler(number, end)
        return await work

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
