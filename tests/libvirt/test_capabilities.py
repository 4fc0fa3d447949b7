"""What a host can do that lacks an emulator."""

from __future__ import annotations

import libvirt
import pytest

from nospoon.model.cluster import Arch, Firmware
from nospoon.providers.libvirt.bindings import Connect
from nospoon.providers.libvirt.capabilities import ask_facts

pytestmark = pytest.mark.libvirt

ABSENT = "riscv64"
"""No package of the tests has QEMU for it."""


class Without:
    """libvirtd's connection, of a machine that has ABSENT in place of an architecture."""

    def __init__(self, connect: Connect, arch: Arch) -> None:
        self._connect, self._arch = connect, arch

    def __getattr__(self, name: str) -> object:
        return getattr(self._connect, name)

    def getDomainCapabilities(  # noqa: N802  (libvirt's)
        self, emulator: None, arch: str, machine: str, kind: str, flags: int
    ) -> str:
        asked = ABSENT if arch == self._arch else arch
        return self._connect.getDomainCapabilities(emulator, asked, machine, kind, flags)


@pytest.mark.parametrize("arch", Arch)
def test_a_host_may_lack_the_emulator_of_an_architecture(arch: Arch) -> None:
    connect = libvirt.open("qemu:///system")
    try:
        facts = ask_facts(Without(connect, arch))  # type: ignore[arg-type]
    finally:
        connect.close()
    assert facts.archs == set(Arch) - {arch}
    assert (Firmware.BIOS in facts.firmwares) == (arch is not Arch.X86_64)
