"""Users and groups of the system, whose databases may be on another machine (nsswitch.conf(5)).

Whoever asks for one waits until that machine answers: ask in a thread.
"""

from __future__ import annotations

import asyncio
import grp
import pwd
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Uid = int | None
NameOf = Callable[[Uid], str]


@dataclass(frozen=True, slots=True)
class Group:
    """Of the system."""

    name: str
    gid: int


GroupOf = Callable[[], Group]


def user_name(uid: Uid) -> str:
    """A user's name, their number where they have none, "" for nobody that we know of. Blocks."""
    if uid is None:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_of_nobody() -> Group:
    """Its name differs between distributions: nogroup, nobody. Blocks."""
    gid = pwd.getpwnam("nobody").pw_gid
    return Group(grp.getgrgid(gid).gr_name, gid)


async def names_of(uids: Iterable[Uid], name_of: NameOf) -> dict[Uid, str]:
    """Each one's name, asked for once, in a thread."""
    wanted = set(uids)
    return await asyncio.to_thread(lambda: {uid: name_of(uid) for uid in wanted})
