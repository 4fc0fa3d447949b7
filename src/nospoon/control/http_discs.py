"""ISOs that simulated machines boot by HTTP (UEFI 2.10 §24.7): what they tell their kernels."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from nospoon.control.fetch import Access, Transfer, download
from nospoon.providers.simulated import media


@dataclass(frozen=True, slots=True)
class HttpDiscs:
    """`uri_of`: what a machine boots now by HTTP, "" where it does not."""

    uri_of: Callable[[UUID], str]

    async def cmdline(self, machine: UUID) -> str | None:
        """The command line on its ISO, "" where it is no agent's; None where it boots otherwise.

        Raises `ProviderError`, `UsageError` when the ISO cannot be had.
        """
        uri, transfer = self.uri_of(machine), Transfer()
        try:
            return await asyncio.to_thread(_cmdline, uri, transfer) if uri else None
        finally:
            transfer.unwanted = True  # of a machine that is switched off meanwhile


def _cmdline(uri: str, transfer: Transfer) -> str:
    """Firmware has certificates of its own to hold servers to; nobody gave ours any."""
    with tempfile.NamedTemporaryFile(prefix="nospoon-http-boot-") as file:
        download(uri, Access(verify=False), file, transfer)
        file.flush()
        return media.cmdline(Path(file.name))
