"""Texts of media, boot scripts and names of images that make a pattern look at them for ever: no
other thread of the daemon runs meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from nospoon.clusterfile import service_nodes
from nospoon.clusterfile.load import load
from nospoon.errors import SpecError
from nospoon.protocols.agent.parameters import of_menu, per_mac
from nospoon.runtime.json_depth import is_too_deep
from nospoon.services.bmcs.redfish.http.methods import unknown_method
from nospoon.services.bmcs.redfish.resources.update import _version

LONG = 1 << 20
SECONDS = 60
"""In which these take milliseconds, and hours where each character is looked at for each one."""
METHODS, DEPTH = "nospoon.services.bmcs.redfish.http.methods", "nospoon.runtime.json_depth"
PARAMETERS, UPDATE = (
    "nospoon.protocols.agent.parameters",
    "nospoon.services.bmcs.redfish.resources.update",
)


@pytest.mark.parametrize(
    ("module", "call"),
    [
        (PARAMETERS, f"of_menu('\\n' * {LONG})"),
        (PARAMETERS, f"of_menu(' \\n' * {LONG})"),
        (PARAMETERS, f"of_menu('linux' + ' ' * {LONG})"),
        (PARAMETERS, f"per_mac('--chain ' * {LONG}, '02:00:00:00:00:01')"),
        (PARAMETERS, f"per_mac('chain ' * {LONG}, '02:00:00:00:00:01')"),
        (PARAMETERS, f"per_mac('chain ' + '--a ' * {LONG}, '02:00:00:00:00:01')"),
        (UPDATE, f"_version('http://files/' + '1' * {LONG}, 'digest')"),
        (METHODS, f"unknown_method(b'A' * {LONG})"),
        (METHODS, f"unknown_method(b'A ' * {LONG})"),
        (METHODS, f"unknown_method(b'A' + b' ' * {LONG} + b'A' * {LONG})"),
        (DEPTH, f"is_too_deep(b'{{}}' * 40 + b'\"' + b'\\\\\"' * {LONG} + b'\\\\')"),
        (DEPTH, f"is_too_deep(b'{{}}' * 40 + b'\"' * {LONG})"),
    ],
)
def test_no_text_is_looked_at_again_and_again(module: str, call: str) -> None:
    text = f"from {module} import *; from {module} import {call.partition('(')[0]}; {call}"
    subprocess.run([sys.executable, "-c", text], check=True, timeout=SECONDS)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (
            of_menu("set x\n\tlinux  /vmlinuz ipa-api-url=a quiet \n"),
            "/vmlinuz ipa-api-url=a quiet",
        ),
        (of_menu("label x\r\n  append ipa-api-url=b\r\n"), "ipa-api-url=b"),
        (
            per_mac(":boot\nchain --autofree --replace a/${mac:hexhyp}.x || goto b", "0a:0b"),
            "a/0a-0b.x",
        ),
        (per_mac("#!ipxe\n\nchain pxelinux.cfg/${net0/mac:hexhyp}", "0a:0b"), "pxelinux.cfg/0a-0b"),
        (_version("http://files/bios-2.10.3-rc1.bin", ""), "2.10.3-rc1"),
        (_version("http://files/u20.1-and-v7_2.bin", ""), "7_2"),
        (unknown_method(b'{"a": 1}BREW /x HTTP/1.1\r\nHost: h\r\n'), "BREW"),
        (unknown_method(b"GET /x HTTP/1.1\r\n"), None),
        (is_too_deep(b'{"a": "' + b"[" * 99 + b'"}'), False),
        (is_too_deep(b"[" * 33), True),
        (is_too_deep(b'["' + b"\\" + b'"' + b"[" * 40), False),
        (is_too_deep(b'{"a": [' * 16 + b"[], {}, 0" + b"]}" * 16), True),
        (is_too_deep(b'{"a": [' * 16 + b"0" + b"]}" * 16 + b" []" * 40), False),
        (is_too_deep(b"[" + b"{}, []," * 5_000 + b"[" * 32 + b"]" * 33), True),
    ],
)
def test_what_they_are_to_find_is_found(found: Any, wanted: str) -> None:
    assert found == wanted


SERVICES = """
cluster: x
hosts: {sim: simulated}
nodes: [{name: "n-{n}", count: 5, kind: vm, image: "http://i"}]
services: {s: {nodes: ["n-0", "n-[1]", "*2"]}, t: {nodes: ["*-?"]}}
"""


def test_names_of_nodes_are_compared_with_so_many_patterns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """6,400 patterns, with 20,000 nodes each, had a plan take a processor for minutes."""
    monkeypatch.setattr(service_nodes, "MOST_COMPARED", 15, raising=False)
    assert [len(each.nodes) for each in load(SERVICES, file="f").services] == [3, 5]
    monkeypatch.setattr(service_nodes, "MOST_COMPARED", 14, raising=False)
    with pytest.raises(SpecError, match="at most 2 patterns of names with 5 nodes, got 3"):
        load(SERVICES, file="f")
