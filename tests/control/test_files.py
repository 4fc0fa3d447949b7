"""What clients upload and the daemon fetches: whole or not at all, and kept while it is wanted."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from hashlib import sha256, sha512
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from stat import S_IMODE

import pytest

from nospoon.control.content.fetch import Access, Transfer, download
from nospoon.control.content.files import Files
from nospoon.errors import HostUnreachable, Obstacle, ProviderError, Unfetchable, UsageError

CONTENT = b"a kernel" * 1000
SHA256, SHA512 = sha256(CONTENT).hexdigest(), sha512(CONTENT).hexdigest()
LISTS = {
    "/SHA512SUMS": f"{'0' * 128}  short\n{SHA512}  whole\n".encode(),
    "/OTHERS": f"{SHA256}  something\n{SHA256}  else\n".encode(),
    "/WRONG": b"0" * 64,
    "/LONG": b"0" * (2 << 20),
}


class Server(BaseHTTPRequestHandler):
    """/whole, /short (less than it announces), /secret (for bob, whose word is p@ss), /missing
    and /busy.
    """

    asked: list[str] = []  # noqa: RUF012  (one server a test)

    def do_GET(self) -> None:
        Server.asked.append(self.path)
        denied = self.path == "/secret" and self.headers["Authorization"] != "Basic Ym9iOnBAc3M="
        told = {"/missing": 404, "/busy": 503}.get(self.path, 401 if denied else 200)
        self.send_response(told)
        self.send_header("Content-Length", str(len(LISTS.get(self.path, CONTENT))))
        self.end_headers()
        body = LISTS.get(self.path, CONTENT[:100] if self.path == "/short" else CONTENT)
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        del format, args


@contextmanager
def serving() -> Iterator[str]:
    Server.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files.at(tmp_path / "files")


def all_in(files: Files) -> list[str]:
    return [path.name for path in files.directory.rglob("*") if path.is_file()]


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_what_is_fetched_is_whole(files: Files) -> None:
    with serving() as place:
        digest = await files.fetch(f"http://{place}/whole")
        assert files.path(digest).read_bytes() == CONTENT
        with pytest.raises(ProviderError, match=f"got 100 of {len(CONTENT)} bytes"):
            await files.fetch(f"http://{place}/short")
    assert all_in(files) == [digest]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/short", Obstacle.BROKEN),
        ("/secret", Obstacle.UNAUTHORIZED),
        ("/missing", Obstacle.MISSING),
        ("/busy", Obstacle.BROKEN),
    ],
)
async def test_what_cannot_be_fetched_says_what_is_in_the_way(
    files: Files, path: str, why: Obstacle
) -> None:
    with serving() as place, pytest.raises(Unfetchable) as refused:
        await files.fetch(f"http://eve:x@{place}{path}")
    assert refused.value.why is why
    assert refused.value.url == f"http://{place}{path}"


async def test_where_nobody_listens_nothing_can_be_reached(files: Files) -> None:
    with socket.socket() as bound:  # it does not listen
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/x"
        with pytest.raises(Unfetchable) as refused:
            await files.fetch(url)
    assert (refused.value.why, refused.value.url) == (Obstacle.UNREACHABLE, url)


async def test_the_account_in_a_url_is_used_and_told_to_nobody(files: Files) -> None:
    with serving() as place:
        assert await files.fetch(f"http://bob:p%40ss@{place}/secret")
        with pytest.raises(ProviderError, match="401") as refused:
            await files.fetch(f"http://bob:wrong@{place}/secret")
    assert "wrong" not in str(refused.value)


def test_a_full_disk_is_not_told_as_the_servers_fault() -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            del data
            raise OSError(28, "No space left on device")

    with serving() as place, pytest.raises(OSError, match="No space left"):
        download(f"http://{place}/whole", Access(), Full(), Transfer())


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:abc/x", "http://127.0.0.1:9/a b", "http://[::1/x", "file:///etc/passwd"],
)
async def test_a_url_that_is_none_is_refused_and_leaves_nothing(files: Files, url: str) -> None:
    with pytest.raises((UsageError, ProviderError)):
        await files.fetch(url)
    assert all_in(files) == []


async def test_nobody_else_sees_what_is_there(files: Files) -> None:
    digest = sha256(CONTENT).hexdigest()
    await files.receive(digest, chunks(CONTENT))
    assert S_IMODE(files.directory.stat().st_mode) == 0o700
    assert S_IMODE(files.path(digest).stat().st_mode) == 0o600
    files.directory.chmod(0o755)
    files.begin([digest])
    assert S_IMODE(files.directory.stat().st_mode) == 0o700
    assert files.path(digest).read_bytes() == CONTENT


async def test_a_plan_and_the_up_after_it_fetch_once(files: Files) -> None:
    with serving() as place:
        first = await files.fetch_once(f"http://{place}/whole")
        assert await files.fetch_once(f"http://{place}/whole") == first
        assert len(Server.asked) == 1
        files.drop(first)
        assert await files.fetch_once(f"http://{place}/whole") == first
        assert len(Server.asked) == 2


async def test_what_somebody_is_about_to_name_stays_when_others_go(files: Files) -> None:
    digest = sha256(CONTENT).hexdigest()
    await files.receive(digest, chunks(CONTENT[:50], CONTENT[50:]))
    files.keep_only(())
    assert files.wanted(digest)
    assert not Files.at(files.directory).has("0" * 64)
    Files.at(files.directory).begin(())  # another daemon, which knows of nobody who waits
    assert all_in(files) == []


async def test_what_left_with_its_cluster_goes_unless_a_later_request_named_it(
    files: Files,
) -> None:
    await files.receive(SHA256, chunks(CONTENT), owner=1)
    files.stored([SHA256])
    assert files.wanted(SHA256, owner=1)  # another `up`, which waits to be confirmed
    files.release_unasked([SHA256], 1)
    assert files.has(SHA256)
    files.stored([SHA256])
    files.release_unasked([SHA256], 1)
    assert not files.has(SHA256)
    await files.receive(SHA256, chunks(CONTENT), owner=1)
    later = Files.at(files.directory)  # of a daemon that started since
    later.release_unasked([SHA256], 1)
    assert all_in(later) == []


async def test_what_was_never_named_is_removed_without_a_down(files: Files) -> None:
    async def named() -> list[str]:
        looks.append(len(all_in(files)))
        if len(looks) == 1:
            raise HostUnreachable("the database does not answer")
        if len(looks) == 4:
            raise LookupError
        return []

    looks: list[int] = []
    await files.receive(SHA256, chunks(CONTENT))
    with pytest.raises(LookupError):
        await files.tidy(named, every=0, kept=0)
    assert looks == [1, 1, 0, 0], "it goes on when the store is back"


async def test_an_upload_under_way_is_not_taken_for_a_leftover(files: Files) -> None:
    digest = sha256(CONTENT).hexdigest()

    async def with_somebody_else_going_down() -> AsyncIterator[bytes]:
        yield CONTENT[:50]
        files.keep_only(())
        yield CONTENT[50:]

    await files.receive(digest, with_somebody_else_going_down())
    assert files.path(digest).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "checksum", [f"sha256:{SHA256}", f"sha512:{SHA512}", "http://{place}/SHA512SUMS"]
)
async def test_what_has_its_checksum_is_kept(files: Files, checksum: str) -> None:
    with serving() as place:
        source = f"http://{place}/whole {checksum.format(place=place)}"
        assert not files.fetched(source)
        digest = await files.fetch_once(source)
        assert files.path(digest).read_bytes() == CONTENT
        assert files.fetched(source)


@pytest.mark.parametrize(
    ("checksum", "why"),
    [
        (f"sha256:{'0' * 64}", f"its sha256 is {SHA256}, not 000"),
        (f"sha512:{'0' * 128}", f"its sha512 is {SHA512}, not 000"),
        ("http://{place}/WRONG", f"its sha256 is {SHA256}, not 000"),
        ("http://{place}/OTHERS", "/OTHERS has no SHA-256 or SHA-512 of whole"),
        ("http://{place}/LONG", "too long for a list of checksums"),
        ("http://{place}/missing", "cannot fetch .*/missing: .*404"),
    ],
)
async def test_what_has_another_checksum_is_refused_and_nothing_is_kept(
    files: Files, checksum: str, why: str
) -> None:
    with serving() as place:
        account = f"http://bob:hush@{place}"
        source = f"{account}/whole {checksum.format(place=f'bob:hush@{place}')}"
        with pytest.raises(ProviderError, match=why) as refused:
            await files.fetch_once(source)
    assert all_in(files) == []
    assert "hush" not in str(refused.value)


async def test_what_is_here_by_its_checksum_is_not_fetched_again(files: Files) -> None:
    await files.receive(SHA256, chunks(CONTENT))
    assert await files.fetch_once(f"http://192.0.2.1/whole sha256:{SHA256}") == SHA256
    assert not files.fetched(f"http://192.0.2.1/whole sha512:{SHA512}")
