"""What `doctor` and `host check` say of KVM, and how `doctor` would fix what is missing."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from nospoon.cli.checks import Finding, fix_command, kvm
from nospoon.control.maintenance import host_check
from nospoon.model.capabilities import Capabilities

CAN = Capabilities(
    kinds=frozenset(),
    firmwares=frozenset(),
    archs=frozenset(),
    tpm=False,
    accelerator="",
)
SILENT = "KVM is there, but a guest said nothing within 20 s"


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """A device that may be opened."""
    (tmp_path / "kvm").write_text("")
    return tmp_path / "kvm"


def test_doctor_says_that_a_kvm_which_nobody_tried_is_tried_before_its_use(device: Path) -> None:
    found = kvm(device.parent, device)
    assert found.verdict == "ok"
    assert found.detail == "usable by you; tried with a Linux guest before it is used"


def test_doctor_says_why_a_kvm_that_was_tried_is_not_used(device: Path) -> None:
    verdict = {"accelerator": "tcg", "note": SILENT}
    (device.parent / "kvm-a.json").write_text(json.dumps({"accelerator": "kvm"}))
    os.utime(device.parent / "kvm-a.json", (1, 1))
    (device.parent / "kvm-b.json").write_text(json.dumps(verdict))
    found = kvm(device.parent, device)
    assert found.verdict == "without"
    assert found.detail == f"{SILENT}; machines are emulated, slowly"
    os.utime(device.parent / "kvm-b.json", (0, 0))
    assert kvm(device.parent, device).verdict == "ok", "the newest verdict counts"


@pytest.mark.parametrize("content", ["", "[", "[1]"])
def test_doctor_passes_over_a_verdict_that_cannot_be_read(device: Path, content: str) -> None:
    (device.parent / "kvm-a.json").write_text(content)
    assert kvm(device.parent, device).verdict == "ok"


def test_doctor_says_that_there_is_no_kvm(tmp_path: Path) -> None:
    found = kvm(tmp_path, tmp_path / "nothing")
    assert (found.verdict, found.detail) == (
        "without",
        "no /dev/kvm; machines are emulated, slowly",
    )


@pytest.mark.parametrize(
    ("can", "verdict", "detail"),
    [
        (CAN, "ok", "`up` tries it with a Linux guest"),
        (replace(CAN, accelerator="kvm"), "ok", "kvm"),
        (
            replace(CAN, accelerator="tcg", accelerator_note=SILENT),
            "without",
            f"{SILENT}; machines are emulated, slowly",
        ),
    ],
)
def test_host_check_says_how_machines_run(can: Capabilities, verdict: str, detail: str) -> None:
    assert host_check.kvm(can) == (verdict, detail)


def test_doctor_names_no_command_of_debian_where_there_is_none() -> None:
    missing = Finding("qemu-img", present=False, detail="", packages=("qemu-utils",))
    command = fix_command([missing], privileged=True, apt=True)
    assert command == "apt-get install -y qemu-utils"
    assert fix_command([missing], privileged=True, apt=False) == ""
