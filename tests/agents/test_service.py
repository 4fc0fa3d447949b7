"""Agents over real sockets: an API that plays Ironic, a conductor that checks certificates."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from nospoon.control.content.files import Files
from nospoon.control.content.http_discs import HttpDiscs
from nospoon.model.agent import Agents
from nospoon.protocols.agent.inventory import Hardware
from nospoon.providers.simulated.guests import Guest
from nospoon.runtime import process
from nospoon.runtime.reach import Reach
from nospoon.runtime.serve import HttpServer
from nospoon.runtime.tasks import Tasks
from nospoon.services.agents.service import AgentService, Bounds
from nospoon.testing.downloads import LOOPBACK, client_downloads

NODE = UUID("11111111-2222-5333-8444-555555555555")
HARDWARE = Hardware(2, 4 << 30, "x86_64", uefi=True, macs=("02:00:00:00:00:01",))
TOKEN = "t" * 32


@dataclass
class Machine:
    """Remembers what its guest did."""

    done: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def _note(self, machine: UUID, what: str) -> None:
        assert machine == NODE
        self.done.append(what)
        self.changed.set()

    def say(self, machine: UUID, text: str) -> None:
        self._note(machine, f"say {text}")

    def write(self, machine: UUID, image: str) -> None:
        self._note(machine, f"write {image}")

    def power_off_by_guest(self, machine: UUID) -> None:
        self._note(machine, "power off")

    def reset_by_guest(self, machine: UUID) -> None:
        self._note(machine, "reset")

    def boot_disk(self, machine: UUID) -> None:
        self._note(machine, "boot disk")

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not done():
                self.changed.clear()
                await self.changed.wait()


@dataclass
class Ironic:
    """The API that agents see."""

    url: str = ""
    script: str | bytes = ""
    beats: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)

    def app(self) -> Starlette:
        async def lookup(request: Request) -> Response:
            assert request.query_params["addresses"] == HARDWARE.macs[0]
            return JSONResponse(
                {
                    "node": {"uuid": str(NODE)},
                    "config": {"agent_token": TOKEN, "heartbeat_timeout": 9},
                }
            )

        async def heartbeat(request: Request) -> Response:
            self.beats.put_nowait(await request.json())
            return Response(status_code=202)

        async def script(request: Request) -> Response:
            if request.path_params["name"] == "boot.ipxe":
                return PlainTextResponse(
                    "chain pxelinux.cfg/${net${netid}/mac:hexhyp} || goto loop"
                )
            return PlainTextResponse(self.script, 200 if self.script else 404)

        return Starlette(
            routes=[
                Route("/v1/lookup", lookup),
                Route(f"/v1/heartbeat/{NODE}", heartbeat, methods=["POST"]),
                Route("/{name:path}", script),
            ]
        )


@asynccontextmanager
async def ironic() -> AsyncIterator[Ironic]:
    made, bound = Ironic(), socket.create_server(("127.0.0.1", 0))
    made.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    server = HttpServer(made.app(), [bound])
    await server.start()
    try:
        yield made
    finally:
        await server.close()


@asynccontextmanager
async def agents(
    chance: float = 1.0,
    uri: str = "",
    *,
    http: str | None = None,
    reach: Reach = LOOPBACK,
    endpoint: str = "",
) -> AsyncIterator[AgentService]:
    """`uri`: of what their machines boot by HTTP, or `http`: what that tells its kernel;
    `endpoint`: of their cluster's Ironic.
    """

    class Fixed(random.Random):
        def random(self) -> float:
            return chance

    with tempfile.TemporaryDirectory() as directory:
        async with Tasks("test") as tasks:
            files = Files.at(Path(directory))
            discs = HttpDiscs(lambda _: uri, files, client_downloads(tasks, files))

            async def endpoint_of(machine: UUID) -> str:
                assert machine == NODE
                return endpoint

            async def cmdline(machine: UUID) -> str | None:
                return http if http is not None else await discs.cmdline(machine)

            service = AgentService(tasks, cmdline, Fixed(), bounds=Bounds(reach, endpoint_of))
            try:
                yield service
            finally:
                await service.close()


def guest(machine: Machine, behaviour: Agents, cmdline: str | None = None) -> Guest:
    return Guest(NODE, HARDWARE, behaviour, machine, cmdline=cmdline)


async def ask(beat: dict[str, Any], path: str, body: Any = None) -> tuple[int, Any]:
    """As a conductor does, which trusts the certificate of the heartbeat and no other."""
    url = f"{beat['callback_url']}{path}"
    context = ssl.create_default_context(cadata=beat["agent_verify_ca"])
    host, _, rest = url.removeprefix("https://").partition("/")
    address, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(address, int(port), ssl=context)
    data = json.dumps(body).encode() if body is not None else b""
    method = "POST" if body is not None else "GET"
    head = f"{method} /{rest} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(data)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + data)
    answer = await reader.read()
    writer.close()
    status = int(answer.split()[1])
    return status, json.loads(answer.partition(b"\r\n\r\n")[2])


async def test_an_agent_beats_obeys_who_knows_its_token_and_powers_off() -> None:
    machine = Machine()
    step = {"step": {"step": "write_image", "args": {"image_info": {"id": "i"}}}}
    async with ironic() as api, agents() as service:
        service.booted(guest(machine, Agents(api=api.url, command=0.1)))
        beat = await api.beats.get()
        assert beat["agent_token"] == TOKEN
        sync = {"name": "standby.sync", "params": {}}
        assert (await ask(beat, "/v1/commands/?agent_token=x", sync))[0] == 401
        known = f"/v1/commands/?agent_token={TOKEN}"
        status, told = await ask(
            beat, f"{known}&wait=true", {"name": "deploy.execute_deploy_step", "params": step}
        )
        assert (status, told["command_status"]) == (200, "SUCCEEDED")
        assert "write i" in machine.done
        status, listed = await ask(beat, known)
        assert [each["command_name"] for each in listed["commands"]] == ["execute_deploy_step"]
        await ask(beat, known, {"name": "standby.power_off", "params": {}})
        await machine.until(lambda: "power off" in machine.done)
        assert (await ask(beat, known))[0] == 404


async def test_an_agent_ends_with_its_machine_and_who_waits_is_answered() -> None:
    machine = Machine()
    slow = {"name": "clean.execute_clean_step", "params": {"step": {"step": "erase_devices"}}}
    async with ironic() as api, agents() as service:
        service.booted(guest(machine, Agents(api=api.url, command=600.0)))
        beat = await api.beats.get()
        waiting = asyncio.gather(ask(beat, f"/v1/commands/?agent_token={TOKEN}&wait=true", slow))
        await machine.until(lambda: any("begins clean" in each for each in machine.done))
        service.ended(NODE)
        async with asyncio.timeout(20):
            ((status, told),) = await waiting
        assert (status, told["command_status"]) == (200, "RUNNING")


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ("goto boot_whole_disk\n:boot_whole_disk\nsanboot --no-describe", "boot disk"),
        ("", "say simulated agent: nothing to boot: no boot script, medium or ISO names an API"),
    ],
)
async def test_a_boot_script_may_lead_to_the_disk_or_nowhere(script: str, end: str) -> None:
    machine = Machine()
    async with ironic() as api, agents() as service:
        api.script = script
        service.booted(guest(machine, Agents(boot_script=f"{api.url}/boot.ipxe")))
        await machine.until(lambda: end in machine.done)


@pytest.mark.tools
async def test_the_api_is_that_of_an_iso_that_was_booted_by_http(tmp_path: Path) -> None:
    async with ironic() as api, agents(uri=f"{api.url}/boot.iso") as service:
        (tmp_path / "files").mkdir()
        menu = f"menuentry x {{\n  linuxefi /vmlinuz ipa-api-url={api.url}\n}}\n"
        (tmp_path / "files" / "grub.cfg").write_text(menu)
        argv = ["xorriso", "-as", "mkisofs", "-quiet", "-r", "-o"]
        await process.run([*argv, str(tmp_path / "iso"), str(tmp_path / "files")])
        api.script = (tmp_path / "iso").read_bytes()
        service.booted(guest(Machine(), Agents()))
        assert (await api.beats.get())["agent_token"] == TOKEN


async def test_an_iso_that_cannot_be_had_is_told_on_the_console() -> None:
    machine = Machine()
    async with ironic() as api, agents(uri=f"{api.url}/boot.iso") as service:
        service.booted(guest(machine, Agents(api=api.url)))
        await machine.until(
            lambda: any("boot.iso: the server answered 404" in each for each in machine.done)
        )


async def test_the_api_is_that_of_the_boot_script_or_of_the_medium() -> None:
    async with ironic() as api, agents() as service:
        line = f"ipa-api-url={api.url}"
        api.script = f"goto deploy\n:deploy\nkernel http://h/k {line} || goto retry"
        service.booted(guest(Machine(), Agents(boot_script=f"{api.url}/boot.ipxe")))
        await api.beats.get()
        service.booted(guest(Machine(), Agents(), cmdline=line))
        assert (await api.beats.get())["agent_token"] == TOKEN


async def test_an_agent_may_stay_silent_or_find_its_port_taken() -> None:
    mute, refused = Machine(), Machine()
    async with ironic() as api, agents(chance=0.5) as service:
        service.booted(guest(mute, Agents(api=api.url, silent=0.6)))
        assert mute.done == ["say simulated agent: stays silent"]
        with socket.create_server(("127.0.0.1", 0)) as taken:
            behaviour = replace(Agents(api=api.url), port=taken.getsockname()[1])
            service.booted(guest(refused, behaviour))
            await refused.until(lambda: any("did not start" in each for each in refused.done))
        assert "another address or port" in refused.done[0]
