"""ISOs that simulated machines boot by HTTP (UEFI 2.10 §24.7): what they tell their kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from nospoon.control.content.client_downloads import ClientDownloads
from nospoon.control.content.fetch import Access, Terms, Transfer, download
from nospoon.control.content.files import Files
from nospoon.providers.simulated import media


@dataclass(frozen=True, slots=True)
class HttpDiscs:
    """`uri_of`: what a machine boots now by HTTP, "" where it does not."""

    uri_of: Callable[[UUID], str]
    files: Files
    downloads: ClientDownloads

    async def cmdline(self, machine: UUID) -> str | None:
        """The command line on its ISO, "" where it is no agent's; None where it boots otherwise.

        A machine that is switched off meanwhile downloads no more. Raises `ProviderError`,
        `UsageError` when the ISO is not available.
        """
        uri, transfer = self.uri_of(machine), Transfer()
        if not uri:
            return None
        return await self.downloads.run(
            machine, transfer, lambda terms: self._cmdline(uri, transfer, terms)
        )

    def _cmdline(self, uri: str, transfer: Transfer, terms: Terms) -> str:
        """Firmware has certificates of its own to hold servers to; no one gave ours any."""
        with self.files.scratch() as file:
            download(uri, Access(verify=False), file, transfer, terms)
            file.flush()
            return media.cmdline(Path(file.name))
