"""Leads what comes through a relay to the BMCs of its cluster, and their answers back.

A BMC knows such clients as itself: connections to it come from its own address, so that what one
cluster's clients do counts for its own BMCs alone. Whoever has the relay may send anything and read
nothing: what a cluster takes of descriptors, memory and turns of the loop is bounded.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Address
from typing import TypeVar
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
from nospoon.runtime.http_limits import LIMITS
from nospoon.runtime.slices import Slices
from nospoon.runtime.tasks import Tasks

log = structlog.get_logger()
IPMI_PORT = 623
MOST_STREAMS, MOST_FLOWS = 64, 256
"""Connections of relays of one cluster, and clients of IPMI behind them that are known; the longest
silent one is forgotten.
"""
MOST_OF_CLIENT = MOST_STREAMS // 2
"""Connections of one client: it keeps no other one out."""
OPENING = 10.0
"""Seconds for the first line."""
PIECE = 64 << 10
WAITING = 64 << 10
"""Bytes of answers that a relay did not take on one connection: more are lost, as datagrams may be.
"""
STALLED, ENDING = 60.0, 10.0
"""Seconds for a relay to take more of an answer, and the end of one."""
Answers = Callable[[UUID, str, int], bool]
"""Whether a BMC of a cluster answers at this address, at this port of UDP or TCP."""


ENDS = (Malformed, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError)
"""Why a connection ends."""
Flows = OrderedDict[tuple["_Datagrams", Flow], asyncio.DatagramTransport]
"""Sockets towards BMCs, the longest silent first."""


class RelayedBmcs:
    """`flows`: clients of IPMI behind relays of a cluster that are known."""

    def __init__(self, answers: Answers, *, flows: int = MOST_FLOWS) -> None:
        self._answers, self._most_flows = answers, flows
        self._open = Counter[UUID]()
        self._clients = Counter[tuple[UUID, IPv4Address]]()
        self._flows: dict[UUID, Flows] = {}
        self._slices = Slices()

    async def serve(
        self, cluster: UUID, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection of a relay of a cluster, until it ends."""
        number = writer.get_extra_info("socket").fileno()
        if self._open[cluster] >= MOST_STREAMS or number > LIMITS.highest_descriptor:
            writer.transport.abort()
            return
        try:
            with _counted(self._open, cluster):
                await self._serve(cluster, reader, writer)
                await _taken(writer)
        except ENDS as end:
            log.debug("a relay's connection ended", cluster=str(cluster), why=repr(end))
        finally:
            writer.transport.abort()  # else one that reads nothing would keep it
            if cluster not in self._open:  # others that are open count on the same flows
                self._flows.pop(cluster, None)

    async def _serve(
        self, cluster: UUID, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.timeout(OPENING):
            line = await reader.readuntil(b"\n")
        if len(line) > LONGEST_LINE:
            raise Malformed
        match opening(line):
            case Datagrams():
                await self._take(cluster, reader, writer)
            case Stream(client, bmc, port):
                of = cluster, client
                await self._slices.begin(cluster).rest()  # thousands of BMCs may be at one place
                if self._clients[of] < MOST_OF_CLIENT and self._answers(cluster, str(bmc), port):
                    with _counted(self._clients, of):
                        await _pipe(reader, writer, str(bmc), port)

    async def _take(
        self, cluster: UUID, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Frames, until they end."""
        flows = self._flows.setdefault(cluster, OrderedDict())
        datagrams = _Datagrams(flows, writer, most=self._most_flows)
        work = self._slices.begin(cluster)
        try:
            while True:
                flow, length = head_of(await reader.readexactly(HEAD.size))
                payload = await reader.readexactly(length)
                await work.rest()
                if self._answers(cluster, str(flow.bmc), IPMI_PORT):
                    await datagrams.send(flow, payload)
        finally:
            datagrams.close()


K = TypeVar("K", bound=Hashable)


@contextmanager
def _counted(amounts: Counter[K], key: K) -> Iterator[None]:
    amounts[key] += 1
    try:
        yield
    finally:
        amounts[key] -= 1
        if not amounts[key]:
            del amounts[key]


async def _taken(writer: asyncio.StreamWriter) -> None:
    """Once the relay has all that it was sent. Raises `OSError` where it does not take it."""
    writer.close()
    async with asyncio.timeout(ENDING):
        await writer.wait_closed()


async def _pipe(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, port: int
) -> None:
    """Until the BMC ends: it takes nothing more then, whatever its client goes on to send."""
    there, back = await asyncio.open_connection(address, port, local_addr=(address, 0))
    _leave_reserve(back.transport)
    async with Tasks("relayed") as tasks:
        try:
            tasks.start(_copy(reader, back), name="to a BMC")
            await _copy(there, writer, seconds=STALLED)
        finally:
            back.transport.abort()


def _leave_reserve(made: asyncio.DatagramTransport | asyncio.WriteTransport) -> None:
    """Raises `OSError` where it took one of the last descriptors, which are for others."""
    if made.get_extra_info("socket").fileno() > LIMITS.highest_descriptor:
        made.abort()
        raise OSError(errno.EMFILE, "the last descriptors are for others")


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, seconds: float | None = None
) -> None:
    """`seconds`: for the other side to take more."""
    with suppress(OSError):  # it reads no more
        while piece := await reader.read(PIECE):
            writer.write(piece)
            async with asyncio.timeout(seconds):
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
    """Those of one connection of a relay. `flows`: of all connections of its cluster."""

    def __init__(self, flows: Flows, writer: asyncio.StreamWriter, *, most: int) -> None:
        self._flows, self._writer, self._most = flows, writer, most

    async def send(self, flow: Flow, payload: bytes) -> None:
        """Raises `OSError` without descriptors."""
        (self._flows.get((self, flow)) or await self._made(flow)).sendto(payload)
        self._flows.move_to_end((self, flow))

    async def _made(self, flow: Flow) -> asyncio.DatagramTransport:
        made, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Answered(flow, self._writer),
            local_addr=(str(flow.bmc), 0),
            remote_addr=(str(flow.bmc), IPMI_PORT),
        )
        _leave_reserve(made)
        self._flows[self, flow] = made
        if len(self._flows) > self._most:
            _, oldest = self._flows.popitem(last=False)
            oldest.close()
        return made

    def close(self) -> None:
        for each in [key for key in self._flows if key[0] is self]:
            self._flows.pop(each).close()
