"""The kernel's list of sockets is that of proc(5)."""

from __future__ import annotations

import socket

from nospoon.runtime import socket_diag
from nospoon.runtime.udp import LISTEN, _sockets, listening
from nospoon.testing.own_network import own_network


def test_what_listens_is_listed_of_both_families() -> None:
    """proc(5) takes 7 ms for it: Linux looks at all places for connections, too."""
    with (
        own_network(),
        socket.create_server(("127.0.0.1", 0)) as four,
        socket.create_server(("::", 0), family=socket.AF_INET6) as six,
        socket.create_connection(four.getsockname()) as client,
    ):
        found = socket_diag.listening()
        assert found == listening() == {place for place, _ in _sockets("tcp", only=LISTEN)}
        assert found == {four.getsockname(), six.getsockname()[:2]}
        assert client.getsockname() not in found


def test_a_list_of_thousands_comes_in_several_messages() -> None:
    with own_network():
        made = [socket.create_server(("127.0.0.1", 0)) for _ in range(600)]
        try:
            assert socket_diag.listening() == {each.getsockname() for each in made}
        finally:
            for each in made:
                each.close()
