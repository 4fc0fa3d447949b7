"""Bad days: what is in the way is named, nothing is lost, and a second `up` goes on from there."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest

from nospoon.api.client import Client
from nospoon.cli.files import read_request
from nospoon.control.operations.nodes import CONTINUED
from nospoon.errors import NospoonError, UsageError
from nospoon.testing.free_nets import free_net
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack, broken_certificate, private_rack

ROOT = Path(__file__).parents[2]
UDP, TCP = socket.SOCK_DGRAM, socket.SOCK_STREAM
US = f"(pid {os.getpid()})"


def simulated(rack: Rack, nodes: str = "{count: 3}") -> tuple[str, str]:
    name = rack.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}nodes: [{nodes}]\n"
    return name, rack.file(text, f"{name}.yaml")


@contextmanager
def taken(kind: socket.SocketKind, port: int) -> Iterator[None]:
    """Somebody else, this process, has a port."""
    with socket.socket(socket.AF_INET, kind) as somebody:
        somebody.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        somebody.bind(("127.0.0.1", port))
        if kind is TCP:
            somebody.listen()
        yield


def redfish_port(file: str) -> int:
    return int(Path(file).read_text().split("redfish_port: ")[1].split("}")[0].split(",")[0])


def states(rack: Rack, name: str) -> set[str]:
    return {row["state"] for row in rack.json("status", name)}


def test_a_bmc_port_that_somebody_took_is_told_with_its_holder_and_mended_by_up(
    rack: Rack,
) -> None:
    name, file = simulated(rack)
    rack.run("up", "--yes", file)
    before = rack.bmcs(name)
    port = int(before["node-1"]["ipmi"].split(":")[1])
    rack.run("daemon", "stop")
    with taken(UDP, port):
        failed = rack.run("up", "--yes", file, status=1)
        assert f":{port}" in failed.stderr
        assert US in failed.stderr
        assert "bmc.ports" in failed.stderr
        rack.ipmitool(before["node-0"], "mc", "info")
    rack.run("up", "--yes", file)
    assert rack.bmcs(name) == before
    rack.ipmitool(before["node-1"], "mc", "info")


def test_a_bmc_port_that_is_taken_before_the_first_up_is_passed_over(shared: Rack) -> None:
    name, file = simulated(shared, "{count: 1}")
    first = redfish_port(file) + 1
    with taken(UDP, first):
        shared.run("up", "--yes", file)
    assert shared.bmcs(name)["node-0"]["ipmi"].endswith(f":{first + 1}")


def test_a_redfish_port_in_use_is_refused_by_the_plan(shared: Rack) -> None:
    name, file = simulated(shared)
    shared.run("daemon", "start")
    with taken(TCP, redfish_port(file)):
        refused = shared.run("plan", "--detailed-exitcode", file, status=1).stderr
        assert US in refused
        assert "bmc.redfish_port" in refused
        assert shared.run("up", "--yes", file, status=1).stderr == refused
    assert name not in {each["name"] for each in shared.json("status")}
    shared.run("up", "--yes", file)
    assert states(shared, name) == {"present"}


def test_a_bmc_address_of_another_machine_is_refused_by_the_plan(shared: Rack) -> None:
    name, file = simulated(shared)
    elsewhere = Path(file).read_text().replace("bmc: {", "bmc: {address: 192.0.2.1, ")
    refused = shared.run("plan", shared.file(elsewhere, f"{name}.yaml"), status=1).stderr
    assert "does not have the address 192.0.2.1: set `bmc.address`" in refused


def test_a_refused_plan_names_the_line_that_it_is_about(shared: Rack) -> None:
    hosts = "hosts: {here: {simulated: true, drained: true}}"
    text = f"cluster: {shared.name()}\n{hosts}\nnodes:\n  - {{count: 0}}\n  - {{name: last}}\n"
    file = shared.file(text, "drained.yaml")
    for command in (("plan",), ("up", "--yes")):
        refused = shared.run(*command, file, status=1).stderr
        assert f"{file}:5:5: node last fits on no host. here: it is drained." in refused


def test_a_port_of_simulated_agents_in_use_is_refused_by_the_plan(shared: Rack) -> None:
    name, file = simulated(shared)
    port = redfish_port(file) + 400
    agents = f"hosts: {{farm: {{simulated: {{agents: {{port: {port}}}}}}}}}"
    text = Path(file).read_text().replace("hosts: {sim: simulated}", agents)
    assert agents in text
    file = shared.file(text, f"{name}.yaml")
    with taken(TCP, port):
        refused = shared.run("plan", file, status=1).stderr
    assert (
        f"host farm: agents cannot answer on 127.0.0.1 port {port}: Address already in" in refused
    )
    assert f"{file}:" in refused
    shared.run("up", "--yes", file)
    shared.run("plan", "--detailed-exitcode", file)


def test_bmcs_that_cannot_be_served_fail_and_nothing_else(shared: Rack) -> None:
    name, file = simulated(shared)
    secured = Path(file).read_text().replace("bmc: {", "bmc: {tls: true, ")
    file = shared.file(secured, f"{name}.yaml")
    with broken_certificate(shared):
        partly = shared.run("up", "--yes", file, status=3)
        assert "cannot serve Redfish" in partly.stderr
        machines = [s for s in shared.json("plan", file)["steps"] if s["kind"] == "machine"]
        assert machines == []
    shared.run("up", "--yes", file)
    assert states(shared, name) == {"present"}


@pytest.mark.libvirt
def test_down_after_an_up_that_failed_half_way_leaves_nothing(rack: Rack) -> None:
    name = rack.name()
    nodes = "nodes: [{count: 2, firmware: bios, memory: 64MiB, disks: [16MiB]}]"
    networks = "networks: {lan: {netboot: builtin}}"
    text = f"cluster: {name}\n{networks}\n{rack.bmc(tls='true')}{nodes}\n"
    file = rack.file(text, f"{name}.yaml")
    with broken_certificate(rack):
        rack.run("up", "--yes", file, status=3)
        assert left_of(name)
        rack.run("down", "--yes", "--purge", name)
    assert left_of(name) == []
    assert not list((rack.directory / "pool").iterdir())


def left_of(name: str) -> list[str]:
    """Domains, networks and pools whose name has this cluster's."""
    kinds = (("list", "--all"), ("net-list", "--all"), ("pool-list", "--all"))
    found = [
        subprocess.run(
            ["virsh", "-c", "qemu:///system", *kind, "--name"], text=True, capture_output=True,
            check=True,
        ).stdout.split()
        for kind in kinds
    ]  # fmt: skip
    return [each for names in found for each in names if name in each]


