"""Beaker's calls, in the order in which its scheduler makes them, answered by a lab."""

from __future__ import annotations

import ast
import getpass
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.contrib.conftest import CONTRIB, NOSPOON

from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack

BEAKER = CONTRIB / "beaker"
SCRIPT = "http://beaker.example.com/systems/by-uuid/${uuid}/ipxe-script"


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BEAKER))
    made = importlib.import_module("nospoon_virt")
    monkeypatch.setattr(made, "PAUSE", 0.1)
    yield made
    del sys.modules["nospoon_virt"]


@pytest.fixture
def lab(rack: Rack) -> Iterator[str]:
    name = rack.name()
    text = f"""
cluster: {name}
hosts: {{here: {{simulated: {{console: "one"}}}}}}
flavors:
  m1-small: {{memory: 2GiB, disks: [20GiB], firmware: bios}}
  m1-large: {{memory: 8GiB, cpus: 4, disks: [80GiB], firmware: bios}}
  m1-wide: {{memory: 8GiB, cpus: 4, disks: [160GiB], firmware: bios}}
labs:
  beaker:
    limits: {{machines: 1}}
    distros: {{beaker: {{script: "{SCRIPT}"}}}}
    machines:
      m1: {{bmc: {{address: 192.0.2.1, password: secret}}, memory: 2GiB, cpus: 1, disks: [20GiB]}}
nodes: []
{rack.bmc()}"""
    rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
    yield name
    rack.run("down", "--yes", "--purge", name)


def manager(adapter: ModuleType, rack: Rack, lab: str) -> Any:
    socket = f"{rack.environment['NOSPOON_RUNTIME_DIR']}/nospoond.sock"
    return adapter.VirtManager(SimpleNamespace(user_name=getpass.getuser()), socket, lab)


def test_the_five_calls_of_beakers_scheduler(rack: Rack, lab: str, adapter: ModuleType) -> None:
    with pytest.raises(adapter.Refused, match="NOSPOON_LAB"):
        manager(adapter, rack, "").available_flavors()
    virt = manager(adapter, rack, f"{lab}/beaker")
    flavors = virt.available_flavors()
    assert {(each.name, each.ram, each.vcpus, each.disk) for each in flavors} == {
        ("m1-small", 2048, 1, 20), ("m1-large", 8192, 4, 80), ("m1-wide", 8192, 4, 160),
    }  # fmt: skip
    (wide,) = [each for each in flavors if each.disk > 100]
    vm = virt.create_vm("beaker-recipe-7", wide)
    assert virt.create_vm("beaker-recipe-7", wide).instance_id == vm.instance_id
    assert rack.client.get(f"/v1/leases/{vm.lease}")["flavor"] == "m1-wide", "others are as large"
    until(lambda: rack.json("node", "show", str(vm.instance_id))["power"] == "on")
    virt.start_vm(vm)
    until(lambda: "one" in virt.get_console_output(vm))
    assert virt.get_console_output(vm, 1).count("\n") <= 1
    virt.destroy_vm(vm)
    virt.destroy_vm(vm)
    assert str(vm.instance_id) not in {each["uuid"] for each in rack.json("node", "list")}
    assert "one" in virt.get_console_output(vm), "it is kept"
    with pytest.raises(adapter.Refused, match="no lab that is asked makes machines of a flavor"):
        virt.create_vm("other", adapter.Flavor(f"{lab}/beaker", "none", 3000, 1, 20))


def test_beaker_calls_with_the_uuid_that_it_keeps(
    rack: Rack, lab: str, adapter: ModuleType
) -> None:
    """As `Recipe.provision`, `recipes.console_output` and `VirtResource.release` of Beaker do, each
    in a process of its own, with an object of its database or the UUID alone.
    """
    virt = manager(adapter, rack, f"{lab}/beaker")
    uuid = virt.create_vm("beaker-recipe-12", virt.available_flavors()[0]).instance_id
    adapter.VirtManager._leases.clear()
    manager(adapter, rack, f"{lab}/beaker").start_vm(uuid)
    adapter.VirtManager._leases.clear()
    again = manager(adapter, rack, f"{lab}/beaker")
    until(lambda: "one" in again.get_console_output(uuid, None))
    adapter.VirtManager._leases.clear()
    again.destroy_vm(SimpleNamespace(instance_id=uuid))
    again.destroy_vm(SimpleNamespace(instance_id=uuid))
    assert str(uuid) not in {each["uuid"] for each in rack.json("node", "list")}
    adapter.VirtManager._leases.clear()
    with pytest.raises(adapter.Refused, match="no lease that this account may see"):
        again.destroy_vm(SimpleNamespace(instance_id=uuid))  # it may be another account's


