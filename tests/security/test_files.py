"""What is written where: private files, rights of directories, uploads, and lines of the log."""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.security.asked import OTHER, OWNER, Asked, a_daemon

from nospoon.cli.output import writable, write_private
from nospoon.control.content.files import Files
from nospoon.control.maintenance.bundle import Whose, lines_of
from nospoon.daemon.instance import locked
from nospoon.errors import UsageError
from nospoon.runtime.hardening import restrict
from nospoon.settings import make_directory
from nospoon.testing.rack import private_rack

CLUSTER = "cluster: {name}\nhosts: {{s: simulated}}\nnodes: [{{name: n, bmc: [ipmi]}}]\n"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_private_file_takes_the_place_of_one_that_others_may_read(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_text("before")
    target.chmod(0o666)
    with target.open() as seen:
        write_private(target, b"secret")
        assert seen.read() == "before"
    assert (target.read_bytes(), mode(target)) == (b"secret", 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["plan.json"]


def test_a_link_and_a_device_are_written_through(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there")
    write_private(link, b"x")
    assert link.is_symlink()
    assert mode(tmp_path / "there") == 0o600
    write_private(Path("/dev/null"), b"x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives things to another user")
def test_what_another_user_put_into_a_shared_directory_is_not_written_through(
    tmp_path: Path,
) -> None:
    """Root who wrote a plan to /tmp/plan.json replaced whatever file a link there led to."""
    shared, kept = tmp_path / "shared", tmp_path / "passwd"
    shared.mkdir()
    shared.chmod(0o1777)
    kept.write_text("kept")
    link, pipe, own = (shared / name for name in ("link", "pipe", "own"))
    for each in (link, own):
        each.symlink_to(kept)
    os.mkfifo(pipe)
    for each in (link, pipe):
        os.chown(each, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(UsageError, match="link of another user"):
        write_private(link, b"secret")
    with pytest.raises(UsageError, match="link of another user"):
        writable(str(link))
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(UsageError, match="belongs to another user"):
        write_private(pipe, b"secret")
    assert os.read(reader, 10) == b""
    os.close(reader)
    assert kept.read_text() == "kept"
    write_private(own, b"secret")
    assert kept.read_bytes() == b"secret"


def test_standard_output_is_written_to_also_where_it_is_a_pipe() -> None:
    script = (
        "from pathlib import Path\n"
        "from nospoon.cli.output import write_private\n"
        "write_private(Path('/dev/stdout'), b'content')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"content"


def test_rights_beyond_the_wanted_ones_are_taken_away_and_none_are_given(tmp_path: Path) -> None:
    wide, narrow, shared = (tmp_path / name for name in ("wide", "narrow", "shared"))
    for directory, had in ((wide, 0o777), (narrow, 0o700), (shared, 0o1777)):
        directory.mkdir()
        directory.chmod(had)
        restrict(directory, 0o711)
    assert [mode(each) for each in (wide, narrow, shared)] == [0o711, 0o700, 0o1777]


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user")
def test_roots_daemon_writes_in_no_directory_of_another_user(tmp_path: Path) -> None:
    make_directory(tmp_path, 0o711)
    os.chown(tmp_path, OTHER, -1)
    with pytest.raises(UsageError, match=f"belongs to user {OTHER}: .*chown root"):
        make_directory(tmp_path, 0o711)
    with private_rack() as rack:
        rack.forks = False
        (rack.directory / "state").mkdir()
        os.chown(rack.directory / "state", OTHER, -1)
        refused = rack.run("daemon", "start", status=2)
        assert f"state belongs to user {OTHER}" in refused.stderr
        assert not list((rack.directory / "state").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another group")
@pytest.mark.parametrize(
    ("rights", "group", "is_refused"),
    [(0o757, 0, True), (0o775, OTHER, True), (0o775, 0, False), (0o1777, OTHER, False)],
)
def test_roots_daemon_writes_in_no_directory_that_others_may_replace(
    tmp_path: Path, rights: int, group: int, *, is_refused: bool
) -> None:
    parent = tmp_path / "parent"
    directory = parent / "between" / "state"
    directory.mkdir(parents=True)
    os.chown(parent, 0, group)
    parent.chmod(rights)
    link = tmp_path / "link"
    link.symlink_to(directory)
    for each in (directory, link):
        if is_refused:
            with pytest.raises(
                UsageError, match=f"other users may write to {parent}: .*chmod go-w"
            ):
                make_directory(each, 0o711)
        else:
            make_directory(each, 0o711)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user")
@pytest.mark.parametrize("rights", [0o755, 0o1777])
def test_roots_daemon_writes_in_no_directory_below_one_of_another_user(
    tmp_path: Path, rights: int
) -> None:
    """Its owner renames what is there, and makes a directory or link of that name."""
    parent = tmp_path / "parent"
    directory = parent / "between" / "state"
    directory.mkdir(parents=True)
    parent.chmod(rights)
    os.chown(parent, OTHER, 0)
    with pytest.raises(UsageError, match=f"{parent} belongs to user {OTHER}.*chown root"):
        make_directory(directory, 0o711)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a link to another user")
@pytest.mark.parametrize("below", ["", "new"])
@pytest.mark.parametrize("through", [False, True])
def test_roots_daemon_follows_no_link_of_another_user(
    tmp_path: Path, below: str, *, through: bool
) -> None:
    """In a sticky directory another user may have made it: root's database and key went where that
    user wanted, and a directory of the system lost its rights.
    """
    target, shared = tmp_path / "target", tmp_path / "shared"
    target.mkdir(0o755)
    shared.mkdir()
    shared.chmod(0o1777)
    link, own = shared / "link", tmp_path / "own"
    link.symlink_to(target)
    own.symlink_to(link)
    directory = (own if through else link) / below
    make_directory(directory, 0o711)  # it is root's
    os.lchown(link, OTHER, -1)
    if below:
        directory.rmdir()
    with pytest.raises(UsageError, match=f"link is a link of user {OTHER}: "):
        make_directory(directory, 0o711)
    assert list(target.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root's links are looked at by root")
def test_links_that_lead_in_a_circle_are_refused_with_the_reason(tmp_path: Path) -> None:
    tmp_path.joinpath("one").symlink_to("two")
    tmp_path.joinpath("two").symlink_to("one")
    with pytest.raises(UsageError, match=r"Too many levels of symbolic links"):
        make_directory(tmp_path / "one" / "state", 0o711)


def test_other_users_cannot_lock_the_file_that_one_daemon_locks(tmp_path: Path) -> None:
    """Reading is enough for flock(2): who waits for the lock has it when the daemon dies."""
    file = tmp_path / "nospoond.pid"
    file.touch(0o644)
    for _ in range(2):
        with locked(file, tmp_path / "nospoond.sock"):
            assert mode(file) == 0o600
        assert not file.exists()


def test_a_daemon_corrects_its_directories_dumps_no_core_and_saved_plans_have_no_secret() -> None:
    with private_rack() as rack:
        rack.forks = False
        for name in ("state", "runtime", "pool"):
            (rack.directory / name).mkdir()
            (rack.directory / name).chmod(0o777)
        rack.run("daemon", "start")
        modes = {name: mode(rack.directory / name) for name in ("state", "runtime", "pool")}
        assert modes == {"state": 0o711, "runtime": 0o755, "pool": 0o711}
        limits = Path(f"/proc/{rack.daemon_pid()}/limits").read_text().splitlines()
        core = next(line for line in limits if line.startswith("Max core file size"))
        assert core.split()[4:6] == ["0", "0"]
        name = rack.name()
        file = rack.file(
            f"cluster: {name}\n{rack.bmc(username='joe', password='hush-hush')}"
            "hosts: {s: simulated}\nnodes: [{name: n}]\n"
        )
        plan = rack.directory / "saved"
        rack.run("plan", file, "-o", str(plan))
        assert mode(plan) == 0o600
        assert "hush" not in plan.read_text()
        rack.run("apply", "--yes", str(plan))
        rack.run("support-bundle", "-o", str(rack.directory / "bundle"))
        assert mode(rack.directory / "bundle") == 0o600
        assert "standard input" in rack.run("plan", "-", "-o", str(plan), status=2, stdin="").stderr


async def chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def test_an_upload_goes_when_no_user_needs_it_any_more(tmp_path: Path) -> None:
    files, content = Files.at(tmp_path), b"the same"
    sha256 = hashlib.sha256(content).hexdigest()
    await files.receive(sha256, chunks(content), owner=OWNER)
    assert files.wanted(sha256, owner=OTHER)
    files.release(sha256, OWNER)
    assert files.has(sha256)
    files.release(sha256, None)
    assert files.has(sha256)
    files.release(sha256, OTHER)
    assert not files.has(sha256)


async def put(asked: Asked, uid: int, content: bytes) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    missing = (await asked.ask(uid, "POST", "/v1/files/missing", [sha256])).json
    if missing:
        assert (await asked.ask(uid, "PUT", f"/v1/files/{sha256}", content)).status == 204
    return sha256


async def test_an_insert_leaves_another_users_upload_of_equal_content(tmp_path: Path) -> None:
    content = b"\0" * 4096
    async with a_daemon(tmp_path) as asked:
        await asked.up(OTHER, CLUSTER.format(name="theirs"))
        sha256 = await put(asked, OWNER, content)
        await put(asked, OTHER, content)
        body = {"sha256": sha256, "name": "disc.iso"}
        inserted = await asked.ask(OTHER, "POST", "/v1/nodes/theirs/n/media", body)
        assert inserted.status == 200, inserted.body
        assert (await asked.ask(OWNER, "POST", "/v1/files/missing", [sha256])).json == []


def test_lines_of_the_log_are_a_users_by_the_ids_in_their_fields() -> None:
    whose = Whose(7, {"m1"}, {"o1"})
    own = [
        {"uid": 7},
        {"uid": "7"},
        {"machine": "m1"},
        {"uuid": "m1"},
        {"operation": "o1", "why": "x"},
    ]
    other = [
        {"uid": 8}, {"machine": "m2"}, {"operation": "o2"}, {"host": "h"}, {}, {"cluster": "c"},
        {"uid": 7, "machine": "m2"}, {"uid": 8, "machine": "m1"}, {"node": "node-0"},
    ]  # fmt: skip
    log = (
        "".join(f"{json.dumps(each)}\n" for each in (*own, *other)) + 'Traceback {"uid": 7}\n[7]\n'
    )
    assert [json.loads(line) for line in lines_of(log, whose).splitlines()] == own


@pytest.mark.parametrize(("uid", "all_of_it"), [(OWNER, "no"), (os.getuid(), "yes")])
async def test_the_bundle_of_a_member_has_no_log_of_others(
    tmp_path: Path, uid: int, all_of_it: str
) -> None:
    async with a_daemon(tmp_path) as asked:
        own = (await asked.up(OWNER, CLUSTER.format(name="mine"))).json["operation"]["id"]
        other = (await asked.up(OTHER, CLUSTER.format(name="hidden"))).json["operation"]["id"]
        asked.daemon.control.controller.found = "BMC of hidden is not served"
        log = [
            {"operation": own},
            {"operation": other},
            {"event": "start-up found", "what": "hidden"},
        ]
        asked.daemon.control.controller.log_file.write_text(
            "".join(f"{json.dumps(e)}\n" for e in log)
        )
        answer = await asked.ask(uid, "GET", "/v1/support-bundle")
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as archive:
        texts = {
            each.name.partition("/")[2]: (archive.extractfile(each) or io.BytesIO()).read().decode()
            for each in archive
        }
    assert (own in texts["daemon.log"], other in texts["daemon.log"]) == (True, all_of_it == "yes")
    assert any("hidden" in text for text in texts.values()) is (all_of_it == "yes")
