"""The whole product on a simulated host: fast, with a real daemon and real clients."""

from __future__ import annotations

import base64
import json
import os
import socket
import stat
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from nospoon.api.client import Client
from nospoon.errors import NospoonError
from nospoon.testing.bench import free_port
from nospoon.testing.ironic import until
from nospoon.testing.postgresql import PostgreSql
from nospoon.testing.rack import Rack


def simulated(rack: Rack, more: str = "nodes: [{count: 3}]", **bmc: str) -> tuple[str, str]:
    name = rack.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc(**bmc)}{more}\n"
    return name, rack.file(text, f"{name}.yaml")


def test_up_again_and_down_twice(shared: Rack) -> None:
    name, file = simulated(shared)
    first = shared.run("up", "--yes", file)
    assert "node-2" in first.stdout
    again = shared.run("up", "--yes", file)
    assert "Nothing to do" in again.stderr
    assert shared.run("plan", "--detailed-exitcode", file).returncode == 0
    states = shared.json("status", name)
    assert {(row["node"], row["state"]) for row in states} == {
        (f"node-{n}", "present") for n in range(3)
    }
    shared.run("down", "--yes", name)
    assert "nothing to remove" in shared.run("down", "--yes", name).stderr
    assert shared.json("status") == []


def test_the_first_up_makes_what_the_plan_before_it_showed(shared: Rack) -> None:
    name, file = simulated(shared)
    planned = shared.json("plan", file)["cluster_id"]
    assert shared.json("plan", file)["cluster_id"] == planned
    shared.run("up", "--yes", file)
    assert [row["id"] for row in shared.json("status") if row["name"] == name] == [planned]
    shared.run("down", "--yes", name)
    assert shared.json("plan", file)["cluster_id"] != planned, "another cluster of the same name"


def test_a_plan_says_what_and_why_as_text_and_json(shared: Rack) -> None:
    _, file = simulated(shared)
    text = shared.run("plan", file).stdout
    assert "+ machine node-0 on sim" in text
    plan = shared.json("plan", file)
    assert plan["counts"]["create"] == len(plan["steps"]) > 0
    assert shared.run("plan", "--detailed-exitcode", file, status=2)


def test_a_changed_file_changes_only_what_it_says(shared: Rack) -> None:
    name, file = simulated(shared)
    shared.run("up", "--yes", file)
    before = shared.bmcs(name)
    simulated_text = Path(file).read_text().replace("count: 3", "count: 2, cpus: 2")
    Path(file).write_text(simulated_text)
    plan = shared.json("plan", file)
    assert plan["counts"]["change"] == 2
    assert plan["counts"]["replace"] == 0
    shared.run("up", "--yes", file)
    after = shared.bmcs(name)
    assert set(after) == {"node-0", "node-1"}
    assert {n: after[n]["password"] for n in after} == {n: before[n]["password"] for n in after}


