"""Which user of this machine is at the other end of a TCP connection: the kernel is asked for that
one socket (`socket_diag`), and where it cannot be, looked for among all (proc_net(5)).
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

from nospoon.runtime import socket_diag
from nospoon.runtime.socket_diag import Place

TABLES = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}
OWN = Path("/proc/self/fd")
_LOCAL, _REMOTE, _STATE, _UID, _INODE = 1, 2, 3, 7, 9
ESTABLISHED = "01"
"""Linux's TCP_ESTABLISHED, as the table writes it."""


def user_of(peer: Place, here: Place) -> int | None:
    """The uid of another process's socket at `peer` that is connected to `here`.

    None where there is none, and for sockets of this process: it connects to where others ask it
    to, so its user says nothing of who wants the answer.
    """
    found = _found(peer, here)
    if found is None:
        return None
    user, inode = found
    # a process makes its sockets as the user that it is: others' need not be looked for
    return None if user == os.geteuid() and _is_own(inode) else user


def _found(peer: Place, here: Place) -> tuple[int, int] | None:
    """As `socket_in`."""
    try:
        known = socket_diag.find(peer, here)
    except OSError:  # a kernel without it
        with TABLES[ip_address(peer[0]).version].open() as table:
            return socket_in(table, peer, here)
    if known is None or known.state != socket_diag.ESTABLISHED or not known.inode:
        return None
    return known.uid, known.inode


def socket_in(table: Iterable[str], peer: Place, here: Place) -> tuple[int, int] | None:
    """(uid, inode) of the same in a table's lines.

    Only of a connection that is established and has a process: once its process has closed it, the
    kernel writes inode 0 and, whosever it was, uid 0.
    """
    wanted = (written(peer), written(here), ESTABLISHED)
    for line in table:
        words = line.split()
        if len(words) <= _INODE or (words[_LOCAL], words[_REMOTE], words[_STATE]) != wanted:
            continue
        uid, inode = int(words[_UID]), int(words[_INODE])
        return (uid, inode) if inode else None
    return None


def _is_own(inode: int) -> bool:
    """Whether a descriptor of this process is that socket. There may be tens of thousands, and the
    event loop waits: their names as links (proc_pid_fd(5)) would take five times as long.
    """
    for each in os.listdir(OWN):  # noqa: PTH208  (paths take twice as long)
        try:
            found = os.fstat(int(each))
        except OSError:  # closed meanwhile
            continue
        if found.st_ino == inode and stat.S_ISSOCK(found.st_mode):
            return True
    return False


def written(place: Place) -> str:
    """As the kernel writes it: 32-bit words of the address in the order of the host's bytes."""
    address = ip_address(place[0])
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    packed = socket.inet_pton(family, str(address))
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return f"{''.join(f'{word:08X}' for word in words)}:{place[1]:04X}"
