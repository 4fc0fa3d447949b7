"""Registered machines and filters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nospoon.clusterfile.requests import read_element
from nospoon.lab.grammar import wrong
from nospoon.lab.match import mismatches
from nospoon.model.lab import Registered

GIB = 1 << 30
MACHINE = Registered(
    "rack-7",
    memory=65536,
    cpus=32,
    disks=(480 * GIB, 4000 * GIB),
    values={
        "system/vendor": ("Acme",),
        "cpu/model_name": ("Acme Turbo 9",),
        "cpu/sockets": ("2",),
        "pool": ("gpu", "fast"),
        "hostname": ("rack-7.example.com",),
    },
    key_values={"HVM": ("1",), "DISK": ("480", "4000")},
)


def matches(text: str, machine: Registered = MACHINE) -> bool:
    element = read_element(f"<hostRequires>{text}</hostRequires>".encode(), file="f")
    assert not list(wrong(element))
    return not mismatches(element, machine, "dev")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("<memory op='&gt;=' value='65536'/>", True),
        ("<memory op='&gt;' value='65536'/>", False),
        ("<cpu><processors op='&gt;' value='8'/><sockets value='2'/></cpu>", True),
        ("<cpu><sockets op='&gt;' value='2'/></cpu>", False),
        ("<cpu><model_name op='like' value='%Turbo%'/></cpu>", True),
        ("<system><vendor value='Acme'/></system>", True),
        ("<system><vendor op='!=' value='Acme'/></system>", False),
        ("<system><model op='!=' value='X'/></system>", True),
        ("<system><model value='X'/></system>", False),
        ("<pool value='gpu'/>", True),
        ("<group value='gpu'/>", True),
        ("<pool op='!=' value='gpu'/>", False),
        ("<hostname value='rack-7'/>", True),
        ("<hostname value='rack-7.example.com'/>", True),
        ("<hostname op='like' value='%.example.com'/>", True),
        ("<key_value key='HVM' value='1'/>", True),
        ("<key_value key='DISK' op='&gt;' value='1000'/>", True),
        ("<key_value key='NONE' value='1'/>", False),
        ("<key_value key='NONE' op='!=' value='1'/>", True),
        ("<arch value='x86_64'/>", True),
        ("<arch value='i386'/>", True),
        ("<arch value='ppc64le'/>", False),
        ("<labcontroller value='dev'/>", True),
        ("<labcontroller value='other'/>", False),
        ("<hypervisor value=''/>", True),
        ("<hypervisor value='KVM'/>", False),
        ("<system_type value='Machine'/>", True),
        ("<disk><size op='&gt;' value='1' units='TiB'/></disk>", True),
        ("<disk><size op='&gt;' value='5' units='TiB'/></disk>", False),
        ("<diskcount op='&gt;=' value='2'/>", True),
        ("<diskspace op='&gt;' value='4' units='TiB'/>", True),
        ("<or><pool value='none'/><memory op='&gt;' value='1'/></or>", True),
        ("<or/>", False),
        ("<not><pool value='gpu'/></not>", False),
        ("<not><pool value='none'/></not>", True),
        ("<and><pool value='gpu'/><pool value='fast'/></and>", True),
    ],
)
def test_a_filter_is_compared_with_what_is_known_of_a_machine(
    text: str,
    expected: bool,  # noqa: FBT001  (pytest passes by name)
) -> None:
    assert matches(text) is expected


def test_force_names_one_machine() -> None:
    for name, expected in (("rack-7", True), ("rack-7.example.com", True), ("rack-8", False)):
        element = read_element(f"<hostRequires force='{name}'/>".encode(), file="f")
        assert (not mismatches(element, MACHINE, "dev")) is expected


def test_reasons_name_the_element_and_what_there_is() -> None:
    text = "<hostRequires>\n<memory op='&gt;' value='99999'/>\n<pool value='x'/></hostRequires>"
    found = mismatches(read_element(text.encode(), file="f"), MACHINE, "dev")
    assert [(each.at.line, each.why) for each in found] == [
        (2, "it has 65536 MiB of memory: expected > 99999"),
        (3, "its pool is 'gpu' or 'fast': expected = 'x'"),
    ]


def test_a_machine_whose_disks_are_not_known_says_what_helps() -> None:
    text = "<hostRequires><disk><size op='&gt;' value='1'/></disk></hostRequires>"
    bare = replace(MACHINE, disks=())
    (why,) = mismatches(read_element(text.encode(), file="f"), bare, "dev")
    assert (
        why.why == "no disk of it is known: name them in the file (`disks`), or take its inventory"
    )
