"""One database, one writer thread: `await database.call(function, ...)` is all or nothing.

`await database.read(function, ...)` runs in another thread, on a snapshot of the store: a long read
holds up no write. It sees every call that had ended before.

Calls that wait together are carried out in one transaction, for beginning and ending one costs more
than most calls; when one of them fails, each gets a transaction of its own. What many callers do
with a value each (`await database.call_each(function, value)`) is one call with all these values.

SQLite runs in WAL mode with `synchronous=NORMAL`: a commit survives the death of the process at
any moment, and that of the machine but for the last instants, after which start-up re-observes.
object SQLAlchemy URL will do; PostgreSQL is the other one that is meant.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from uuid import uuid4

import msgspec
import structlog
from sqlalchemy import Connection, Engine, create_engine, event, insert, select, update
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DatabaseError, IntegrityError, NoSuchModuleError
from sqlalchemy.sql.dml import UpdateBase

from nospoon.errors import (
    HostUnreachable,
    MissingTool,
    NospoonError,
    OutOfSpace,
    ProviderError,
    UsageError,
)
from nospoon.runtime.clock import monotonic
from nospoon.store import leases, tables
from nospoon.store.encoded import as_json
from nospoon.store.schema import bring_up_to_date

log = structlog.get_logger()

P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V")


ENDING = 10.0
"""Seconds in which calls that wait are carried out at the end: a server may hang for good."""
BATCH = 64
AT_ONCE = 8
POSTGRESQL_OPTIONS = "-c idle_in_transaction_session_timeout=5s -c lock_timeout=10s"
"""A daemon that is stopped in the middle of a transaction must not keep its locks for ever."""


Many = Callable[[Connection, Sequence[V]], Sequence[R]]
"""What is done with several values: the result of each, in their order."""


@dataclass(frozen=True, slots=True)
class _Each(Generic[V, R]):
    """A call with one value, of what takes the values of several calls."""

    many: Many[V, R]
    value: V

    def __call__(self, connection: Connection) -> R:
        (result,) = self.many(connection, (self.value,))
        return result


@dataclass(frozen=True, slots=True)
class _Call:
    run: Callable[[Connection], object]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class _Outcome:
    value: Any
    error: Exception | None = None


def _failed(error: Exception) -> _Outcome:
    """Frames of the error, and those that called them, have the call, whose future will have the
    error. Where a refusal was found is known by what it says.
    """
    if isinstance(error, NospoonError):
        error.__traceback__ = None
    return _Outcome(None, error)


def _run(
    function: Callable[..., R],
    args: tuple[object, ...],
    kwargs: dict[str, object],
    connection: Connection,
) -> R:
    return function(connection, *args, **kwargs)


def _results(batch: Sequence[_Call], connection: Connection) -> list[object]:
    """Of each call. What takes values of several is called where the first of them is."""
    values = defaultdict[object, list[object]](list)
    for call in batch:
        if isinstance(call.run, _Each):
            values[call.run.many].append(call.run.value)
    found = dict[object, Iterator[object]]()
    results = list[object]()
    for call in batch:
        if not isinstance(call.run, _Each):
            results.append(call.run(connection))
            continue
        many = call.run.many
        if many not in found:
            found[many] = iter(many(connection, values[many]))
        results.append(next(found[many]))
    return results


def _make_private(engine: Engine) -> None:
    """SQLite's file is its owner's; the files that SQLite puts beside it take over its mode."""
    path = engine.url.database
    if engine.dialect.name != "sqlite" or not path or path == ":memory:":
        return
    with suppress(OSError):  # opening it tells the same with a better message
        for file in (Path(path), Path(f"{path}-wal"), Path(f"{path}-shm")):
            if file.exists() or file.name == Path(path).name:
                file.touch(0o600)
                file.chmod(0o600)


class _Ended:
    """Calls that have ended and whose callers do not know yet.

    Each turn of a loop settles `AT_ONCE` of them, however fast a thread goes on: what they do then
    must not keep all others waiting that the loop serves.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._of: dict[asyncio.AbstractEventLoop, deque[tuple[_Call, _Outcome]]] = {}

    def put(self, done: Iterable[tuple[_Call, _Outcome]]) -> None:
        """From any thread."""
        for call, outcome in done:
            with self._lock:
                waiting = self._of.get(call.loop)
                if waiting is not None:
                    waiting.append((call, outcome))
                    continue
                self._of[call.loop] = deque([(call, outcome)])
            call.loop.call_soon_threadsafe(self._settle_some, call.loop)

    def _settle_some(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            waiting = self._of[loop]
            some = [waiting.popleft() for _ in range(min(AT_ONCE, len(waiting)))]
            if waiting:
                loop.call_soon(self._settle_some, loop)
            else:
                del self._of[loop]
        for call, outcome in some:
            _tell(call.future, outcome)


def _tell(future: asyncio.Future[Any], outcome: _Outcome) -> None:
    if future.done():
        return  # whoever asked was cancelled; what was done is done
    if outcome.error is not None:
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome.value)