def test_the_adapter_is_written_for_python_2_too() -> None:
    """On which TurboGears 1, and so Beaker's server, runs."""
    tree = ast.parse((BEAKER / "nospoon_virt.py").read_text())
    for node in ast.walk(tree):
        assert not isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.NamedExpr | ast.YieldFrom)
        if isinstance(node, ast.FunctionDef):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            assert not node.args.kwonlyargs
            assert not any(each.annotation for each in given)
            assert node.returns is None
        if isinstance(node, ast.ImportFrom):
            assert node.module in {"http.client", "httplib", "typing"}
        if isinstance(node, ast.Raise):
            assert node.cause is None


def test_a_machine_that_does_not_come_is_given_up(
    rack: Rack, lab: str, adapter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beaker forgets it: nothing may wait for it, and a registered machine is not a substitute."""
    virt = manager(adapter, rack, f"{lab}/beaker")
    small = min(virt.available_flavors(), key=lambda each: each.ram)
    vm = virt.create_vm("beaker-recipe-9", small)
    why = "is still queued: lab beaker has given away 1 of 1"
    with monkeypatch.context() as impatient:
        impatient.setattr(adapter, "PATIENCE", 0)
        with pytest.raises(adapter.Refused, match=why):
            virt.create_vm("beaker-recipe-10", small)
    states = {
        each["state"] for each in rack.json("request", "list") if each["set"] != vm.lease[:-2]
    }
    assert states <= {"ended"}
    virt.destroy_vm(vm)


def test_a_daemon_that_starts_again_is_waited_for(
    rack: Rack, lab: str, adapter: ModuleType
) -> None:
    virt = manager(adapter, rack, f"{lab}/beaker")
    (flavor, *_), called, gone = virt.available_flavors(), virt._call, ["once", "twice"]

    def call(method: str, path: str, body: Any = None, *, raw: bool = False) -> Any:
        if gone and path.startswith("/v1/requests/"):
            raise ConnectionRefusedError(gone.pop())
        return called(method, path, body, raw=raw)

    virt._call = call
    virt.destroy_vm(virt.create_vm("beaker-recipe-11", flavor))
    assert not gone


def test_the_power_script_and_netboot_command(rack: Rack, lab: str, adapter: ModuleType) -> None:
    virt = manager(adapter, rack, f"{lab}/beaker")
    vm = virt.create_vm("beaker-recipe-8", virt.available_flavors()[0])
    (node,) = [each for each in rack.json("node", "list") if each["uuid"] == str(vm.instance_id)]
    path = f"{node['cluster']}/{node['node']}"

    def command(mode: str, power_id: str = path) -> int:
        env = {**rack.environment, "power_mode": mode, "power_id": power_id}
        env["PATH"] = f"{os.path.dirname(NOSPOON)}:{env['PATH']}"  # noqa: PTH120
        argv = [str(BEAKER / "nospoon")]
        return subprocess.run(argv, env=env, timeout=60, check=False).returncode

    def shown(field: str) -> str:
        return str(rack.json("node", "show", path)[field])

    until(lambda: shown("power") == "on")  # else it is under way
    assert command("off", vm.lease) == 0
    until(lambda: shown("power") == "off")
    assert command("configure_netboot") == 0
    assert shown("boot").startswith("network")
    assert command("clear_netboot") == 0
    assert shown("boot") == "as configured"
    assert command("on") == 0
    until(lambda: shown("power") == "on")
    assert command("interrupt") == 0
    assert command("other") == 2
    virt.destroy_vm(vm)
