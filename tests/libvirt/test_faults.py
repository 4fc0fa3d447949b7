"""libvirt's errors come out as ours, with host, object and a hint."""

from __future__ import annotations

import libvirt
import pytest

from nospoon import errors
from nospoon.providers.libvirt import faults
from nospoon.providers.libvirt.faults import Fault, translate


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (libvirt.VIR_ERR_SYSTEM_ERROR, "Failed to connect socket to '/run/x'",
         errors.HostUnreachable),
        (libvirt.VIR_ERR_INTERNAL_ERROR, "client socket is closed", errors.HostUnreachable),
        (libvirt.VIR_ERR_RPC, "cannot recv data", errors.HostUnreachable),
        (libvirt.VIR_ERR_AUTH_UNAVAILABLE, "polkit", errors.HostUnreachable),
        (libvirt.VIR_ERR_NO_DOMAIN, "Domain not found", errors.Gone),
        (libvirt.VIR_ERR_NO_STORAGE_VOL, "no storage vol with matching name", errors.Gone),
        (libvirt.VIR_ERR_SYSTEM_ERROR, "cannot fill: No space left on device", errors.OutOfSpace),
        (libvirt.VIR_ERR_INTERNAL_ERROR, "qemu-img: Disk quota exceeded", errors.OutOfSpace),
        (libvirt.VIR_ERR_OPERATION_FAILED, "Active console session exists", errors.Conflict),
        (libvirt.VIR_ERR_XML_ERROR, "target duplicated", errors.ProviderError),
        (-1, "something new", errors.ProviderError),
    ],
)  # fmt: skip
def test_a_fault_has_its_class_and_says_where(
    code: int, text: str, kind: type[errors.NospoonError]
) -> None:
    error = translate(Fault(code, text), host="rack2", doing="start machine m0")
    assert type(error) is kind
    assert error.message == f"host rack2: cannot start machine m0: {text}"


def test_an_absent_libvirtd_comes_with_the_command_that_starts_it() -> None:
    error = translate(Fault(libvirt.VIR_ERR_NO_CONNECT, "x"), host="h", doing="do")
    assert "systemctl start libvirtd" in str(error)


def test_a_disk_below_a_closed_directory_comes_with_the_setting_that_moves_it() -> None:
    text = "Cannot access storage file '/root/p/n0.qcow2' (as uid:64055, gid:64055): "
    hints = [
        translate(Fault(libvirt.VIR_ERR_SYSTEM_ERROR, text + why), host="h", doing="start m0").hint
        for why in ("Permission denied", "No such file or directory")
    ]
    assert ["NOSPOON_POOL_DIR" in each for each in hints] == [True, False]
    far = translate(
        Fault(libvirt.VIR_ERR_SYSTEM_ERROR, f"{text}Permission denied"),
        host="h", doing="start m0", here=False,
    )  # fmt: skip
    assert "NOSPOON_POOL_DIR" not in far.hint, "which moves pools of this machine alone"
    assert far.hint.endswith("that others may not enter on that host.")


def test_the_text_of_a_program_that_libvirt_ran_ends_without_a_line_end() -> None:
    text = "qemu-img: n0.qcow2: Could not write qcow2 header: No space left on device\n"
    error = translate(Fault(libvirt.VIR_ERR_INTERNAL_ERROR, text), host="h", doing="make it")
    assert isinstance(error, errors.OutOfSpace)
    assert "left on device. Free space" in str(error)


def test_the_numbers_are_those_of_libvirt() -> None:
    ours = {name: value for name, value in vars(faults).items() if isinstance(value, int)}
    assert {name: getattr(libvirt, f"VIR_ERR_{name}") for name in ours} == ours
