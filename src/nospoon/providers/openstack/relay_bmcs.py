"""Runs on a relay: IPMI and Redfish of its network go through the tunnel to nospoon's BMCs.

    python3 relay_bmcs.py POOL REDFISH-PORT TUNNEL-PORT

It needs nothing but Python, which cloud-init brings along, and no right but to bind port 623. What
it says to the daemon is described in `nospoon.protocols.relayed`, which is not there.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
import sys

IPMI = 623
HEAD = struct.Struct("!H4s4sH")
PKTINFO = struct.Struct("=I4s4s")  # ip(7), struct in_pktinfo
IP_PKTINFO = 8
LARGEST, ANCILLARY = 1500, 256
PIECE, WAITING = 64 << 10, 1 << 20
PAUSE, STALLED = 1.0, 60.0


class Datagrams:
    """One socket for all addresses, and the one connection that carries what arrives there."""

    def __init__(self, pool: ipaddress.IPv4Network, tunnel: int) -> None:
        self.pool, self.tunnel = pool, tunnel
        self.writer: asyncio.StreamWriter | None = None
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        self.socket.bind(("", IPMI))
        self.socket.setblocking(False)  # noqa: FBT003  (socket's own signature)

    async def run(self) -> None:
        asyncio.get_running_loop().add_reader(self.socket, self.arrived)
        while True:
            try:
                reader, self.writer = await asyncio.open_connection("127.0.0.1", self.tunnel)
                self.writer.write(b"DATAGRAMS\r\n")
                while True:
                    head = await reader.readexactly(HEAD.size)
                    length, bmc, client, port = HEAD.unpack(head)
                    self.answer(await reader.readexactly(length), bmc, client, port)
            except (OSError, asyncio.IncompleteReadError):
                if self.writer is not None:
                    self.writer.close()
                self.writer = None
            await asyncio.sleep(PAUSE)

    def arrived(self) -> None:
        try:
            data, more, _, (client, port) = self.socket.recvmsg(LARGEST, ANCILLARY)
        except OSError:
            return
        for level, kind, content in more:
            if (level, kind) == (socket.IPPROTO_IP, IP_PKTINFO):
                _, _, bmc = PKTINFO.unpack(content[: PKTINFO.size])
                self.pass_on(data, bmc, client, port)

    def pass_on(self, data: bytes, bmc: bytes, client: str, port: int) -> None:
        if ipaddress.IPv4Address(bmc) not in self.pool or self.writer is None:
            return
        if self.writer.transport.get_write_buffer_size() < WAITING:
            self.writer.write(HEAD.pack(len(data), bmc, socket.inet_aton(client), port) + data)

    def answer(self, data: bytes, bmc: bytes, client: bytes, port: int) -> None:
        source = PKTINFO.pack(0, bmc, bmc)
        try:
            self.socket.sendmsg(
                [data],
                [(socket.IPPROTO_IP, IP_PKTINFO, source)],
                0,
                (socket.inet_ntoa(client), port),
            )
        except OSError as error:  # as a datagram that is lost
            print("an answer is lost:", error, file=sys.stderr)  # noqa: T201  (systemd's journal)


class Streams:
    """Connections to Redfish, each in one of its own."""

    def __init__(self, pool: ipaddress.IPv4Network, tunnel: int) -> None:
        self.pool, self.tunnel = pool, tunnel

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            bmc, port = writer.get_extra_info("sockname")
            client, source = writer.get_extra_info("peername")
            if ipaddress.IPv4Address(bmc) in self.pool:
                there, back = await asyncio.open_connection("127.0.0.1", self.tunnel)
                back.write(f"PROXY TCP4 {client} {bmc} {source} {port}\r\n".encode())
                sent = asyncio.get_running_loop().create_task(copy(reader, back))
                try:
                    await copy(there, writer)  # a BMC that ends takes nothing more
                finally:
                    back.close()
                    sent.cancel()
                    await asyncio.gather(sent, return_exceptions=True)
        except (TimeoutError, OSError) as error:  # one since Python 3.11
            print("a connection ended:", error, file=sys.stderr)  # noqa: T201
        finally:
            writer.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        piece = await reader.read(PIECE)
        if not piece:
            break
        writer.write(piece)
        await asyncio.wait_for(writer.drain(), STALLED)
    if writer.can_write_eof():
        writer.write_eof()


async def main(pool: str, redfish: str, tunnel: str) -> None:
    network = ipaddress.IPv4Network(pool)
    if int(redfish):
        streams = Streams(network, int(tunnel))
        await asyncio.start_server(streams.serve, "0.0.0.0", int(redfish))  # noqa: S104  (AnyIP)
    await Datagrams(network, int(tunnel)).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
