"""Disks of nodes that are volumes of a real Cinder."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from openstack.connection import Connection
from tests.cloud.test_cloud import connection, partitioned
from tests.cloud.test_rack import everything
from tests.cloud.test_rescue import says, theirs

from nospoon.model.cluster import Firmware
from nospoon.testing.cloud import FULL, UP, OwnCloud
from nospoon.testing.guests import BOOTED, speaking_disk
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack

pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack"),
    pytest.mark.skipif(
        not FULL,
        reason="a Cinder beside the cloud takes memory and minutes: make test-openstack-full",
    ),
]
ADMIN = "nospoon-cloud-admin"
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack:
      {{cloud: nospoon-cloud, flavors: [{flavors}], boot_address: {address}, volumes: {volumes}}}
    physnets: {{external: rack}}
networks: {{external: {{physnet: external}}}}
nodes:
{nodes}
"""
METAL = """
  - {name: b, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB, 2GiB], nics: [external]}
  - {name: u, cpus: 1, memory: 512MiB, firmware: uefi, disks: [1GiB], nics: [external]}
"""
VM = """
  - {name: v, kind: vm, cpus: 1, memory: 128MiB, firmware: bios,
     disks: [{image: disk.raw, size: 1GiB}, 2GiB], bmc: ipmi, nics: [external]}
"""


def text_of(
    cloud: OwnCloud, rack: Rack, nodes: str, *, flavors: str = "metal.tiny", volumes: str = "true"
) -> str:
    address = IPv4Network(cloud.told["public"])[1]
    return FILE.format(
        name=rack.name(), flavors=flavors, address=address, volumes=volumes, nodes=nodes
    )


def all_of(member: Connection) -> dict[str, list[str]]:
    """What the project has, snapshots of volumes too."""
    return {
        **everything(member),
        "snapshots": sorted(each.id for each in member.block_storage.snapshots()),
    }


@pytest.fixture
def fast(cloud: OwnCloud) -> Iterator[str]:
    """A volume type beside the usual one, until the rack of the test is down."""
    admin = connection(cloud, ADMIN)
    made = admin.block_storage.create_type(name="fast")
    yield made.name
    admin.block_storage.delete_type(made.id)


@pytest.fixture
def beside(cloud: OwnCloud) -> Iterator[str]:
    """A flavor without an ephemeral disk, which Nova would give to servers beside volumes."""
    admin = connection(cloud, ADMIN)
    made = admin.compute.create_flavor(name="beside", ram=512, vcpus=1, disk=1)
    yield made.name
    admin.compute.delete_flavor(made)


def volumes_of(member: Connection, server: str) -> dict[int, str]:
    """Ids of a server's volumes, by their size in GiB."""
    attached = member.compute.volume_attachments(server)
    found = [member.block_storage.get_volume(each.volume_id) for each in attached]
    return {each.size: each.id for each in found}


def place_of(cloud: OwnCloud, volume: str) -> Path:
    """The file that it is."""
    return Path(cloud.told["clouds"]).parent / f"cinder/volumes/volume-{volume}"


@pytest.mark.timeout(600, func_only=True)
def test_cinder_that_was_killed_is_shown_and_up_starts_it_again_with_its_volumes(
    cloud: OwnCloud,
) -> None:
    member = connection(cloud)
    made = member.block_storage.create_volume(size=1, name="kept")
    member.block_storage.wait_for_status(made, "available", wait=120)
    for program in ("cinder-volume", "cinder-scheduler"):
        for pid in cloud.pids(program):
            with suppress(ProcessLookupError):  # a child of one that was killed
                os.kill(pid, signal.SIGKILL)

    def is_seen() -> bool:
        done = cloud.rack.run("dev", "cloud", "status", status=1)
        names = ("cinder-volume", "cinder-scheduler")
        return all(f"{name} ended with status -9" in done.stderr for name in names)

    until(is_seen)
    without = [each for each in UP if each != "--cinder"]
    assert cloud.rack.json(*without) == cloud.told, "it stays"
    cloud.rack.run("dev", "cloud", "status")
    member.block_storage.extend_volume(made.id, 2)
    until(lambda: member.block_storage.get_volume(made.id).status == "available")
    assert place_of(cloud, made.id).stat().st_size == 2 << 30
    member.block_storage.delete_volume(made.id)
    member.block_storage.wait_for_delete(made)


