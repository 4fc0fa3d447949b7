"""Members do not fill the disk of the daemon's state."""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection
from tests.security.asked import OTHER, OWNER, Asked, a_daemon

from nospoon.clusterfile.load import load
from nospoon.clusterfile.simulated import MOST_CONSOLE
from nospoon.control.content.fetch import Transfer
from nospoon.control.content.files import Files
from nospoon.control.content.space import MOST_FILES, Space, text_of
from nospoon.control.labs.installers import Installers
from nospoon.control.planning.saved import MOST_CLUSTERS, MOST_LOGINS, save
from nospoon.errors import Conflict, OutOfSpace, SpecError
from nospoon.model.cluster import Host
from nospoon.model.connections import OpenStack, Simulated, Simulation
from nospoon.model.lab import Distro
from nospoon.plan.addresses.allocate import Allocations
from nospoon.providers.base import Medium
from nospoon.providers.openstack.drives import KeptMedia
from nospoon.providers.recorder import MOST_RECORD, MOST_WAITING, Recorder
from nospoon.runtime.tasks import Tasks
from nospoon.services.consoles.capacity import make_room
from nospoon.store import clusters as stored
from nospoon.store import nodes as node_rows
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database

MACHINE = UUID(int=7)


def simulated(name: str, padding: int = 0) -> str:
    return f"cluster: {name}\nhosts: {{s: simulated}}\nnodes: [{{name: n}}]\n#{'x' * padding}\n"


def a_row(name: str, uid: int) -> ClusterRow:
    return ClusterRow(uuid4(), name, uid, 1, "f", "text", {"a": "ab" * 32}, Allocations(), 1.0)


def used(asked: Asked, uid: int) -> int:
    return asked.daemon.parts.files.space.used(uid)


async def test_a_member_has_so_many_uploads_however_small_they_are(tmp_path: Path) -> None:
    """Each takes an inode of the disk, and was counted again for each that came."""
    async with a_daemon(tmp_path) as asked:
        space = asked.daemon.parts.files.space
        for number in range(MOST_FILES - 1):
            space.hold(OWNER, str(number), 1)
        assert await upload(asked, OWNER, b"the last") == 204
        assert await upload(asked, OWNER, b"one more") == 507
        assert await upload(asked, OTHER, b"one more") == 204
        assert space.used(OWNER) == MOST_FILES - 1 + len(b"the last")
        space.release(OWNER, "0")
        space.hold(OWNER, "1", 5)
        space.gone("2")
        assert space.used(OWNER) == MOST_FILES - 1 + len(b"the last") - 2 + 4
        assert await upload(asked, OWNER, b"instead") == 204


async def upload(asked: Asked, uid: int, content: bytes) -> int:
    path = f"/v1/files/{hashlib.sha256(content).hexdigest()}"
    return (await asked.ask(uid, "PUT", path, content)).status


async def test_a_member_s_cluster_files_count_to_the_quota_until_they_are_down(
    tmp_path: Path,
) -> None:
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, simulated("a", 100_000))).status == 202
        first = used(asked, OWNER)
        assert first > 100_000
        assert (await asked.up(OWNER, simulated("b", 100_000))).status == 202
        assert used(asked, OWNER) > first + 100_000
        asked.daemon.parts.files.space.quota = 400_000
        assert (await asked.up(OWNER, simulated("a", 120_000))).status == 202  # instead of the old
        refused = await asked.up(OWNER, simulated("c", 200_000))
        assert (
            "cluster files, uploads and downloads of one user take"
            in refused.json["error"]["message"]
        )
        assert (await asked.up(OTHER, simulated("c", 200_000))).status == 202
        before = used(asked, OWNER)
    async with a_daemon(tmp_path) as asked:
        assert used(asked, OWNER) == before
        for name in ("a", "b"):
            begun = await asked.ask(OWNER, "POST", f"/v1/clusters/{name}/down", {})
            await asked.finished(OWNER, begun.json["id"])
        assert used(asked, OWNER) == 0


