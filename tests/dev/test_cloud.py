"""The namespaces of a cloud and what `nospoon dev cloud` refuses, without any of its services."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from click.testing import CliRunner

from nospoon.cli.commands import dev_cloud
from nospoon.dev.cloud import (
    baremetal,
    cloud,
    computes,
    configuration,
    contents,
    interfaces,
    joining,
    namespaces,
    preparation,
    programs,
    volumes,
)
from nospoon.dev.cloud.client import Client
from nospoon.dev.cloud.computes import Compute, Virt
from nospoon.dev.cloud.configuration import Passwords
from nospoon.dev.cloud.namespaces import Namespaces
from nospoon.dev.cloud.wanted import INSIDE, LAST_BASE, Api, Wanted
from nospoon.errors import Conflict, MissingTool, ProviderError, UsageError
from nospoon.runtime import owned, process
from nospoon.runtime.owned import Process
from nospoon.testing.bench import free_port
from nospoon.testing.ironic import until
from nospoon.testing.own_network import own_network

ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


@asynccontextmanager
async def begun(state: Path, *ports: int) -> AsyncIterator[Namespaces]:
    (state / "log").mkdir()
    with namespaces.listening(ports) as listeners:
        made = await namespaces.begin(state, listeners)
    try:
        yield made
    finally:
        await made.end()


async def test_namespaces_show_nothing_of_the_host_and_end_with_all_processes(
    tmp_path: Path,
) -> None:
    async with begun(tmp_path) as made:
        assert json.loads(await made.run(["ip", "-j", "link"], ENV))[0]["ifname"] == "lo"
        assert (await made.run(["ls", "/sys/class/net"], ENV)).split() == ["lo"]
        assert "keeper" in await made.run(["ls", str(INSIDE)], ENV)
        await made.run(["ip", "link", "add", "br-int", "type", "bridge"], ENV)
        await made.start("sleeper", ["sleep", "1000"], ENV, log=INSIDE / "log/sleeper.log")
        sleeper = int((await made.run(["pgrep", "--exact", "sleep"], ENV)).strip())
        assert sleeper > 1
        namespace = Path(f"/proc/{made.first}/ns/pid").readlink()
    assert not made.alive
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    for each in Path("/proc").glob("[0-9]*"):
        try:
            assert (each / "ns/pid").readlink() != namespace
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue


async def test_namespaces_whose_keeper_is_not_there_are_said_to_have_ended(tmp_path: Path) -> None:
    """Their parent has not begun it, or has not noticed yet that it ended."""
    (tmp_path / "log").mkdir()
    (tmp_path / "log/keeper.log").write_text("it said why")
    parent = owned.begin(["/usr/bin/sleep", "1000"], output=tmp_path / "log/parent", env=ENV)
    made = Namespaces(parent, tmp_path)
    with pytest.raises(ProviderError, match="keeper ended:\n  it said why"):
        _ = made.first
    await made.end()
    assert not made.alive
    with pytest.raises(ProviderError, match="keeper ended"):
        _ = made.first


async def test_the_keeper_reports_what_ended_and_starts_it_again(tmp_path: Path) -> None:
    async with begun(tmp_path) as made:
        log = INSIDE / "log/service.log"
        await made.start("service", ["sh", "-c", "echo bad; exit 3"], ENV, log=log)
        while (await made.services())["service"] is None:
            pass
        assert await made.services() == {"service": 3}
        assert namespaces.tail(tmp_path / "log/service.log") == "  bad"
        await made.start("service", ["sleep", "1000"], ENV, log=log)
        assert await made.services() == {"service": None}


async def test_a_failed_command_is_reported_with_its_output(tmp_path: Path) -> None:
    async with begun(tmp_path) as made:
        with pytest.raises(ProviderError, match=r"`sh -c echo no; exit 4` failed with 4:\n  no"):
            await made.run(["sh", "-c", "echo no; exit 4"], ENV)


async def test_the_hosts_ports_lead_inside(tmp_path: Path) -> None:
    port = free_port(socket.SOCK_STREAM)
    script = f"""
import socket
with socket.create_server(("127.0.0.1", {port})) as server:
    while True:
        client, _ = server.accept()
        with client:
            client.sendall(client.recv(100).upper())