@pytest.mark.parametrize("what", ["a directory", "nothing"])
def test_a_file_that_cannot_be_read_is_told_with_its_path(shared: Rack, what: str) -> None:
    _, file = simulated(shared, "{disks: [{image: image.raw}]}")
    path = shared.directory / "image.raw"
    if what == "a directory":
        path.mkdir()
    refused = shared.run("up", "--yes", file, status=2)
    assert "cannot read .image.raw.: " in refused.stderr.replace("'", ".")
    assert str(path) in refused.stderr
    if what == "a directory":
        path.rmdir()


def test_who_may_not_read_a_file_cannot_make_the_daemon_read_it(shared: Rack) -> None:
    secret = shared.directory / "secret.raw"
    secret.write_bytes(b"the shadow file, say")
    secret.chmod(0o600)
    _, file = simulated(shared, "{disks: [{image: secret.raw}]}")
    Path(file).chmod(0o644)
    read_request(None, file)  # may, and imports what it needs while it may
    said = as_nobody(lambda: str(read_request(None, file)))
    assert said.startswith("SpecError: ")
    assert "secret.raw: Permission denied" in said
    text = Path(file).read_text()
    client = Client(shared.directory / "runtime" / "nospoond.sock")
    shared.run("daemon", "start")
    for uploads in ({}, {"secret.raw": sha256(secret.read_bytes()).hexdigest()}):
        with pytest.raises(UsageError, match="was not uploaded"):
            client.post("/v1/plan", {"file": file, "text": text, "uploads": uploads})