@pytest.mark.timeout(900, func_only=True)
def test_disks_of_bare_metal_are_volumes_of_a_type_that_go_with_their_servers(
    cloud: OwnCloud, fast: str, beside: str, rack: Rack
) -> None:
    member = connection(cloud)
    theirs = member.block_storage.create_volume(size=1, name="theirs")
    member.block_storage.wait_for_status(theirs, "available", wait=120)
    kept = member.block_storage.create_snapshot(volume_id=theirs.id, name="theirs")
    member.block_storage.wait_for_status(kept, "available", wait=120)
    before = all_of(member)
    text = text_of(cloud, rack, METAL, flavors=beside, volumes=fast) + rack.bmc()
    name = rack.names[-1]
    file = rack.file(text)
    rack.run("up", file, "--yes")
    assert "Nothing to do" in rack.run("plan", file).stdout
    (server,) = member.compute.servers(name=f"{name}-b")
    disks = volumes_of(member, server.id)
    assert set(disks) == {1, 2}
    made = [member.block_storage.get_volume(each) for each in disks.values()]
    assert {each.volume_type for each in made} == {fast}
    assert {each.status for each in made} == {"in-use"}
    verdicts = rack.json("verify", file)
    assert {(each["node"], each["verdict"]) for each in verdicts} == {
        ("b", "as declared"), ("u", "as declared"),
    }, verdicts  # fmt: skip
    bmc = rack.bmcs(name)["b"]
    with place_of(cloud, disks[1]).open("r+b") as written:  # as a deployment does
        written.write(speaking_disk())
    rack.ipmitool(bmc, "power", "on")
    until(lambda: BOOTED.decode() in rack.run("node", "console", "b", "--log").stdout)
    rack.ipmitool(bmc, "power", "off")
    until(lambda: "is off" in rack.ipmitool(bmc, "power", "status"))
    rack.run("down", name, "--yes")
    assert all_of(member) == before
    member.block_storage.delete_snapshot(kept.id)
    member.block_storage.wait_for_delete(kept)
    member.block_storage.delete_volume(theirs.id)
    member.block_storage.wait_for_delete(theirs)


@pytest.mark.timeout(900, func_only=True)
def test_the_root_of_a_vm_is_a_volume_of_its_image_and_another_size_is_another_server(
    cloud: OwnCloud, beside: str, rack: Rack
) -> None:
    member = connection(cloud)
    before = all_of(member)
    (rack.directory / "disk.raw").write_bytes(partitioned(speaking_disk()))
    text = text_of(cloud, rack, VM, flavors=beside) + rack.bmc()
    name = rack.names[-1]
    file = rack.file(text)
    rack.run("up", file, "--yes")
    until(lambda: BOOTED.decode() in rack.run("node", "console", "v", "--log").stdout)
    (server,) = member.compute.servers(name=f"{name}-v")
    disks = volumes_of(member, server.id)
    root = member.block_storage.get_volume(disks[1])
    assert (root.is_bootable, root.volume_type) == (True, "__DEFAULT__")
    refused = rack.run("snapshot", "create", name, "first", status=5).stderr
    assert "Nova keeps roots alone, and it has more disks" in refused
    assert "Nothing to do" in rack.run("plan", file).stdout
    shelved(member, rack, text, name)
    assert volumes_of(member, server.id) == disks
    grown = rack.file(text.replace("2GiB], bmc", "3GiB], bmc"))
    assert "-/+ machine v" in rack.run("plan", grown).stdout
    rack.run("up", grown, "--yes")
    (server,) = member.compute.servers(name=f"{name}-v")
    now = volumes_of(member, server.id)
    assert set(now) == {1, 3}
    assert not {*now.values()} & {*disks.values()}
    assert len(all_of(member)["volumes"]) == len(before["volumes"]) + 2
    rack.run("down", name, "--yes")
    assert all_of(member) == before