async def test_a_member_has_at_most_so_many_clusters(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/store.db")
    rows = [a_row(f"c{number}", OWNER) for number in range(MOST_CLUSTERS)]

    def fill(connection: Connection) -> None:
        for row in rows:
            save(connection, row, [], [], limited=True)

    try:
        await database.call(fill)
        more = a_row("more", OWNER)
        with pytest.raises(Conflict, match=f"you have {MOST_CLUSTERS} clusters"):
            await database.call(save, more, [], [], limited=True)
        await database.call(save, replace(rows[0], generation=2), [], [], limited=True)
        await database.call(save, a_row("theirs", OTHER), [], [], limited=True)
        await database.call(save, more, [], [], limited=False)
        assert len(await database.call(stored.holdings, owner=OWNER)) == MOST_CLUSTERS + 1
    finally:
        database.close()


async def test_a_member_has_at_most_so_many_logins_at_clouds(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/store.db")

    def clouds(first: int, count: int) -> list[Host]:
        numbers = range(first, first + count)
        return [Host(f"h{n}", OpenStack("mine", "at", login=f"login-{n}")) for n in numbers]

    first, second = a_row("first", OWNER), a_row("second", OWNER)
    try:
        await database.call(save, first, [], clouds(0, MOST_LOGINS), limited=True)
        with pytest.raises(Conflict, match=f"have {MOST_LOGINS + 1} logins at clouds"):
            await database.call(save, second, [], clouds(MOST_LOGINS, 1), limited=True)
        await database.call(save, second, [], clouds(0, 2), limited=True)
        changed = [replace(clouds(0, 1)[0], connection=OpenStack("mine", "at", login="new"))]
        once_more = replace(second, generation=2)
        with pytest.raises(Conflict, match=f"have {MOST_LOGINS + 1} logins at clouds"):
            await database.call(save, once_more, [], changed, limited=True)
        await database.call(save, once_more, [], changed, limited=False)
        await database.call(save, a_row("b", OTHER), [], clouds(100, 1), limited=True)
    finally:
        database.close()


def of_nodes(name: str, *nodes: str) -> str:
    listed = ", ".join(f"{{name: {each}}}" for each in nodes)
    return f"cluster: {name}\nhosts: {{s: simulated}}\nnodes: [{listed}]\n"


async def test_a_member_has_at_most_so_many_nodes_in_all_clusters(tmp_path: Path) -> None:
    said = "you would have 4 nodes, 2 of them in other clusters, and members may have 3"
    async with a_daemon(tmp_path, NOSPOON_MEMBER_NODES="3") as asked:
        await asked.up(OWNER, of_nodes("a", "x", "y"))
        text = of_nodes("b", "x", "y")
        for path in ("/v1/plan", "/v1/clusters"):
            refused = await asked.ask(OWNER, "POST", path, {"file": "f", "text": text})
            assert refused.status == 409
            assert said in refused.json["error"]["message"]
        assert [each["name"] for each in (await asked.ask(OWNER, "GET", "/v1/clusters")).json] == [
            "a"
        ]
        assert (await asked.up(OTHER, text)).status == 202
        assert (await asked.up(os.getuid(), of_nodes("b", *"abcde"))).status == 202
        assert (await asked.up(OWNER, of_nodes("b", "x"))).status == 202
        assert (await asked.up(OWNER, of_nodes("b", "y"))).status == 202  # x leaves
    async with a_daemon(tmp_path, NOSPOON_MEMBER_NODES="1") as asked:
        assert (await asked.up(OWNER, of_nodes("a", "x", "z"))).status == 409
        assert (await asked.up(OWNER, of_nodes("a", "x"))).status == 202  # one less
        there = (await asked.ask(OWNER, "GET", "/v1/clusters")).json
        assert [each["name"] for each in there] == ["a", "b"]


async def test_nodes_of_a_member_are_counted_when_they_are_remembered(tmp_path: Path) -> None:
    """Two plans that were made at one moment know nothing of each other."""
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, of_nodes("a", "x", "y"))
        database = asked.daemon.parts.database
        nodes = await database.call(node_rows.all_nodes)
        row = a_row("b", OWNER)
        theirs = [replace(each, cluster_id=row.id) for each in nodes]
        with pytest.raises(Conflict, match="would have 4 nodes"):
            await database.call(save, row, theirs, [], limited=True, most_nodes=3)
        assert await database.call(stored.get, row.id) is None


async def test_a_plan_says_that_a_member_has_as_many_clusters_as_he_may(tmp_path: Path) -> None:
    rows = [a_row(f"c{number}", OWNER) for number in range(MOST_CLUSTERS)]

    def fill(connection: Connection) -> None:
        for row in rows:
            stored.save(connection, row)

    async with a_daemon(tmp_path) as asked:
        await asked.daemon.parts.database.call(fill)
        body = {"file": "c.yaml", "text": simulated("more", 0)}
        refused = await asked.ask(OWNER, "POST", "/v1/plan", body)
        assert refused.status == 409
        assert f"you have {MOST_CLUSTERS} clusters" in refused.json["error"]["message"]
        assert (await asked.ask(OTHER, "POST", "/v1/plan", body)).status == 200
        assert (await asked.ask(os.getuid(), "POST", "/v1/plan", body)).status == 200


async def test_what_clusters_hold_is_known_without_their_files(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/store.db")
    row = a_row("c", OWNER)
    try:
        await database.call(stored.save, row)
        (held,) = await database.call(stored.holdings)
    finally:
        database.close()
    assert (held.id, held.owner, held.uploads) == (row.id, OWNER, row.uploads)
    assert held.size == len(row.text)
    assert text_of(row.id) != text_of(uuid4())


@pytest.mark.parametrize(("said", "taken"), [("x" * MOST_CONSOLE, True), ("ü" * 40_000, False)])
def test_a_simulated_guest_says_at_most_so_much(said: str, *, taken: bool) -> None:
    text = f"cluster: c\nhosts: {{s: {{simulated: {{console: {said}}}}}}}\nnodes: [{{}}]\n"
    if taken:
        assert load(text, file="f").hosts[0].connection == Simulated(Simulation(console=said))
        return
    with pytest.raises(SpecError, match="expected at most 65536 bytes, got 80000"):
        load(text, file="f")


async def test_the_record_of_a_simulated_machine_keeps_its_end(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        tasks = Tasks("test")
        recorder = Recorder(tmp_path, tasks)
        path = tmp_path / f"{MACHINE}.log"
        path.touch()
        linked = tmp_path / "archived"
        linked.hardlink_to(path)
        piece = b"x" * (64 << 10)
        for number in range(3 * MOST_RECORD // len(piece)):
            recorder.take(MACHINE, piece + b"%d\n" % number)
        recorder.take(MACHINE, b"last")
        await recorder.flush()
        assert MOST_RECORD // 2 <= path.stat().st_size <= MOST_RECORD
        assert linked.read_bytes().endswith(b"95\nlast")
        recorder.take(MACHINE, b"y" * (3 * MOST_RECORD))
        recorder.take(MACHINE, b"end")
        await recorder.flush()
        assert path.stat().st_size <= MOST_RECORD
        assert path.read_bytes().endswith(b"yend")
        await tasks.close()


async def test_what_waits_for_room_is_bounded(tmp_path: Path) -> None:
    tasks = Tasks("test")
    recorder = Recorder(tmp_path, tasks)
    piece = b"z" * (MOST_WAITING // 4)
    for _ in range(8):
        recorder.take(MACHINE, piece)
    assert recorder.waiting <= MOST_WAITING
    await recorder.flush()
    assert recorder.waiting == 0
    await tasks.close()


async def test_console_logs_of_gone_machines_leave_the_disk_its_reserve(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        records, space = asked.daemon.parts.records, asked.daemon.parts.files.space
        await asked.up(OWNER, simulated("a"))
        await asked.up(OWNER, simulated("b"))
        kept = {member.cluster: member.uuid for member in asked.daemon.parts.fleet.of(OWNER)}
        begun = await asked.ask(OWNER, "POST", "/v1/clusters/a/down", {})
        await asked.finished(OWNER, begun.json["id"])
        assert set(records.machines()) == set(kept.values())
        space.free = lambda _: 0
        assert space.lacking() == space.reserve
        await asyncio.to_thread(make_room, records, asked.daemon.parts.consoles.capacity)
        assert records.machines() == [kept["b"]]


async def test_media_in_drives_of_clouds_count_to_the_quota_until_they_are_ejected(
    tmp_path: Path,
) -> None:
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, simulated("a"))).status == 202
        machine = await a_machine(asked, OWNER)
        before, upload = used(asked, OWNER), tmp_path / "disc"
        upload.write_bytes(b"x" * 300_000)
        drives = asked.daemon.parts.cloud_media
        await drives.insert(machine, Medium(str(upload), "ab" * 32))
        upload.unlink()
        assert used(asked, OWNER) == before + 300_000
        assert used(asked, OTHER) == 0
        asked.daemon.parts.files.space.quota = 400_000
        refused = await asked.up(OWNER, simulated("b", 200_000))
        assert "of one user take" in refused.json["error"]["message"]
        await drives.eject(machine)
        assert used(asked, OWNER) == before


async def a_machine(asked: Asked, uid: int) -> UUID:
    """The one of this user, once it is made."""
    async with asyncio.timeout(30):
        while not (members := asked.daemon.parts.fleet.of(uid)):  # noqa: ASYNC110  (it has no event)
            await asyncio.sleep(0.01)
    (member,) = members
    return member.uuid


async def test_a_medium_in_several_drives_is_kept_once(tmp_path: Path) -> None:
    first, second, third = uuid4(), uuid4(), uuid4()
    drives = KeptMedia(tmp_path / "media")
    for machine, said in ((first, "ab"), (second, "ab"), (third, "cd")):
        upload = tmp_path / "disc"
        upload.write_text(said * 500)
        await drives.insert(machine, Medium(str(upload), said * 32))
        upload.unlink()
    assert drives.size(lambda _: True) == 2000
    assert drives.size(lambda machine: machine in {first, second}) == 1000
    assert KeptMedia(tmp_path / "media").size(lambda _: True) == 2000
    await drives.eject(first)
    found = drives.path(second)
    assert found is not None
    assert found.read_text() == "ab" * 500
    assert drives.size(lambda machine: machine == second) == 1000


async def test_a_boot_image_of_a_lab_leaves_the_reserve_of_the_disk_free(tmp_path: Path) -> None:
    """It lies twice on the disk before it is an upload."""
    made, parts = list[Path](), [b"a kernel", b"a ramdisk"]
    digests = [hashlib.sha256(each).hexdigest() for each in parts]

    class Fetched(Files):
        async def fetch_once(
            self, source: str, transfer: Transfer | None = None, *, owner: int | None = None
        ) -> str:
            del transfer, owner
            return source

    async def make(kernel: Path, initrd: Path, image: Path) -> None:
        image.write_bytes(kernel.read_bytes() + initrd.read_bytes())
        made.append(image)

    (tmp_path / "uploads").mkdir()
    for digest, part in zip(digests, parts, strict=True):
        (tmp_path / "uploads" / digest).write_bytes(part)
    distro, size = Distro("d", kernel=digests[0], initrd=digests[1]), sum(map(len, parts))
    free = [1000 + 2 * size - 1]
    space = Space(tmp_path / "uploads", reserve=1000, free=lambda _: free[0])
    installers = Installers(Fetched(tmp_path / "uploads", space), make, tmp_path / "work")
    with pytest.raises(OutOfSpace):
        await installers.image_of(distro, OWNER)
    assert made == []
    free[0] += 1
    await installers.image_of(distro, OWNER)
    assert len(made) == 1
