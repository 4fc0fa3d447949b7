"""A real standalone Ironic as a process of ours: started, found again, and ended by its pid.

All that it has lies in one directory; its environment lies in the cache. It outlives who
started it.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Collection
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from nospoon.dev import environment
from nospoon.dev.alone import alone
from nospoon.dev.configuration import CLOUD, USER, Auth, Wanted, clouds, ironic_conf
from nospoon.errors import Conflict, MissingTool, ProviderError, UsageError
from nospoon.runtime import clock, owned, process
from nospoon.runtime.owned import Process

LOCK_FILE = Path(__file__).with_name("ironic.txt")
NAME = "ironic"
SERVICE = str(Path(__file__).with_name("ironic_service.py"))
"""What runs it: -P, so that modules beside it are not those that it imports."""
TOOLS = {"ipmitool": "ipmitool"}
"""Programs that its conductor runs, and Debian's packages of them."""
START_SECONDS = 120.0
STOP_SECONDS = 30.0
LEAVING_SECONDS = 3.0
DIRECTORIES = (
    "tmp", "http", "tftp", "tftp-master", "images", "master", "locks", "certificates", "bin",
)  # fmt: skip
LAST_PORT = 65535
OPTION = re.compile(r"\w+\.\w+=.*", re.DOTALL)
_TAIL = 12


@dataclass(frozen=True, slots=True)
class Ironic:
    """An Ironic that was started, and what serves its files. `clouds_file` is what clients are
    given.
    """

    process: Process
    wanted: Wanted
    state: Path
    files: Process

    @property
    def whole(self) -> bool:
        """Whether all of it runs."""
        return owned.is_alive(self.process) and owned.is_alive(self.files)

    @property
    def clouds_file(self) -> Path:
        return self.state / "clouds.yaml"

    @property
    def log_file(self) -> Path:
        return self.state / "ironic.log"

    @property
    def endpoint(self) -> str:
        """Where it is reached from here."""
        return str(clouds(self.wanted, "")["clouds"][CLOUD]["auth"]["endpoint"])


async def up(wanted: Wanted, *, state: Path, cache: Path) -> Ironic:
    """The Ironic in `state`, running as wanted: started, or started again with other settings.

    Raises `ProviderError` with the end of its log when it does not come up.
    """
    need_tools()
    _refuse_wrong(wanted)
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with alone(state):
        found = _recorded(state)
        if found is not None and found.whole and found.wanted == wanted and await _stays(found):
            return found
        await _refuse_taken(wanted, but=_held(found, wanted) if found is not None else ())
        made = await environment.ensure(cache, NAME, LOCK_FILE)
        if found is not None:
            await _stop(found)
        await _refuse_taken(wanted)
        await _prepare(wanted, state=state, made=made)
        started = Ironic(_start(state, made), wanted, state, _serve(wanted, state, made))
        _record(started)
        try:
            await _answers(started)
        except BaseException:  # Ctrl-C, too: what is not used must not run on
            await _stop(started)
            raise
        return started


async def down(*, state: Path, cache: Path, purge: bool) -> bool:
    """End it and remove all that it had; `purge`: its environment, too. False: none was there."""
    there = state.exists()
    if there:
        with alone(state):
            found = _recorded(state)
            if found is not None:
                await _stop(found)
            shutil.rmtree(state)
    if purge:
        environment.remove(cache, NAME)
    return there


def running(state: Path) -> Ironic | None:
    """The Ironic that runs from this directory, None where none does."""
    found = _recorded(state)
    return found if found is not None and owned.is_alive(found.process) else None


def _recorded(state: Path) -> Ironic | None:
    """The one that was started here last; it may have ended since."""
    try:
        told = json.loads((state / "ironic.json").read_text())
    except FileNotFoundError:
        return None
    kept = told["wanted"]
    options = tuple(kept.get("options", ()))
    wanted = Wanted(**{**kept, "auth": Auth(kept["auth"]), "options": options})
    return Ironic(Process(**told["process"]), wanted, state, Process(**told["files"]))


async def answers(found: Ironic) -> bool:
    """Whether its API answers, and its conductor serves drivers."""
    return await asyncio.to_thread(_has_drivers, found)


