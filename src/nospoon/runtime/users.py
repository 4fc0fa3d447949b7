"""Users and groups of the system, whose databases may be on another machine (nsswitch.conf(5)).

Whoever asks for one waits until that machine answers: ask in a thread.
"""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Uid = int | None
NameOf = Callable[[Uid], str]


@dataclass(frozen=True, slots=True)
class Account:
    """What a process of a user runs with: ids of the user, the main group, and the other groups."""

    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Of the system."""

    name: str
    gid: int


GroupOf = Callable[[], Group]


def user_name(uid: Uid) -> str:
    """A user's name, their number where they have none, "" for no one that we know of. Blocks."""
    if uid is None:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def account_of(uid: int) -> Account:
    """Raises `KeyError` for a user that the system does not know. Blocks."""
    known = pwd.getpwuid(uid)
    return Account(uid, known.pw_gid, tuple(os.getgrouplist(known.pw_name, known.pw_gid)))


def is_group(name: str) -> bool:
    """Whether the system has a group of this name. Blocks."""
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def unprivileged_uid() -> int:
    """The user of what needs no rights. Raises `KeyError` where the system has none. Blocks."""
    return pwd.getpwnam("nobody").pw_uid


def group_of_nobody() -> Group:
    """Its name differs between distributions: nogroup, no one. Blocks."""
    gid = pwd.getpwnam("nobody").pw_gid
    return Group(grp.getgrgid(gid).gr_name, gid)


async def names_of(uids: Iterable[Uid], name_of: NameOf) -> dict[Uid, str]:
    """Each one's name, asked for once, in a thread."""
    wanted = set(uids)
    import asyncio  # noqa: PLC0415  (commands use users as well, and do without it)

    return await asyncio.to_thread(lambda: {uid: name_of(uid) for uid in wanted})