def shelved(member: Connection, rack: Rack, text: str, name: str) -> None:
    """It leaves its compute host with its volumes, and boots them again."""
    shelving = rack.file(text.replace("volumes: true", "volumes: true, off: shelve"))
    rack.run("up", shelving, "--yes")
    (server,) = member.compute.servers(name=f"{name}-v")
    rack.run("node", "power", f"{name}/v", "off")
    until(lambda: member.compute.get_server(server).status == "SHELVED_OFFLOADED")
    rack.run("node", "power", f"{name}/v", "on")
    until(lambda: member.compute.get_server(server).status == "ACTIVE")
    until(lambda: BOOTED.decode() in member.compute.get_server_console_output(server)["output"])


@pytest.mark.timeout(1200, func_only=True)
@pytest.mark.parametrize("volumes", ["true", "false"])
def test_a_root_is_kept_and_made_again_and_is_a_volume_of_the_next_rack(
    cloud: OwnCloud, beside: str, rack: Rack, volumes: str
) -> None:
    member = connection(cloud)
    before = all_of(member)
    (rack.directory / "disk.raw").write_bytes(partitioned(speaking_disk()))
    one = VM.replace("}, 2GiB]", "}]")
    file = rack.file(text_of(cloud, rack, one, flavors=beside, volumes=volumes) + rack.bmc())
    first = rack.names[-1]
    rack.run("up", file, "--yes")
    (server,) = member.compute.servers(name=f"{first}-v")

    def has_booted() -> bool:
        """Since its last start: Nova begins a log then."""
        output: str = member.compute.get_server_console_output(server)["output"]
        return BOOTED.decode() in output

    until(has_booted)
    made = all_of(member)
    rack.run("snapshot", "create", first, "kept")
    assert member.compute.get_server(server).status == "ACTIVE", "it was paused for that"
    kept = {**all_of(member), "images": made["images"]}
    assert kept == made, "copies of a volume are gone"
    if volumes == "true":
        rack.run("node", "power", f"{first}/v", "off")
        until(lambda: member.compute.get_server(server).status == "SHUTOFF")
        (root,) = volumes_of(member, server.id).values()
        with place_of(cloud, root).open("r+b") as wiped:
            wiped.write(bytes(1 << 20))
        rack.run("snapshot", "restore", "--yes", first, "kept")
        until(lambda: member.compute.get_server(server).status == "ACTIVE")
        until(has_booted)
        assert [*volumes_of(member, server.id).values()] == [root], "it is the same volume"
        assert "Nothing to do" in rack.run("plan", file).stdout
    again = VM.replace("image: disk.raw", f"image: 'snapshot:{first}/kept'")
    file = rack.file(text_of(cloud, rack, again, flavors=beside) + rack.bmc())
    second = rack.names[-1]
    rack.run("up", file, "--yes")
    node = f"{second}/v"
    until(lambda: BOOTED.decode() in rack.run("node", "console", node, "--log").stdout)
    (next_,) = member.compute.servers(name=f"{second}-v")
    assert set(volumes_of(member, next_.id)) == {1, 2}
    assert "Nothing to do" in rack.run("plan", file).stdout
    rack.run("down", second, "--yes")
    rack.run("down", first, "--yes")
    assert all_of(member) == before