def test_an_edited_boot_profile_is_taken_over(shared: Rack) -> None:
    (shared.directory / "k").write_text("kernel")
    name, file = simulated(
        shared, "boot: {p: {kernel: k, cmdline: one}}\nnodes: [{count: 1, boot: p}]"
    )
    shared.run("up", "--yes", file)
    Path(file).write_text(Path(file).read_text().replace("one", "two"))
    assert "are stored" in shared.run("up", "--yes", file).stderr
    port = (shared.directory / "state" / "boot-port").read_text()
    uuid = shared.bmcs(name)["node-0"]["uuid"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/boot/{uuid}/ipxe", timeout=20) as script:
        assert "two" in script.read().decode()
    assert "Nothing to do" in shared.run("up", "--yes", file).stderr


def test_a_purge_removes_uploads_that_no_other_cluster_names(rack: Rack) -> None:
    contents = {each: sha256(each.encode()).hexdigest() for each in ("kernel", "initrd")}
    for each in contents:
        (rack.directory / each).write_text(each)
    kept = rack.directory / "state" / "files"
    both = "boot: {p: {kernel: kernel, initrd: initrd}}\nnodes: [{boot: p}]"
    first, file = simulated(rack, both)
    other, others = simulated(rack, "boot: {p: {kernel: kernel}}\nnodes: [{boot: p}]")
    assert "Uploading kernel (1 KiB)" in rack.run("up", "--yes", file).stderr
    rack.run("up", "--yes", others)
    rack.run("up", "--yes", file)  # nothing to do
    rack.run("down", "--yes", "--purge", first)
    assert {each.name for each in kept.iterdir() if each.is_file()} == {contents["kernel"]}
    rack.run("down", "--yes", "--purge", other)
    assert not [each for each in kept.iterdir() if each.is_file()]


def test_a_smaller_disk_is_a_new_one_in_the_plan(shared: Rack) -> None:
    _, file = simulated(shared, "nodes: [{count: 1, disks: [2GiB]}]")
    shared.run("up", "--yes", file)
    Path(file).write_text(Path(file).read_text().replace("2GiB", "1GiB"))
    assert shared.json("plan", file)["counts"]["replace"] == 1


def test_a_saved_plan_is_refused_when_it_is_stale(shared: Rack) -> None:
    _, file = simulated(shared)
    saved = str(shared.directory / "plan.json")
    shared.run("plan", "-o", saved, file)
    shared.run("apply", "--yes", saved)
    stale = shared.run("apply", "--yes", saved, status=5)
    assert "stale" in stale.stderr


def test_a_saved_plan_is_stale_when_only_what_is_remembered_was_changed(shared: Rack) -> None:
    name, file = simulated(shared, "nodes: [{name: a}]")
    shared.run("up", "--yes", file)
    more = Path(file).read_text()
    shared.file(more.replace("{name: a}", "{name: a}, {name: b}"), f"{name}.yaml")
    saved = f"{file}.plan"
    shared.run("plan", "-o", saved, file)
    labelled = shared.file(more.replace("{name: a}", "{name: a, labels: {x: y}}"), "other.yaml")
    planned = shared.run("plan", "--detailed-exitcode", labelled, status=2).stdout
    assert "~ labels of node a: none -> {x: y}  [remembered]" in planned
    assert "Nothing to create; the changes of the file are stored." in planned
    assert [each["after"] for each in shared.json("plan", labelled)["remembered"]] == ["{x: y}"]
    shared.run("up", "--yes", labelled)
    assert "stale" in shared.run("apply", "--yes", saved, status=5).stderr
    assert shared.run("plan", "--detailed-exitcode", labelled).returncode == 0


def test_without_a_terminal_nobody_confirms(shared: Rack) -> None:
    _, file = simulated(shared)
    refused = shared.run("up", file, status=2, stdin="")
    assert "--yes" in refused.stderr


def test_wrong_files_are_refused_with_every_place(shared: Rack) -> None:
    file = shared.file("cluster: X\nnodes: [{cpus: two}]\nnodse: 1\n")
    shared.run("daemon", "start")
    refused = shared.run("up", "--yes", file, status=2)
    assert [line.split(":")[1] for line in refused.stderr.splitlines()] == ["1", "2", "3"]


def test_a_missing_image_is_told_before_anything_happens(shared: Rack) -> None:
    _, file = simulated(shared, "nodes: [{disks: [{image: no.qcow2}]}]")
    assert "no.qcow2" in shared.run("up", "--yes", file, status=2).stderr


def test_a_corrupt_image_is_refused(shared: Rack) -> None:
    (shared.directory / "bad.qcow2").write_bytes(b"QFI\xfb\x00\x00\x00\x03" + b"\xff" * 200)
    _, file = simulated(shared, "nodes: [{disks: [{image: bad.qcow2}]}]")
    refused = shared.run("up", "--yes", file, status=2)
    assert "bad.qcow2" in refused.stderr
    assert "qemu-img" in refused.stderr


def test_an_image_that_names_another_file_is_refused(shared: Rack) -> None:
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-b", "/etc/hostname", "-F", "raw",
         str(shared.directory / "evil.qcow2")], check=True,
    )  # fmt: skip
    _, file = simulated(shared, "nodes: [{disks: [{image: evil.qcow2}]}]")
    assert "refers to another file" in shared.run("up", "--yes", file, status=2).stderr


def test_power_and_boot_agree_between_the_command_line_and_ipmitool(shared: Rack) -> None:
    name, file = simulated(shared, "nodes: [{count: 1}]")
    shared.run("up", "--yes", file)
    bmc = shared.bmcs(name)["node-0"]
    assert "is off" in shared.ipmitool(bmc, "chassis", "power", "status")
    shared.power(f"{name}/node-0", "on")
    assert "is on" in shared.ipmitool(bmc, "chassis", "power", "status")
    shared.ipmitool(bmc, "chassis", "power", "off")
    until(lambda: shared.run("node", "power", "node-0", "status").stdout.strip() == "off")
    shared.run("node", "boot", "node-0", "network", "--persistent")
    assert "network (Continuous)" in shared.json("node", "show", "node-0")["boot"]
    assert "PXE" in shared.ipmitool(bmc, "chassis", "bootparam", "get", "5")


