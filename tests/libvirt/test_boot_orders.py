"""What QEMU is given of a boot order, by libvirt's XML of a machine that runs."""

from __future__ import annotations

import pytest

from nospoon.model.boot import BootDevice
from nospoon.providers.libvirt.elements import parsed
from nospoon.providers.libvirt.monitor import in_order

KINDS = {"n": BootDevice.NETWORK, "d": BootDevice.DISK, "c": BootDevice.CDROM}


def domain(classes: str, devices: str) -> str:
    """`classes`: as `<boot dev>`; `devices`: each with its place as `<boot order>`, if any."""
    names = {"n": "network", "d": "hd", "c": "cdrom"}
    said = "".join(f"<boot dev='{names[each]}'/>" for each in classes)
    elements = []
    for number, each in enumerate(devices.split()):
        kind, place = each[0], each[1:]
        tag = "interface" if kind == "n" else "disk"
        device = "cdrom" if kind == "c" else "disk"
        order = f"<boot order='{place}'/>" if place else ""
        elements.append(f"<{tag} device='{device}'><alias name='{kind}{number}'/>{order}</{tag}>")
    return f"<domain><os>{said}</os><devices>{''.join(elements)}</devices></domain>"


@pytest.mark.parametrize(
    ("classes", "devices", "order", "given"),
    [
        ("nd", "d d n n", "nd", "n2 d0"),  # as libvirt: one of each class
        ("nd", "d d n n", "dn", "d0 d1 n2"),
        ("nd", "d d n n", "cnd", "n2 d0"),  # without a drive
        ("nd", "d d c n n", "cnd", "c2 n3 d0"),
        ("cd", "d n", "cd", "d0"),
        ("cd", "d c n", "cd", "c1 d0"),
        ("", "d d n", "d", "d0"),
        ("", "d d n n", "nd", "n2 n3 d0"),  # an override tries all of its class
        ("", "d2 n3 n1", "nd", "n2 d0 n1"),  # disks between NICs, as its owner wrote it
        ("", "d2 n3 n1", "cnd", "n2 d0 n1"),
        ("", "c d2 n3 n1", "cnd", "c0 n3 d1 n2"),
        ("", "d2 n n1", "nd", "n2 d0"),
        ("", "d2 n n1", "dn", "d0 n2"),
        ("", "d1 n2 n3 c", "cd", "c3 d0"),
        ("", "d3 d1 n2", "ndc", "n2 d1 d0"),
    ],
)
def test_devices_stand_as_their_owner_put_them(
    classes: str, devices: str, order: str, given: str
) -> None:
    found = in_order(parsed(domain(classes, devices)), [KINDS[each] for each in order])
    assert [each.alias for each in found] == given.split()
