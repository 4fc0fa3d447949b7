"""Downloads as operations: what a cluster file names by URL arrives before its plan is made."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from nospoon.control.content.fetch import Transfer, told
from nospoon.control.content.files import Files
from nospoon.control.operations.operations import Ended, Running
from nospoon.engine.progress import Phase, Progress
from nospoon.errors import ProviderError, UsageError
from nospoon.runtime.tasks import Tasks
from nospoon.store.operations import OperationState

TOLD = 2.0
"""Seconds between two words about a download."""
MIB = 1 << 20


async def fetch_all(
    running: Running, urls: Mapping[str, str], files: Files, *, owner: int
) -> Ended:
    """Fetch one after the other, and tell how far it is; what is not available is told at the end.

    `urls`: each with its place in the cluster file. `owner`: whose quota they count to.
    """
    failures = []
    for number, (url, written) in enumerate(urls.items()):
        place = told(url)
        running.emit(Progress(Phase.STARTED, "fetch", what=place, done=number, total=len(urls)))
        try:
            got = await _fetch(running, url, place, files, owner)
        except (ProviderError, UsageError) as error:
            failures.append({"what": place, "node": "", "message": f"{written}: {error}"})
            continue
        running.emit(
            Progress(Phase.DONE, f"fetched {got}", what=place, done=number + 1, total=len(urls))
        )
    if failures:
        message = f"{len(failures)} of {len(urls)} files of the cluster file are not available"
        return Ended(OperationState.FAILED, message, {"failures": failures})
    return Ended(OperationState.DONE, "")


async def _fetch(running: Running, url: str, place: str, files: Files, owner: int) -> str:
    transfer = Transfer()
    async with Tasks("fetch") as tasks:
        tasks.start(_tell(running, place, transfer), name=place)
        await files.fetch_once(url, transfer, owner=owner)
    return _size(transfer.got)


async def _tell(running: Running, place: str, transfer: Transfer) -> None:
    while True:
        await asyncio.sleep(TOLD)
        total = f" of {_size(transfer.total)}" if transfer.total else ""
        running.emit(Progress(Phase.NOTE, f"{_size(transfer.got)}{total}", what=place))


def _size(amount: int) -> str:
    """Bytes for people."""
    return f"{amount / MIB:.0f} MiB" if amount >= MIB else f"{amount} bytes"
