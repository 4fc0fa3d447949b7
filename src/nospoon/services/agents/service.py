"""Runs agents: their requests, their timers, and what they do to their machines.

Who controls a BMC chooses what its machine boots, and so by an ISO where the agent finds its API:
such a URL leads only where BMC clients may have the daemon connect to. What the cluster file names
(`api`, `boot_script` and where that leads, `ironic.endpoint`) leads anywhere.

An agent that runs has one timer, and a task only while the API is asked; a machine without one
costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from urllib.parse import urlsplit
from uuid import UUID
from weakref import WeakValueDictionary

from nospoon.errors import NospoonError, ProviderError
from nospoon.model.agent import Agents
from nospoon.protocols.agent.agent import (
    API_VERSION,
    VALUE,
    Agent,
    Ask,
    Birth,
    Effect,
    Ended,
    Leave,
    Reply,
    Say,
    Wrote,
    fault,
)
from nospoon.protocols.agent.commands import Ending
from nospoon.protocols.agent.parameters import Parameters, parameters
from nospoon.providers.simulated.guests import Guest
from nospoon.runtime import clock
from nospoon.runtime.http import PORTS, Answer, request
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.reach import Reach, places_of
from nospoon.runtime.tasks import Tasks
from nospoon.services.agents import scripts
from nospoon.services.agents.kept import Kept
from nospoon.services.agents.listeners import Listeners

log = RateLimitedLog()
HEADERS = (("X-OpenStack-Ironic-API-Version", API_VERSION), ("Accept", "application/json"))
PATIENCE, SCRIPT_PATIENCE = 60.0, 30.0
AT_ONCE = 64
"""Requests of one user's agents under way; more wait, for the sake of descriptors."""
MOST_SCRIPT, MOST_ANSWER = 64 << 10, 1 << 20
"""Bytes of a boot script, and of an answer of Ironic: they are read where nothing else runs
meanwhile, and anybody may have written them.
"""


@dataclass(slots=True)
class Running:
    """An agent, what it runs on, and who waits for its commands."""

    guest: Guest
    agent: Agent
    trusted: frozenset[Origin] | None
    """Where its API may be besides what clients may reach; None: anywhere, as its owner says."""
    owner: int = 0
    timer: asyncio.TimerHandle | None = None
    waiting: dict[str, list[asyncio.Future[None]]] = field(default_factory=dict)


