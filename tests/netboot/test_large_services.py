"""Services of ten thousand machines: their files are read and written in threads, because the event
loop answers all users' BMCs meanwhile.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import cast
from uuid import UUID

import pytest
from tests.netboot.conftest import TAG, Bridge

from nospoon.model.cluster import Arch
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import NetbootService, Reservation
from nospoon.model.resources.resource import Resource
from nospoon.protocols.ipxe import dnsmasq
from nospoon.runtime.process import Finished
from nospoon.runtime.runner import Runner
from nospoon.services.netboot.driver import NetbootDriver
from nospoon.services.netboot.remote import Place, RemoteNetbootDriver
from nospoon.services.netboot.tree import Tree
from nospoon.testing.netboot import ToldAuthority

pytestmark = pytest.mark.tools
LONG = ("load", "reserved", "write_reservations", "has_left", "drop_left")


@pytest.fixture
def in_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What takes long with many machines and was done in this thread."""
    here, found = threading.get_ident(), list[str]()

    def noted(name: str) -> None:
        real = getattr(Tree, name)

        def call(self: Tree, *given: object, **more: object) -> object:
            if threading.get_ident() == here:
                found.append(name)
            return real(self, *given, **more)

        monkeypatch.setattr(Tree, name, call)

    for each in LONG:
        noted(each)
    return found


async def test_they_are_made_changed_published_and_removed_off_the_event_loop(
    driver: NetbootDriver, service: Resource, bridge: Bridge, in_loop: list[str]
) -> None:
    assert isinstance(service.shape, NetbootService)
    for count in (2, 1):
        given = tuple(
            Reservation(f"02:00:00:aa:00:0{n}", bridge.host(20 + n), f"n-{n}", UUID(int=n))
            for n in range(1, count + 1)
        )
        wanted = replace(service, shape=replace(service.shape, reservations=given))
        await driver.create(wanted, TAG)
        await driver.publish(UUID(int=1))
    (observed,) = await driver.observe(TAG.cluster)
    await driver.change(observed, service, TAG)
    await driver.start()
    await driver.delete(observed)
    assert in_loop == []


async def test_a_record_is_read_for_a_machine_that_it_has_alone(
    driver: NetbootDriver, service: Resource, bridge: Bridge
) -> None:
    """What a machine boots changes as often as its BMC's clients like."""
    assert isinstance(service.shape, NetbootService)
    given = Reservation("02:00:00:aa:00:01", bridge.host(20), "n", UUID(int=1))
    await driver.create(replace(service, shape=replace(service.shape, reservations=(given,))), TAG)
    ((tree, saved),) = driver._ours(naming=[UUID(int=1)])
    assert saved.shape.reservations == (given,)
    assert tree.load() == saved
    assert driver._ours(naming=[UUID(int=2)]) == []


async def test_so_are_those_of_hosts_over_ssh(
    tmp_path: Path, authority: ToldAuthority, in_loop: list[str]
) -> None:
    class Silent:
        """A host that answers each command with nothing."""

        async def run(self, argv: list[str], **_: object) -> Finished:
            return Finished(tuple(argv), 0, "", "")

    async def find_grub(_: Arch) -> Path:
        return tmp_path

    driver = RemoteNetbootDriver(
        place=Place(tmp_path, PurePosixPath("/there")),
        deployment="test",
        runner=cast("Runner", Silent()),
        authority=authority,
        find_grub=find_grub,
        is_there=lambda _: True,
    )
    given = Reservation("02:00:00:aa:00:01", "10.9.0.9", "n", UUID(int=1))
    shape = NetbootService("br", "10.9.0.1/24", ("", ""), (given,))
    resource = Resource(Key(Kind.NETBOOT, "h", "provision"), shape)
    await driver.create(resource, TAG)
    ((tree, saved),) = driver._prepared(naming=[UUID(int=1)])
    assert (saved.key, tree.reserved()) == (resource.key, [dnsmasq.reservation(given)])
    assert driver._prepared(naming=[UUID(int=2)]) == []
    in_loop.clear()
    await driver.publish(UUID(int=1))
    await driver.create(resource, TAG)
    await driver.start()
    assert in_loop == []
