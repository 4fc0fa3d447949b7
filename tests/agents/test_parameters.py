"""Boot scripts and menus as Ironic 39 makes them, and others."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nospoon.protocols import iso9660
from nospoon.protocols.agent.parameters import (
    LocalDisk,
    Nothing,
    Parameters,
    Ramdisk,
    of_menu,
    parameters,
    per_mac,
    target,
)
from nospoon.providers.simulated import media

MAC = "02:00:00:00:00:01"
BOOT = """#!ipxe
set netid:int32 -1
:loop
inc netid || chain pxelinux.cfg/${mac:hexhyp} || goto old_rom
isset ${net${netid}/mac} || goto loop_done
chain pxelinux.cfg/${net${netid}/mac:hexhyp} || goto loop
exit 0
:loop_done
reboot
"""
OWN = """#!ipxe
set i:int32 0
goto %s
:deploy
imgfree
kernel --timeout 60 http://h/k selinux=0 text ipa-api-url=http://h:6385 BOOTIF=${mac} initrd=r || goto retry
initrd http://h/r || goto retry
boot
:retry
goto deploy
:boot_whole_disk
sanboot --no-describe || exit 0
"""  # noqa: E501  (as it is)
GRUB = """set default=0
menuentry "boot_partition" {
linux /vmlinuz nofb ipa-api-url=http://h:6385 ipa-agent-token=secret boot_method=vmedia --
initrd /initrd
}
"""


def test_a_boot_script_leads_to_that_of_a_nic() -> None:
    assert per_mac(BOOT, MAC) == "pxelinux.cfg/02-00-00-00-00-01"
    assert per_mac(OWN, MAC) is None


def test_a_nics_script_leads_to_a_ramdisk_or_to_the_disk() -> None:
    found = target(OWN % "deploy", MAC)
    assert isinstance(found, Ramdisk)
    assert found.cmdline == f"selinux=0 text ipa-api-url=http://h:6385 BOOTIF={MAC} initrd=r"
    assert parameters(found.cmdline) == Parameters("http://h:6385")
    assert target(OWN % "boot_whole_disk", MAC) == LocalDisk()
    assert target(OWN % "nowhere", MAC) == Nothing()
    assert target("#!ipxe\nsanboot --no-describe", MAC) == LocalDisk()
    assert target("", MAC) == Nothing()


def test_parameters_name_api_token_and_inspection_or_there_is_no_agent() -> None:
    line = "ipa-inspection-callback-url=http://h/v1/continue_inspection ipa-api-url=http://h/"
    assert parameters(line) == Parameters("http://h", "", "http://h/v1/continue_inspection")
    callback = "http://h/v1/continue_inspection"
    alone = f"ipa-inspection-callback-url={callback}"
    assert parameters(alone) == Parameters("http://h", "", callback)
    assert parameters("quiet", api="http://g") == Parameters("http://g")
    assert parameters("quiet") is None


def test_a_medium_tells_its_kernel_what_ironic_wrote_on_it(tmp_path: Path) -> None:
    files = tmp_path / "files"
    (files / "EFI" / "BOOT").mkdir(parents=True)
    (files / "EFI" / "BOOT" / "grub.cfg").write_text(GRUB)
    for number in range(80):  # more than a sector of directory records
        (files / f"some-other-file-{number}").write_text("x")
    iso = tmp_path / "agent.iso"
    argv = ["xorriso", "-as", "mkisofs", "-quiet", "-r", "-J", "-l", "-o", str(iso), str(files)]
    subprocess.run(argv, check=True, capture_output=True)
    told = parameters(media.cmdline(iso))
    assert told == Parameters("http://h:6385", "secret")
    (tmp_path / "none").write_bytes(bytes(40_000))
    assert media.cmdline(tmp_path / "none") == ""


def test_a_menu_without_an_agent_tells_nothing() -> None:
    assert of_menu("linux /vmlinuz quiet") == ""
    assert "ipa-api-url" in of_menu(
        "label boot\nappend initrd=/initrd text ipa-api-url=http://h --"
    )


@given(st.binary(max_size=3 * 2048))
def test_any_bytes_are_an_image_or_none(data: bytes) -> None:
    image = bytes(16 * 2048) + b"\x01CD001" + data

    def read(offset: int, length: int) -> bytes:
        return image[offset : offset + length]

    for each in iso9660.find(read, frozenset({"grub.cfg"}), largest=10):
        assert len(each) <= 10


@given(st.text())
def test_any_text_leads_somewhere_or_nowhere(text: str) -> None:
    assert isinstance(target(text, MAC), Ramdisk | LocalDisk | Nothing)
    per_mac(text, MAC)
    of_menu(text)