def need_tools() -> None:
    """Raises `MissingTool` for what its conductor runs."""
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        names = " ".join(missing)
        raise MissingTool(f"Ironic needs {names}", hint=f"apt-get install -y {names}")


def _refuse_wrong(wanted: Wanted) -> None:
    for each in wanted.options:
        if not OPTION.fullmatch(each):
            raise UsageError(f"expected SECTION.OPTION=VALUE, got {each!r}")
    if wanted.port == wanted.files:
        raise UsageError(f"Ironic and its files cannot both be on port {wanted.port}")
    if wanted.files > LAST_PORT:
        raise UsageError(
            f"there is no port {wanted.files} for its files", hint="Give --files-port."
        )
    _address(wanted.address, "to listen on")
    told = _address(wanted.advertised or wanted.address, "that nodes use")
    if told.is_unspecified:
        raise UsageError(
            f"nodes cannot use {told}: it stands for every address here",
            hint="Give one that they reach as --advertise.",
        )


def _address(text: str, what: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address(text)
    except ValueError:
        raise UsageError(f"expected an IP address {what}, got {text!r}") from None


def _held(found: Ironic, wanted: Wanted) -> Collection[int]:
    """Ports that it has where another is wanted: they will be free when it has ended."""
    places = {ip_address(found.wanted.address), ip_address(wanted.address)}
    if len(places) > 1 and not any(each.is_unspecified for each in places):
        return ()
    ports = ((found.process, found.wanted.port), (found.files, found.wanted.files))
    return {port for each, port in ports if owned.is_alive(each)}


async def _refuse_taken(wanted: Wanted, *, but: Collection[int] = ()) -> None:
    """Someone else's service would answer in its place. `but`: ports that will be free.

    The workers of an Ironic that was killed see within a second that they are alone, and end.
    """
    end = clock.monotonic() + LEAVING_SECONDS
    for port, option in ((wanted.port, "--port"), (wanted.files, "--files-port")):
        free = 0 if port in but else port  # is the address there at all?
        while (  # noqa: ASYNC110  (it sends no event)
            why := _taken(wanted.address, free)
        ) and clock.monotonic() < end:
            await asyncio.sleep(0.2)
        if why:
            raise Conflict(
                f"Ironic cannot listen on {wanted.address} port {port}: {why}",
                hint=f"Choose another with --address or {option}.",
            )


def _taken(address: str, port: int) -> str:
    """Why no one could listen there, "" when one could."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


async def _prepare(wanted: Wanted, *, state: Path, made: Path) -> None:
    for name in DIRECTORIES:
        (state / name).mkdir(exist_ok=True)
    name_mkisofs(state)
    password = _password(state)
    _write(state / "ironic.conf", ironic_conf(wanted, state=state))
    _write(state / "clouds.yaml", yaml.safe_dump(clouds(wanted, password)))
    if wanted.auth is Auth.HTTP_BASIC:
        _write(state / "htpasswd", f"{USER}:{await _hashed(password, made)}\n")
    await _schema(wanted, state=state, made=made)


async def _schema(wanted: Wanted, *, state: Path, made: Path) -> None:
    """Tables as this Ironic has them. Its migrations cannot begin with an empty SQLite."""
    sync = [str(made / "bin" / "ironic-dbsync"), "--config-file", str(state / "ironic.conf")]
    done, name = state / "schema", made.name
    if not wanted.database and done.exists() and done.read_text() == name:
        return
    if not wanted.database and not done.exists():
        (state / "ironic.sqlite").unlink(missing_ok=True)  # one that was begun and not finished
    told = await process.run([*sync, "version"], timeout=START_SECONDS)
    empty = told.stdout.split()[-1:] == ["None"]
    await process.run([*sync, "create_schema" if empty else "upgrade"], timeout=START_SECONDS)
    if not wanted.database:
        _write(done, name)


def _password(state: Path) -> str:
    """Chosen once."""
    kept = state / "password"
    if not kept.exists():
        _write(kept, secrets.token_hex(16))
    return kept.read_text()


async def _hashed(password: str, made: Path) -> str:
    """By bcrypt, which Ironic asks for (auth_basic) and brings along."""
    script = (
        "import bcrypt, sys\n"
        "print(bcrypt.hashpw(sys.stdin.buffer.read(), bcrypt.gensalt(4)).decode())"
    )
    done = await process.run(
        [str(made / "bin" / "python"), "-P", "-c", script], stdin=password.encode()
    )
    return done.stdout.strip()


def _write(path: Path, text: str) -> None:
    """Only its owner reads it: it may have a password in it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text)


