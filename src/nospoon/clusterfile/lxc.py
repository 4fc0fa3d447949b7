"""How containers are made on a host by liblxc."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

from nospoon.clusterfile.section import Flag, Section, parse_text

_IDMAP = re.compile(r"([0-9]{1,10}):([0-9]{1,10})")
LEAST_IDS = 65_536
"""What a Debian or Fedora in a container expects: their highest user is 65534."""
FIRST_ID = 100_000
"""Below are users and services of the host itself (adduser.conf(5), login.defs(5))."""
LAST_ID = 2**32 - 2


NEW_PRIVILEGES = (
    "Programs in containers may gain rights by their files, as sudo(8) does; otherwise they have "
    "those of who started them (PR_SET_NO_NEW_PRIVS of prctl(2))."
)


def parse_idmap(value: object) -> str:
    """FIRST:COUNT, of ids that no user of the host has."""
    text = str(parse_text(value))
    match = _IDMAP.fullmatch(text)
    if match is None:
        raise ValueError(f"expected FIRST:COUNT, such as 1000000:65536, got {text!r}")
    first, count = map(int, match.groups())
    if count < LEAST_IDS:
        raise ValueError(f"expected at least {LEAST_IDS} ids, got {count}")
    if first < FIRST_ID or first + count - 1 > LAST_ID:
        raise ValueError(f"expected ids from {FIRST_ID} to {LAST_ID}, got {text!r}")
    return text


class LxcSection(Section):
    """How containers of a host are made; `true`: with all defaults."""

    idmap: Annotated[str, BeforeValidator(parse_idmap)] = Field(
        "",
        description="FIRST:COUNT: ids of the host that stand for those of containers, from root on;"
        " default: those that the host reserves for root in /etc/subuid and /etc/subgid.",
    )
    new_privileges: Flag = Field(default=False, description=NEW_PRIVILEGES)

    @property
    def ids(self) -> tuple[int, int]:
        """First and count, both 0 for those that the host reserves."""
        first, _, count = self.idmap.partition(":")
        return (int(first), int(count)) if first else (0, 0)