"""
    async with begun(tmp_path, port) as made:
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert client.recv(100) == b"", "nothing listens inside yet"
        await made.start("echo", ["python3", "-c", script], ENV, log=INSIDE / "log/echo.log")

        def echoes() -> bool:
            with socket.create_connection(("127.0.0.1", port)) as client:
                try:
                    client.sendall(b"hello")
                    client.shutdown(socket.SHUT_WR)
                    return client.recv(100) == b"HELLO"
                except OSError:  # it does not listen yet
                    return False

        until(echoes)


def test_all_ports_that_are_taken_are_named() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        ports = [each.getsockname()[1] for each in (one, two)]
        with pytest.raises(Conflict) as caught, namespaces.listening(ports):
            pass
    assert all(f"{port} (Address already in use)" in caught.value.message for port in ports)
    assert "--port-base" in str(caught.value.hint)


async def test_a_range_that_the_host_routes_elsewhere_is_refused() -> None:
    taken = "203.0.113.0/24"
    with own_network():
        await process.run(["ip", "route", "add", taken, "dev", "lo"])
        with pytest.raises(Conflict, match=f"the host has a route to {taken}"):
            await interfaces.refuse_overlap(Wanted(public=IPv4Network(taken)))
    await interfaces.refuse_overlap(Wanted(public=IPv4Network(taken), container=True))


async def test_machines_on_the_provider_network_do_not_become_the_hosts_router(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By advertisements of IPv6, nor do many askers fill the host's table of neighbors."""

    async def run(where: Namespaces, argv: list[str], env: dict[str, str]) -> None:
        del where, argv, env

    monkeypatch.setattr(Namespaces, "run", run)
    wanted = Wanted(public=IPv4Network("172.24.9.0/24"))
    async with begun(tmp_path) as made:
        with own_network():
            await interfaces.connect(wanted, made, ENV)
            listed = await process.run(["ip", "-j", "address", "show", interfaces.link(wanted)])
            settings = [
                Path(f"/proc/sys/net/{name}").read_text().strip()
                for name in (
                    f"ipv6/conf/{interfaces.link(wanted)}/disable_ipv6",
                    f"ipv4/conf/{interfaces.link(wanted)}/arp_filter",
                )
            ]
    (bridge,) = json.loads(listed.stdout)
    assert [each["local"] for each in bridge["addr_info"]] == ["172.24.9.1"]
    assert settings == ["1", "1"]


def test_missing_programs_are_all_named_with_the_command() -> None:
    wanted = {"/nowhere/mariadbd": "mariadb-server-core", "/nowhere/x": "rabbitmq-server"}
    with pytest.raises(MissingTool) as caught:
        cloud.need_programs({**wanted, "sh": "dash"})
    packages = "mariadb-server-core rabbitmq-server"
    assert caught.value.message == f"the cloud needs {packages}"
    assert caught.value.hint == f"apt-get install -y {packages}"


@pytest.mark.parametrize(
    ("public", "said"),
    [
        ("10.0.0.1/24", "expected a range of IPv4 addresses like 172.24.4.0/24, got '10.0.0.1/24'"),
        ("10.0.0.0/30", "too small"),
    ],
)
def test_a_wrong_range_is_refused(public: str, said: str) -> None:
    done = CliRunner().invoke(dev_cloud.command, ["up", "--public", public])
    assert said in str(done.exception)


def test_secrets_are_only_in_files_of_configuration() -> None:
    secrets = Passwords("ADMIN", "SERVICE", "USER")
    files = configuration.files(Wanted(), secrets)
    assert not [path for path, text in files.items() if "ADMIN" in text or "USER" in text]
    for path, text in files.items():
        assert ("SERVICE" in text) is (path != "keystone/keystone.conf"), path
    clouds = configuration.clouds(Wanted(), secrets)["clouds"]
    assert [each["auth"]["password"] for each in clouds.values()] == ["ADMIN", "USER"]


def test_services_get_nothing_of_the_callers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example")
    assert "http_proxy" not in programs.environment(Path("/made"))