def test_the_power_of_a_node_is_shown_with_the_commands_under_way(shared: Rack) -> None:
    name = shared.name()
    hosts = "hosts: {sim: {simulated: {power_on: 10min}}}\nnodes: [{count: 1}]\n"
    text = f"cluster: {name}\n{hosts}{shared.bmc()}"
    shared.run("up", "--yes", shared.file(text, f"{name}.yaml"))
    node = f"{name}/node-0"
    for command in ("on", "cycle"):
        assert "accepted" in shared.run("node", "power", node, command).stderr
    shown = shared.run("node", "power", node, "status")
    assert (shown.stdout, shown.stderr) == ("off\n", f"{node}: under way: on, then cycle\n")
    assert shared.json("node", "show", node)["power_commands"] == ["on", "cycle"]
    shared.run("down", "--yes", name)


def test_boot_overrides_survive_up_and_a_restart(rack: Rack) -> None:
    name, file = simulated(rack, "nodes: [{count: 1}]")
    rack.run("up", "--yes", file)
    rack.ipmitool(rack.bmcs(name)["node-0"], "chassis", "bootdev", "pxe", "options=persistent")
    Path(file).write_text(Path(file).read_text().replace("count: 1", "count: 1, cpus: 3"))
    rack.run("up", "--yes", file)
    rack.run("daemon", "stop")
    assert "network (Continuous)" in rack.json("node", "show", "node-0")["boot"]


def test_names_that_nobody_has_get_a_suggestion(shared: Rack) -> None:
    _, file = simulated(shared)
    shared.run("up", "--yes", file)
    assert "Did you mean 'node-0'" in shared.run("node", "show", "nod-0", status=2).stderr


def test_fixed_credentials_are_those_of_the_file(shared: Rack) -> None:
    name, file = simulated(shared, "nodes: [{count: 2}]", username="root", password="calvin")
    shared.run("up", "--yes", file)
    bmc = shared.bmcs(name)["node-0"]
    assert (bmc["username"], bmc["password"]) == ("root", "calvin")
    shared.ipmitool(bmc, "mc", "info")
    Path(file).write_text(Path(file).read_text().replace("calvin", "hobbes"))
    shared.run("up", "--yes", file)
    shared.ipmitool(shared.bmcs(name)["node-0"], "mc", "info")
    Path(file).write_text(Path(file).read_text().replace(", password: hobbes", ""))
    shared.run("up", "--yes", "--target", "node-1", file)
    assert shared.bmcs(name)["node-0"]["password"] == "hobbes", "nobody has changed it yet"
    shared.run("plan", file, "-o", "without.plan")
    shared.run("apply", "--yes", "without.plan")
    bmc = shared.bmcs(name)["node-0"]
    assert bmc["password"] != "hobbes"
    shared.ipmitool(bmc, "mc", "info")
    shared.run("up", "--yes", file)
    assert shared.bmcs(name)["node-0"] == bmc, "a random one is kept"


def test_random_passwords_differ_and_rest_encrypted(rack: Rack) -> None:
    name, file = simulated(rack)
    rack.run("up", "--yes", file)
    passwords = {row["password"] for row in rack.bmcs(name).values()}
    assert len(passwords) == 3
    kept = b"".join(p.read_bytes() for p in (rack.directory / "state").glob("nospoon.db*"))
    kept += rack.log().encode()
    assert not any(password.encode() in kept for password in passwords)


