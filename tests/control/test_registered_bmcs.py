"""BMCs of registered machines: what is called, and what their answers mean."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nospoon.control.labs import bmcs
from nospoon.control.labs.bmcs import NotReached, RegisteredBmcs
from nospoon.errors import ProviderError
from nospoon.model.lab import Registered
from nospoon.runtime.reach import ANYWHERE

IPMITOOL = """#!/bin/sh
# a machine that is off when it was asked for that {looks} times
case $* in *"power {refused}"*) echo "0xd5: not in this state" >&2; exit 1;; esac
echo "${{*##*chassis }}" >>{log}
case $* in *status) ;; *) exit 0;; esac
if [ "$(grep -c status {log})" -lt {looks} ]; then echo Chassis Power is on
else echo Chassis Power is off; fi
"""


@dataclass
class Service:
    """A Redfish service. `refuses`: to be switched off, as a machine that is off. `reset`: ids of
    Systems that were.
    """

    power: list[str]
    refuses: bool = False
    systems: tuple[str, ...] = ("1",)
    said: list[str] = field(default_factory=list)
    reset: set[str] = field(default_factory=set)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        length = next((x for x in head.lower().splitlines() if x.startswith("content-length")), "0")
        sent = json.loads(await reader.readexactly(int(length.split()[-1])) or b"{}")
        status, body = 200, dict[str, object]()
        if method == "POST":
            self.said.append(sent["ResetType"])
            self.reset.add(path.split("/")[4])
            status = 400 if self.refuses and sent["ResetType"] == "ForceOff" else 200
        elif path.endswith("/Systems"):
            body = {"Members": [{"@odata.id": f"/redfish/v1/Systems/{n}"} for n in self.systems]}
        elif method == "GET":
            self.said.append(self.power[0])
            body = {"PowerState": self.power.pop(0) if len(self.power) > 1 else self.power[0]}
        text = json.dumps(body)
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
        writer.close()
        await writer.wait_closed()

    @asynccontextmanager
    async def machine(self) -> AsyncIterator[Registered]:
        async with await asyncio.start_server(self.answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            yield Registered("m", protocol="redfish", address="127.0.0.1", port=port, tls=False)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bmcs, "PAUSE", 0.0)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """For an ipmitool, which runs as a user of its own."""
    with TemporaryDirectory(prefix="nospoon-tools-") as made:
        Path(made).chmod(0o755)
        (Path(made) / "log").touch()
        (Path(made) / "log").chmod(0o666)
        monkeypatch.setenv("PATH", f"{made}:{os.environ['PATH']}")
        yield Path(made)


def ipmitool(place: Path, *, looks: int, refused: str = "nothing") -> None:
    text = IPMITOOL.format(looks=looks, refused=refused, log=place / "log")
    (place / "ipmitool").write_text(text)
    (place / "ipmitool").chmod(0o755)


MACHINE = Registered("m", address="127.0.0.1", username="u", password="p")


async def test_a_machine_is_switched_on_when_it_is_off(place: Path) -> None:
    """A BMC answers before a machine is off (IPMI 2.0 §28.3), and may ignore what comes then."""
    ipmitool(place, looks=3)
    await RegisteredBmcs(ANYWHERE).start(MACHINE, owner=1, installs=True)
    said = (place / "log").read_text().splitlines()
    assert said == ["power off", *["power status"] * 3, "bootdev pxe", "power on"]


async def test_a_bmc_that_is_silent_is_asked_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ipmitool itself asked it again and again for a session."""
    for silence, asked in ((0.0, 1), (1e9, bmcs.TRIES)):
        monkeypatch.setattr(bmcs, "SILENCE", silence)
        (place / "log").write_text("")
        said = "Error: Unable to establish IPMI v2 / RMCP+ session"
        script = f"#!/bin/sh\necho x >>{place / 'log'}\necho {said} >&2\nexit 1\n"
        (place / "ipmitool").write_text(script.replace(said, f"'{said}'"))
        (place / "ipmitool").chmod(0o755)
        with pytest.raises(NotReached, match="BMC of m: chassis power off: Error: Unable to"):
            await RegisteredBmcs(ANYWHERE).start(MACHINE, owner=1, installs=True)
        assert len((place / "log").read_text().splitlines()) == asked


@pytest.mark.parametrize("lost", ["power on", "bootdev pxe", "power status"])
async def test_a_bmc_that_is_lost_later_may_have_changed_its_machine(
    place: Path, lost: str
) -> None:
    """It is switched off when its set is removed, so that no other set meets what it runs."""
    ipmitool(place, looks=1)
    tool = place / "ipmitool"
    head, _, rest = tool.read_text().partition("\n")
    said = "Error: Unable to establish IPMI v2 / RMCP+ session"
    tool.write_text(f"{head}\ncase \"$*\" in *'{lost}'*) echo '{said}' >&2; exit 1;; esac\n{rest}")
    with pytest.raises(ProviderError, match=f"chassis {lost}: Error: Unable to") as raised:
        await RegisteredBmcs(ANYWHERE).start(MACHINE, owner=1, installs=True)
    assert not isinstance(raised.value, NotReached)


async def test_a_machine_that_stays_on_is_not_off(place: Path) -> None:
    ipmitool(place, looks=1000)
    with pytest.raises(ProviderError, match="BMC of m: it is still on 0 s after it was switched"):
        await RegisteredBmcs(ANYWHERE).stop(MACHINE, owner=1)


async def test_a_bmc_may_refuse_to_switch_off_what_is_off(place: Path) -> None:
    ipmitool(place, looks=1, refused="off")
    await RegisteredBmcs(ANYWHERE).stop(MACHINE, owner=1)
    ipmitool(place, looks=1000, refused="off")
    with pytest.raises(ProviderError, match="power off: 0xd5"):
        await RegisteredBmcs(ANYWHERE).stop(MACHINE, owner=1)


async def test_redfish_is_switched_on_when_it_is_off() -> None:
    service = Service(["PoweringOff", "Off"])
    async with service.machine() as machine:
        await RegisteredBmcs(ANYWHERE).start(machine, owner=1, installs=True)
    assert service.said == ["ForceOff", "PoweringOff", "Off", "On"]


async def test_redfish_may_refuse_to_switch_off_what_is_off() -> None:
    service = Service(["Off", "On"], refuses=True)
    async with service.machine() as machine:
        await RegisteredBmcs(ANYWHERE).stop(machine, owner=1)
        with pytest.raises(ProviderError, match="HTTP 400"):
            await RegisteredBmcs(ANYWHERE).stop(machine, owner=1)


async def test_of_several_systems_no_other_one_is_switched() -> None:
    """Such as those of nodes that share a login: the first was taken, which another set had."""
    service = Service(["Off"], systems=("1", "2"))
    async with service.machine() as machine:
        with pytest.raises(NotReached, match="BMC of m: its service has 2 Systems, any of which"):
            await RegisteredBmcs(ANYWHERE).start(machine, owner=1, installs=True)
        with pytest.raises(ProviderError, match="BMC of m: no System 3"):
            await RegisteredBmcs(ANYWHERE).stop(replace(machine, system="3"), owner=1)
        assert not service.reset
        await RegisteredBmcs(ANYWHERE).start(replace(machine, system="2"), owner=1, installs=True)
    assert service.reset == {"2"}
