"""What Beaker itself called, as `record_beaker.py` recorded it, called again."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import uuid
import xmlrpc.client
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.contrib import record_beaker

from nospoon.testing.ironic import until
from nospoon.testing.rack import BIN, Rack

HEADER, *ROWS = [json.loads(each) for each in record_beaker.RECORDING.read_text().splitlines()]


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(record_beaker.ADAPTER))
    made = importlib.import_module("nospoon_virt")
    monkeypatch.setattr(made, "PAUSE", 0.1)
    yield made
    del sys.modules["nospoon_virt"]


@pytest.fixture
def lab(rack: Rack) -> Iterator[str]:
    rack.run("up", "--yes", rack.file(record_beaker.LAB + rack.bmc(), "recorded.yaml"))
    yield f"{record_beaker.CLUSTER}/beaker"
    rack.run("down", "--yes", "--purge", record_beaker.CLUSTER)


def test_the_recording_is_of_beaker_and_of_every_call_that_it_makes() -> None:
    assert HEADER["beaker"].startswith("beaker-")
    assert HEADER["date"]
    assert {row["call"] for row in ROWS if "user" in row} == set(record_beaker.CALLS)
    assert not [row for row in ROWS if "error" in row]
    modes = {row["environment"]["power_mode"] for row in ROWS if "environment" in row}
    assert modes == {"on", "off", "interrupt", "configure_netboot", "clear_netboot"}


@dataclass
class Replay:
    """Machines that come again have other UUIDs than those of the recording."""

    adapter: ModuleType
    socket: str
    lab: str
    uuids: dict[str, uuid.UUID] = field(default_factory=dict)

    def call(self, row: dict[str, Any]) -> Any:
        user = SimpleNamespace(user_name=row["user"])
        made = self.adapter.VirtManager(user, self.socket, self.lab)
        return getattr(made, row["call"])(*map(self.given, row["given"]))

    def given(self, value: Any) -> Any:
        match value:
            case {"uuid": each}:
                return self.uuids[each]
            case {"resource": each}:
                return SimpleNamespace(instance_id=self.uuids[each])
            case {"flavor": name, "ram": ram, "vcpus": cpus, "disk": disk}:
                return self.adapter.Flavor(self.lab, name, ram, cpus, disk)
            case _:
                return value

    def shows(self, row: dict[str, Any]) -> bool:
        """Whether a console has the lines that it had."""
        text = row["result"]
        for was, now in self.uuids.items():
            text = text.replace(was, str(now))
        return set(self.call(row).splitlines()) == set(text.splitlines())


def test_what_beakers_scheduler_called_is_answered_as_it_was(
    rack: Rack, lab: str, adapter: ModuleType
) -> None:
    socket = f"{rack.environment['NOSPOON_RUNTIME_DIR']}/nospoond.sock"
    replay = Replay(adapter, socket, lab)
    for row in ROWS:
        if "process" in row:
            adapter.VirtManager._leases.clear()
        elif row.get("call") == "create_vm":
            made = replay.call(row).instance_id
            replay.uuids[row["result"]["resource"]] = made
            assert str(made) in {each["uuid"] for each in rack.json("node", "list")}
        elif row.get("call") == "available_flavors":
            shown = [
                {"flavor": each.id, "ram": each.ram, "vcpus": each.vcpus, "disk": each.disk}
                for each in replay.call(row)
            ]
            assert shown == row["result"]
        elif row.get("call") == "get_console_output":
            until(partial(replay.shows, row))
        elif "user" in row:
            assert replay.call(row) == row["result"], row
    left = {each["uuid"] for each in rack.json("node", "list")}
    assert not left & set(map(str, replay.uuids.values())), "Beaker destroyed all of them"


def test_a_console_goes_on_by_xml_rpc_as_beaker_sends_it(
    rack: Rack, lab: str, adapter: ModuleType
) -> None:
    """What terminals take and XML does not: Beaker's lab controller failed to read all of it."""
    socket = f"{rack.environment['NOSPOON_RUNTIME_DIR']}/nospoond.sock"
    virt = adapter.VirtManager(SimpleNamespace(user_name="jdoe"), socket, lab)
    vm = virt.create_vm("beaker-recipe-3", virt.available_flavors()[0])
    until(lambda: "Kernel panic" in virt.get_console_output(vm))
    text = virt.get_console_output(vm)
    sent = xmlrpc.client.dumps((text,), methodresponse=True)
    assert xmlrpc.client.loads(sent)[0][0] == text.replace("\r\n", "\n")
    assert "one [1;31mtwo[0m" in text
    virt.destroy_vm(vm)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"caf\xc3", "caf"),  # the other half comes with the next call
        (b"caf\xc3\xa9", "caf\xe9"),
        (b"\xff\x1b[0m\x00\x0b", "\ufffd[0m"),
        ("\ufffe \U0001f600".encode(), " \U0001f600"),
    ],
)
def test_a_console_is_what_xml_can_carry(adapter: ModuleType, data: bytes, text: str) -> None:
    virt = adapter.VirtManager("jdoe", "", "")
    virt._call = lambda _method, _path, raw: data if raw else None
    assert virt.get_console_output(adapter.Machine("1.1.0", uuid.uuid4())) == text


@pytest.mark.usefixtures("lab")
def test_what_beakers_provision_service_ran_ends_as_it_did(rack: Rack) -> None:
    """Its power script, with nothing in its environment but what Beaker put there and PATH."""
    places = {key: value for key, value in rack.environment.items() if key.startswith("NOSPOON_")}
    ran = [row for row in ROWS if row.get("call") == "power script"]
    assert ran
    for row in ran:
        env = {**places, **row["environment"], "PATH": f"{BIN}:/usr/bin:/bin"}
        done = subprocess.run(
            [str(record_beaker.ADAPTER / "nospoon"), *row["given"]], env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (row["status"], row["output"]), row