def name_mkisofs(state: Path) -> None:
    """Ironic makes virtual media by `mkisofs`, which xorriso is where it is called so."""
    named, program = state / "bin" / "mkisofs", shutil.which("xorrisofs")
    if program is not None and not named.exists():
        named.symlink_to(program)


def _serve(wanted: Wanted, state: Path, made: Path) -> Process:
    """Boot scripts, media and images, for the nodes."""
    place = ["--bind", wanted.address, "--directory", str(state / "http"), str(wanted.files)]
    argv = [str(made / "bin" / "python"), "-P", "-m", "http.server", *place]
    return owned.begin(argv, output=state / "files.log", env=dict(os.environ))


def _start(state: Path, made: Path) -> Process:
    binaries = made / "bin"
    argv = [str(binaries / "python"), "-P", SERVICE, "--config-file", str(state / "ironic.conf")]
    path = f"{binaries}:{os.environ.get('PATH', os.defpath)}:{state / 'bin'}"
    env = {**os.environ, "PATH": path}
    return owned.begin(argv, output=state / "ironic.log", env=env)


def _record(started: Ironic) -> None:
    told = {
        "process": asdict(started.process),
        "files": asdict(started.files),
        "wanted": asdict(started.wanted),
    }
    _write(started.state / "ironic.json", json.dumps(told))


async def _stop(found: Ironic) -> None:
    await owned.stop(found.process, patience=STOP_SECONDS, with_session=True)
    await owned.stop(found.files, patience=STOP_SECONDS)
    (found.state / "ironic.json").unlink()


async def _stays(found: Ironic) -> bool:
    """Wait until one that runs already answers; False: it is about to end, by a signal that was
    sent to it. It answers some requests even then.
    """
    if _is_ending(found):
        return False
    try:
        await _answers(found)
    except ProviderError:
        if owned.is_alive(found.process):
            raise
        return False
    return not _is_ending(found)


def _is_ending(found: Ironic) -> bool:
    """Whether its process has logged that it got SIGTERM, at which it stops its workers first."""
    mark = f" {found.process.pid} INFO cotyledon._service_manager "
    lines = found.log_file.read_text(errors="replace").splitlines()
    return any(mark in line and "Caught SIGTERM" in line for line in reversed(lines))


async def _answers(found: Ironic) -> None:
    """Wait until it does, as the API shows: it sends no event."""
    end = clock.monotonic() + START_SECONDS
    while not await answers(found):
        if not owned.is_alive(found.process):
            raise ProviderError(f"Ironic ended at once:\n{_tail(found.log_file)}")
        if clock.monotonic() > end:
            raise ProviderError(
                f"Ironic did not answer at {found.endpoint} within {START_SECONDS:.0f} s:\n"
                f"{_tail(found.log_file)}"
            )
        await asyncio.sleep(0.2)


def _tail(path: Path) -> str:
    return "\n".join(f"  {line}" for line in path.read_text(errors="replace").splitlines()[-_TAIL:])


def _has_drivers(found: Ironic) -> bool:
    place = urlsplit(found.endpoint)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=10)
    headers = {"X-OpenStack-Ironic-API-Version": "1.109"}
    if found.wanted.auth is Auth.HTTP_BASIC:
        import base64  # noqa: PLC0415  (only here)

        secret = base64.b64encode(f"{USER}:{_password(found.state)}".encode()).decode()
        headers["Authorization"] = f"Basic {secret}"
    try:
        connection.request("GET", "/v1/drivers", headers=headers)
        answer = connection.getresponse()
        told = answer.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return answer.status == http.HTTPStatus.OK and bool(json.loads(told)["drivers"])