def test_the_id_of_a_cluster_is_that_of_no_other_nor_of_another_user(rack: Rack) -> None:
    rack.environment["NOSPOON_GROUP"] = "nogroup"
    name, thief, pinned = rack.name(), rack.name(), uuid4()
    common = f"id: {pinned}\nhosts: {{sim: simulated}}\n{rack.bmc()}nodes: [{{count: 1}}]\n"
    rack.run("up", "--yes", rack.file(f"cluster: {name}\n{common}"))
    before = rack.bmcs(name)
    text = f"cluster: {thief}\n{common}"
    refused = rack.run("up", "--yes", rack.file(text, "thief.yaml"), status=1)
    assert f"the id {pinned} is that of your cluster {name}" in refused.stderr
    (rack.directory / "runtime").chmod(0o711)
    socket_ = rack.directory / "runtime" / "nospoond.sock"
    socket_.chmod(0o666)
    body = {"file": "thief.yaml", "text": text, "cluster_id": str(pinned)}
    said = as_nobody(lambda: str(Client(socket_).post("/v1/clusters", body)))
    assert said.startswith("PlanRefused: ")
    assert "another cluster" in said
    assert name not in said
    assert rack.bmcs(name) == before


@pytest.mark.parametrize("name", ["../x", "", "A B"])
def test_what_is_no_name_of_a_cluster_is_told_as_such(shared: Rack, name: str) -> None:
    for command in (["status", name], ["down", "--yes", name], ["verify", name]):
        if command != ["status", ""]:
            refused = shared.run(*command, status=2)
            assert "expected the name of a cluster" in refused.stderr


def test_status_says_that_a_copy_is_gone_and_fetches_nothing(rack: Rack) -> None:
    with web_server(bytes(1 << 20)) as (url, asked):
        name, file = simulated(rack, f"{{disks: [{{image: '{url}/disk.raw'}}]}}")
        rack.run("up", "--yes", file)
        assert asked == ["/disk.raw"], "a plan and its up fetch once"
        (rack.directory / "state" / "files" / sha256(bytes(1 << 20)).hexdigest()).unlink()
        told = rack.run("status", name)
        assert f"the daemon's copy of {url}/disk.raw is gone" in told.stderr
        assert len(asked) == 1
        rack.run("up", "--yes", file)
        assert states(rack, name) == {"present"}
        assert len(asked) == 2