def test_the_support_bundle_has_no_secret(shared: Rack) -> None:
    name, file = simulated(shared, "nodes: [{count: 1}]", password="verysecret")
    shared.run("up", "--yes", file)
    shared.run("support-bundle", name, "-o", "bundle.tar.gz")
    with tarfile.open(shared.directory / "bundle.tar.gz") as archive:
        texts = {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
    assert f"nospoon-support/{name}/cluster.yaml" in texts
    assert not any(b"verysecret" in text for text in texts.values())


def test_a_second_operation_on_a_cluster_conflicts(shared: Rack) -> None:
    """The first one lasts until it is cancelled: the machine does not boot within its time."""
    name, file = simulated(shared, "nodes: [{count: 1}]")
    slow = Path(file).read_text().replace("sim: simulated", "sim: {simulated: {boot: 600s}}")
    file = shared.file(slow, f"{name}.yaml")
    shared.run("up", "--yes", file)
    daemon = Client(shared.directory / "runtime" / "nospoond.sock")
    request = {"nodes": [], "reboot_running": True, "timeout": 300.0}
    operation = daemon.post(f"/v1/clusters/{name}/verify", request)["id"]
    for second in (("down", "--yes", name), ("up", "--yes", file)):
        conflict = shared.run(*second, status=5)
        assert operation in conflict.stderr
        assert "`verify` by user" in conflict.stderr
    shared.run("operation", "cancel", operation)
    assert shared.json("operation", "show", operation)["state"] == "cancelled"


def test_a_daemon_killed_in_the_middle_of_up_goes_on(rack: Rack) -> None:
    name, file = simulated(rack, "nodes: [{count: 400}]")
    slowly = ("--no-wait", "--parallel", "1")
    operation = rack.run("up", "--yes", *slowly, file).stdout.strip()
    rack.crash()
    assert rack.json("operation", "show", operation)["state"] == "interrupted"
    found = rack.json("daemon", "status")["found"]
    assert "interrupted" in found
    rack.run("up", "--yes", file)
    assert len(rack.json("status", name)) == 400
    assert rack.run("plan", "--detailed-exitcode", file).returncode == 0


def test_state_and_sockets_are_where_they_should_be(rack: Rack) -> None:
    rack.forks = False
    rack.run("daemon", "start")
    runtime = rack.directory / "runtime"
    assert stat.S_ISSOCK((runtime / "nospoond.sock").stat().st_mode)
    assert json.loads(rack.run("daemon", "status", "-f", "json").stdout)["pid"] == rack.daemon_pid()
    rack.run("daemon", "stop")
    assert not list(runtime.iterdir())


def test_other_users_see_and_do_nothing(shared: Rack) -> None:
    _, file = simulated(shared)
    shared.run("up", "--yes", file)
    socket = shared.directory / "runtime" / "nospoond.sock"
    said = as_nobody(lambda: str(Client(socket).get("/v1/bmcs")))
    assert "user 65534 may not use this daemon" in said


def as_nobody(ask: Callable[[], str]) -> str:
    """What happens when another user asks: in a fork, for nobody cannot run our interpreter."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            said = ask()
        except NospoonError as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.usefixtures("port_623")
def test_an_address_pool_gives_each_bmc_its_own_address(shared: Rack) -> None:
    """On loopback, and routed; one after the other, for both are served on port 623."""
    for pool in ("127.77.0.0/29", "172.31.251.0/29"):
        check_pool(shared, pool)


def check_pool(shared: Rack, pool: str) -> None:
    name, file = simulated(shared, pool=pool)
    shared.run("up", "--yes", file)
    bmcs = shared.bmcs(name)
    assert [bmc["ipmi"].rpartition(":")[2] for bmc in bmcs.values()] == ["623"] * 3
    assert len({bmc["ipmi"] for bmc in bmcs.values()}) == 3
    for bmc in bmcs.values():
        assert "off" in shared.ipmitool(bmc, "power", "status")
        assert system_at(bmc, bmc)["UUID"] == bmc["uuid"]
    first, second = bmcs["node-0"], bmcs["node-1"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        system_at(second, first)
    assert refused.value.code == 401
    refused.value.close()
    shared.run("down", "--yes", name)
    routes = subprocess.run(
        ["ip", "route", "show", "table", "local", "proto", "242"], text=True, capture_output=True,
        check=True,
    )  # fmt: skip
    assert pool not in routes.stdout


def system_at(place: dict[str, str], account: dict[str, str]) -> Any:
    """The System at one BMC's address, asked for with an account."""
    secret = base64.b64encode(f"{account['username']}:{account['password']}".encode()).decode()
    asked = urllib.request.Request(place["redfish"], headers={"Authorization": f"Basic {secret}"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.load(answer)


def test_the_console_record_of_a_node_is_read_after_down_until_its_purge(shared: Rack) -> None:
    name, file = simulated(shared)
    shared.run("up", "--yes", file)
    shared.power(f"{name}/node-0", "on")
    before = shared.run("node", "console", f"{name}/node-0", "--log").stdout
    assert before
    shared.run("down", "--yes", name)
    assert shared.run("node", "console", f"{name}/node-0", "--log").stdout == before
    shared.run("down", "--yes", "--purge", name)
    assert "no node" in shared.run("node", "console", f"{name}/node-0", "--log", status=2).stderr


def test_an_operation_that_is_over_cannot_be_cancelled(shared: Rack) -> None:
    name, file = simulated(shared)
    shared.run("up", "--yes", file)
    last = next(row for row in shared.json("operation", "list") if row["cluster"] == name)
    assert datetime.fromisoformat(last["created"]).tzinfo is not None
    assert "ended already" in shared.run("operation", "cancel", last["id"], status=5).stderr
    assert "not a valid UUID" in shared.run("operation", "show", "nope", status=2).stderr


def test_a_daemon_keeps_its_state_in_postgresql(postgresql: PostgreSql, tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    rack = Rack.at(tmp_path, NOSPOON_DATABASE=postgresql.url("postgres"))
    try:
        name, file = simulated(rack, "nodes: [{count: 3}]")
        rack.run("up", "--yes", file)
        before = {node: (bmc["ipmi"], bmc["password"]) for node, bmc in rack.bmcs(name).items()}
        rack.crash()
        after = {node: (bmc["ipmi"], bmc["password"]) for node, bmc in rack.bmcs(name).items()}
        assert after == before
        assert rack.json("operation", "list")[0]["state"] == "done"
        rack.close()
    finally:
        rack.kill()


def test_a_pdu_feeds_nodes_and_takes_their_power_away(shared: Rack) -> None:
    port = free_port(socket.SOCK_DGRAM)
    pdu = f"{{outlets: 2, ports: {port}-{port + 2}}}"
    name, file = simulated(shared, "nodes: [{count: 3, bmc: [ipmi, pdu]}]", pdu=pdu)
    shared.run("up", "--yes", file)
    rows = shared.bmcs(name)
    assert [rows[f"node-{n}"]["pdu"].partition("outlet ")[2] for n in range(3)] == ["1", "2", "1"]
    assert shared.run("plan", "--detailed-exitcode", file).returncode == 0
    row = rows["node-1"]
    place, _, outlet = row["pdu"].partition(" outlet ")
    oid = f"1.3.6.1.4.1.318.1.1.12.3.3.1.1.4.{outlet}"
    snmp = ["snmpset", "-v2c", "-c", row["pdu_community"], place, oid, "i"]
    shared.ipmitool(row, "power", "on")
    subprocess.run([*snmp, "2"], check=True, capture_output=True)
    with pytest.raises(AssertionError):
        shared.ipmitool(row, "-N", "1", "-R", "1", "power", "status")
    shared.run("daemon", "stop")
    shared.run("daemon", "start")
    with pytest.raises(AssertionError):
        shared.ipmitool(row, "-N", "1", "-R", "1", "power", "status")
    subprocess.run([*snmp, "1"], check=True, capture_output=True)
    assert "on" in shared.ipmitool(row, "power", "status")
    shared.run("down", "--yes", name)


def test_faults_on_demand_show_in_status_and_end_when_cleared(shared: Rack) -> None:
    name, file = simulated(shared, "nodes: [{count: 2}]")
    shared.run("up", "--yes", file)
    node = f"{name}/node-0"
    shared.run("node", "fault", node, "drop", "--for", "600")
    assert shared.json("node", "fault", node)[0]["kind"] == "drop"
    drift = {row["node"]: row["drift"] for row in shared.json("status", name)}
    assert "injected: drop" in drift["node-0"]
    assert drift["node-1"] == ""
    bmc = shared.bmcs(name)["node-0"]
    with pytest.raises(AssertionError):
        shared.ipmitool(bmc, "-N", "1", "-R", "1", "power", "status")
    said = shared.run("node", "fault", node, "drop", "--clear", status=2).stderr
    assert "--clear ends all faults of a node" in said
    assert shared.json("node", "fault", node)[0]["kind"] == "drop"
    shared.run("node", "fault", node, "--clear")
    assert shared.json("node", "fault", node) == []
    assert (
        "not in the range 0<x"
        in shared.run("node", "fault", node, "drop", "--for", "0", status=2).stderr
    )
    said = shared.run("host", "setup", file, status=2).stderr
    assert "has no libvirt host. Simulated hosts and clouds need no preparation." in said
    for how in (("up", file), ("down", name), ("verify", name)):
        assert "-1.0 is not in the range" in shared.run(*how, "--timeout", "-1", status=2).stderr
    for how in (("--value", "nan"), ("--for", "inf"), ("--seconds", "nan")):
        with pytest.raises(AssertionError, match=r"is not (a number|in the range)"):
            shared.run("node", "fault", node, "sensor", "--sensor", "CPU Temp", *how)
    assert "off" in shared.ipmitool(bmc, "power", "status")
    shared.run("down", "--yes", name)


def test_a_simulated_rack_survives_the_sudden_end_of_its_daemon(rack: Rack) -> None:
    name, file = simulated(rack)
    rack.run("up", "--yes", file)
    rack.run("node", "power", "node-1", "on")
    rack.until_kept("sim", '"on"')
    rack.crash()
    assert rack.run("node", "power", "node-1", "status").stdout.strip() == "on"
    assert {row["state"] for row in rack.json("status", name)} == {"present"}
