"""Whether libvirt itself lets a user of this machine manage its machines.

libvirtd is asked as that user: a connection for reading and writing is what its rules (permissions
of the socket, polkit's org.libvirt.unix.manage; https://libvirt.org/auth.html) are about, so that
no rule of theirs is repeated here.
"""

from __future__ import annotations

import asyncio
import os

from nospoon.errors import HostUnreachable, ProviderError
from nospoon.runtime import process
from nospoon.runtime.reasons import reason
from nospoon.runtime.users import account_of

SECONDS = 10.0
"""libvirtd answers in milliseconds; polkit may ask a directory of users."""
SILENT, FORBIDDEN = "failed to connect socket", "permission denied"
"""In what virsh says where no libvirtd answers, and where the socket's permissions refuse."""


async def may_manage(uid: int, uri: str = "qemu:///system") -> bool:
    """Raises `HostUnreachable` where nobody says so: libvirtd does not run, or virsh is missing."""
    try:
        account = await asyncio.to_thread(account_of, uid)
    except KeyError:
        return False
    environment = {"PATH": os.defpath, "LC_ALL": "C", "HOME": "/nonexistent"}
    argv = ["virsh", "--quiet", "--connect", uri, "uri"]
    try:
        done = await process.run(
            argv, env=environment, cwd="/", account=account, timeout=SECONDS, check=False
        )
    except (ProviderError, OSError) as error:
        raise HostUnreachable(
            f"cannot ask libvirt what user {uid} may do: {reason(error)}"
        ) from error
    said = done.stderr.lower()
    if done.status != 0 and SILENT in said and FORBIDDEN not in said:
        raise HostUnreachable(f"cannot ask libvirt what user {uid} may do: {done.stderr.strip()}")
    return done.status == 0