@contextmanager
def web_server(content: bytes) -> Iterator[tuple[str, list[str]]]:
    """Serves this whatever is asked; gives its URL and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()


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


def test_an_upload_whose_digest_lies_is_refused_and_forgotten(shared: Rack) -> None:
    shared.run("daemon", "start")
    client = Client(shared.directory / "runtime" / "nospoond.sock")
    content = b"not what it says"
    lie, truth = sha256(b"what it says").hexdigest(), sha256(content).hexdigest()
    with pytest.raises(UsageError, match=f"expected SHA-256 {lie}, got {truth}"):
        client.upload(lie, io.BytesIO(content), len(content))
    assert client.post("/v1/files/missing", [lie, truth]) == [lie, truth]
    with pytest.raises(UsageError, match="SHA-256 in lower-case hex"):
        client.upload("0", io.BytesIO(bytes(64 << 20)), 64 << 20)  # refused before all was sent


def test_an_operation_that_was_cancelled_is_completed_by_up(shared: Rack) -> None:
    name, file = simulated(shared, "{count: 400}")
    operation = shared.run("up", "--yes", "--no-wait", "--parallel", "1", file).stdout.strip()
    client = Client(shared.directory / "runtime" / "nospoond.sock")
    client.post(f"/v1/operations/{operation}/cancel")  # at once: a command takes a part of a second
    assert shared.json("operation", "show", operation)["state"] == "cancelled"
    assert shared.json("plan", file)["counts"]["create"] > 0
    shared.run("up", "--yes", file)
    assert len(shared.json("status", name)) == 400
    assert states(shared, name) == {"present"}


def test_clusters_that_come_up_at_once_do_not_take_one_anothers_ports(shared: Rack) -> None:
    shared.run("daemon", "start")
    section = shared.bmc()
    files = {}
    for _ in range(4):
        name = shared.name()
        text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{section}nodes: [{{count: 20}}]\n"
        files[name] = shared.file(text, f"{name}.yaml")
    runs = [
        subprocess.Popen(
            ["nospoon", "up", "--yes", file], env=shared.environment, stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL, text=True,
        )
        for file in files.values()
    ]  # fmt: skip
    assert [(run.communicate(timeout=240)[1][-400:], run.returncode)[1] for run in runs] == [0] * 4
    ports = [bmc["ipmi"] for name in files for bmc in shared.bmcs(name).values()]
    assert len(set(ports)) == 80


def test_an_operation_whose_end_cannot_be_stored_frees_its_cluster(rack: Rack) -> None:
    name, file = simulated(rack)
    rack.run("up", "--yes", file)
    database = sqlite3.connect(rack.directory / "state" / "nospoon.db", isolation_level=None)
    try:
        database.execute("BEGIN IMMEDIATE")  # longer than the daemon waits for a lock
        refused = rack.run("down", "--yes", name, status=1)
        assert "the database does not work" in refused.stderr
    finally:
        database.execute("ROLLBACK")
        database.close()
    rack.run("down", "--yes", name)


def test_only_its_owner_reads_what_the_daemon_writes(rack: Rack) -> None:
    rack.run("daemon", "start")
    kept = [*(rack.directory / "state").glob("nospoon.db*"), rack.directory / "state/nospoond.log"]
    assert len(kept) > 1
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}


@pytest.mark.libvirt
def test_a_verify_that_is_cancelled_leaves_nodes_as_it_found_them(shared: Rack) -> None:
    name = shared.name()
    node = "{firmware: bios, memory: 256MiB, disks: [16MiB]}"
    file = shared.file(f"cluster: {name}\n{shared.bmc()}nodes: [{node}]\n", f"{name}.yaml")
    shared.run("up", "--yes", file)
    bmc = shared.bmcs(name)["node-0"]
    shared.ipmitool(bmc, "chassis", "bootdev", "disk", "options=persistent")
    with subprocess.Popen(["nospoon", "verify", name], env=shared.environment) as verify:
        while "is on" not in shared.ipmitool(bmc, "power", "status"):
            assert verify.poll() is None
        running = [row for row in shared.json("operation", "list") if row["state"] == "running"]
        shared.run("operation", "cancel", running[0]["id"])
        assert verify.wait(60) != 0
    assert "is off" in shared.ipmitool(bmc, "power", "status")
    (row,) = [row for row in shared.json("node", "list") if row["cluster"] == name]
    assert row["boot"] == "disk (Continuous)"
    message = shared.json("operation", "show", running[0]["id"])["message"]
    assert "left as they were found" in message


@pytest.mark.libvirt
def test_a_verify_during_which_the_daemon_is_stopped_leaves_nodes_as_it_found_them(
    rack: Rack,
) -> None:
    """The nodes stayed on, so that the next `verify` refused them."""
    name = rack.name()
    node = "{firmware: bios, memory: 256MiB, disks: [16MiB]}"
    file = rack.file(f"cluster: {name}\n{rack.bmc()}nodes: [{node}]\n", f"{name}.yaml")
    rack.run("up", "--yes", file)
    bmc = rack.bmcs(name)["node-0"]
    verify = ["nospoon", "verify", name]
    with subprocess.Popen(verify, env=rack.environment, stderr=subprocess.PIPE) as verifying:
        while "is on" not in rack.ipmitool(bmc, "power", "status"):
            assert verifying.poll() is None
        os.kill(rack.daemon_pid(), signal.SIGTERM)
        _, said = verifying.communicate(timeout=240)
    assert b"the daemon ended before the operation did" in said
    shown = rack.json("operation", "list")[0]  # by the next daemon, which waits for this one
    assert (shown["kind"], shown["state"]) == ("verify", "cancelled")
    assert "is off" in rack.ipmitool(bmc, "power", "status")
    assert rack.json("node", "list")[0]["boot"] == "as configured"
    assert "task failed" not in rack.log()
    rack.run("down", "--yes", name)


def test_ctrl_c_leaves_the_operation_running_and_tells_how_to_go_on(shared: Rack) -> None:
    name, file = simulated(shared, "{count: 400}")
    shared.run("daemon", "start")
    with subprocess.Popen(
        ["env", "--default-signal=INT", "nospoon", "up", "--yes", file], env=shared.environment,
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    ) as up:  # fmt: skip
        assert up.stderr is not None
        next(line for line in up.stderr if line.startswith("[1/"))
        up.send_signal(signal.SIGINT)
        rest = up.stderr.read()
    assert up.returncode == 130
    (line,) = [line for line in rest.splitlines() if "operation goes on" in line]
    operation = line.split("`nospoon operation watch ")[1].split("`")[0]
    assert f"nospoon operation cancel {operation}" in line
    assert shared.run("operation", "watch", operation).returncode == 0
    assert shared.json("operation", "show", operation)["state"] == "done"
    assert states(shared, name) == {"present"}


def test_a_full_disk_of_the_daemon_is_named_and_up_is_repeated() -> None:
    """It has no inodes left: SQLite's files are there, the next file or directory is not."""
    with private_rack(NOSPOON_FREE_SPACE="0") as rack:
        state = rack.directory / "state"
        state.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=32m,nr_inodes=30", "tmpfs", str(state))
        try:
            name, file = simulated(rack, "{count: 40}")
            refused = rack.run("up", "--yes", file, status=1)
            assert f"the daemon cannot write {state}/" in refused.stderr
            assert "no space left on device. Free space there (`df`, `df -i`)" in refused.stderr
            run("mount", "-o", "remount,nr_inodes=4000", str(state))
            rack.run("up", "--yes", file)
            rack.run("down", "--yes", name)
            rack.run("daemon", "stop")
        finally:
            rack.kill()
            run("umount", "-l", str(state))


