"""How containers are made on a host by an engine."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

from nospoon.clusterfile.lxc import NEW_PRIVILEGES
from nospoon.clusterfile.section import Flag, Section, parse_text

_PATH = re.compile(r"/[A-Za-z0-9._/@:+-]{1,106}")
"""unix(7): the path of a socket has up to 107 bytes."""


def parse_socket(value: object) -> str:
    """An absolute path, on the host."""
    text = str(parse_text(value))
    if not _PATH.fullmatch(text) or ".." in text.split("/"):
        raise ValueError(f"expected the path of a socket, such as /run/docker.sock, got {text!r}")
    return text


class DockerSection(Section):
    """The engine that makes containers of a host; `true`: with all defaults."""

    socket: Annotated[str, BeforeValidator(parse_socket)] = Field(
        "",
        description="Path of the engine's socket there; default: /run/podman/podman.sock, or else "
        "/run/docker.sock.",
    )
    new_privileges: Flag = Field(default=False, description=NEW_PRIVILEGES)
