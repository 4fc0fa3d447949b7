"""Hours of traffic in seconds: conductors, people, bad clients, garbage; memory is flat at the end.

NOSPOON_SOAK_HOURS takes another number of hours.
"""

from __future__ import annotations

import asyncio
import gc
import http.client
import os
import socket
from pathlib import Path

from nospoon.model.machine import PowerCommand
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.testing.bench import Bench, bench
from nospoon.testing.console import Console
from nospoon.testing.redfish import basic, system_of

HOURS = int(os.environ.get("NOSPOON_SOAK_HOURS", "2"))
NODES, MINUTES = 10, 60
CYCLES = 4
"""Power cycles of each node in an hour."""
POWER_STATUS, CLOSE = (0x00, 0x01), (0x06, 0x3C)
ENOUGH_OBJECTS = 400
"""Of an hour: logs grow by half as many, up to their capacity. One object kept for each of its 600
IPMI sessions, or of as many of Redfish, would be more.
"""
ENOUGH_MEMORY = 4 << 20


def ipmi(config: BmcConfig, *, closes: bool) -> None:
    """What a conductor does each minute; one that dies does not close its session."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.settimeout(5)
        line.connect((config.bmc.address, config.bmc.ipmi_port))

        def ask(data: bytes) -> bytes:
            line.send(data)
            return line.recv(2048)

        line.send(os.urandom(40))
        console = Console(config.bmc.username.encode(), config.password.encode())
        console.take_open(ask(console.open_request()))
        assert console.status == 0
        assert console.take_rakp2(ask(console.rakp1()))
        assert console.take_rakp4(ask(console.rakp3()))
        assert console.take(ask(console.request(*POWER_STATUS)))[0] == 0
        if closes:
            ask(console.request(*CLOSE, console.session.to_bytes(4, "little")))


def redfish(config: BmcConfig) -> None:
    """A session, a look, a change, a wrong password; half of them never log out."""
    line = http.client.HTTPConnection(config.bmc.address, config.bmc.redfish_port, timeout=10)

    def ask(method: str, path: str, body: str | None, headers: dict[str, str]) -> int:
        line.request(method, path, body, {"Content-Type": "application/json", **headers})
        answer = line.getresponse()
        answer.read()
        return answer.status

    login = f'{{"UserName": "{config.bmc.username}", "Password": "{config.password}"}}'
    assert ask("POST", "/redfish/v1/SessionService/Sessions", login, {}) == 201
    assert ask("GET", system_of(config), None, basic(config)) == 200
    assert ask("GET", system_of(config), None, basic(config, "wrong")) == 401
    boot = '{"Boot": {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}}'
    assert ask("PATCH", system_of(config), boot, basic(config)) == 200
    line.close()


def an_hour(configs: list[BmcConfig]) -> None:
    for minute in range(MINUTES):
        for config in configs:
            ipmi(config, closes=minute > 0)
            redfish(config)


async def cycle(b: Bench) -> None:
    """Power on, cycled and off again, while clients ask."""
    for _ in range(CYCLES):
        for config in b.configs:
            for command in (PowerCommand.ON, PowerCommand.CYCLE, PowerCommand.OFF):
                await b.service.power(config.bmc.uuid, command)


async def spend_an_hour(b: Bench) -> tuple[int, int]:
    """How many objects there are afterwards, and how many bytes of memory."""
    await asyncio.gather(asyncio.to_thread(an_hour, list(b.configs)), cycle(b))
    for kept in (b.store.saved, b.store.records, b.machines.told, b.machines.orders):
        kept.clear()
    gc.collect()
    return len(gc.get_objects()), resident()


def resident() -> int:
    """Bytes (proc(5), statm)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_hours_of_traffic_leave_nothing_in_memory() -> None:
    async with bench(NODES) as b:
        for _ in range(2):  # until caches are warm
            objects, memory = await spend_an_hour(b)
        for _ in range(HOURS):
            after = await spend_an_hour(b)
    assert after[0] - objects < ENOUGH_OBJECTS * HOURS
    assert after[1] - memory < ENOUGH_MEMORY
