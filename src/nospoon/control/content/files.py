"""Files that clients uploaded, by content: the daemon opens no path that a client names."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from threading import RLock
from typing import IO
from weakref import WeakValueDictionary

import structlog

from nospoon.control.content.fetch import Access, Terms, Transfer, download
from nospoon.control.content.pace import Pace, watch
from nospoon.control.content.space import Space
from nospoon.control.content.verified import expected, promised, refuse_other
from nospoon.errors import NospoonError, NotFound, OutOfSpace, ProviderError, UsageError
from nospoon.runtime import clock
from nospoon.runtime.reach import ANYWHERE, Reach
from nospoon.runtime.turns import Turns

log = structlog.get_logger()
KEPT_UNNAMED = 3600.0
"""Seconds for which a file is kept that no cluster names yet: its `up` may wait to be confirmed."""
TIDY = 600.0
"""Seconds between two looks for such files that are older."""
PARTIAL = ".partial"
THREADS = 32
"""Files of cluster files that are fetched at a time; more wait."""
PER_OWNER = 4
"""The same of one owner."""
UPLOADS = 4
"""Uploads of one owner that are written at a time; of more, nothing is read meanwhile."""
PACE = Pace(deadline=6 * 3600.0, window=60.0, rate=16 << 10)
KNOWN = 4096
"""URLs of which it is known what they had; of more, the oldest are fetched again when named."""
PRIVATE = 0o700
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_URL = re.compile(r"https?://")
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}


def is_url(name: str) -> bool:
    """Whether a name in a cluster file is a URL and not a path."""
    return bool(_URL.match(name))


@dataclass(frozen=True, slots=True)
class Files:
    """A directory of files named by their SHA-256; what is not whole yet lies apart.

    Who knows a digest may name the file as one of its own: no one else may list them.
    """

    directory: Path
    space: Space
    reach: Reach = ANYWHERE
    _arrived: dict[str, float] = field(default_factory=dict)
    _stored: dict[str, float] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)
    _pinned: set[tuple[int | None, str]] = field(default_factory=set)
    pace: Pace = PACE
    _fetching: Turns = field(default_factory=Turns)
    _of_owner: WeakValueDictionary[int | None, asyncio.Semaphore] = field(
        default_factory=WeakValueDictionary
    )
    _uploads: WeakValueDictionary[int | None, asyncio.Semaphore] = field(
        default_factory=WeakValueDictionary
    )
    _of_all: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(THREADS))
    _settling: AbstractContextManager[object] = field(default_factory=RLock)
    _held: Counter[str] = field(default_factory=Counter)
    _asked: dict[str, Counter[int | None]] = field(default_factory=dict)
    _threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(THREADS, thread_name_prefix="download")
    )

    @classmethod
    def at(
        cls, directory: Path, *, reserve: int = 0, quota: int = 0, reach: Reach = ANYWHERE
    ) -> Files:
        """`reserve`: bytes that stay free on its disk; `quota`: of one owner; 0 for none. `reach`:
        where URLs of owners may lead.
        """
        return cls(directory, Space(directory, reserve, quota), reach)

    def path(self, sha256: str) -> Path:
        """Where the content with this digest lies. Raises `NotFound`."""
        if not _DIGEST.match(sha256):
            raise UsageError(f"expected a SHA-256 in lower-case hex, got {sha256!r}")
        found = self.directory / sha256
        if not found.is_file():
            raise NotFound(f"no file with SHA-256 {sha256} was uploaded")
        return found

    def require_space(self, amount: int, *, copies: int, owner: int | None) -> None:
        """Raises `OutOfSpace` where the disk cannot take so many bytes as often, or their owner may
        not have them once more.
        """
        self.space.refuse_full(amount * copies)
        self.space.refuse_beyond(owner, amount)

    def has(self, sha256: str) -> bool:
        return bool(_DIGEST.match(sha256)) and (self.directory / sha256).is_file()

    def wanted(self, sha256: str, *, owner: int | None = None) -> bool:
        """Whether it is here; if so, it stays for a while, for `owner` is about to name it."""
        if self.has(sha256):
            self._arrived[sha256] = clock.monotonic()
            self.space.kept(owner, sha256)
        return self.has(sha256)

    async def missing(self, digests: Sequence[str], *, owner: int) -> list[str]:
        """Which of these are not here; those that are stay for a while."""
        here = await asyncio.to_thread(lambda: {each for each in digests if self.has(each)})
        stay = {each for each in here if self.wanted(each, owner=owner)}
        for each in stay:
            self._ask(each, owner)
        return [each for each in digests if each not in stay]

    def _ask(self, sha256: str, owner: int | None) -> None:
        """A client knows now that it is here, and is about to name it."""
        self._asked.setdefault(sha256, Counter())[owner] += 1

    def answer(self, sha256: str, owner: int | None) -> None:
        """A client named it that had asked for it."""
        asked = self._asked.get(sha256, Counter())
        asked[owner] = max(0, asked[owner] - 1)

    def asked(self, sha256: str, owner: int | None) -> bool:
        """Whether another client of this owner is about to name it. If that never comes, `tidy`
        removes it.
        """
        return self._asked.get(sha256, Counter())[owner] > 0

    def hold(self, sha256: str) -> None:
        """It stays, whoever releases it, until it is let go as often. From any thread."""
        with self._settling:
            self._held[sha256] += 1

    def let_go(self, sha256: str) -> None:
        """It is used no more; who held it releases it."""
        with self._settling:
            self._held[sha256] -= 1
            if not self._held[sha256]:
                del self._held[sha256]

    def pin(self, owner: int, sha256: str) -> None:
        """It stays, and counts as its owner's, until it is unpinned: it has a name."""
        self._pinned.add((owner, sha256))
        self.space.kept(owner, sha256)

    def unpin(self, owner: int, sha256: str) -> None:
        """It has no name any more; it stays for a while, or for as long as a cluster names it."""
        self._pinned.discard((owner, sha256))

    def release(self, sha256: str, owner: int | None) -> None:
        """`owner` needs it no more; it is removed unless another user uploaded the same content, or
        it is pinned or held.
        """
        if (owner, sha256) in self._pinned:
            return
        with self._settling:
            self.space.release(owner, sha256)
            if not self.space.owned(sha256) and sha256 not in self._held:
                self.drop(sha256)

    def stored(self, digests: Collection[str]) -> None:
        """A cluster that names these is stored: the request that brought them waits no more."""
        self._stored.update(dict.fromkeys(digests, clock.monotonic()))

    def release_unasked(self, digests: Collection[str], owner: int | None) -> None:
        """`owner` removed its cluster for good. What a later request named stays for it, for as
        long as `keep_only` says: another `up` of the same file may wait to be confirmed.
        """
        for each in digests:
            if self._arrived.get(each, -inf) <= self._stored.get(each, -inf):
                self.release(each, owner)

    async def tidy(
        self,
        named: Callable[[], Awaitable[Collection[str]]],
        *,
        every: float = TIDY,
        kept: float = KEPT_UNNAMED,
    ) -> None:
        """For ever, remove what no cluster names and no request named of late. `named`: what
        clusters name. `every`, `kept`: seconds.
        """
        while True:
            await asyncio.sleep(every)
            try:
                await asyncio.to_thread(self.keep_only, await named(), kept=kept)
            except (NospoonError, OSError) as error:
                log.warning("files that no cluster names stay for now", why=str(error))

    def begin(self, digests: Collection[str]) -> None:
        """At start-up: remove every file that is not among these, and what never became whole."""
        if self.directory.exists():
            self.directory.chmod(PRIVATE)  # earlier versions let others list it
        for path in (self.directory / PARTIAL).glob("*"):
            path.unlink(missing_ok=True)
        self.keep_only(digests)

    def keep_only(self, digests: Collection[str], *, kept: float = KEPT_UNNAMED) -> None:
        """Remove every whole file that is not among these and did not arrive in the last `kept`
        seconds.
        """
        since = clock.monotonic() - kept
        held = tuple(self._pinned)  # the event loop changes it meanwhile
        pinned = {sha256 for _, sha256 in held}
        for path in self.directory.glob("*"):
            late = self._arrived.get(path.name, since) > since
            named = path.name in digests or path.name in pinned
            if path.is_file() and not named and not late:
                self.drop(path.name)

    async def receive(
        self,
        sha256: str,
        chunks: AsyncIterator[bytes],
        *,
        owner: int | None = None,
        announced: int = 0,
    ) -> None:
        """Take an upload; content that does not match its digest is refused and removed.

        `announced`: how many bytes it is to have, 0 where no one says. Raises `OutOfSpace` for more
        than its owner may have here.
        """
        if not _DIGEST.match(sha256):
            raise UsageError(f"expected a SHA-256 in lower-case hex, got {sha256!r}")
        async with _turns(self._uploads, owner, UPLOADS):
            await self._receive(sha256, chunks, owner, announced)

    async def _receive(
        self, sha256: str, chunks: AsyncIterator[bytes], owner: int | None, announced: int
    ) -> None:
        digest = hashlib.sha256()
        with self.space.charge(owner) as charge, self.scratch() as part:
            charge.expect(announced)
            async for chunk in chunks:
                charge.take(len(chunk))
                digest.update(chunk)
                part.write(chunk)
            if digest.hexdigest() != sha256:
                raise UsageError(
                    f"upload is damaged: expected SHA-256 {sha256}, got {digest.hexdigest()}"
                )
            self._settle(part, sha256, charge.keep)
        self._ask(sha256, owner)

    def drop(self, sha256: str) -> None:
        """Remove a file; one that is gone already is no error."""
        self._arrived.pop(sha256, None)
        self._stored.pop(sha256, None)
        self._asked.pop(sha256, None)
        self.space.gone(sha256)
        (self.directory / sha256).unlink(missing_ok=True)

    async def fetch(
        self,
        url: str,
        access: Access | None = None,
        transfer: Transfer | None = None,
        *,
        checksum: str = "",
        owner: int | None = None,
    ) -> str:
        """Download an http(s) URL; returns its SHA-256. `transfer` tells how far it is.

        What has another checksum is not kept: `ProviderError`, as for what is slower than `pace`.
        A few of each owner are fetched at a time, each in a thread that nothing else waits for.
        """
        transfer = transfer or Transfer()
        try:
            with self.space.charge(owner) as charge:
                terms = Terms(self.reach, 0, charge.expect, charge.take, charge.keep)
                work = partial(
                    self.fetch_blocking, url, access or Access(), transfer, terms, checksum=checksum
                )
                fetching = asyncio.wrap_future(await self._begun(owner, work))
                await watch(fetching, transfer, self.pace)
                got = await fetching
        finally:
            transfer.stop()  # a thread that is still at it ends
        return got

    async def _begun(self, owner: int | None, work: Callable[[], str]) -> Future[str]:
        """The work, begun when it is the owner's turn, which lasts until its thread has ended, also
        when no one waits for it any more.
        """
        mine = _turns(self._of_owner, owner, PER_OWNER)
        await mine.acquire()
        try:
            await self._of_all.acquire()
        except BaseException:
            mine.release()
            raise
        ended = partial(_release, asyncio.get_running_loop(), (mine, self._of_all))
        begun = self._threads.submit(work)
        begun.add_done_callback(ended)
        return begun

    async def fetch_once(
        self, source: str, transfer: Transfer | None = None, *, owner: int | None = None
    ) -> str:
        """The same, and what was fetched of late is not fetched again: a plan and the `up` after it
        mean the same content. `source`: a URL, which a blank and its checksum may follow.
        """
        async with self._fetching.of(source):
            if not self.fetched(source):
                url, _, checksum = source.partition(" ")
                got = await self.fetch(url, None, transfer, checksum=checksum, owner=owner)
                self._know(source, got)
            return self._digests[source]

    def _know(self, source: str, sha256: str) -> None:
        self._digests.pop(source, None)
        self._digests[source] = sha256
        while len(self._digests) > KNOWN:
            del self._digests[next(iter(self._digests))]

    def fetched(self, source: str) -> bool:
        """Whether it was fetched of late, or is here by its checksum: then it stays for a while."""
        known = self._digests.get(source, "")
        if known in self._arrived and self.wanted(known):
            return True
        known = promised(source)
        if self.wanted(known):
            self._know(source, known)
        return self.has(known)

    def fetch_blocking(
        self, url: str, access: Access, transfer: Transfer, terms: Terms, *, checksum: str = ""
    ) -> str:
        """What a thread does for `fetch`."""
        wanted = expected(url, checksum, transfer, terms.reach) if checksum else None
        with self.scratch() as part:
            sha256 = download(url, access, part, transfer, terms)
            if wanted is not None:
                part.flush()
                refuse_other(url, wanted, Path(part.name))
            self._settle(part, sha256, terms.keep)
        return sha256

    def _settle(self, part: IO[bytes], sha256: str, keep: Callable[[str], None]) -> None:
        """It is its owner's from the moment it is there: another's `release` removes it otherwise,
        which runs in another thread.
        """
        part.flush()
        with self._settling:
            self._arrived[sha256] = clock.monotonic()
            Path(part.name).rename(self.directory / sha256)
            keep(sha256)

    @contextmanager
    def scratch(self) -> Iterator[IO[bytes]]:
        """A file that vanishes unless it was settled; what a daemon that ended left is removed by
        the next. Raises `OutOfSpace`, `ProviderError`.
        """
        try:
            place = self.directory / PARTIAL
            self.directory.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
            place.mkdir(exist_ok=True, mode=PRIVATE)
            with tempfile.NamedTemporaryFile(dir=place, delete=False) as part:
                try:
                    yield part
                finally:
                    Path(part.name).unlink(missing_ok=True)
        except OSError as error:
            kind = OutOfSpace if error.errno in _NO_ROOM else ProviderError
            raise kind(f"cannot keep a file in {self.directory}: {error.strerror}") from error


def _turns(
    of: WeakValueDictionary[int | None, asyncio.Semaphore], owner: int | None, most: int
) -> asyncio.Semaphore:
    """Those of an owner, while one of them is taken or waited for."""
    mine = of.get(owner)
    if mine is None:
        mine = of[owner] = asyncio.Semaphore(most)
    return mine


def _release(
    loop: asyncio.AbstractEventLoop, turns: Collection[asyncio.Semaphore], _: Future[str]
) -> None:
    """Called in the thread that has ended."""
    with suppress(RuntimeError):  # the loop has ended, too
        for turn in turns:
            loop.call_soon_threadsafe(turn.release)
