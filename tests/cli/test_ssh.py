"""The command line of ssh: only what the plan knows of a node is in it."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.cli.ssh import OPTIONS, ssh_argv, user_name
from nospoon.errors import ProviderError, UsageError
from nospoon.model.rest.nodes import NodeLogin

LOGIN = NodeLogin("c/n", "vm", "10.9.0.5", "")


def test_it_goes_to_the_address_asks_nobody_and_sends_no_password() -> None:
    argv = ssh_argv(LOGIN, "debian")
    assert argv[0] == "ssh"
    assert argv[-4:] == ["-l", "debian", "--", "10.9.0.5"]
    assert {f"-o{name}={value}" for name, value in OPTIONS.items()} <= set(argv)
    assert "-oPasswordAuthentication=no" in argv


def test_a_host_over_ssh_is_jumped_through() -> None:
    argv = ssh_argv(replace(LOGIN, jump="ssh://root@rack-1:22"), "")
    assert argv[argv.index("-J") + 1] == "root@rack-1:22"


@given(
    st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=9), min_size=1)
)
def test_each_word_of_a_command_arrives_as_one(words: list[str]) -> None:
    said = ssh_argv(LOGIN, "", ["printf", "%s\\0", *words])[-1]
    got = subprocess.run(["sh", "-c", said], check=True, capture_output=True).stdout
    assert got.decode().split("\0")[:-1] == words


@pytest.mark.parametrize("address", ["-oProxyCommand=x", "a b", "host.example", "fe80::1%$(id)"])
def test_what_is_no_address_is_never_connected_to(address: str) -> None:
    with pytest.raises(ProviderError, match=r"node c/n has the address .*, which is none"):
        ssh_argv(replace(LOGIN, address=address), "")


def test_a_node_without_an_address_says_what_to_write() -> None:
    with pytest.raises(UsageError, match=r"no address of node c/n is known") as refused:
        ssh_argv(replace(LOGIN, address=""), "")
    assert "Nodes on simulated hosts and with user-mode networking have none" in refused.value.hint
    assert "plug a NIC into a network with `netboot: builtin`" in refused.value.hint


@pytest.mark.parametrize("name", ["-x", "a b", "root@h", ""])
def test_a_user_is_a_name(name: str) -> None:
    if not name:
        assert user_name(name) == ""
        return
    with pytest.raises(UsageError, match="expected a user name"):
        user_name(name)
