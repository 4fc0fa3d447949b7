"""One deploy agent as a machine with a clock: inspect or look up, heartbeat, obey, end.

It asks one thing of the API at a time. A conductor that holds the node's lock drops heartbeats
without a word, so an agent that has news beats again soon, until its commands were looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid5

from nospoon.model.agent import Agents
from nospoon.protocols.agent.commands import COMMANDS, Command, Ending, Node, Refused, step_of
from nospoon.protocols.agent.inventory import Hardware, report
from nospoon.protocols.agent.parameters import Parameters

AGENT_VERSION = "12.0.0"
API_VERSION = "1.84"
"""The first with all that is asked here (https://docs.openstack.org/ironic/latest/contributor/webapi-version-history.html)."""
HIDDEN = "******"
"""What Ironic shows of a token that was fetched before."""
_COMMANDS = UUID("2c1b7f1e-63c0-5d9c-8e0a-9a9f6c1f7b55")
INSPECTION_SECONDS = 30.0
"""For which a conductor may not yet await the inspection that it began."""
LOOKUP_SECONDS, FIRST_PAUSE, LONGEST_PAUSE = 300.0, 2.0, 30.0
NEWS_SECONDS = 5.0
"""No agent beats more often, whatever it has to tell."""
SHORTEST_BEAT, LONGEST_BEAT = 1.0, 86400.0
"""Seconds between heartbeats that an API may choose: each costs the daemon a request."""
KEPT, LARGE = 64, 16 << 10
"""Commands whose results are kept. Of one with more bytes of parameters they are not, once another
follows: Ironic looks at those of the last one.
"""
VALUE, SHORT = 64, 2048
"""Bytes of memory that a value takes besides its text, and those of a result that stays whatever
else is forgotten: what Ironic reads is a step and a word or two.
"""
LONGEST_LABEL, LONGEST_NAME, LOGGED = 100, 255, 64 << 10
"""Characters of a command with its step, of ids and tokens, and of what it said."""
LONGEST_ANSWER, MOST_VALUES = 1 << 20, 1 << 14
"""Bytes and values of what an API answers about a node: it is decoded on the event loop."""
_INSPECTING = "lookup_bmc_addresses"
"""What Ironic notes of a node in `driver_internal_info` while it is inspected."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send this to the API, and tell what came of it by `answered`."""

    method: str
    url: str
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Say:
    """A line on the machine's console."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A command is not running any more."""

    command: str


@dataclass(frozen=True, slots=True)
class Wrote:
    """The machine's disk holds this image now, "" for nothing."""

    image: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The agent is no more."""

    how: Ending


Effect = Ask | Say | Ended | Wrote | Leave


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to a caller. `waits_for`: the command whose end a caller that waits is told."""

    status: int
    body: Mapping[str, Any]
    waits_for: str = ""


@dataclass(frozen=True, slots=True)
class Birth:
    """What an agent is born with. `certificate` in PEM, "" without TLS. `spread`: from 0 to 1,
    where in the interval that it may choose it sends its heartbeats.
    """

    machine: UUID
    hardware: Hardware
    parameters: Parameters
    callback_url: str
    behaviour: Agents = field(default_factory=Agents)
    certificate: str = field(default="", repr=False)
    spread: float = 0.5
    image: str = ""


class Waiting(Enum):
    """For which answer of the API it waits."""

    INSPECTION = auto()
    LOOKUP = auto()
    HEARTBEAT = auto()


@dataclass(frozen=True, slots=True)
class _Work:
    """A command that runs until `ends`; `why` it fails then, "" it does not."""

    command: Command
    label: str
    why: str
    ends: float


class Agent:
    """One boot of one machine. Who drives it carries out effects and calls `expire` in time."""

    __slots__ = (
        "_begun", "_birth", "_costs", "_expected", "_gives_up", "_inspects", "_interval",
        "_is_large", "_known", "_news", "_next", "_over", "_pause", "_results", "_token",
        "_waiting", "_work", "node",
    )  # fmt: skip

    def __init__(self, birth: Birth) -> None:
        self._birth = birth
        self._token = birth.parameters.token
        self._waiting: Waiting | None = None
        self._known = ""
        self._next: float | None = None
        self._pause, self._interval = FIRST_PAUSE, 0.0
        self._gives_up = self._expected = 0.0
        self._inspects = False
        self._news = self._over = False
        self._results: list[dict[str, Any]] = []
        self._costs: list[int] = []
        self._begun, self._is_large = 0, False
        self._work: _Work | None = None
        self.node = Node(birth.machine, birth.image)

    @property
    def deadline(self) -> float | None:
        """When `expire` is to be called; None: not before something else happens."""
        if self._over:
            return None
        times = [] if self._next is None or self._waiting else [self._next]
        if self._work is not None:
            times.append(self._work.ends)
        return min(times, default=None)

    @property
    def held(self) -> int:
        """About so many bytes of memory what its commands were given, and came to, takes."""
        return sum(self._costs)

    def forget_before(self) -> None:
        """What its commands were given, and came to, but for the last one."""
        for number in range(len(self._results) - 1):
            self._forget_one(number)

    def forget_last(self) -> None:
        """The same of the last one, but for a short result; not of one that runs."""
        if self._results and self._work is None:
            result = self._results[-1]["command_result"]
            is_short = self._costs[-1] <= LARGE and len(json.dumps(result)) <= SHORT
            self._forget_one(-1)
            self._results[-1]["command_result"] = result if is_short else None

    def _forget_one(self, number: int) -> None:
        self._results[number] |= {"command_params": {}, "command_result": None}
        self._costs[number] = 0

    def begin(self, now: float) -> Sequence[Effect]:
        """The ramdisk is up."""
        self._gives_up, self._expected = now + LOOKUP_SECONDS, now + INSPECTION_SECONDS
        if self._birth.parameters.inspection:
            return [self._say("inspects the machine"), self._inspect()]
        return [self._look_up()]

    def expire(self, now: float) -> Sequence[Effect]:
        """Its deadline is there."""
        effects: list[Effect] = []
        if self._work is not None and self._work.ends <= now:
            effects += self._finish(self._work, now)
        if self._over or self._waiting or self._next is None or self._next > now:
            return effects
        if self._inspects:
            effects.append(self._inspect())
        else:
            effects.append(self._beat() if self._known else self._look_up())
        return effects

    def answered(self, status: int, body: bytes, now: float) -> Sequence[Effect]:
        """What the API said to the last `Ask`; `status` 0: nothing."""
        was, self._waiting = self._waiting, None
        if self._over:
            return []
        match was:
            case Waiting.HEARTBEAT:
                return self._beaten(status, now)
            case _ if status == 200 or (was is Waiting.INSPECTION and status == 202):
                return self._found(_object(body), now)
            case Waiting.INSPECTION if 400 <= status < 500 and now >= self._expected:
                self._inspects = False
                return [self._say(f"the API refused the inspection: {status}"), self._look_up()]
            case _:
                return self._not_found(status, now)

    def run(
        self,
        name: str,
        params: object,
        now: float,
        *,
        chance: float,
        size: int = 0,
        values: int = 0,
    ) -> tuple[Reply, list[Effect]]:
        """A caller's command. `chance`: from 0 to 1, whether it fails by accident. `size`: bytes of
        its parameters; `values`: how many are in them, at most.
        """
        if self._work is not None:
            return fault(409, f"Agent is busy executing the command {self._work.label}"), []
        command = COMMANDS.get(name)
        if command is None:
            return fault(400, f"Invalid command: Unknown command: {name}"), []
        if not isinstance(params, dict) or any(each not in params for each in command.needs):
            return fault(
                400, f"Invalid command params: {name} needs {', '.join(command.needs)}"
            ), []
        self._forget(size)
        self._costs.append(size + VALUE * values)
        return self._begin_command(name, command, params, now, chance=chance)

    def _forget(self, size: int) -> None:
        """Before a command of so many bytes: who knows the token may send as many as he likes."""
        if self._is_large:
            self._forget_one(-1)
        self._is_large = size > LARGE
        for each in (self._results, self._costs):
            del each[: max(0, len(each) - KEPT + 1)]
        self._begun += 1

    def listed(self) -> Reply:
        """Its commands, the oldest first; who looks needs no news."""
        self._news = False
        return Reply(200, {"commands": self._results})

    def result(self, command: str) -> Reply:
        """One of them."""
        found = [each for each in self._results if each["id"] == command]
        return (
            Reply(200, found[0]) if found else fault(404, f"Command with id {command} not found.")
        )

    def trusts(self, token: str) -> bool:
        return bool(self._token) and token == self._token

    def _begin_command(
        self, name: str, command: Command, params: dict[str, object], now: float, *, chance: float
    ) -> tuple[Reply, list[Effect]]:
        made = _made(name, params, uuid5(_COMMANDS, f"{self.node.uuid} {now} {self._begun}"))
        self._results.append(made)
        self._news = False
        label = f"{name} {step_of(params)}"[:LONGEST_LABEL].rstrip()
        seconds = self._seconds(label) if command.slow else 0.0
        work = _Work(command, label, self._fate(label, chance), now + seconds)
        reply = Reply(200, made, waits_for=str(made["id"]))
        if not command.slow:
            return reply, self._finish(work, now)
        self._work = work
        return reply, [self._say(f"begins {label}")] if seconds else []

    def _fate(self, label: str, chance: float) -> str:
        """What a command fails with, "" for nothing."""
        arranged = dict(self._birth.behaviour.failing)
        why = next((arranged[each] for each in _names(label) if each in arranged), "")
        return why or ("a simulated failure" if chance < self._birth.behaviour.failures else "")

    def _seconds(self, label: str) -> float:
        given = dict(self._birth.behaviour.commands)
        return next(
            (given[each] for each in _names(label) if each in given), self._birth.behaviour.command
        )

    def _finish(self, work: _Work, now: float) -> list[Effect]:
        self._work, result, before = None, self._results[-1], self.node.image
        ending = self._carry_out(work, result)
        effects: list[Effect] = [Ended(result["id"])]
        if work.command.slow:
            effects.append(self._say(f"{work.label}: {result['command_status']}"))
        if self.node.image != before:
            effects.append(Wrote(self.node.image))
        if ending is not None:
            self._over = True
            return [*effects, Leave(ending)]
        if work.command.slow:
            self._news, self._pause, self._next = True, NEWS_SECONDS, now
        return effects

    def _carry_out(self, work: _Work, result: dict[str, Any]) -> Ending | None:
        """The command's ending, if it went well."""
        try:
            if work.why:
                raise Refused("CommandExecutionError", work.why)
            answer = work.command.run(self.node, result["command_params"])
        except Refused as refused:
            result["command_status"] = "FAILED"
            result["command_error"] = _error(refused, work.label)
            return None
        result["command_status"], result["command_result"] = "SUCCEEDED", answer
        return work.command.ending

    def _look_up(self) -> Ask:
        self._waiting = Waiting.LOOKUP
        addresses = quote(",".join(self._birth.hardware.macs))
        return Ask("GET", f"{self._birth.parameters.api}/v1/lookup?addresses={addresses}")

    def _inspect(self) -> Ask:
        self._waiting, self._inspects = Waiting.INSPECTION, True
        url = self._birth.parameters.inspection
        url = url or f"{self._birth.parameters.api}/v1/continue_inspection"
        return Ask("POST", url, json.dumps(report(self._birth.hardware)).encode())

    def _found(self, told: Mapping[str, object], now: float) -> Sequence[Effect]:
        """A node, with what the conductor wants of its agent."""
        node, config = _mapping(told.get("node")), _mapping(told.get("config"))
        if not node.get("uuid"):
            return self._not_found(0, now)
        first, self._known = not self._known, str(node["uuid"])[:LONGEST_NAME]
        self._inspects, self._pause = False, NEWS_SECONDS
        token = str(config.get("agent_token") or "")[:LONGEST_NAME]
        if token and token != HIDDEN:
            self._token = token
        if not self._token:
            self._over = True
            return [self._say("another agent has the node's token: giving up"), Leave(Ending.LOCK)]
        self._interval = self._heartbeat_seconds(config)
        self._news = True
        if first and _INSPECTING in _mapping(node.get("driver_internal_info")):
            return [self._say("inspects the machine"), self._inspect()]
        return [self._say(f"is node {self._known}"), self._beat()]

    def _heartbeat_seconds(self, config: Mapping[str, object]) -> float:
        """As ironic-python-agent chooses: between 0.3 and 0.6 of the longest silence."""
        longest = config.get("heartbeat_timeout")
        longest = longest if isinstance(longest, int | float) and longest > 0 else 300.0
        chosen = min(longest, LONGEST_BEAT) * (0.3 + 0.3 * self._birth.spread)
        return self._birth.behaviour.heartbeat or max(chosen, SHORTEST_BEAT)

    def _not_found(self, status: int, now: float) -> Sequence[Effect]:
        if now >= self._gives_up:
            self._over = True
            why = f"the API answers {status}" if status else "the API does not answer"
            return [self._say(f"found no node to be: {why}: gives up"), Leave(Ending.LOCK)]
        self._next = now + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return []

    def _beat(self) -> Ask:
        self._waiting = Waiting.HEARTBEAT
        told = {
            "callback_url": self._birth.callback_url,
            "agent_token": self._token,
            "agent_version": AGENT_VERSION,
        }
        if self._birth.certificate:
            told["agent_verify_ca"] = self._birth.certificate
        url = f"{self._birth.parameters.api}/v1/heartbeat/{self._known}"
        return Ask("POST", url, json.dumps(told).encode())

    def _beaten(self, status: int, now: float) -> Sequence[Effect]:
        if status == 202 and not self._news:
            self._pause, self._next = NEWS_SECONDS, now + self._interval
            return []
        self._next = now + min(self._pause, self._interval)
        self._pause = min(self._pause * 2, max(LONGEST_PAUSE, self._interval))
        refused = status not in {0, 202, 409} and status < 500
        return [self._say(f"the API refuses heartbeats: {status}")] if refused else []

    def _say(self, text: str) -> Say:
        self.node.log = f"{self.node.log}{text}\n"[-LOGGED:]
        return Say(text)


def _made(name: str, params: dict[str, object], uuid: UUID) -> dict[str, object]:
    return {
        "id": str(uuid),
        "command_name": name.partition(".")[2],
        "command_params": params,
        "command_status": "RUNNING",
        "command_error": None,
        "command_result": None,
    }


def fault(status: int, text: str) -> Reply:
    """As the agent's API tells errors."""
    return Reply(status, {"faultcode": "Client", "faultstring": text})


def _names(label: str) -> Sequence[str]:
    """By what a command may be called in settings, the nearest first: its step, its own name."""
    name, _, step = label.partition(" ")
    return [each for each in (step, name.partition(".")[2]) if each]


def _error(refused: Refused, label: str) -> dict[str, object]:
    return {
        "type": refused.kind,
        "code": 500,
        "message": "Command execution failed",
        "details": f"{label} failed: {refused.why}",
    }


def _object(body: bytes) -> Mapping[str, object]:
    values = sum(body.count(mark) for mark in (b",", b"[", b"{"))
    if len(body) > LONGEST_ANSWER or values > MOST_VALUES:
        return {}
    try:
        return _mapping(json.loads(body))
    except (ValueError, RecursionError):
        return {}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
