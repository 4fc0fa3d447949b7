"""Which directories another user of a host may enter, asked of a real Linux."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nospoon.providers.libvirt.capabilities import user_of
from nospoon.providers.libvirt.elements import parsed
from nospoon.providers.linux import closed_to
from nospoon.runtime.process import Finished
from nospoon.runtime.runner import LocalRunner

NOBODY = (65534, 65534)
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")


@pytest.fixture
def home() -> Iterator[Path]:
    """One that others may enter, as all above it."""
    with TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o711)
        yield Path(name)


async def test_the_first_closed_directory_on_the_way_is_found(home: Path) -> None:
    closed = home / "closed"
    (closed / "pools").mkdir(parents=True)
    closed.chmod(0o700)
    for path in (closed, closed / "pools", closed / "not" / "there"):
        assert await closed_to(LocalRunner(), NOBODY, str(path)) == str(closed)
    assert await closed_to(LocalRunner(), (0, 0), str(closed / "pools")) == ""


async def test_open_directories_and_those_that_are_not_there_yet_are_none(home: Path) -> None:
    (home / "pools").mkdir()
    for path in (home / "pools", home / "later" / "pools"):
        assert await closed_to(LocalRunner(), NOBODY, str(path)) == ""


async def test_a_host_that_cannot_be_asked_or_says_anything_closes_nothing() -> None:
    class Odd(LocalRunner):
        status, said = 0, ""

        async def run(self, *_: object, **__: object) -> Finished:
            return Finished(("sh",), self.status, self.said, "")

    odd = Odd()
    for odd.status, odd.said in ((1, "/root"), (0, "/etc; reboot"), (0, "")):
        assert await closed_to(odd, NOBODY, "/root/pools") == ""


@pytest.mark.parametrize(
    ("label", "user"),
    [("+64055:+108", (64055, 108)), ("+0:+0", None), ("unconfined_u", None), ("", None)],
)
def test_the_user_of_qemu_is_whom_libvirt_names(label: str, user: tuple[int, int] | None) -> None:
    text = (
        "<capabilities><host><secmodel><model>none</model></secmodel><secmodel><model>dac</model>"
        f"<baselabel type='kvm'>{label}</baselabel></secmodel></host></capabilities>"
    )
    assert user_of(parsed(text)) == user
