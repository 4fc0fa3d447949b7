"""KVM is tried with a guest, the verdict kept, and TCG taken with a reason where it fails.

The trial's kernel here is 40 bytes of real-mode code behind a Linux boot header (Linux
Documentation/arch/x86/boot.rst): it shows that the trial works, whatever this machine's KVM can do.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nospoon.errors import ProviderError
from nospoon.model.cluster import Arch
from nospoon.providers.libvirt.hypervisor import Hypervisor
from nospoon.providers.libvirt.kvm import KvmTrial, Trial, Verdict
from nospoon.runtime.process import Finished
from nospoon.runtime.runner import LocalRunner, Runner

pytestmark = [pytest.mark.libvirt, pytest.mark.boots]


def speaking_kernel(word: bytes) -> bytes:
    """A bzImage whose setup code says one word on COM1 and halts."""
    code = bytes.fromhex("0E 1F BE0000 BAF803 AC 84C0 7403 EE EBF8 FA F4 EBFD")
    message = 0x6A + len(code)  # CS is 20h paragraphs in, at the header's jump
    code = code[:3] + message.to_bytes(2, "little") + code[5:] + word + b"\r\n\0"
    image = bytearray(4096)
    image[0x1F1] = 1  # setup_sects
    image[0x1FE:0x200] = b"\x55\xaa"
    image[0x200:0x202] = b"\xeb\x68"  # to 26Ah
    image[0x202:0x206] = b"HdrS"
    image[0x206:0x208] = (0x0203).to_bytes(2, "little")
    image[0x211] = 1  # LOADED_HIGH
    image[0x26A : 0x26A + len(code)] = code
    return bytes(image)


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel"
    path.write_bytes(speaking_kernel(b"guest-is-up"))
    return path


def trial_of(own_libvirt: Any, runner: Runner, trial: Trial | None, verdicts: Path) -> KvmTrial:
    @contextlib.asynccontextmanager
    async def ready() -> AsyncIterator[Trial]:
        if trial is None:
            raise ProviderError("no packages to make it of")
        yield trial

    return KvmTrial(Hypervisor(own_libvirt.uri, "here"), runner, ready, verdicts)


def has_kvm() -> bool:
    return Path("/dev/kvm").exists()


async def test_a_guest_that_speaks_under_kvm_makes_it_good(
    own_libvirt: Any, runner: Runner, kernel: Path, tmp_path: Path
) -> None:
    trial = Trial(str(kernel), "", b"guest-is-up", patience=60, cpu="kvm64")
    verdict = await trial_of(own_libvirt, runner, trial, tmp_path / "verdicts").verdict()
    if has_kvm():
        assert verdict == Verdict("kvm")
    else:
        assert verdict.accelerator == "tcg"
        assert "offers no KVM" in verdict.note


async def test_a_guest_that_stays_silent_means_tcg_with_the_reason(
    own_libvirt: Any, runner: Runner, kernel: Path, tmp_path: Path
) -> None:
    trial = Trial(str(kernel), "", b"something else", patience=2, cpu="kvm64")
    verdict = await trial_of(own_libvirt, runner, trial, tmp_path / "verdicts").verdict()
    assert verdict.accelerator == "tcg"
    assert "did not come up under it in 2 s" in verdict.note or not has_kvm()
    assert "slowly" not in verdict.note  # the plan's note says so before the reason


async def test_the_verdict_is_kept_and_not_tried_again(
    own_libvirt: Any, runner: Runner, kernel: Path, tmp_path: Path
) -> None:
    if not has_kvm():
        return
    trial = Trial(str(kernel), "", b"guest-is-up", patience=60, cpu="kvm64")
    await trial_of(own_libvirt, runner, trial, tmp_path).verdict()
    file = next(tmp_path.glob("kvm-*.json"))
    file.write_text(json.dumps({"accelerator": "tcg", "note": "as it was found before"}))
    again = await trial_of(own_libvirt, runner, trial, tmp_path).verdict()
    assert again == Verdict("tcg", "as it was found before")
    file.write_text("not JSON")
    assert await trial_of(own_libvirt, runner, trial, tmp_path).verdict() == Verdict("kvm")


async def test_a_plan_asks_only_what_is_known(
    own_libvirt: Any, runner: Runner, kernel: Path, tmp_path: Path
) -> None:
    trial = Trial(str(kernel), "", b"guest-is-up", patience=60, cpu="kvm64")
    tried = trial_of(own_libvirt, runner, trial, tmp_path / "verdicts")
    before = await tried.known()
    assert before is None or not has_kvm()
    assert not (tmp_path / "verdicts").exists()
    found = await tried.verdict()
    assert await tried.known() == found
    assert await trial_of(own_libvirt, runner, trial, tmp_path / "verdicts").known() == found


async def test_without_a_kernel_nothing_is_tried(
    own_libvirt: Any, runner: Runner, tmp_path: Path
) -> None:
    untried = KvmTrial(Hypervisor(own_libvirt.uri, "here"), runner, None, tmp_path)
    verdict = await untried.verdict()
    assert verdict.accelerator == "tcg"
    assert "for want of a kernel" in verdict.note or not has_kvm()


async def test_a_guest_that_cannot_be_made_gives_no_lasting_verdict(
    own_libvirt: Any, runner: Runner, tmp_path: Path
) -> None:
    verdict = await trial_of(own_libvirt, runner, None, tmp_path).verdict()
    assert verdict.accelerator == "tcg"
    assert "no packages to make it of" in verdict.note or not has_kvm()
    assert not list(tmp_path.glob("kvm-*.json"))


async def test_a_host_says_what_it_has(connection: Any) -> None:
    can = await connection.capabilities()
    assert {Arch.X86_64, Arch.AARCH64} <= can.archs
    assert can.cpus > 0
    total = Path("/proc/meminfo").read_text().split()[1]
    assert can.memory == int(total) << 10


class WithoutKvm(Hypervisor):
    """A libvirtd that lists emulation alone."""

    async def ask(self, function: Callable[[Any], Any], doing: str) -> Any:
        del function, doing
        return False


class Says(LocalRunner):
    """A host on which every command ends with this status."""

    def __init__(self, status: int) -> None:
        self.status = status

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        del stdin, check
        return Finished(tuple(argv), self.status, "", "")


@pytest.mark.parametrize(
    ("uri", "status", "says"),
    [
        ("qemu:///session", 0, True),
        ("qemu:///session", 1, False),
        ("qemu:///system", 0, False),
    ],
)
async def test_a_user_who_may_not_open_kvm_learns_how_to(
    tmp_path: Path, uri: str, status: int, *, says: bool
) -> None:
    trial = KvmTrial(WithoutKvm(uri, "here"), Says(status), None, tmp_path)
    verdict = await trial.verdict()
    assert verdict.accelerator == "tcg"
    assert verdict.note.startswith("libvirt offers no KVM there")
    assert ("Join the group kvm" in verdict.note) is says
