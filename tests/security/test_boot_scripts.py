"""What a file says of the network boot stays one line of a loader's script."""

from __future__ import annotations

import pytest

from nospoon.clusterfile.load import load
from nospoon.errors import SpecError


def boot(profile: str) -> str:
    return (
        "cluster: c\nhosts: {s: {simulated: {agents: {api: 'http://a'}}}}\n"
        f"boot: {{p: {{{profile}}}}}\nnodes: [{{boot: p}}]\n"
    )


@pytest.mark.parametrize(
    ("profile", "path"),
    [
        (r'script: "http://h/k\nx"', "boot.p.script"),
        (r'script: "http://h/k x"', "boot.p.script"),
        (r'script: "http://h/k\u2028x"', "boot.p.script"),
        ('script: "http:///k"', "boot.p.script"),
        ('script: "http://h:99999/k"', "boot.p.script"),
        (r'kernel: "http://h/k\nx"', "boot.p.kernel"),
        (r'kernel: k, initrd: ["http://h/k\rx"]', "boot.p.initrd[0]"),
        (r'kernel: k, cmdline: "a\nshell"', "boot.p.cmdline"),
        (r'kernel: k, cmdline: "a\rshell"', "boot.p.cmdline"),
        (r'kernel: k, cmdline: "a\0b"', "boot.p.cmdline"),
        (r'kernel: k, cmdline: "a\x85b"', "boot.p.cmdline"),
    ],
)
def test_a_line_end_in_a_script_s_url_or_a_command_line_is_refused(profile: str, path: str) -> None:
    with pytest.raises(SpecError) as refused:
        load(boot(profile), file="f")
    assert (3, path) in [(each.line, each.path) for each in refused.value.problems]


@pytest.mark.parametrize("key", ["api", "boot_script"])
def test_so_is_one_in_other_urls(key: str) -> None:
    text = (
        f'cluster: c\nhosts: {{s: {{simulated: {{agents: {{{key}: "http://h/\\nx"}}}}}}}}\n'
        "nodes: [{}]\n"
    )
    with pytest.raises(SpecError, match="it has a blank"):
        load(text, file="f")


def test_a_folded_command_line_may_end_in_a_line_end() -> None:
    text = "cluster: c\nboot:\n  p:\n    kernel: k\n    cmdline: >\n      a\n      b\nnodes: [{}]\n"
    (profile,) = load(text, file="f").profiles
    assert profile.cmdline == "a b"
