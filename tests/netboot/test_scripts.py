"""What loaders are told, as text: whole scripts, so that a change shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.model.boot import BootDevice
from nospoon.protocols.ipxe import grub, image, script
from nospoon.protocols.ipxe.offer import Kernel, Offer

KERNEL = Kernel("installer", "http://h/k", ("http://h/i", "http://h/j"), "a  b='x y'\nc")
NOTHING = Offer(BootDevice.NETWORK)


def test_ipxe_boots_a_kernel_and_tries_again() -> None:
    assert script.answer(Offer(BootDevice.NETWORK, KERNEL)).splitlines() == [
        "#!ipxe",
        "echo nospoon: boot installer",
        "set tries:int32 0",
        ":load",
        "inc tries",
        "imgfree",
        "kernel --name kernel http://h/k initrd=initrd0 initrd=initrd1 a b='x y' c || goto failed",
        "initrd --name initrd0 http://h/i || goto failed",
        "initrd --name initrd1 http://h/j || goto failed",
        "boot ||",
        ":failed",
        "iseq ${tries} 10 && goto leave ||",
        "echo nospoon: that failed (try ${tries} of 10), again in 3 s",
        "sleep 3",
        "goto load",
        ":leave",
        "echo nospoon: leaving to the next boot device",
        "exit 1",
    ]


def test_grub_boots_a_kernel() -> None:
    assert grub.answer(Offer(BootDevice.NETWORK, KERNEL)).splitlines() == [
        "# written by nospoon",
        "echo 'nospoon: boot installer'",
        r"if linux 'http://h/k' 'a' 'b='\''x' 'y'\''' 'c'; then",
        "  if initrd 'http://h/i' 'http://h/j'; then boot; fi",
        "fi",
        'echo "nospoon: that failed"',
    ]


def test_ipxe_asks_by_uuid_for_minutes_and_then_leaves() -> None:
    lines = script.ask("http://172.31.0.1:8069").splitlines()
    chain = "chain --replace --autofree http://172.31.0.1:8069/boot/${uuid}/ipxe"
    assert f"{chain} && goto ask_done ||" in lines
    assert "iseq ${tries} 60 && goto leave ||" in lines
    assert lines[-1] == "exit 1"


def test_grub_looks_for_its_machine_s_file() -> None:
    text = grub.ask("172.31.0.1")
    assert 'source "(tftp,172.31.0.1)/grub/machines/${net_default_mac}.cfg"' in text
    assert grub.machine_file("02:00:00:00:00:01") == "grub/machines/02:00:00:00:00:01.cfg"


def test_ipxe_boots_the_disk_by_the_means_of_its_firmware() -> None:
    assert script.answer(Offer(BootDevice.DISK)).splitlines()[-3:] == [
        "iseq ${platform} pcbios && sanboot --no-describe --drive 0x80 ||",
        "echo nospoon: leaving to the next boot device",
        "exit 1",
    ]


@pytest.mark.parametrize("device", [BootDevice.NETWORK, BootDevice.CDROM, BootDevice.SETUP])
def test_where_there_is_nothing_ipxe_says_so_and_leaves(device: BootDevice) -> None:
    assert script.answer(Offer(device)).splitlines() == [
        "#!ipxe",
        f"echo nospoon: nothing to boot from the {device}",
        "echo nospoon: leaving to the next boot device",
        "exit 1",
    ]


def test_grub_can_enter_the_setup() -> None:
    assert "\nfwsetup\n" in grub.answer(Offer(BootDevice.SETUP))


ALL_DEVICES = (
    Offer(BootDevice.NETWORK, KERNEL), NOTHING, Offer(BootDevice.DISK),
    Offer(BootDevice.HTTP, uri="http://h/x.efi"), Offer(BootDevice.CDROM, uri="http://h/x"),
    Offer(BootDevice.NETWORK, KERNEL), Offer(BootDevice.DISK),
)  # fmt: skip


def test_every_label_that_a_script_goes_to_is_there() -> None:
    texts = [
        script.ask("http://h:1"),
        script.ask_from_iso("http://h:1"),
        script.answer(Offer(BootDevice.NETWORK, KERNEL)),
        image.ask("http://h:1"),
        image.answer(ALL_DEVICES),
    ]
    for text in texts:
        words = text.split()
        targets = {words[at + 1] for at, word in enumerate(words) if word == "goto"}
        labels = [line[1:] for line in text.splitlines() if line.startswith(":")]
        assert targets <= set(labels)
        assert len(labels) == len(set(labels))


@given(st.text(max_size=60))
def test_a_refusal_cannot_become_a_command(why: str) -> None:
    lines = script.answer(Offer(BootDevice.NETWORK, refusal=why)).splitlines()
    assert len(lines) == 4
    assert not {"|", "&", "$", "#"} & set(lines[1])


@given(st.text(max_size=60))
def test_a_command_line_stays_on_its_line(cmdline: str) -> None:
    kernel = Kernel("n", "http://h/k", (), cmdline)
    text = script.answer(Offer(BootDevice.NETWORK, kernel))
    assert sum(line.startswith("kernel ") for line in text.split("\n")) == 1
    assert len(text.split("\n")) == len(script.answer(_plain()).split("\n"))


def _plain() -> Offer:
    return Offer(BootDevice.NETWORK, Kernel("n", "http://h/k"))


@given(st.text(st.characters(exclude_categories=["Cc", "Zs"]), min_size=1, max_size=40))
def test_quoted_words_end_where_they_should(word: str) -> None:
    """Read back by GRUB's rule: inside ' nothing is special, outside \\ takes the next."""
    text, read, inside = grub.quoted(word), "", False
    at = 0
    while at < len(text):
        char = text[at]
        if char == "'":
            inside = not inside
        elif char == "\\" and not inside:
            at += 1
            read += text[at]
        else:
            assert inside
            read += char
        at += 1
    assert read == word


def test_http_boot_runs_a_program_and_makes_a_drive_of_an_image() -> None:
    program = script.answer(Offer(BootDevice.HTTP, uri="http://h/grub.efi")).splitlines()
    assert program[1:] == [
        "echo nospoon: boot http://h/grub.efi",
        "chain --autofree http://h/grub.efi ||",
        "echo nospoon: leaving to the next boot device",
        "exit 1",
    ]
    assert "sanboot --no-describe http://h/CD.ISO?x=1 ||" in script.answer(
        Offer(BootDevice.HTTP, uri="http://h/CD.ISO?x=1")
    )
    assert "needs iPXE" in grub.answer(Offer(BootDevice.HTTP, uri="http://h/cd.iso"))


def test_a_uri_cannot_bring_commands_along() -> None:
    text = script.answer(Offer(BootDevice.HTTP, uri="http://h/x\nshell ; reboot"))
    assert [line for line in text.splitlines() if line.startswith(("shell", "reboot"))] == []


def test_the_boot_image_asks_for_ever_by_each_nic() -> None:
    assert image.ask("http://192.0.2.1:8069").splitlines() == [
        "#!ipxe",
        "echo nospoon: boot image for http://192.0.2.1:8069",
        "set base http://192.0.2.1:8069",
        "set round:int32 0",
        ":round",
        "inc round",
        "clear answered ||",
        "set nic:int32 0",
        ":pause_nic",
        "isset ${net${nic}/mac} || goto pause",
        "dhcp net${nic} && goto ask ||",
        "echo nospoon: no address from DHCP on net${nic} (try ${round})",
        "goto next",
        ":ask",
        "clear net${nic}.dhcp/filename ||",
        "clear proxydhcp/filename ||",
        "chain --autofree ${base}/boot/${uuid}/ipxe ||",
        "isset ${answered} && goto pause ||",
        "chain --autofree ${base}/boot/mac/${net${nic}/mac:hexhyp}/ipxe ||",
        "isset ${answered} && goto pause ||",
        "echo nospoon: no answer from ${base} on net${nic} (try ${round})",
        ":next",
        "ifclose net${nic} ||",
        "inc nic",
        "goto pause_nic",
        ":pause",
        "echo nospoon: asking again in 5 s",
        "sleep 5 ||",
        "goto round",
    ]


def test_the_boot_image_tries_what_it_is_offered_in_turn() -> None:
    assert image.answer((NOTHING, Offer(BootDevice.DISK))).splitlines() == [
        "#!ipxe",
        "set answered yes",
        "echo nospoon: boot the network",
        "set nic:int32 0",
        ":network0_nic",
        "isset ${net${nic}/mac} || goto network0",
        "autoboot net${nic} ||",
        "clear net${nic}.dhcp/filename ||",
        "clear proxydhcp/filename ||",
        "inc nic",
        "goto network0_nic",
        ":network0",
        "echo nospoon: the network did not boot",
        "echo nospoon: boot the disk",
        "iseq ${platform} pcbios && goto bios1 ||",
        "ifopen net0 ||",
        "chain --autofree file:/disk.efi ||",
        "goto disk1",
        ":bios1",
        "sanboot --no-describe --drive 0x80 ||",
        ":disk1",
        "echo nospoon: the disk did not boot",
        "echo nospoon: nothing booted",
        "exit 1",
    ]


def test_the_boot_image_has_a_disk_started_that_it_cannot_boot() -> None:
    text = image.answer((NOTHING, Offer(BootDevice.DISK)), disk="the-uuid")
    assert "sanboot" not in text
    assert "boot the disk\nchain --autofree ${base}/boot/the-uuid/disk ||" in text
    assert image.left().splitlines()[-2:] == ["sleep 120 ||", "exit 1"]


@pytest.mark.parametrize(
    ("offer", "lines"),
    [
        (
            Offer(BootDevice.CDROM, uri="http://h/x?y=1"),
            ["echo nospoon: boot cdrom http://h/x?y=1", "sanboot --no-describe http://h/x?y=1 ||"],
        ),
        (
            Offer(BootDevice.HTTP, uri="http://h/x.efi"),
            ["echo nospoon: boot http http://h/x.efi", "chain --autofree http://h/x.efi ||"],
        ),
        (
            Offer(BootDevice.HTTP, uri="http://h/x.img\nreboot"),
            ["echo nospoon: boot http http://h/x.imgreboot",
             "chain --autofree http://h/x.imgreboot ||"],
        ),
        (Offer(BootDevice.SETUP), ["echo nospoon: nothing to boot from the setup"]),
        (Offer(BootDevice.CDROM), ["echo nospoon: nothing to boot from the cdrom"]),
    ],
)  # fmt: skip
def test_the_boot_image_boots_media_by_http(offer: Offer, lines: list[str]) -> None:
    assert image.answer((offer,)).splitlines()[2:-2] == lines


def test_the_boot_image_goes_on_when_a_kernel_does_not_boot() -> None:
    text = image.answer((Offer(BootDevice.NETWORK, KERNEL), Offer(BootDevice.DISK)))
    assert text.index(":leave0") < text.index("boot the disk")
    assert text.count("exit 1") == 1
