"""What hosts name of which libvirt alone is reached (`qemu+tls` without `ssh`): no file here."""

from __future__ import annotations

from pathlib import Path

import pytest

from nospoon.model.cluster import Host
from nospoon.model.connections import Libvirt
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.runtime.runner import LocalRunner

TLS = "qemu+tls://far.example/system"


async def opened(sha256: str) -> str:
    return sha256


@pytest.mark.libvirt
async def test_snapshots_are_taken_only_where_commands_run(tmp_path: Path) -> None:
    assert not await has_snapshots(Host("far", Libvirt(TLS)), tmp_path)
    for host in (
        Host("far", Libvirt(TLS), ssh="root@far.example"),
        Host("here", Libvirt("qemu:///system")),
        Host("here", Libvirt("qemu:///session")),
    ):
        assert await has_snapshots(host, tmp_path), host


async def has_snapshots(host: Host, place: Path) -> bool:
    connection = LibvirtConnection(
        host, "kit", LocalRunner(), opened, records=str(place), verdicts=place
    )
    try:
        return connection.machine_driver.snapshots is not None
    finally:
        await connection.close()
