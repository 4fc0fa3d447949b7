"""Boot images of distributions: a machine starts its installer from one, not from the network."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lab.test_installers import left, tree, until

from nospoon.clusterfile.load import load
from nospoon.control.labs.installers import Installers
from nospoon.errors import SpecError
from nospoon.model.lab import Distro
from nospoon.services.netboot import installer_image
from nospoon.testing.bench import free_port
from nospoon.testing.rack import CACHE, Rack, private_rack

INSTALL = """busybox wget -q -O - {{install_start}}
grep -o "extra=[a-z]*" /proc/cmdline
dd if=/dev/zero of=$disk bs=1M count=4 2>/dev/null
sync
echo 'installer: written'
busybox wget -q -O - {{install_done}}
reboot -f
"""


class Uploads:
    """In memory, but for where their content is."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.got: list[str] = []

    def path(self, sha256: str) -> Path:
        return self.place / sha256

    def wanted(self, sha256: str, *, owner: int | None = None) -> bool:
        del owner
        return self.path(sha256).exists()

    def require_space(self, amount: int, *, copies: int, owner: int | None) -> None:
        del amount, copies, owner

    async def fetch_once(self, source: str, *, owner: int | None = None) -> str:
        del owner
        name = source.rpartition("/")[2]
        self.path(name).write_bytes(name.encode() * 1000)
        return name

    async def receive(
        self, sha256: str, chunks: AsyncIterator[bytes], *, owner: int | None = None,
        announced: int = 0,
    ) -> None:  # fmt: skip
        del owner
        content = b"".join([each async for each in chunks])
        assert len(content) == announced
        self.path(sha256).write_bytes(content)
        self.got.append(sha256)


@pytest.mark.tools
async def test_an_image_is_made_once_and_again_with_the_same_bytes(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)

    async def make(kernel: Path, initrd: Path, image: Path) -> None:
        await installer_image.make(CACHE, kernel, initrd, image)

    distro = Distro("d", "http://m/linux", "http://m/initrd.gz", has_boot_image=True)
    installers = Installers(uploads, make, tmp_path / "work")
    both = await asyncio.gather(*(installers.image_of(distro, 0) for _ in range(2)))
    assert both == uploads.got * 2
    uploads.path(both[0]).unlink()
    assert await installers.image_of(distro, 0) == both[0], "it is made again where it is gone"
    another = Installers(uploads, make, tmp_path / "work")
    assert await another.image_of(distro, 0) == both[0], "by the next daemon, too"
    assert not list((tmp_path / "work").iterdir())


FILES = "kernel: 'http://m/k', initrd: 'http://m/i'"


def file(distro: str, flavor: str = "{}") -> str:
    labs = f"labs: {{l: {{distros: {{d: {distro}}}}}}}"
    return f"cluster: a\nflavors: {{f: {flavor}}}\n{labs}\nnodes: []"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (file("{script: 'http://m/s', boot_image: distro}"), "only kernel and initrd make a boot"),
        (file("{image: c.raw, boot_image: distro}"), "only kernel and initrd make a boot"),
        (
            file(f"{{{FILES}, boot_image: distro}}", "{firmware: bios}"),
            "flavor 'f' of this lab has firmware bios",
        ),
    ],
)  # fmt: skip
def test_what_has_no_boot_image_is_refused(text: str, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        load(text, file="x")


@pytest.fixture
def rack() -> Iterator[Rack]:
    near = "127.0.0.0/8, ::1, 172.31.0.0/16"
    with private_rack(
        NOSPOON_BOOT_PORT=str(free_port(socket.SOCK_STREAM)), NOSPOON_MEDIA_NETWORKS=near
    ) as made:
        yield made


@pytest.mark.libvirt
@pytest.mark.boots
@pytest.mark.timeout(1200)
def test_a_machine_boots_straight_into_its_installer(rack: Rack) -> None:
    with tree(rack.directory / "tree") as url:
        name = rack.name()
        lab = f"l{name}"
        indented = INSTALL.replace("\n", "\n          ")
        text = f"""
cluster: {name}
{rack.bmc()}
networks: {{lan: {{netboot: builtin, nat: true}}}}
flavors: {{small: {{memory: 320MiB, disks: [256MiB]}}}}
labs:
  {lab}:
    minimum_disk: 64MiB
    distros:
      tiny:
        kernel: {url}/linux
        initrd: {url}/initrd
        boot_image: distro
        cmdline: quiet panic=1 ks={{{{kickstart}}}}
        kickstart: |
          {indented}
nodes: []
"""
        rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
        before = left(rack, lab)
        recipe = "<recipe kernel_options='extra=here'><hostRequires/></recipe>"
        request = rack.file(recipe, "request.xml")
        submit = ("request", "submit", request, "--lab", f"{name}/{lab}")
        set_id = rack.json(*submit)[0]["set"]

        def show() -> Any:
            return rack.client.get(f"/v1/requests/{set_id}")

        def ready(shown: Any) -> bool:
            assert shown["state"] != "ended", json.dumps(shown, indent=1)
            return bool(shown["leases"][0]["stage"] == "ready")

        until(show, ready)
        log = until(
            lambda: rack.run("request", "console", f"{set_id}.0").stdout,
            lambda said: "installer: written" in said,
        )
        words = ("boot the installer", "installer: hello", "extra=here", "installer: written")
        places = [log.index(each) for each in words]
        assert places == sorted(places)
        assert "iPXE" not in log, "nothing came from the network before the installer"
        rack.run("request", "release", set_id)
        ended = until(show, lambda found: found["state"] == "ended")
        assert ended["result"] == "completed"
        assert left(rack, lab) == before
        rack.run("down", "--yes", "--purge", name)
