"""Leads what comes through a relay to the BMCs of its cluster, and their answers back.

A BMC knows such clients as itself: connections to it come from its own address, so that what one
cluster's clients do counts for its own BMCs alone.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import structlog

from nospoon.protocols.relayed import (
    HEAD,
    LONGEST_LINE,
    MOST_PAYLOAD,
    Datagrams,
    Flow,
    Malformed,
    Stream,
    framed,
    head_of,
    opening,
)
from nospoon.runtime.tasks import Tasks

log = structlog.get_logger()
IPMI_PORT = 623
MOST_STREAMS, MOST_FLOWS = 64, 256
"""Connections of one relay, and clients of IPMI behind it that are known; the longest silent one is
forgotten.
"""
OPENING = 10.0
"""Seconds for the first line."""
PIECE = 64 << 10
WAITING = 1 << 20
"""Bytes of answers that a relay did not take: more are lost, as datagrams may be."""
FRAMES = 32
"""Frames that are handled before others have a turn."""
Answers = Callable[[UUID, str, int], bool]
"""Whether a BMC of a cluster answers at this address, at this port of UDP or TCP."""


class RelayedBmcs:
    """`flows`: clients of IPMI behind a relay that are known."""

    def __init__(self, answers: Answers, *, flows: int = MOST_FLOWS) -> None:
        self._answers, self._flows = answers, flows
        self._open: dict[UUID, int] = {}

    async def serve(
        self, cluster: UUID, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection of the relay of a cluster, until it ends."""
        if self._open.get(cluster, 0) >= MOST_STREAMS:
            writer.close()
            return
        self._open[cluster] = self._open.get(cluster, 0) + 1
        try:
            await self._serve(cluster, reader, writer)
        except (Malformed, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as end:
            log.debug("a relay's connection ended", cluster=str(cluster), why=repr(end))
        finally:
            writer.close()
            self._open[cluster] -= 1

    async def _serve(
        self, cluster: UUID, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.timeout(OPENING):
            line = await reader.readuntil(b"\n")
        if len(line) > LONGEST_LINE:
            raise Malformed
        match opening(line):
            case Datagrams():
                await _Datagrams(cluster, self._answers, writer, most=self._flows).take(reader)
            case Stream(bmc, port):
                if self._answers(cluster, str(bmc), port):
                    await _pipe(reader, writer, str(bmc), port)


async def _pipe(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, port: int
) -> None:
    """Until one of both sides ends, and what the other one said before has arrived."""
    there, back = await asyncio.open_connection(address, port, local_addr=(address, 0))
    async with Tasks("relayed") as tasks:
        both = [
            tasks.start(_copy(reader, back), name="to a BMC"),
            tasks.start(_copy(there, writer), name="from a BMC"),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.ALL_COMPLETED)
        finally:
            back.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # it reads no more
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()


class _Answered(asyncio.DatagramProtocol):
    """A client's socket towards a BMC."""

    def __init__(self, flow: Flow, writer: asyncio.StreamWriter) -> None:
        self._flow, self._writer = flow, writer

    def datagram_received(self, data: bytes, addr: object) -> None:
        del addr
        if self._writer.transport.get_write_buffer_size() < WAITING:
            self._writer.write(framed(self._flow, data[:MOST_PAYLOAD]))

    def error_received(self, exc: Exception) -> None:
        log.debug("a BMC does not answer", bmc=str(self._flow.bmc), why=str(exc))


class _Datagrams:
    def __init__(
        self, cluster: UUID, answers: Answers, writer: asyncio.StreamWriter, *, most: int
    ) -> None:
        self._cluster, self._answers, self._writer = cluster, answers, writer
        self._most = most
        self._flows: OrderedDict[Flow, asyncio.DatagramTransport] = OrderedDict()

    async def take(self, reader: asyncio.StreamReader) -> None:
        """Frames, until they end."""
        taken = 0
        try:
            while True:
                flow, length = head_of(await reader.readexactly(HEAD.size))
                payload = await reader.readexactly(length)
                if self._answers(self._cluster, str(flow.bmc), IPMI_PORT):
                    (await self._to(flow)).sendto(payload)
                taken += 1
                if not taken % FRAMES:
                    await asyncio.sleep(0)
        finally:
            for each in self._flows.values():
                each.close()

    async def _to(self, flow: Flow) -> asyncio.DatagramTransport:
        known = self._flows.get(flow)
        if known is not None:
            self._flows.move_to_end(flow)
            return known
        if len(self._flows) >= self._most:
            _, oldest = self._flows.popitem(last=False)
            oldest.close()
        loop = asyncio.get_running_loop()
        made, _ = await loop.create_datagram_endpoint(
            lambda: _Answered(flow, self._writer),
            local_addr=(str(flow.bmc), 0),
            remote_addr=(str(flow.bmc), IPMI_PORT),
        )
        self._flows[flow] = made
        return made