@pytest.fixture
def route() -> Iterator[dict[str, str]]:
    """A route of this machine, over a bridge that is not ours."""
    device, network = f"nst-{uuid4().hex[:8]}", free_net()
    run("ip", "link", "add", device, "type", "bridge")
    try:
        run("ip", "address", "add", f"{network}.1/24", "dev", device)
        run("ip", "link", "set", device, "up")
        yield {"dst": f"{network}.0/24", "dev": device}
    finally:
        run("ip", "link", "delete", device)


@pytest.mark.libvirt
def test_a_network_that_overlaps_a_route_of_this_machine_is_refused_with_the_route(
    shared: Rack, route: dict[str, str]
) -> None:
    name = shared.name()
    networks = f"networks: {{lan: {{cidr: {route['dst']}, netboot: builtin}}}}"
    node = "{firmware: bios, memory: 64MiB, disks: [16MiB]}"
    file = shared.file(f"cluster: {name}\n{networks}\n{shared.bmc()}nodes: [{node}]\n")
    refused = shared.run("up", "--yes", file, status=1)
    assert f"overlaps the route {route['dst']} dev {route['dev']}" in refused.stderr
    assert "Choose another `cidr`" in refused.stderr
    assert left_of(name) == []


@pytest.mark.libvirt
def test_a_pool_of_bmc_addresses_that_would_take_a_route_away_is_refused(
    shared: Rack, route: dict[str, str]
) -> None:
    text = f"cluster: p\nhosts: {{sim: simulated}}\nbmc: {{pool: {route['dst']}}}\nnodes: [{{}}]\n"
    refused = shared.run("plan", shared.file(text), status=1)
    assert f"holds the route {route['dst']} dev {route['dev']}" in refused.stderr


