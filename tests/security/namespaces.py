"""Network namespaces that stand for hosts and guests."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from nospoon.runtime import process
from nospoon.runtime.process import Finished


def ip(*words: str) -> None:
    """`ip` of iproute2."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Inside:
    """Runs commands in a namespace, as a host's runner does on that host."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        inside = ["ip", "netns", "exec", self._namespace, *argv]
        return await process.run(inside, check=check, stdin=stdin)