async def test_a_compute_host_has_a_name_and_groups_of_its_own_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    added, wanted = Compute("second", Virt.LXC), Wanted(port_base=7650)
    computes.prepare(
        wanted, Passwords("ADMIN", "SERVICE", "USER"), added, state=tmp_path, cache=tmp_path
    )
    computes.record(tmp_path, [added])
    name = computes.group(wanted, added)
    async with begun(tmp_path) as made:
        for _ in range(2):  # the second time it is found
            await made.run(computes.set_up(wanted, added), ENV)
        run = computes.programs_of(wanted, Path("/made"), added)[0].argv[:-2]
        assert (await made.run([*run, "hostname"], ENV)).strip() == "second"
        assert name not in await made.run([*run, "cat", "/proc/self/cgroup"], ENV)
        assert "nova.conf" in await made.run([*run, "ls", str(computes.STATE)], ENV)
        assert (await made.run(["hostname"], ENV)).strip() != "second"
        await made.start("sleeper", [*run, "sleep", "1000"], ENV, log=INSIDE / "log/sleeper.log")
        listed = (tmp_path / "computes/second/groups").read_text().splitlines()
        groups = [Path(line.split()[1]) for line in listed]
        assert groups
        assert all(each.name == name and each.is_dir() for each in groups)
        await made.run(computes.end(added), ENV)
        assert (await made.services())["sleeper"] == -9
        await made.forget(["sleeper"])
        assert await made.services() == {}
        mounts = await made.run(["cat", "/proc/mounts"], ENV)
        assert "computes" not in mounts
    await joining.clear(tmp_path)
    assert not [each for each in groups if each.exists()]


@pytest.mark.parametrize("name", ["cloud", "Second", "a/b", "x" * 32, "-x"])
def test_a_name_that_a_compute_host_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="for the compute host"):
        computes.chosen(Virt.QEMU, name)
    assert computes.chosen(Virt.QEMU) == Compute("cloud-qemu", Virt.QEMU)


def test_a_compute_host_differs_from_the_first_in_what_nova_needs(tmp_path: Path) -> None:
    added = Compute("other", Virt.LXC)
    computes.prepare(
        Wanted(), Passwords("ADMIN", "SERVICE", "USER"), added, state=tmp_path, cache=tmp_path
    )
    text = (tmp_path / "computes/other/nova.conf").read_text()
    for line in ("host = other", f"state_path = {computes.STATE}", "virt_type = lxc"):
        assert line in text.splitlines()
    assert "uid_maps = 0:100000:65536" in text, "root of a container is not the host's"


def test_ironic_is_a_compute_host_that_uses_the_clouds_services(tmp_path: Path) -> None:
    added, wanted = computes.chosen(Virt.IRONIC), Wanted(port_base=7650)
    secrets = Passwords("ADMIN", "SERVICE", "USER")
    computes.prepare(wanted, secrets, added, state=tmp_path, cache=tmp_path)
    own = tmp_path / "computes/cloud-ironic"
    nova, ironic = (ConfigParser(interpolation=None) for _ in range(2))
    nova.read(own / "nova.conf")
    ironic.read(own / "ironic.conf")
    wanted_of_nova = {
        "host": "cloud-ironic",
        "state_path": str(computes.STATE),
        "compute_driver": "ironic.IronicDriver",
    }
    assert wanted_of_nova.items() <= dict(nova["DEFAULT"]).items()
    assert not nova.has_section("libvirt")
    assert ironic["DEFAULT"]["auth_strategy"] == "keystone"
    for file, sections in (
        (nova, ("ironic", "placement", "neutron", "glance", "keystone_authtoken")),
        (ironic, ("glance", "neutron", "nova", "keystone_authtoken")),
    ):
        assert {file[each]["password"] for each in sections} == {"SERVICE"}
        assert {file[each]["auth_url"] for each in sections} == {"http://127.0.0.1:7650/v3"}
    for each in ("nova.conf", "ironic.conf"):
        assert (own / each).stat().st_mode & 0o777 == 0o600
        assert "ADMIN" not in (own / each).read_text()
    assert ironic["deploy"]["http_url"] == "http://172.24.4.2:7657", "machines reach it there"


def test_cinder_uses_the_clouds_services_and_has_its_volumes_as_files(tmp_path: Path) -> None:
    made, state = tmp_path / "environments/cloud-1", tmp_path / "state"
    files = volumes.place(made) / "etc/cinder"
    files.mkdir(parents=True)
    for name in ("api-paste.ini", "resource_filters.json"):
        (files / name).write_text("")
    (state / "home").mkdir(parents=True)
    assert not volumes.are_in(state)
    for _ in range(2):  # the second time it is found
        secrets = Passwords("ADMIN", "SERVICE", "USER")
        volumes.prepare(Wanted(port_base=7650), secrets, state=state, made=made)
    assert volumes.are_in(state)
    read = ConfigParser(interpolation=None)
    read.read(state / "home/.cinder/cinder.conf")
    for section in ("keystone_authtoken", "service_user", "nova", "glance"):
        assert read[section]["password"] == "SERVICE"
        assert read[section]["auth_url"] == "http://127.0.0.1:7650/v3"
    assert read["files"]["volumes_dir"] == f"{INSIDE}/cinder/volumes"
    assert (state / "etc/cinder/cinder.conf").stat().st_mode & 0o777 == 0o600
    module, _, driver = read["files"]["volume_driver"].partition(".")
    assert f"class {driver}(" in (state / f"cinder/python/{module}.py").read_text()
    assert volumes.migration(state, made)[-2:] == ["db", "sync"]
    volumes.migrated(state, made)
    assert not volumes.migration(state, made)


