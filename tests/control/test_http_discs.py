"""ISOs that simulated machines boot by HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

from nospoon.control.content.files import Files
from nospoon.control.content.http_discs import HttpDiscs
from nospoon.runtime.tasks import Tasks
from nospoon.testing.downloads import client_downloads

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"


async def test_a_machine_that_is_switched_off_downloads_no_more(tmp_path: Path) -> None:
    began, gone = asyncio.Event(), asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        try:
            while not reader.at_eof():
                writer.write(bytes(1 << 16))
                await writer.drain()
                began.set()
                await asyncio.sleep(0.02)
        except ConnectionError:
            pass  # the other end has closed before it had read all
        finally:
            writer.close()
            gone.set()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Tasks("test") as tasks:
        files = Files.at(tmp_path)
        downloads = client_downloads(tasks, files)
        discs = HttpDiscs(lambda _: f"http://127.0.0.1:{port}/boot.iso", files, downloads)
        downloading = tasks.start(discs.cmdline(uuid4()), name="download")
        await asyncio.wait_for(began.wait(), 30)
        downloading.cancel()
        await asyncio.wait_for(gone.wait(), 30)
