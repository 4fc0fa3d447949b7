"""The command line of ssh(1) that reaches a node.

Nothing that a guest writes gets into it: the address is the plan's. Host keys are not checked, for
each instance has new ones; so no password is ever sent, and nothing is forwarded.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from ipaddress import ip_address
from typing import NoReturn

from nospoon.errors import MissingTool, ProviderError, UsageError
from nospoon.model.rest.nodes import NodeLogin

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
OPTIONS = {
    "StrictHostKeyChecking": "no",
    "UserKnownHostsFile": "/dev/null",
    "GlobalKnownHostsFile": "/dev/null",
    "PasswordAuthentication": "no",
    "KbdInteractiveAuthentication": "no",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "GSSAPIDelegateCredentials": "no",
    "ClearAllForwardings": "yes",
    "LogLevel": "ERROR",
}
"""By ssh_config(5); they go before what the user's own configuration says."""


def ssh_argv(login: NodeLogin, user: str, command: Sequence[str] = ()) -> list[str]:
    """`login`: as the daemon gives it; `user` "" for ssh's choice. Each word of `command` arrives
    as one: ssh has the node's shell split them. Raises `UsageError` where no address is known,
    `ProviderError` where it is none.
    """
    if not login.address:
        raise UsageError(
            f"no address of node {login.node} is known",
            hint="Nodes on simulated hosts and with user-mode networking have none; elsewhere, "
            "plug a NIC into a network with `netboot: builtin`, or give it an `address`; in a "
            "cloud, a `floating_ip`.",
        )
    options = [f"-o{name}={value}" for name, value in OPTIONS.items()]
    jump = ["-J", login.jump.removeprefix("ssh://")] if login.jump else []
    who = ["-l", user] if user else []
    try:
        if "%" in login.address:
            raise ValueError("ssh_config(5) may give its zone to a shell, of which it has any text")
        address = str(ip_address(login.address))
    except ValueError:
        raise ProviderError(
            f"node {login.node} has the address {login.address!r}, which is none",
            hint="A cloud that lists such addresses is broken: ask who runs it.",
        ) from None
    said = [shlex.join(command)] if command else []
    return ["ssh", *options, *jump, *who, "--", address, *said]


def user_name(given: str) -> str:
    """A name that ssh takes for one. Raises `UsageError`."""
    if given and not _USER.fullmatch(given):
        raise UsageError(f"expected a user name, got {given!r}")
    return given


def run_ssh(argv: list[str]) -> NoReturn:
    """Become ssh."""
    try:
        os.execvp(argv[0], argv)  # noqa: S606
    except FileNotFoundError:
        raise MissingTool("ssh is not there", hint="apt-get install -y openssh-client") from None