HttpBoot = Callable[[UUID], Awaitable[str | None]]
"""Machine -> what the ISO that it boots by HTTP tells its kernel; None: it boots otherwise."""
Origin = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where APIs may be that a BMC client names. `endpoint_of`: machine -> URL of the Ironic that
    its cluster file names, "" for none. `owner_of`: machine -> whose it is.
    """

    reach: Reach
    endpoint_of: Callable[[UUID], Awaitable[str]]
    owner_of: Callable[[UUID], int] = lambda _: 0


class AgentService:
    """Guests of simulated machines. `chance` gives numbers from 0 to 1."""

    def __init__(
        self,
        tasks: Tasks,
        http_boot: HttpBoot,
        chance: random.Random | None = None,
        *,
        bounds: Bounds,
    ) -> None:
        self._tasks, self._http_boot, self._bounds = tasks, http_boot, bounds
        self._chance = chance if chance is not None else random.SystemRandom()
        self._starting: dict[UUID, asyncio.Task[None]] = {}
        self._running: dict[UUID, Running] = {}
        self._listeners = Listeners(self, tasks)
        self._kept = Kept()
        self._requests: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()

    def booted(self, guest: Guest) -> None:
        """Begin what this machine booted."""
        self.ended(guest.machine)
        if self._chance.random() < guest.behaviour.silent:
            guest.hands.say(guest.machine, "simulated agent: stays silent")
            return
        task = self._tasks.start(self._start(guest), name=f"start the agent of {guest.machine}")
        self._starting[guest.machine] = task

    def ended(self, machine: UUID) -> None:
        """Its machine is off or boots again."""
        task = self._starting.pop(machine, None)
        if task is not None:
            task.cancel()
        self._drop(machine)

    async def close(self) -> None:
        for machine in [*self._starting, *self._running]:
            self.ended(machine)
        await self._listeners.close()

    def obstacle(self, behaviour: Agents) -> ProviderError | None:
        """Why agents of this behaviour could not answer; None where they could."""
        return self._listeners.obstacle(behaviour)

    async def _start(self, guest: Guest) -> None:
        try:
            told, by_client = await self._parameters(guest)
            if told is not None:
                trusted = await self._trusted(guest, told) if by_client else None
                await self._begin(guest, told, trusted)
        except NospoonError as error:
            self._say(guest, f"did not start: {error}")
        finally:
            if self._starting.get(guest.machine) is asyncio.current_task():
                del self._starting[guest.machine]

    async def _parameters(self, guest: Guest) -> tuple[Parameters | None, bool]:
        """And whether a BMC client chose what told them. None when the machine boots something
        else, or nothing.
        """
        api, by_client = guest.behaviour.api, True
        if guest.cmdline is not None:
            found = parameters(guest.cmdline, api=api)
        elif (cmdline := await self._http_boot(guest.machine)) is not None:
            found = parameters(cmdline, api=api if cmdline else "")
        elif guest.behaviour.boot_script:
            get = partial(self._script, guest.machine)
            target = await scripts.follow(guest.behaviour.boot_script, guest.hardware.macs, get)
            if isinstance(target, scripts.LocalDisk):
                guest.hands.boot_disk(guest.machine)
                return None, False
            cmdline = target.cmdline if isinstance(target, scripts.Ramdisk) else ""
            found, by_client = parameters(cmdline, api=api if cmdline else ""), False
        else:
            found, by_client = parameters("", api=api), False
        if found is None:
            self._say(guest, "nothing to boot: no boot script, medium or ISO names an API")
        return found, by_client

    async def _trusted(self, guest: Guest, told: Parameters) -> frozenset[Origin]:
        """What the cluster file names. Raises `Unfetchable` for a URL that is not among it, and
        where no client may reach.
        """
        endpoint = await self._bounds.endpoint_of(guest.machine)
        named = (guest.behaviour.api, guest.behaviour.boot_script, endpoint)
        trusted = frozenset(found for each in named if (found := origin(each)) is not None)
        for there in {origin(told.api), origin(told.inspection)} - trusted - {None}:
            assert there is not None, "it was taken away"
            with contextlib.suppress(OSError):  # a name that is not known yet: requests will tell
                await places_of(there[1], there[2], self._reach_of(guest.machine))
        return trusted

    async def _begin(
        self, guest: Guest, told: Parameters, trusted: frozenset[Origin] | None
    ) -> None:
        owner = self._bounds.owner_of(guest.machine)
        listener = await self._listeners.use(guest.behaviour, owner)
        birth = Birth(
            machine=guest.machine,
            hardware=guest.hardware,
            parameters=told,
            callback_url=f"{listener.url}/{guest.machine}",
            behaviour=guest.behaviour,
            certificate=listener.certificate,
            spread=self._chance.random(),
            image=guest.image,
        )
        running = Running(guest, Agent(birth), trusted, owner)
        self._running[guest.machine] = running
        self._say(guest, f"asks {told.api}")
        self._apply(running, running.agent.begin(clock.monotonic()))

    def _apply(self, running: Running, effects: Sequence[Effect]) -> None:
        guest = running.guest
        for effect in effects:
            match effect:
                case Ask():
                    self._tasks.start(self._ask(running, effect), name="ask Ironic for an agent")
                case Say(text):
                    self._say(guest, text)
                case Ended(command):
                    _tell(running, command)
                case Wrote(image):
                    guest.hands.write(guest.machine, image)
                case Leave(how):
                    self._leave(running, how)
        self._arm(running)

    def _arm(self, running: Running) -> None:
        if running.timer is not None:
            running.timer.cancel()
            running.timer = None
        at = running.agent.deadline
        if at is not None and self._running.get(running.guest.machine) is running:
            loop = asyncio.get_running_loop()
            running.timer = loop.call_later(max(0.0, at - clock.monotonic()), self._expire, running)

    def _expire(self, running: Running) -> None:
        self._apply(running, running.agent.expire(clock.monotonic()))

    async def _ask(self, running: Running, ask: Ask) -> None:
        answer = await self._answer(ask, running)
        if self._running.get(running.guest.machine) is running:
            told = running.agent.answered(answer.status, answer.body, clock.monotonic())
            self._apply(running, told)

    async def _script(self, machine: UUID, url: str) -> Answer:
        reach = replace(self._reach_of(machine), anywhere=True)
        async with self._turn_of(self._bounds.owner_of(machine)):
            return await request(
                "GET", url, verify=False, patience=SCRIPT_PATIENCE, reach=reach, most=MOST_SCRIPT
            )

    def _reach_of(self, machine: UUID) -> Reach:
        """Of this machine's agent: names are looked up in its owner's turn."""
        return replace(self._bounds.reach, owner=self._bounds.owner_of(machine))

    def _turn_of(self, owner: int) -> asyncio.Semaphore:
        """Requests of one user wait for each other, while a server is silent, not for others'."""
        turns = self._requests.get(owner)
        if turns is None:
            turns = self._requests[owner] = asyncio.Semaphore(AT_ONCE)
        return turns

    async def _answer(self, ask: Ask, running: Running) -> Answer:
        """Status 0 for none."""
        anywhere = running.trusted is None or origin(ask.url) in running.trusted
        own = self._reach_of(running.guest.machine)
        reach = replace(own, anywhere=anywhere or own.anywhere)
        async with self._turn_of(running.owner):
            try:
                return await request(
                    ask.method, ask.url, ask.body, headers=HEADERS, verify=False,
                    patience=PATIENCE, reach=reach, most=MOST_ANSWER,
                )  # fmt: skip
            except ProviderError as error:
                owner = str(running.owner)
                log.info("Ironic does not answer an agent", of=owner, uid=owner, why=str(error))
                return Answer(0)

    def _leave(self, running: Running, how: Ending) -> None:
        guest = running.guest
        self._drop(guest.machine)
        match how:
            case Ending.POWER_OFF:
                guest.hands.power_off_by_guest(guest.machine)
            case Ending.REBOOT:
                guest.hands.reset_by_guest(guest.machine)
            case Ending.LOCK:
                self._say(guest, "stops answering")

    def _drop(self, machine: UUID) -> None:
        running = self._running.pop(machine, None)
        if running is None:
            return
        if running.timer is not None:
            running.timer.cancel()
        for command in list(running.waiting):
            _tell(running, command)
        self._kept.drop(running.owner, machine)
        self._listeners.leave(running.guest.behaviour, running.owner)

    def _say(self, guest: Guest, text: str) -> None:
        guest.hands.say(guest.machine, f"simulated agent: {text}")

    # What callers of an agent's API ask; `token` "" when they gave none.

    def refusal(self, machine: UUID, *, token: str) -> Reply | None:
        """What a caller is answered whose command need not be read."""
        running = self._running.get(machine)
        if running is None:
            return _unknown_machine(machine)
        return None if running.agent.trusts(token) else _untrusted()

    def owner(self, machine: UUID) -> int:
        """Whose the machine is."""
        running = self._running.get(machine)
        return running.owner if running is not None else 0

    def held(self, machine: UUID) -> int:
        """About so many bytes an answer about commands of its agent has."""
        running = self._running.get(machine)
        return running.agent.held if running is not None else 0

    def command(
        self, machine: UUID, body: object, *, token: str, size: int = 0, values: int = 0
    ) -> Reply:
        """`size`: bytes of the body; `values`: how many are in it, at most."""
        running = self._running.get(machine)
        if running is None:
            return _unknown_machine(machine)
        if not isinstance(body, dict) or not isinstance(body.get("name"), str):
            return fault(400, "Missing or invalid name or params")
        if not running.agent.trusts(token):
            return fault(401, "Token invalid.")
        if not self._kept.has_room(running.owner, machine, size + VALUE * values):
            return fault(503, "commands of other agents have all the memory that there is for them")
        reply, effects = running.agent.run(
            body["name"], body.get("params"), clock.monotonic(), chance=self._chance.random(),
            size=size, values=values,
        )  # fmt: skip
        self._kept.put(running.owner, machine, running.agent)
        self._apply(running, effects)
        return reply

    async def finished(self, machine: UUID, reply: Reply) -> None:
        """Until the command of that answer is not running any more."""
        running = self._running.get(machine)
        if running is not None and reply.body.get("command_status") == "RUNNING":
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            running.waiting.setdefault(reply.waits_for, []).append(ended)
            await ended

    def commands(self, machine: UUID, *, token: str) -> Reply:
        running = self._running.get(machine)
        if running is None:
            return _unknown_machine(machine)
        return running.agent.listed() if running.agent.trusts(token) else _untrusted()

    def result(self, machine: UUID, command: str, *, token: str) -> Reply:
        running = self._running.get(machine)
        if running is None:
            return _unknown_machine(machine)
        return running.agent.result(command) if running.agent.trusts(token) else _untrusted()


def origin(url: str) -> Origin | None:
    """Scheme, host and port (RFC 6454 §4); None for what is not a URL of HTTP."""
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    return (parts.scheme, parts.hostname.rstrip("."), port) if parts.hostname else None


def _tell(running: Running, command: str) -> None:
    for each in running.waiting.pop(command, []):
        if not each.done():
            each.set_result(None)


def _unknown_machine(machine: UUID) -> Reply:
    return fault(404, f"no agent runs on {machine}")


def _untrusted() -> Reply:
    return fault(401, "Token invalid.")
