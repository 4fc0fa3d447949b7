"""What a deploy needs beside the agent: the loader of media, made once and removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nospoon.dev import disk_image
from nospoon.dev.configuration import Wanted, ironic_conf
from nospoon.runtime import process

pytestmark = [pytest.mark.tools]


async def test_the_loader_of_media_is_made_once_and_removed(tmp_path: Path) -> None:
    assert disk_image.kept_loader(tmp_path) == ""
    made = await disk_image.medium_loader(tmp_path)
    assert disk_image.kept_loader(tmp_path) == str(made)
    listed = await process.run(["mdir", "-b", "-i", str(made), "::/EFI/BOOT"])
    assert listed.stdout.split() == ["::/EFI/BOOT/BOOTX64.EFI"]
    before = made.stat().st_mtime_ns
    assert (await disk_image.medium_loader(tmp_path)).stat().st_mtime_ns == before
    disk_image.remove(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nodes_are_told_the_advertised_address_and_only_ours_are_read(tmp_path: Path) -> None:
    wanted = Wanted("0.0.0.0", 6385, advertised="192.0.2.1", media="/c/l.img", shelf="/c")
    told = ironic_conf(wanted, state=tmp_path).splitlines()
    assert "host_ip = 0.0.0.0" in told
    assert "endpoint_override = http://192.0.2.1:6385" in told
    assert "http_url = http://192.0.2.1:6386" in told
    assert "bootloader = file:///c/l.img" in told
    assert f"file_url_allowed_paths = {tmp_path},/c" in told
