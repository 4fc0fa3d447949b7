"""A lab on a real cloud: a server of its project and a machine known by its BMC are one set."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import Iterator
from ipaddress import IPv4Network
from typing import Any

import pytest
from tests.cloud.test_cloud import connection
from tests.cloud.test_rack import everything
from tests.lab import test_debian_installer as debian
from tests.lab.test_boot_images import INSTALL as STRAIGHT_INSTALL
from tests.lab.test_cloud_images import USER_DATA
from tests.lab.test_installers import (
    CRASH,
    INSTALL,
    MAC,
    PANIC,
    REBOOT,
    metal,
    tree,
    until,
)

from nospoon.testing import disks
from nospoon.testing.bench import free_port
from nospoon.testing.cloud import OwnCloud
from nospoon.testing.rack import CACHE, Rack, private_rack
from nospoon.testing.seeded import READY, seeded_image

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
FILE = """
cluster: {name}
{bmc}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [metal.tiny], boot_address: {gateway}}}
    physnets: {{external: rack}}
networks: {{external: {{physnet: external}}}}
flavors:
  small: {{firmware: bios, cpus: 1, memory: 512MiB, disks: [1GiB], nics: [{{network: external}}]}}
labs:
  east:
    host: cloud
    lease: 2h
    minimum_disk: 64MiB
    timeouts: {{panic: 20min}}
    machines:
      m1: {{bmc: {metal}, memory: 256MiB, macs: ["{mac}"], attributes: {{system/vendor: Acme}}}}
    distros:
      tiny:
        kernel: {url}/linux
        initrd: {url}/initrd
        tree: {url}
        cmdline: panic=1 virtio_net.csum=0 ks={{{{kickstart}}}}
        kickstart: |
          {kickstart}
nodes: []
"""
IMAGES = """
cluster: {name}
{bmc}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [metal.tiny], boot_address: {gateway}}}
    physnets: {{external: rack}}
networks: {{external: {{physnet: external}}}}
flavors: {{small: {{cpus: 1, memory: 512MiB, disks: [1GiB], nics: [{{network: external}}]}}}}
labs:
  west:
    host: cloud
    minimum_disk: 64MiB
    distros: {{tiny: {{image: cloud.img, user_data: {{file: user-data}}}}}}
nodes: []
"""
STRAIGHT = """
cluster: {name}
{bmc}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [metal.tiny], boot_address: {gateway}}}
    physnets: {{external: rack}}
networks: {{external: {{physnet: external}}}}
flavors: {{small: {{cpus: 1, memory: 512MiB, disks: [1GiB], nics: [{{network: external}}]}}}}
labs:
  west:
    host: cloud
    minimum_disk: 64MiB
    distros:
      tiny:
        kernel: {url}/linux
        initrd: {url}/initrd
        boot_image: distro
        cmdline: panic=1 virtio_net.csum=0 ks={{{{kickstart}}}}
        kickstart: |
          {kickstart}
nodes: []
"""
DEBIAN = """
cluster: {name}
{bmc}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [metal.small], boot_address: {gateway}}}
    physnets: {{external: rack}}
networks: {{external: {{physnet: external}}}}
flavors:
  small: {{firmware: bios, cpus: 2, memory: 3GiB, disks: [10GiB], nics: [{{network: external}}]}}
labs:
  east:
    host: cloud {rules}