def _broken(why: str) -> ProviderError:
    """The error for a database that was opened; `why`: as `_why` says."""
    message = f"the database does not work: {why}"
    if why == FULL:
        hint = "Free space there (NOSPOON_DATABASE says where), then run the same command again."
        return OutOfSpace(message, hint=hint)
    return ProviderError(message, hint=_HINTS.get(why, ""))


def _why(error: DatabaseError) -> str:
    """Why a database cannot be used, in words that a driver does not choose."""
    name = getattr(error.orig, "sqlite_errorname", "")
    if name:
        known = (why for code, why in _SQLITE.items() if name.startswith(code))
        return next(known, f"SQLite refuses it ({name})")
    if said := _FATAL.search(str(error.orig)):
        return f"PostgreSQL refuses it: {said.group(1)}"
    if state := getattr(error.orig, "sqlstate", None):
        known = (why for code, why in _POSTGRESQL.items() if state.startswith(code))
        return next(known, f"PostgreSQL refuses it (SQLSTATE {state})")
    return "no PostgreSQL server answers"


FULL = "its disk is full"
_FATAL = re.compile(r"FATAL:\s+(.+)")
"""What a PostgreSQL server says where it refuses a session."""
_SQLITE = {
    "SQLITE_NOTADB": "it is not a database of SQLite",
    "SQLITE_CORRUPT": "it is damaged",
    "SQLITE_CANTOPEN": "its file cannot be opened",
    "SQLITE_READONLY": "its file cannot be written",
    "SQLITE_BUSY": "another process has locked it",
    "SQLITE_FULL": FULL,
    "SQLITE_IOERR": "its disk reports errors",
}
"""Beginning of an error's name (sqlite.org/rescode.html) -> what it means."""
_POSTGRESQL = {
    "53100": FULL,
    "53300": "it has too many connections",
    "57P": "its server shuts down, or starts",
    "25006": "its server takes no writes",
}
"""Beginning of an SQLSTATE (PostgreSQL's documentation, appendix A) -> what it means."""
_HINTS = {
    "it is damaged": "Restore it from a backup, or from the machines: `nospoon recover`.",
    "another process has locked it": "End that process, then run the same command again.",
}


class Fence:
    """Checks the epoch at the first write of each transaction. `epoch` 0: no one's."""

    def __init__(self, engine: Engine) -> None:
        self.epoch = 0
        event.listen(engine, "begin", self._begin)
        event.listen(engine, "before_execute", self._before)

    def _begin(self, connection: Connection) -> None:
        connection.info[Fence] = False

    def _before(self, connection: Connection, statement: object, *_: object) -> None:
        writes = isinstance(statement, UpdateBase)
        if self.epoch and writes and not connection.info.get(Fence):
            connection.info[Fence] = True
            leases.check(connection, self.epoch)


