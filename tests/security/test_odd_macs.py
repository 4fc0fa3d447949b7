"""What a host says in place of a MAC reaches no name of a file: its boot server's files are called
by MACs, and are written by the daemon on its own machine, for hosts over ssh too.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from uuid import UUID

import pytest

from nospoon.errors import ProviderError
from nospoon.model.mac import is_mac
from nospoon.model.resources.netboot import Loader, Reservation
from nospoon.providers.libvirt.domain_parse import nics_of
from nospoon.services.netboot import instructions
from nospoon.services.netboot.tree import Tree
from nospoon.testing.netboot import ToldAuthority

ODD = ("../../../victim/shadow", "02:00:00:00:00:01\n02:00:00:00:00:02", "02:00:00:00:00:0g", "")


@pytest.mark.parametrize("mac", ODD)
def test_a_reservation_of_an_odd_mac_is_not_written(tmp_path: Path, mac: str) -> None:
    victim = tmp_path / "victim" / "shadow"
    victim.parent.mkdir()
    victim.write_text("root")
    tree = Tree(tmp_path / "a" / "b")
    for directory in (tree.hosts, tree.scripts, tree.machines):
        directory.mkdir(parents=True)
    for also in ((), ("02:00:00:00:00:01",)):
        odd = Reservation(mac, "10.0.0.2", "n", UUID(int=1), Loader.GRUB, also=also)
        with pytest.raises(ProviderError, match="node n: expected a MAC address, got"):
            tree.write_reservations([odd])
        with pytest.raises(ProviderError, match="node n: expected a MAC address, got"):
            instructions.write(tree, [odd], ToldAuthority(), address="10.0.0.1")
    assert victim.read_text() == "root"
    assert list(tree.hosts.iterdir()) == []


@pytest.mark.parametrize("mac", ODD)
def test_a_domain_whose_definition_has_an_odd_mac_has_none(mac: str) -> None:
    domain = ET.Element("domain")
    nic = ET.SubElement(ET.SubElement(domain, "devices"), "interface", type="bridge")
    ET.SubElement(nic, "mac", address=mac)
    (found,) = nics_of(domain)
    assert found.mac == ""
    assert not is_mac(mac)