def test_the_wheel_works_in_a_clean_environment(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    run(*build)  # what `make dist` does
    (wheel,) = tmp_path.glob("*.whl")
    assert list(tmp_path.glob("*.tar.gz"))
    place = tmp_path / "clean"
    run(sys.executable, "-m", "venv", str(place))
    pip = [str(place / "bin/python"), "-m", "pip", "install", "--quiet"]
    run(*pip, "--require-hashes", "--no-deps", "-r", str(ROOT / "requirements" / "run.txt"))
    run(*pip, "--no-deps", str(wheel))
    rack = Rack.at(tmp_path)
    rack.environment = {k: v for k, v in rack.environment.items() if k != "PYTHONPATH"}
    rack.environment["PATH"] = f"{place}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    rack.prefix = ["env", "-C", "/"]
    try:
        assert "nospoon" in rack.run("--version").stdout
        assert json.loads(rack.run("schema").stdout)["properties"]["cluster"]
        name, file = simulated(rack, "{count: 2}")
        rack.run("up", "--yes", file)
        assert states(rack, name) == {"present"}
        command = Path(f"/proc/{rack.daemon_pid()}/cmdline").read_text()
        assert command.startswith(str(place))
        rack.ipmitool(rack.bmcs(name)["node-0"], "mc", "info")
        rack.close()
    finally:
        rack.kill()


def run(*argv: str) -> None:
    done = subprocess.run(argv, text=True, capture_output=True, check=False, cwd="/")
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("argv", [["support-bundle"], ["plan", "FILE"]])
def test_an_answer_that_cannot_be_written_is_refused_before_the_work(
    shared: Rack, argv: list[str]
) -> None:
    _, file = simulated(shared)
    told = [each.replace("FILE", file) for each in argv]
    refused = shared.run(*told, "-o", "/nowhere/at/all", status=2)
    assert refused.stderr == (
        "Error: cannot write /nowhere/at/all: there is no directory /nowhere/at\n"
    )
    assert "is a directory" in shared.run(*told, "-o", "/tmp", status=2).stderr


def test_a_bundle_of_an_unknown_cluster_is_refused(shared: Rack) -> None:
    assert "no cluster 'nosuch'" in shared.run("support-bundle", "nosuch", status=2).stderr


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["recover", "--host", "foo"], "expected a libvirt URI, got 'foo'"),
        (["down", "--yes", "x", "--keep-enrolment", "--forget-enrolment"], "do not go together"),
    ],
)
def test_what_cannot_be_meant_is_refused(shared: Rack, argv: list[str], told: str) -> None:
    assert told in shared.run(*argv, status=2).stderr


def test_a_damaged_database_is_told_as_such(rack: Rack) -> None:
    rack.run("daemon", "start")
    rack.run("daemon", "stop")
    (rack.directory / "state" / "nospoon.db").write_bytes(os.urandom(1 << 16))
    refused = rack.run("status", status=1)
    assert "cannot open the database" in refused.stderr
    assert "not a database" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_verify_shows_what_simulated_machines_have(shared: Rack) -> None:
    """They report by themselves: no probe is built, and a boot that does not come is a failure."""
    flavors = "flavors: {odd: {firmware: uefi, cpus: 3, disks: [1GiB, {size: 2GiB, bus: scsi}]}}\n"
    name, file = simulated(shared, "{count: 1, flavor: odd}, {name: n}")
    shared.file(f"{Path(file).read_text()}{flavors}", f"{name}.yaml")
    shared.run("up", "--yes", file)
    shared.power(f"{name}/n", "on")
    refused = shared.run("verify", name, status=1)
    assert "verify would reset nodes that are on: n. Power them off" in refused.stderr
    shown = shared.run("verify", name, "--reboot-running", "-f", "json")
    assert "uilding the probe" not in shown.stderr
    rows = {row["node"]: row for row in json.loads(shown.stdout)}
    assert {row["verdict"] for row in rows.values()} == {"as declared"}
    assert (rows["node-0"]["firmware"], rows["node-0"]["cpus"]) == ("uefi", "3")
    assert (rows["node-0"]["disks"], rows["node-0"]["nics"]) == (2, 1)
    power = {row["node"]: row["power"] for row in shared.json("node", "list", "--cluster", name)}
    assert power == {"node-0": "off", "n": "on"}
    failing = "hosts: {sim: {simulated: {boot: 60s}}}"
    shared.file(Path(file).read_text().replace("hosts: {sim: simulated}", failing), f"{name}.yaml")
    shared.run("up", "--yes", file)
    late = shared.run("verify", name, "-n", "node-0", "--timeout", "0.2", status=1)
    assert "reported nothing within" in late.stderr