@contextmanager
def limited(cloud: OwnCloud, **quotas: int) -> Iterator[None]:
    """Cinder's quotas of the ordinary project."""
    cinder = connection(cloud, ADMIN).block_storage
    path = f"/os-quota-sets/{connection(cloud).current_project_id}"
    kept = cinder.get(path).json()["quota_set"]
    cinder.put(path, json={"quota_set": quotas}).raise_for_status()
    try:
        yield
    finally:
        before = {name: kept[name] for name in quotas}
        cinder.put(path, json={"quota_set": before}).raise_for_status()


@pytest.mark.timeout(300, func_only=True)
@pytest.mark.parametrize("given", ["true", "fast"])
def test_a_plan_refuses_what_a_quota_of_volumes_does_not_leave(
    cloud: OwnCloud, fast: str, beside: str, rack: Rack, given: str
) -> None:
    member = connection(cloud)
    type_ = fast if given == fast else "__DEFAULT__"
    theirs = member.block_storage.create_volume(size=2, name="theirs", volume_type=type_)
    file = rack.file(text_of(cloud, rack, METAL, flavors=beside, volumes=given) + rack.bmc())
    try:
        member.block_storage.wait_for_status(theirs, "available", wait=120)
        for quotas, said in (
            ({"volumes": 3}, {"volumes": (2, 3, 1, 3)}),
            ({"gigabytes": 5}, {"GiB of volumes": (3, 5, 2, 4)}),
            (
                {f"volumes_{type_}": 2, f"gigabytes_{type_}": 3},
                {
                    "volumes of their type": (1, 2, 1, 3),
                    "GiB of volumes of their type": (1, 3, 2, 4),
                },
            ),
            ({"per_volume_gigabytes": 1}, {"GiB for one volume": (1, 1, 0, 2)}),
        ):
            with limited(cloud, **quotas):
                refused = rack.run("plan", file, status=1).stderr
                for what, (left, most, used, taken) in said.items():
                    why = f"leaves {left} {what} ({most}, of which others use {used}), and the "
                    assert f"{why}nodes there take {taken}. See" in refused, refused
                assert refused.count("the quota of its project leaves") == len(said)
        with limited(cloud, **{f"volumes_{type_}": 4, f"gigabytes_{type_}": 6}):
            rack.run("plan", file)
    finally:
        member.block_storage.delete_volume(theirs.id)
        member.block_storage.wait_for_delete(theirs)


ONE = """
  - {name: b, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB, 2GiB], nics: [external]}
"""


@pytest.mark.timeout(600, func_only=True)
def test_a_volume_that_cinder_cannot_make_is_reported_and_made_by_the_next_up(
    cloud: OwnCloud, beside: str, rack: Rack
) -> None:
    member = connection(cloud)
    before = all_of(member)
    file = rack.file(text_of(cloud, rack, ONE, flavors=beside) + rack.bmc())
    name = rack.names[-1]
    place = Path(cloud.told["clouds"]).parent / "cinder/volumes"
    aside = place.rename(place.with_name("aside"))
    place.touch()
    try:
        refused = rack.run("up", file, "--yes", status=3).stderr
    finally:
        place.unlink()
        aside.rename(place)
    assert "Nova could not build server" in refused
    assert "volume" in refused.lower(), "why"
    until(lambda: all_of(member)["volumes"] == before["volumes"])
    rack.run("up", file, "--yes")
    assert "Nothing to do" in rack.run("plan", file).stdout
    assert len(all_of(member)["volumes"]) == len(before["volumes"]) + 2
    rack.run("down", name, "--yes")
    assert all_of(member) == before