async def test_a_scheduler_of_volumes_that_does_not_answer_yet_has_no_pools() -> None:
    """Cinder's API answers 500 then; another refusal is an error."""
    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        base = server.server_port - Wanted(port_base=0).port(Api.CINDER)
        client = Client(Wanted(port_base=base), "token")
        found = list[object]()
        with ThreadPoolExecutor(1) as thread:
            serving = thread.submit(server.serve_forever)
            try:
                for Answering.status in (500, 503, 200):
                    found.append(await contents.pools(client))
                Answering.status = 403
                with pytest.raises(ProviderError, match="403"):
                    await contents.pools(client)
            finally:
                server.shutdown()
            serving.result()
    assert found == [set(), set(), {"here@files#files"}]


class Answering(BaseHTTPRequestHandler):
    """An API of Cinder."""

    status = 200

    def do_GET(self) -> None:
        body = json.dumps({"pools": [{"name": "here@files#files"}]}).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        """Not a word."""


def test_no_two_services_have_one_port() -> None:
    wanted = Wanted(port_base=LAST_BASE)
    ports = [wanted.files_port, *map(wanted.port, Api)]
    assert len({*ports}) == len(Api) + 1
    assert (min(ports), max(ports)) == (LAST_BASE, 65535)


def test_a_cloud_without_volumes_has_nothing_of_cinder(tmp_path: Path) -> None:
    made, state = tmp_path / "environments/cloud-1", tmp_path / "state"
    for source in configuration.COPIED:
        (made / "etc" / source).parent.mkdir(parents=True, exist_ok=True)
        (made / "etc" / source).touch()
    preparation.prepare(Wanted(), state=state, made=made)
    found = cloud.Cloud(Wanted(), Namespaces(Process(1, 1), state), made)
    assert not list(state.rglob("*cinder*"))
    assert "cinder" not in found.apis
    (state / "cinder").mkdir()
    assert "cinder" in found.apis


@pytest.mark.parametrize("has_program", [True, False])
def test_ironic_changes_macs_of_ports_only_where_leases_can_be_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_program: bool
) -> None:
    if has_program:
        (tmp_path / baremetal.RELEASE).write_text("")
        (tmp_path / baremetal.RELEASE).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    secrets = Passwords("ADMIN", "SERVICE", "USER")
    told = baremetal.sections(Wanted(), secrets, name="x", state=tmp_path, cache=tmp_path)
    names = str(told["DEFAULT"]["enabled_network_interfaces"]).split(",")
    assert names == ["noop", *(["flat"] if has_program else [])]


def test_bmcs_of_this_machine_are_not_reached_without_its_interface() -> None:
    done = CliRunner().invoke(dev_cloud.command, ["up", "--ironic", "--container"])
    assert "which a cloud with --container does not share" in str(done.exception)


async def test_a_cloud_has_one_ironic(tmp_path: Path) -> None:
    first, second = (computes.chosen(Virt.IRONIC, name) for name in ("first", "second"))
    computes.record(tmp_path, [first])
    where = Namespaces(Process(1, 1), tmp_path)
    with pytest.raises(Conflict, match="has an Ironic already, compute host 'first'"):
        await joining.join(Wanted(), where, Path("/cache/environments/made"), second)
    assert computes.recorded(tmp_path) == [first]


def test_only_a_cloud_of_this_machine_can_be_joined(tmp_path: Path) -> None:
    argv = ["compute", "--join", str(tmp_path / "clouds.yaml"), "--virt", "lxc"]
    done = CliRunner().invoke(dev_cloud.command, argv)
    assert "no cloud of `nospoon dev cloud up` is in" in str(done.exception)
    done = CliRunner().invoke(dev_cloud.command, ["compute"])
    assert "compute needs --join CLOUDFILE and --virt lxc|qemu|ironic" in str(done.exception)