@pytest.mark.libvirt
def test_on_of_a_machine_that_others_paused_or_saved_says_that_it_continues(shared: Rack) -> None:
    name = shared.name()
    node = "{name: n, firmware: bios, memory: 64MiB, disks: [16MiB], nics: []}"
    file = shared.file(f"cluster: {name}\n{shared.bmc()}nodes: [{node}]\n", f"{name}.yaml")
    shared.run("up", "--yes", file)
    domain = shared.bmcs(name)["n"]["uuid"]
    shared.run("node", "power", f"{name}/n", "on")
    until(lambda: "already on" in shared.run("node", "power", f"{name}/n", "on").stderr)
    for command in ("suspend", "managedsave"):
        run("virsh", "-c", "qemu:///system", command, domain)
        said = shared.run("node", "power", f"{name}/n", "on").stderr
        late = f"{name}/n: accepted; `nospoon node power {name}/n status` shows when it is done\n"
        assert said in {f"{name}/n: {CONTINUED}\n", late}  # it may take longer
        until(lambda: "already on" in shared.run("node", "power", f"{name}/n", "on").stderr)
    shared.run("down", "--yes", name)


def test_power_commands_without_effect_say_so(shared: Rack) -> None:
    name, file = simulated(shared)
    shared.run("up", "--yes", file)
    node = f"{name}/node-0"
    assert "already off" in shared.run("node", "power", node, "off").stderr
    assert "already" not in shared.run("node", "power", node, "on").stderr
    shared.power(node, "on")
    assert "already on, nothing changed" in shared.run("node", "power", node, "on").stderr
    shared.run("node", "fault", node, "power-off-slow", "--seconds", "1")
    said = shared.run("node", "power", node, "off").stderr
    assert said == f"{node}: accepted; `nospoon node power {node} status` shows when it is done\n"
    assert "as declared" in shared.run("verify", name).stdout, "it is waited for until it is off"


@pytest.mark.parametrize("pool_first", [True, False])
def test_ports_that_another_cluster_serves_otherwise_are_refused_in_the_plan(
    rack: Rack, *, pool_first: bool
) -> None:
    names, files = [], []
    bmc = rack.bmc()
    port = int(bmc.split("redfish_port: ")[1].split("}")[0].split(",")[0])
    pool = f"bmc: {{pool: 127.99.{os.getpid() % 250}.0/29, redfish_port: {port}}}\n"
    for addressing in (pool, bmc) if pool_first else (bmc, pool):
        names.append(rack.name())
        # Redfish alone: whether port 623 is free here is not what is asked
        text = f"cluster: {names[-1]}\nhosts: {{sim: simulated}}\n{addressing}"
        files.append(rack.file(text + "nodes: [{bmc: [redfish]}]\n", f"{names[-1]}.yaml"))
    rack.run("up", "--yes", files[0])
    refused = rack.run("plan", files[1], status=1).stderr
    assert "bmc.redfish_port: TCP" in refused
    assert f"your cluster {names[0]} is served" in refused
    assert "Stop" not in refused
    rack.run("down", "--yes", names[0])
    rack.run("up", "--yes", files[1])


def test_of_two_ups_at_once_of_a_new_cluster_one_works_and_its_file_is_kept(rack: Rack) -> None:
    rack.run("daemon", "start")
    name, section = rack.name(), rack.bmc()
    files = []
    for cpus in (1, 2):
        nodes = f"nodes: [{{count: 100, cpus: {cpus}}}]\n"
        text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{section}{nodes}"
        files.append(rack.file(text, f"{name}-{cpus}.yaml"))
    ups = [
        subprocess.Popen(
            ["nospoon", "up", "--yes", file], env=rack.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )
        for file in files
    ]  # fmt: skip
    said = {each.communicate()[1]: each.returncode for each in ups}
    assert 0 in said.values(), said
    assert all(status == 0 or "`up` by user" in told for told, status in said.items()), said
    rows = rack.json("status", name)
    assert {(row["state"], row["drift"]) for row in rows} == {("present", "")}
    assert len(rows) == 100