@pytest.mark.timeout(600, func_only=True)
@pytest.mark.parametrize("then", ["up", "down"])
def test_a_daemon_that_dies_between_volume_and_server_leaves_no_orphan(
    cloud: OwnCloud, beside: str, rack: Rack, then: str
) -> None:
    member = connection(cloud)
    before = all_of(member)
    file = rack.file(text_of(cloud, rack, ONE, flavors=beside) + rack.bmc())
    name = rack.names[-1]

    def is_made() -> bool:
        return any(each.id not in before["volumes"] for each in member.block_storage.volumes())

    rack.run("plan", file)
    with ThreadPoolExecutor() as pool:
        pool.submit(rack.attempt, "up", file, "--yes")
        until(is_made)
        assert [each.status for each in member.compute.servers(name=f"{name}-b")] == ["BUILD"]
        rack.crash()
    if then == "up":
        rack.run("up", file, "--yes")
        assert "Nothing to do" in rack.run("plan", file).stdout
        assert len(all_of(member)["volumes"]) == len(before["volumes"]) + 2
    rack.run("down", name, "--yes")
    assert all_of(member) == before


@pytest.mark.timeout(600, func_only=True)
def test_a_daemon_that_dies_while_a_root_is_copied_leaves_no_copy(
    cloud: OwnCloud, beside: str, rack: Rack
) -> None:
    member = connection(cloud)
    before = all_of(member)
    (rack.directory / "disk.raw").write_bytes(partitioned(speaking_disk()))
    one = VM.replace("}, 2GiB]", "}]")
    rack.run("up", rack.file(text_of(cloud, rack, one, flavors=beside) + rack.bmc()), "--yes")
    name = rack.names[-1]
    with ThreadPoolExecutor() as pool:
        pool.submit(rack.attempt, "snapshot", "create", name, "first")
        until(lambda: len(all_of(member)["snapshots"]) > len(before["snapshots"]))
        rack.crash()
    rack.run("down", name, "--yes")
    assert all_of(member) == before


@pytest.mark.timeout(600, func_only=True)
def test_a_lost_store_is_recovered_and_a_server_that_no_cluster_knows_goes_with_its_volumes(
    cloud: OwnCloud, beside: str, rack: Rack
) -> None:
    member = connection(cloud)
    before = all_of(member)
    file = rack.file(text_of(cloud, rack, ONE, flavors=beside) + rack.bmc())
    rack.run("up", file, "--yes")
    made = all_of(member)

    def lose() -> None:
        rack.run("daemon", "stop")
        for path in (rack.directory / "state").glob("nospoon.db*"):
            path.unlink()

    lose()
    rack.run("recover", file)
    rack.run("up", file, "--yes")
    assert "Nothing to do" in rack.run("plan", file).stdout
    assert all_of(member) == made, "none was made again"
    lose()
    rows = rack.json("orphans", file)
    assert {row["name"] for row in rows if row["kind"] == "machine"} == {"b"}
    rack.run("orphans", "--reap", "--yes", "--grace", "0.2", file)
    assert all_of(member) == before
    rack.names.clear()


@pytest.mark.timeout(1200, func_only=True)
def test_a_server_of_others_whose_root_is_a_volume_boots_the_network_by_rescue(
    cloud: OwnCloud, rack: Rack, tmp_path: Path
) -> None:
    member = connection(cloud)
    with theirs(member, Firmware.BIOS, tmp_path, is_volume=True) as id_:
        node = f"  - {{adopt: {id_}, name: mine}}"
        file = rack.file(text_of(cloud, rack, node, flavors="tiny", volumes="false") + rack.bmc())
        name = rack.names[-1]
        before = all_of(member)
        (root,) = volumes_of(member, id_).values()
        rack.run("up", file, "--yes")
        bmc = rack.bmcs(name)["mine"]
        rack.ipmitool(bmc, "chassis", "bootdev", "pxe")
        rack.power(f"{name}/mine", "on")
        for said in ("nospoon: boot the network", "nospoon: boot the disk", BOOTED.decode()):
            until(partial(says, rack, "mine", said, 0), 600)
        until(lambda: member.compute.get_server(id_).status == "ACTIVE")
        rack.run("down", name, "--yes")
        assert all_of(member) == before
        assert [*volumes_of(member, id_).values()] == [root]
