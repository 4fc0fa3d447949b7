"""Machines of recipes that ask the boot listener for more than one machine needs."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.types import ASGIApp, Message

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.callbacks import Callbacks
from nospoon.lab.work import Asked, RecipeSet, Run, SetState, Stage
from nospoon.model.lab import Lab
from nospoon.runtime import local_peers
from nospoon.runtime.slices import SECONDS, Slices
from nospoon.services.netboot.http import create_app
from nospoon.services.netboot.lab import AT_ONCE
from nospoon.services.netboot.peers import Peers
from nospoon.testing.netboot import ToldAuthority


class Turns:
    """How many turns the loop has taken."""

    def __init__(self) -> None:
        self.number = 0
        self._next()

    def _next(self) -> None:
        self.number += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def end(self) -> None:
        self._handle.cancel()


class Asking:
    """A request to an application. `taken`: the client reads the answer."""

    def __init__(self, path: str, *, client: str = "192.0.2.7") -> None:
        self.scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "path": path,
            "raw_path": path.encode(), "query_string": b"", "headers": [], "root_path": "",
            "scheme": "http", "client": (client, 4000), "server": ("192.0.2.1", 8069),
        }  # fmt: skip
        self.taken, self.said = asyncio.Event(), list[Message]()

    @property
    def status(self) -> int:
        return int(self.said[0]["status"])

    async def of(self, app: ASGIApp) -> Asking:
        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Any) -> None:
            self.said.append(message)
            if message["type"] == "http.response.body" and message.get("more_body"):
                await self.taken.wait()

        await app(self.scope, receive, send)
        return self


async def test_a_long_kickstart_is_filled_in_with_turns_for_others() -> None:
    """One of 256 KiB took 50 ms, and each of a guest's 256 connections could ask for it."""
    text, looked, turns = "{{1}}" * (256 * 1024 // 5), [0.0], Turns()

    def now() -> float:
        looked[0] += SECONDS / 2
        return looked[0]

    run = Run(Asked("r", kickstart=text), {}, secret="s", stage=Stage.INSTALLING)
    found = RecipeSet(
        id="1.1",
        number=1,
        submitter=1000,
        owner="ann",
        runs=(run,),
        labs=(),
        state=SetState.RUNNING,
    )
    board: Any = SimpleNamespace(
        secrets={"s": ("1.1", 0)}, scheduler=SimpleNamespace(sets={"1.1": found}),
        slices=Slices(now=now),
        labs=SimpleNamespace(known_of=lambda _: KnownLab("k", 1000, "c", Lab("dev"))),
    )  # fmt: skip
    nothing = cast("Any", None)
    callbacks = Callbacks(lambda: board, lambda: 0.0, nothing)
    filled = await callbacks.kickstart("s", "http://here")
    turns.end()
    assert filled == text
    assert turns.number > 50


class LongKickstart:
    """A lab with one machine."""

    async def kickstart(self, secret: str, base: str) -> str | None:
        del base
        return "x" * (1 << 20) if secret == "s" else None


async def test_few_answers_with_a_kickstart_are_held_at_a_time() -> None:
    """Who read none of 256 answers had the daemon keep hundreds of megabytes for minutes."""
    lab: Any = LongKickstart()
    app = create_app(ToldAuthority(), Peers(lambda _: None), ready=lambda: True, lab=lab)
    slow = [Asking("/lab/s/ks") for _ in range(AT_ONCE)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each.of(app)) for each in slow]
        while not all(each.said for each in slow):  # noqa: ASYNC110  (no event of it)
            await asyncio.sleep(0)
        assert (await Asking("/lab/s/ks").of(app)).status == 503
        assert (await Asking("/lab/other/ks").of(app)).status == 404
        for each in slow:
            each.taken.set()
        for task in tasks:
            await task
    assert sum(len(each.get("body", b"")) for each in slow[0].said) == 1 << 20
    again = Asking("/lab/s/ks")
    again.taken.set()
    assert (await again.of(app)).status == 200


async def test_requests_of_one_moment_are_spread_over_turns_of_the_loop() -> None:
    turns, at, now = Turns(), list[tuple[int, str]](), [0.0]

    class Authority(ToldAuthority):
        def answer(self, *, uuid: Any = None, mac: str = "") -> None:
            del uuid
            now[0] += SECONDS * 1.25  # as work that takes more than its slice
            at.append((turns.number, mac))

    app = create_app(Authority(), Peers(lambda _: None), ready=lambda: True, now=lambda: now[0])
    macs = [f"02:00:00:00:00:{number:02x}" for number in range(6)]
    wanted = [
        Asking(f"/boot/mac/{mac}/ipxe", client="192.0.2.9" if mac == macs[-1] else "192.0.2.7")
        for mac in macs
    ]
    done = await asyncio.gather(*(each.of(app) for each in wanted))
    turns.end()
    assert {each.status for each in done} == {404}
    assert len({turn for turn, _ in at}) == len(macs), at
    assert macs[-1] in [mac for _, mac in at[:3]], "sources take turns"


ASKS = "import socket, sys; s = socket.create_connection((sys.argv[1], sys.argv[2])); s.recv(1)"


def test_own_sockets_are_looked_for_only_among_those_of_the_own_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a socket for each of thousands of BMCs each look took a fifth of a second."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = listener.getsockname()
        with subprocess.Popen([sys.executable, "-c", ASKS, here[0], str(here[1])]):
            taken, peer = listener.accept()
            with taken:
                uid = os.getuid()
                monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
                monkeypatch.setattr(os, "listdir", lambda _: pytest.fail("a look"))
                assert local_peers.user_of(peer, here) == uid
