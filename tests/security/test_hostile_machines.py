"""Machines and networks of others that libvirt describes in ways that cannot be read: whoever made
them keeps nospoon from none of the others there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree as ET

import libvirt
import pytest
from structlog.testing import capture_logs

from nospoon.errors import ProviderError
from nospoon.model.cluster import Host
from nospoon.model.connections import Libvirt
from nospoon.model.resources.keys import Kind
from nospoon.providers.libvirt import LibvirtConnection, definitions
from nospoon.providers.libvirt.elements import LONGEST_NAMESPACE, MOST_TAGS, PIECE, parsed
from nospoon.providers.libvirt.owner import NAMESPACE
from nospoon.runtime.log_rate import LINES, RateLimitedLog
from nospoon.runtime.runner import LocalRunner
from nospoon.testing.libvirtd import OwnLibvirt, a_libvirt_of_ones_own

HOSTILE = {
    "no namespace": "<a:x xmlns:a='urn:x'><b:y/></a:x>",
    "attribute of no namespace": "<a:x xmlns:a='urn:x' b:y=''/>",
    "attribute twice": "<a:x xmlns:a='urn:x' xmlns:b='urn:x' a:y='' b:y=''/>",
    "entity": "<a:x xmlns:a='urn:x'>&foo;</a:x>",
    "longer than an answer": "<a:x xmlns:a='urn:x'>" + ">" * (3 << 19) + "</a:x>",
    "a long namespace": f"<a:x xmlns:a='{'u' * (LONGEST_NAMESPACE + 1)}'/>",
    "more elements than are read": "<a:x xmlns:a='urn:x'>" + "<y/>" * MOST_TAGS + "</a:x>",
}


@pytest.fixture(scope="module")
def own_libvirt() -> Iterator[OwnLibvirt]:
    with a_libvirt_of_ones_own() as made:
        yield made


@pytest.fixture(params=HOSTILE.values(), ids=list(HOSTILE))
def metadata(request: pytest.FixtureRequest) -> str:
    return f"<metadata>{request.param}</metadata>"


@pytest.fixture
async def connection(own_libvirt: OwnLibvirt, tmp_path: Path) -> AsyncIterator[LibvirtConnection]:
    async def no_image(sha256: str) -> str:
        raise AssertionError(sha256)

    made = LibvirtConnection(
        Host("here", Libvirt(own_libvirt.uri)), "kit", LocalRunner(), no_image,
        records=str(tmp_path), verdicts=tmp_path, opened=own_libvirt.uri,
    )  # fmt: skip
    yield made
    await made.close()


@pytest.fixture
def connect(own_libvirt: OwnLibvirt) -> Iterator[Any]:
    made = libvirt.open(own_libvirt.uri)
    yield made
    for each in (*made.listAllDomains(0), *made.listAllNetworks(0)):
        each.undefine()
    made.close()


def define(connect: Any, name: str, metadata: str = "") -> None:
    connect.defineXML(
        "<!DOCTYPE domain [<!ENTITY foo 'bar'>]>"
        f"<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory>{metadata}"
        "<os><type arch='x86_64' machine='pc'>hvm</type></os></domain>"
    )


async def test_one_machine_that_cannot_be_read_hides_no_others(
    connect: Any, connection: LibvirtConnection, metadata: str
) -> None:
    """It was "host is unreachable" for all, or an error that ended the daemon's look at the host
    without a word, for which its start waited then.
    """
    define(connect, "before")
    define(connect, "hostile", metadata)
    define(connect, "later")
    found = await connection.adoptable()
    assert [each.name for each in found] == ["before", "later"]
    assert await connection.deployments() == {}
    assert await connection.survey("/", ["pool/volume"]) is not None
    for kind in (Kind.MACHINE, Kind.NETWORK):
        assert await connection.drivers[kind].observe(None) == []


async def test_an_administrator_is_told_which_machine_is_left_out(
    connect: Any, connection: LibvirtConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once in a while, however often the host is looked at; at first at level debug alone."""
    define(connect, "hostile", f"<metadata>{HOSTILE['no namespace']}</metadata>")
    monkeypatch.setattr(definitions, "log", RateLimitedLog())
    with capture_logs() as lines:
        for _ in range(3 * LINES):
            await connection.adoptable()
    said = [each for each in lines if each["event"] == "machine cannot be read and is left out"]
    assert 0 < len(said) <= LINES
    assert {(each["log_level"], each["domain"]) for each in said} == {("warning", "hostile")}


OWNER = (
    f"<nospoon:owner xmlns:nospoon='{NAMESPACE}' deployment='kit' cluster='{uuid4()}' name='n' "
    "generation='1' {more}>{inside}</nospoon:owner>"
)


async def test_a_machine_with_a_tag_and_an_unknown_processor_hides_no_others(
    connect: Any, connection: LibvirtConnection
) -> None:
    """Who may change an adopted machine chose what it is: all looks at that host failed."""
    tag = OWNER.format(more="adopted='yes'", inside="")
    connect.defineXML(
        "<domain type='qemu'><name>odd</name><memory unit='MiB'>64</memory>"
        f"<metadata>{tag}</metadata><os><type arch='i686' machine='pc'>hvm</type></os></domain>"
    )
    define(connect, "good", f"<metadata>{tag}</metadata>")
    machines = await connection.drivers[Kind.MACHINE].observe(None)
    assert [each.key.name for each in machines] == ["n"]


@pytest.mark.parametrize("inside", ["<nospoon:guard ports='x'/>", "<nospoon:tunnel vni='x'/>"])
async def test_a_network_whose_tag_says_no_numbers_hides_no_others(
    connect: Any, connection: LibvirtConnection, inside: str
) -> None:
    for name, each in (("hostile", inside), ("good", "")):
        tag = OWNER.format(more="", inside=each)
        connect.networkDefineXML(
            f"<network><name>{name}</name><metadata>{tag}</metadata><bridge name='{name}'/>"
            "</network>"
        )
    networks = await connection.drivers[Kind.NETWORK].observe(None)
    assert [each.key.name for each in networks] == ["n"]


async def test_a_network_that_cannot_be_read_hides_no_others(
    connect: Any, connection: LibvirtConnection
) -> None:
    connect.networkDefineXML(
        f"<network><name>hostile</name><metadata>{HOSTILE['no namespace']}</metadata></network>"
    )
    assert await connection.deployments() == {}
    assert await connection.drivers[Kind.NETWORK].observe(None) == []


def test_others_have_turns_while_a_definition_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 MiB of it took 0.7 s, in which no other thread of the daemon had a turn."""
    fed: list[int] = []

    class Parser(ET.XMLParser):
        def feed(self, data: Any, /) -> None:
            fed.append(len(data))
            super().feed(data)

    monkeypatch.setattr(ET, "XMLParser", Parser)
    root = parsed(f"<a>{'<b/>' * 10_000}{'y' * (1 << 20)}</a>")
    assert len(root) == 10_000
    assert max(fed) <= PIECE


def test_a_definition_that_has_more_elements_than_any_machine_is_not_parsed() -> None:
    with pytest.raises(ProviderError, match="tags; at most 131072 are read"):
        parsed(f"<a>{'<b/>' * MOST_TAGS}</a>")


def test_names_do_not_have_a_long_namespace_each() -> None:
    """4 MiB of a definition would have taken 200 GB."""
    elements = "".join(f"<a:b{number}/>" for number in range(50_000))
    with pytest.raises(ProviderError, match="a namespace 'a' of 1048576 characters"):
        parsed(f"<x><a:c xmlns:a='{'u' * (1 << 20)}'>{elements}</a:c></x>")