nodes: []
"""
NO_CHECKSUMS = "rmmod virtio_net; modprobe virtio_net csum=0; modprobe"
"""Its switches compute none (docs/howto/dev-cloud.md)."""
REQUEST = f"""<recipeSet>
<recipe><kickstart><![CDATA[{INSTALL + CRASH}]]></kickstart>
<hostRequires><memory op='&gt;=' value='200'/></hostRequires></recipe>
<recipe><hostRequires><system><vendor value='Acme'/></system></hostRequires></recipe>
</recipeSet>"""


@pytest.fixture
def rack(cloud: OwnCloud) -> Iterator[Rack]:
    """Registered machines know where the boot server is; the tree is on the provider network."""
    settings = {
        "OS_CLIENT_CONFIG_FILE": str(cloud.told["clouds"]),
        "NOSPOON_BOOT_PORT": str(free_port(socket.SOCK_STREAM)),
        "NOSPOON_MEDIA_NETWORKS": f"127.0.0.0/8, ::1, 172.31.0.0/16, {cloud.told['public']}",
    }
    with private_rack(**settings) as made:
        yield made


@pytest.mark.timeout(600, func_only=True)
def test_a_mixed_set_is_installed_in_the_cloud_panics_once_and_leaves_nothing(
    cloud: OwnCloud, rack: Rack
) -> None:
    member = connection(cloud)
    before = {**everything(member), "keys": [each.id for each in member.compute.keypairs()]}
    here = str(next(IPv4Network(cloud.told["public"]).hosts()))
    with tree(rack.directory / "tree", here) as url:
        other, bmc = metal(rack)
        name = rack.name()
        text = FILE.format(
            name=name,
            bmc=rack.bmc(),
            gateway=here,
            metal=bmc,
            mac=MAC,
            url=url,
            kickstart=(INSTALL + REBOOT).replace("\n", "\n          "),
        )
        rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
        rack.run("lab", "check", f"{name}/east")
        submit = ("request", "submit", rack.file(REQUEST, "request.xml"), "--lab", f"{name}/east")
        set_id = rack.json(*submit)[0]["set"]

        def show() -> Any:
            return rack.client.get(f"/v1/requests/{set_id}")

        def console() -> str:
            return rack.run("request", "console", f"{set_id}.0").stdout

        def is_ready(shown: Any) -> bool:
            assert shown["state"] != "ended", json.dumps(shown, indent=1)
            return {each["stage"] for each in shown["leases"]} == {"ready"}

        shown = until(show, is_ready)
        assert [each["machine"] for each in shown["leases"]] == ["", "m1"]
        (server,) = member.compute.servers()
        assert server.name == f"lab-east-{set_id.replace('.', '-')}-recipe-0"
        shown = until(show, lambda found: bool(found["leases"][0]["panic"]))
        assert PANIC in shown["leases"][0]["panic"]
        assert shown["leases"][0]["expires"] < shown["leases"][1]["expires"]
        greeting = disks.GREETING.decode()
        log = until(console, lambda said: greeting in said)
        words = ("nospoon: boot image for", "installer: hello", "installer: written", PANIC)
        places = [log.index(each) for each in (*words, greeting)]
        assert places == sorted(places)
        assert "something of this console is missing" not in log
        metal_log = ("node", "console", f"{other}/m", "--log")
        until(lambda: rack.run(*metal_log).stdout, lambda said: greeting in said)
        panics = [each for each in show()["history"] if each["event"] == "panic"]
        assert [each["recipe"] for each in panics if PANIC in each["message"]].count(0) == 1
        rack.run("request", "release", set_id)
        ended = until(show, lambda found: found["state"] == "ended")
        assert ended["result"] == "completed"
        now = {**everything(member), "keys": [each.id for each in member.compute.keypairs()]}
        assert now == before
        assert rack.json("node", "show", f"{other}/m")["power"] == "off"
        assert console().startswith(log), "it is kept"
        rack.run("down", "--yes", "--purge", name)
        rack.run("down", "--yes", "--purge", other)


@pytest.mark.skipif(
    not os.environ.get("NOSPOON_OPENSTACK_FULL"),
    reason="Debian's installer in two emulated VMs takes minutes: make test-openstack-full",
)
@pytest.mark.timeout(1800, func_only=True)
def test_debians_installer_starts_on_both_machines_of_a_set(cloud: OwnCloud, rack: Rack) -> None:
    member = connection(cloud)
    before = everything(member)
    here = str(next(IPv4Network(cloud.told["public"]).hosts()))
    with debian.mirror(rack.directory / "mirror", here) as url:
        other, bmc = metal(rack, memory=debian.MEMORY)
        name = rack.name()
        distro = debian.entry(rack, url, f"{debian.OPTIONS} virtio_net.csum=0")
        rules = debian.rules(bmc, distro)
        text = DEBIAN.format(name=name, bmc=rack.bmc(), gateway=here, rules=rules)
        rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
        request = rack.file(debian.REQUEST, "request.xml")
        submitted = rack.json("request", "submit", request, "--lab", f"{name}/east")
        debian.install(rack, submitted[0]["set"], first="nospoon: boot image for")
        assert everything(member) == before
        assert rack.json("node", "show", f"{other}/m")["power"] == "off"
        rack.run("down", "--yes", "--purge", name)
        rack.run("down", "--yes", "--purge", other)


@pytest.mark.timeout(400, func_only=True)
def test_a_server_of_a_cloud_image_runs_its_user_data_and_leaves_nothing(
    cloud: OwnCloud, rack: Rack
) -> None:
    member = connection(cloud)
    before = everything(member)
    shutil.copy(asyncio.run(seeded_image(CACHE)), rack.directory / "cloud.img")
    (rack.directory / "user-data").write_text(USER_DATA.replace("modprobe", NO_CHECKSUMS, 1))
    name = rack.name()
    here = str(next(IPv4Network(cloud.told["public"]).hosts()))
    text = IMAGES.format(name=name, bmc=rack.bmc(), gateway=here)
    rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
    submit = ("request", "submit", rack.file("<hostRequires/>", "any.xml"), "--lab", f"{name}/west")
    set_id = rack.json(*submit)[0]["set"]

    def show() -> Any:
        return rack.client.get(f"/v1/requests/{set_id}")

    def is_ready(shown: Any) -> bool:
        assert shown["state"] != "ended", json.dumps(shown, indent=1)
        return bool(shown["leases"][0]["stage"] == "ready")

    until(show, is_ready)
    log = until(
        lambda: rack.run("request", "console", f"{set_id}.0").stdout, lambda said: READY in said
    )
    assert "guest: label config-2 on /dev/" in log
    assert f"image: hello {set_id}.0 of root" in log
    rack.run("request", "release", set_id)
    ended = until(show, lambda found: found["state"] == "ended")
    assert ended["result"] == "completed"
    assert everything(member) == before
    rack.run("down", "--yes", "--purge", name)


@pytest.mark.timeout(500, func_only=True)
def test_a_server_of_a_distributions_boot_image_starts_its_installer_by_itself(
    cloud: OwnCloud, rack: Rack
) -> None:
    member = connection(cloud)
    before = everything(member)
    here = str(next(IPv4Network(cloud.told["public"]).hosts()))
    with tree(rack.directory / "tree", here) as url:
        name = rack.name()
        text = STRAIGHT.format(
            name=name,
            bmc=rack.bmc(),
            gateway=here,
            url=url,
            kickstart=STRAIGHT_INSTALL.replace("\n", "\n          "),
        )
        rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
        rack.run("lab", "check", f"{name}/west")
        recipe = "<recipe kernel_options='extra=here'><hostRequires/></recipe>"
        submit = ("request", "submit", rack.file(recipe, "r.xml"), "--lab", f"{name}/west")
        set_id = rack.json(*submit)[0]["set"]

        def show() -> Any:
            return rack.client.get(f"/v1/requests/{set_id}")

        def is_ready(shown: Any) -> bool:
            assert shown["state"] != "ended", json.dumps(shown, indent=1)
            return bool(shown["leases"][0]["stage"] == "ready")

        until(show, is_ready)
        log = until(
            lambda: rack.run("request", "console", f"{set_id}.0").stdout,
            lambda said: "installer: written" in said,
        )
        words = ("boot the installer", "extra=here", "installer: hello", "installer: written")
        places = [log.index(each) for each in words]
        assert places == sorted(places)
        rack.run("request", "release", set_id)
        ended = until(show, lambda found: found["state"] == "ended")
        assert ended["result"] == "completed"
        assert everything(member) == before
        rack.run("down", "--yes", "--purge", name)