class Database:
    """The store's connection. Open it once; close it at the end."""

    def __init__(self, engine: Engine, deployment: str) -> None:
        self._engine = engine
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._reads: SimpleQueue[_Call | None] = SimpleQueue()
        self._written, self._looked = _Ended(), _Ended()
        """Apart, so that a read does not wait behind thousands of writes."""
        self._reader = _snapshots(engine)
        self._threads = [
            Thread(target=self._work, name="store", daemon=True),
            Thread(target=self._read, name="store reader", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self.deployment = deployment
        self._fence = Fence(engine)

    @classmethod
    def open(cls, url: str, *, deployment: str = "") -> Database:
        """Connect, bring the schema up to date, and know the deployment's id: `deployment` where
        the store is new and has none; "" makes one.

        Raises `UsageError`, `MissingTool` or `HostUnreachable`; none of them tells a password.
        """
        engine = _engine(url)
        _make_private(engine)
        try:
            with engine.begin() as connection:
                bring_up_to_date(connection)
            with engine.begin() as connection:
                return cls(engine, _deployment(connection, deployment))
        except UsageError:
            engine.dispose()
            raise
        except DatabaseError as error:
            engine.dispose()
            shown = engine.url.render_as_string(hide_password=True)
            raise HostUnreachable(
                f"cannot open the database {shown}: {_why(error)}",
                hint="NOSPOON_DATABASE says which one is used; a damaged one has to be restored.",
            ) from error

    async def call(
        self,
        function: Callable[Concatenate[Connection, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Run a function of this package, all or nothing, in the writer's thread."""
        return await self._called(partial(_run, function, args, kwargs), reads=False)

    async def call_each(self, many: Many[V, R], value: V) -> R:
        """What a function of this package returns for this value: it is called once for the values
        of all who wait for the same, in the writer's thread. Of ten thousand nodes, the statements
        of one value each take most of the time.
        """
        return await self._called(_Each(many, value), reads=False)

    async def read(
        self,
        function: Callable[Concatenate[Connection, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Of a function that changes nothing: on a snapshot, in the reader's thread. It is not run
        for who left before its turn.
        """
        return await self._called(partial(_run, function, args, kwargs), reads=True)

    async def _called(self, run: Callable[[Connection], R], *, reads: bool) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        (self._reads if reads else self._calls).put(_Call(run, future, loop))
        try:
            return await future
        except IntegrityError:
            raise  # a rule of the schema, which its caller knows
        except DatabaseError as error:
            raise _broken(_why(error)) from error
        finally:
            del future  # it has the error, which has this frame, with all that its callers have

    def _work(self) -> None:
        while (first := self._calls.get()) is not None:
            batch = [first]
            while len(batch) < BATCH and not self._calls.empty():
                following = self._calls.get()
                if following is None:
                    self._calls.put(None)
                    break
                batch.append(following)
            self._written.put(zip(batch, self._carry_out(batch), strict=True))

    def _read(self) -> None:
        while (call := self._reads.get()) is not None:
            if not call.future.cancelled():
                self._looked.put([(call, self._seen(call))])

    def _seen(self, call: _Call) -> _Outcome:
        try:
            with self._reader.begin() as connection:
                if connection.dialect.name == "sqlite":  # its driver begins none for a SELECT
                    connection.exec_driver_sql("BEGIN")
                return _Outcome(call.run(connection))
        except Exception as error:  # noqa: BLE001  (the thread's outermost loop: its caller raises it)
            return _failed(error)

    def _carry_out(self, batch: list[_Call]) -> list[_Outcome]:
        try:
            with self._engine.begin() as connection:
                return [_Outcome(each) for each in _results(batch, connection)]
        except Exception as error:  # noqa: BLE001  (the thread's outermost loop: its caller raises it)
            if len(batch) == 1:
                return [_failed(error)]
        # outside of it: errors of these would have that one, and its frame with all calls
        return [self._carry_out([call])[0] for call in batch]

    def fence(self, epoch: int) -> None:
        """From now on whatever is written is written by the controller of this epoch, or is not:
        such a transaction raises `Superseded`.
        """
        self._fence.epoch = epoch

    async def adopt(self, deployment: str) -> None:
        """Be this deployment; whoever was handed the id before has the old one till he starts."""
        await self.call(_adopt, deployment)
        self.deployment = deployment

    def close(self) -> None:
        self._calls.put(None)
        self._reads.put(None)
        end = monotonic() + ENDING
        for thread in self._threads:
            thread.join(max(0.0, end - monotonic()))
            if thread.is_alive():
                log.error("the database does not answer: what waits for it is not written")
        self._engine.dispose()


def _decoded(text: str | bytes) -> object:
    """In a third of json's time, but for names of bytes that are no UTF-8 (PEP 383)."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return json.loads(text)


def _engine(url: str) -> Engine:
    try:
        engine = create_engine(
            url,
            connect_args=_connect_args(url),
            json_serializer=as_json,
            json_deserializer=_decoded,
        )
    except (ArgumentError, NoSuchModuleError) as error:
        raise UsageError(
            "NOSPOON_DATABASE is not a URL of a database that can be used",
            hint="Write sqlite:////PATH or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE.",
        ) from error
    except ModuleNotFoundError as error:
        raise MissingTool(
            f"the database's driver {error.name} is not installed",
            hint="For PostgreSQL: pip install 'nospoon[postgresql]'.",
        ) from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _sqlite_pragmas)
    return engine


def _snapshots(engine: Engine) -> Engine:
    """The same database, for transactions whose SELECTs see one moment."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="REPEATABLE READ")
    return engine


def _connect_args(url: str) -> dict[str, object]:
    if url.startswith("sqlite"):
        return {"check_same_thread": False}
    if url.startswith("postgresql") and "options=" not in url:
        return {"options": POSTGRESQL_OPTIONS}
    return {}


def _sqlite_pragmas(connection: DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
        "busy_timeout=5000",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _deployment(connection: Connection, wanted: str) -> str:
    known = connection.execute(select(tables.deployment.c.id)).scalar()
    if known is not None:
        return str(known)
    made = wanted or uuid4().hex
    connection.execute(insert(tables.deployment).values(id=made))
    return made


def _adopt(connection: Connection, deployment: str) -> None:
    connection.execute(update(tables.deployment).values(id=deployment))
