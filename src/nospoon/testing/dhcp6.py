"""A DHCPv6 client (RFC 8415) that asks for one address and prints it, "" for none.

To be run where its interface is: `python -m nospoon.testing.dhcp6 INTERFACE DUID`.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys
import time

SOLICIT, REPLY = 1, 7
CLIENT_ID, IA_NA, IA_ADDRESS, RAPID_COMMIT = 1, 3, 5, 14
SERVERS, CLIENT_PORT, SERVER_PORT = "ff02::1:2", 546, 547
TRIES = 12


def option(code: int, content: bytes = b"") -> bytes:
    return struct.pack("!HH", code, len(content)) + content


def options(content: bytes) -> dict[int, bytes]:
    """Code -> content, of those that stand one after the other."""
    found = {}
    while len(content) >= 4:
        code, length = struct.unpack("!HH", content[:4])
        found[code], content = content[4 : 4 + length], content[4 + length :]
    return found


def address_in(answer: bytes) -> str:
    """What a reply gives, "" when it says that there is none."""
    given = options(options(answer[4:]).get(IA_NA, b"")[12:]).get(IA_ADDRESS, b"")
    return str(ipaddress.IPv6Address(given[:16])) if given else ""


def ask(interface: str, duid: bytes) -> str:
    transaction = os.urandom(3)
    wanted = option(IA_NA, struct.pack("!III", 1, 0, 0)) + option(RAPID_COMMIT)
    solicit = bytes([SOLICIT]) + transaction + option(CLIENT_ID, duid) + wanted
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        client.bind(("::", CLIENT_PORT))
        client.settimeout(1)
        for _ in range(TRIES):
            try:
                client.sendto(solicit, (SERVERS, SERVER_PORT, 0, socket.if_nametoindex(interface)))
                answer = client.recv(2048)
            except OSError:  # no link-local address yet, or no one has answered
                time.sleep(0.2)
                continue
            if answer[0] == REPLY and answer[1:4] == transaction:
                return address_in(answer)
    return ""


if __name__ == "__main__":
    print(ask(sys.argv[1], bytes.fromhex(sys.argv[2])))  # noqa: T201
