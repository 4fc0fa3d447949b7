"""Whether libvirt itself lets a user of this machine manage its machines.

libvirtd is asked as that user: a connection for reading and writing is what its rules (permissions
of the socket, polkit's org.libvirt.unix.manage; https://libvirt.org/auth.html) are about, so that
no rule of theirs is repeated here.
"""

from __future__ import annotations

import asyncio
import os
import sys

from nospoon.errors import HostUnreachable, ProviderError
from nospoon.runtime import process
from nospoon.runtime.reasons import reason
from nospoon.runtime.users import Account, account_of

SECONDS = 10.0
"""libvirtd answers in milliseconds; polkit may ask a directory of users."""
SILENT, FORBIDDEN = "failed to connect socket", "permission denied"
"""In what libvirt says where no libvirtd answers, and where the socket's permissions refuse."""
OPEN = "libvirt.open(sys.argv[1]).close()\n"


async def may_manage(uid: int, uri: str = "qemu:///system") -> bool:
    """Raises `HostUnreachable` where that is not known: libvirtd does not run."""
    try:
        account = await asyncio.to_thread(account_of, uid)
    except KeyError:
        return False
    environment = {"PATH": os.defpath, "LC_ALL": "C", "HOME": "/nonexistent"}
    argv = acting_as(account, OPEN, uri)
    try:
        done = await process.run(argv, env=environment, cwd="/", timeout=SECONDS, check=False)
    except (ProviderError, OSError) as error:
        raise HostUnreachable(
            f"cannot ask libvirt what user {uid} may do: {reason(error)}"
        ) from error
    said = done.stderr.lower()
    if done.status != 0 and SILENT in said and FORBIDDEN not in said:
        raise HostUnreachable(f"cannot ask libvirt what user {uid} may do: {done.stderr.strip()}")
    return done.status == 0


def acting_as(account: Account, script: str, *words: str) -> list[str]:
    """A Python script as this user. The saved user id stays root, which an exec(2) would change:
    of a process that is wholly theirs, users write memory and exit status (ptrace(2), "Ptrace
    access mode checking").
    """
    head = (
        "import os, sys, libvirt\n"  # from where the user may not be able to read
        f"os.setgroups({list(account.groups)})\n"
        f"os.setresgid({account.gid}, {account.gid}, {account.gid})\n"
        f"os.setresuid({account.uid}, {account.uid}, 0)\n"
    )
    return [sys.executable, "-I", "-c", head + script, *words]
