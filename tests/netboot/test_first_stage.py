"""The boot image asks for a network boot as firmware does, as an unmodified DHCP server expects it.

iPXE sends what a PXE client sends (PXE 2.1 §2.2.3, RFC 4578): `PXEClient:Arch:…:UNDI:…`, and its
options 93, 94 and 97. The user class iPXE besides is for servers that know it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest
from tests.netboot.test_boot_image import BOTH

from nospoon.model.boot import BootDevice
from nospoon.model.cluster import Firmware
from nospoon.services.netboot.http import create_app
from nospoon.services.netboot.iso import build_boot_image
from nospoon.services.netboot.peers import Peers
from nospoon.services.netboot.ports import BootAnswer
from nospoon.services.netboot.serving import HttpListeners
from nospoon.testing import disks
from nospoon.testing.netboot import Hardware, ToldAuthority, running

SERVER = """
port=0
interface={bridge}
except-interface=lo
bind-interfaces
no-hosts
no-resolv
keep-in-foreground
log-facility=-
log-dhcp
user=nobody
pid-file=
dhcp-leasefile={state}/leases
dhcp-range={first},{last},255.255.255.0
enable-tftp
tftp-root={state}/tftp
dhcp-vendorclass=set:bios,PXEClient:Arch:00000:UNDI:002001
dhcp-vendorclass=set:uefi,PXEClient:Arch:00007:UNDI:003010
dhcp-match=set:bios-arch,option:client-arch,0
dhcp-match=set:uefi-arch,option:client-arch,7
dhcp-match=set:interface,94
dhcp-match=set:machine,97
dhcp-boot=tag:bios,tag:bios-arch,tag:interface,tag:machine,bios.0
dhcp-boot=tag:uefi,tag:uefi-arch,tag:interface,tag:machine,uefi.efi
"""
"""It knows firmware alone: nothing here names iPXE, neither its user class nor its option 175."""


class Net(Protocol):
    name: str
    tap: str

    def host(self, number: int) -> str: ...


@asynccontextmanager
async def dhcp_of_others(bridge: Net, state: Path) -> AsyncIterator[None]:
    """A dnsmasq that firmware boots from, with a program for each kind."""
    tftp = state / "tftp"
    tftp.mkdir()
    program = disks.bios_disk(state / "program.raw").read_bytes()[:512]
    (tftp / "bios.0").write_bytes(program)
    (tftp / "uefi.efi").write_bytes(disks.efi_program(disks.GREETING))
    (state / "leases").touch()
    (state / "leases").chmod(0o666)
    conf = state / "dnsmasq.conf"
    conf.write_text(
        SERVER.format(
            bridge=bridge.name, state=state, first=bridge.host(100), last=bridge.host(150)
        )
    )
    process = await asyncio.create_subprocess_exec(
        "dnsmasq", f"--conf-file={conf}", stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    said = b""
    while b"DHCP, sockets bound" not in said:
        line = await process.stderr.readline()
        assert line, f"dnsmasq ended: {said.decode()}"
        said += line
    try:
        yield
    finally:
        process.terminate()
        await process.communicate()


@BOTH
@pytest.mark.boots
@pytest.mark.timeout(600)
async def test_a_rescued_machine_boots_what_a_server_that_knows_firmware_alone_gives_it(
    firmware: Firmware,
    memory: int,
    bridge: Net,
    state: Path,
    authority: ToldAuthority,
) -> None:
    """With the boot image as a CD in front of its own disk, as Nova rescues servers."""
    uuid = uuid4()
    authority.answers[uuid] = BootAnswer(
        uuid,
        BootDevice.NETWORK,
        boot_image=True,
        after=(BootAnswer(uuid, BootDevice.DISK),),
        secret=uuid,
    )
    peers = Peers(lambda _: None)
    listeners = HttpListeners(create_app(authority, peers, ready=lambda: True), port=0)
    await listeners.open(bridge.host(1))
    try:
        url = f"http://{bridge.host(1)}:{listeners.port}"
        image = await build_boot_image(base_url=url, place=state / "images")
        disk = state / "disk.raw"
        disk.write_bytes(bytes(1 << 20))
        more = [
            *("-boot", "strict=on"),
            *("-netdev", f"tap,id=n,ifname={bridge.tap},script=no,downscript=no"),
            *("-device", "virtio-net-pci,netdev=n,mac=02:00:00:00:00:01"),
            *("-drive", f"file={image},media=cdrom,if=none,id=cd,readonly=on"),
            *("-device", "ide-cd,drive=cd,bus=ide.0,bootindex=1"),
            *("-drive", f"file={disk},format=raw,if=none,id=d"),
            *("-device", "virtio-blk-pci,drive=d"),
        ]
        hardware = Hardware(firmware, uuid, state, memory, more, display=True)
        async with dhcp_of_others(bridge, state), running(hardware) as guest:
            await guest.until(b"boot the network")
            await guest.until(b"Filename: ")
            await guest.until(disks.GREETING)
        name = b"bios.0" if firmware is Firmware.BIOS else b"uefi.efi"
        assert b"Filename: " + name in guest.said
        assert b"boot the disk" not in guest.said
    finally:
        await listeners.close_all()
