"""Nodes of a real OpenStack beside bare API calls, and beside sushy-tools' Nova driver.

A cloud of one's own is brought up (`nospoon dev cloud`; root, minutes the first time). In it, as an
ordinary project, as many servers are made, powered on and off, and deleted: by nospoon, and by a
loop that makes the same calls to Nova and Neutron and waits until all are there, on, off or gone. A
node is off when it is made: so the loop stops what it makes. sushy-tools' emulator then powers the
loop's servers on and off. All go through a proxy that counts: calls are those of each tool, the
loop's without those by which it waits. CPU is that of the daemon, and of the emulator.

usage: cloud_nodes.py [--count N] [--peers DIRECTORY]
DIRECTORY is a virtual environment with sushy-tools; one is made where none is named.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import openstack
import yaml
from openstack.connection import Connection

from adopted import cpu, environment, running
from measure import report
from nospoon.testing.cloud import OwnCloud, own_cloud
from nospoon.testing.rack import Rack, private_rack

REGION, FLAVOR, NETWORK = "Counted", "metal.bench", "bench-loop"
AT_ONCE = 4
"""Clients of BMCs: as a conductor has workers."""
EMULATOR_PORT = 26_997
FILE = """
cluster: bench
hosts:
  cloud: {{openstack: {{cloud: counted, flavors: [{flavor}], boot_address: 172.24.5.1}}}}
networks: {{provision: {{nat: true}}}}
nodes:
  - {{name: "m-{{n}}", count: {count}, cpus: 1, memory: 128MiB, firmware: bios, disks: [1GiB],
     nics: [provision]}}
"""
MORE = 16
"""Servers, instances and ports that the project may have besides those of both."""


@dataclass
class Counts:
    """Calls that went through the proxies, by method and service."""

    of: Counter[str] = field(default_factory=Counter)

    def taken(self) -> int:
        """How many since the last time."""
        total = self.of.total()
        self.of.clear()
        return total


def counting(service: str, url: str, counts: Counts) -> type[BaseHTTPRequestHandler]:
    """What is in front of a service, and passes all on."""
    place = urlsplit(url)

    class Counting(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            counts.of[f"{self.command} {service}"] += 1
            with closing(HTTPConnection(str(place.hostname), place.port, timeout=120)) as back:
                back.request(self.command, self.path, body, dict(self.headers))
                got = back.getresponse()
                said, headers = got.read(), got.getheaders()
            self.send_response(got.status)
            for name, value in headers:
                if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                    self.send_header(name, value)
            if got.status != 204:
                self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one  # noqa: N815  (its names)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

    return Counting


@contextmanager
def counted(admin: Connection, counts: Counts) -> Iterator[None]:
    """A region of the same cloud whose Nova, Neutron and Glance are behind proxies."""
    identity: Any = admin.identity
    identity.create_region(id=REGION)
    servers, made = [], []
    try:
        for each in identity.endpoints(interface="public"):
            service = identity.get_service(each.service_id)
            url = each.url
            if service.type in ("compute", "network", "image"):
                handler = counting(service.type, url, counts)
                server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
                Thread(target=server.serve_forever, daemon=True).start()
                servers.append(server)
                url = f"http://127.0.0.1:{server.server_address[1]}{urlsplit(url).path}"
            about = {"service_id": each.service_id, "interface": "public", "region_id": REGION}
            made.append(identity.create_endpoint(url=url, **about))
        yield
    finally:
        for each in made:
            identity.delete_endpoint(each)
        identity.delete_region(REGION)
        for server in servers:
            server.shutdown()
            server.server_close()


def connection(login: Mapping[str, Any]) -> Connection:
    return openstack.connect(load_yaml_config=False, load_envvars=False, **login)


def allowed(admin: Connection, project: str, count: int) -> None:
    """A flavor, and a quota for as many servers of nospoon's and of the loop."""
    admin.compute.create_flavor(name=FLAVOR, ram=128, vcpus=1, disk=1, ephemeral=1)
    servers = 2 * count + MORE
    quotas: dict[str, Any] = {"instances": servers, "cores": servers, "ram": servers * 128}
    admin.compute.update_quota_set(project, **quotas)
    admin.network.update_quota(project, port=2 * servers)


def wait(
    done: Callable[[], bool], again: Callable[[], None] | None = None, *, most: float = 1800
) -> None:
    """As a client that polls: twice a second, for `most` seconds. `again`: called once a minute for
    what stays as it was, for Nova may forget a start without a word.
    """
    began, tries = time.monotonic(), 0
    while not done():
        passed = time.monotonic() - began
        if passed > most:
            raise SystemExit(f"it did not get there in {most:g} s")
        if again is not None and passed > (tries + 1) * 60:
            tries += 1
            print("  some servers did not start: they are started again", flush=True)
            again()
        time.sleep(0.5)


@dataclass(frozen=True, slots=True)
class Took:
    """`calls`: of the API."""

    seconds: float
    calls: int
    cpu: float = 0.0


@dataclass
class Measured:
    """What each step took. `watched`: whose CPU time counts, 0 for none."""

    counts: Counts
    watched: int = 0
    took: dict[str, Took] = field(default_factory=dict)

    def step(
        self,
        name: str,
        act: Callable[[], None],
        done: Callable[[], bool],
        again: Callable[[], None] | None = None,
    ) -> None:
        self.counts.taken()
        before, began = self._cpu(), time.perf_counter()
        act()
        wait(done, again)
        seconds = time.perf_counter() - began
        self.took[name] = Took(seconds, self.counts.taken(), self._cpu() - before)
        print(f"  {name}: {self.took[name].seconds:.1f} s", flush=True)

    def _cpu(self) -> float:
        return cpu(self.watched) if self.watched else 0.0


class Project:
    """The cloud as it is, asked past the proxies."""

    def __init__(self, connection: Connection) -> None:
        self._compute = connection.compute

    def servers(self, prefix: str) -> list[Any]:
        return [each for each in self._compute.servers() if each.name.startswith(prefix)]

    def are(self, status: str, prefix: str, count: int) -> bool:
        """Whether all have it, and nothing is being done with them."""
        servers = self.servers(prefix)
        if failed := [each.fault for each in servers if each.status == "ERROR"]:
            raise SystemExit(f"a server is at fault: {failed[0]}")
        states = [(each.status, each.task_state) for each in servers]
        return len(states) == count and set(states) <= {(status, None)}

    def off(self, prefix: str) -> list[str]:
        """Ids of those that are off, with which nothing is being done."""
        servers = self.servers(prefix)
        return [s.id for s in servers if (s.status, s.task_state) == ("SHUTOFF", None)]


def of_nospoon(
    rack: Rack, counts: Counts, project: Project, count: int, between: Callable[[], None]
) -> Measured:
    """`between`: called while its servers are off; what is shared, as the boot image, is there."""
    rack.names.append("bench")

    def up(number: int) -> None:
        file = rack.file(FILE.format(flavor=FLAVOR, count=number) + rack.bmc())
        rack.run("up", "--yes", file, seconds=3600)

    def power(command: str) -> None:
        bmcs = [bmc for name, bmc in rack.bmcs("bench").items() if name != "m-0"]
        counts.taken()
        with ThreadPoolExecutor(AT_ONCE) as clients:
            list(clients.map(partial(ipmi, command), bmcs))

    up(1)  # its network and boot image are made once
    found = Measured(counts, rack.daemon_pid())
    nodes = [f"bench-m-{number}" for number in range(1, count + 1)]

    def are(status: str) -> bool:
        servers = {each.name: each for each in project.servers("bench-m-")}
        some = [servers.get(name) for name in nodes]
        return all(s is not None and (s.status, s.task_state) == (status, None) for s in some)

    found.step("create", partial(up, count + 1), partial(are, "SHUTOFF"))
    found.step("power on", partial(power, "on"), partial(are, "ACTIVE"))
    found.step("power off", partial(power, "off"), partial(are, "SHUTOFF"))
    between()
    found.step("delete", partial(up, 1), lambda: len(project.servers("bench-m-")) == 1)
    return found


def ipmi(command: str, bmc: Mapping[str, str]) -> None:
    host, port = bmc["ipmi"].rsplit(":", 1)
    subprocess.run(
        ["ipmitool", "-I", "lanplus", "-H", host, "-p", port, "-U", bmc["username"], "-E", "power",
         command], env={**os.environ, "IPMI_PASSWORD": bmc["password"]}, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip


def of_calls(
    member: Connection,
    counts: Counts,
    project: Project,
    count: int,
    between: Callable[[Sequence[str]], None],
) -> Measured:
    """The loop. `between`: called with the ids of its servers, which are off."""
    found = Measured(counts)
    (image,) = [each for each in member.image.images() if each.name.startswith("nospoon-")]
    flavor = member.compute.find_flavor(FLAVOR, ignore_missing=False)
    network = member.network.create_network(name=NETWORK)
    member.network.create_subnet(
        network_id=network.id, ip_version=4, cidr="192.0.2.0/24", enable_dhcp=False
    )
    ports: list[Any] = []
    servers: list[Any] = []
    disks = [
        {"source_type": "image", "uuid": image.id, "destination_type": "local", "boot_index": 0,
         "delete_on_termination": True},
        {"source_type": "blank", "destination_type": "local", "boot_index": -1, "volume_size": 1,
         "delete_on_termination": True, "guest_format": "ext4", "disk_bus": "sata",
         "device_type": "disk"},
    ]  # fmt: skip

    def create() -> None:
        for number in range(count):
            port = member.network.create_port(
                network_id=network.id, port_security_enabled=False, fixed_ips=[]
            )
            ports.append(port)
            server = member.compute.create_server(
                name=f"loop-{number}", flavor_id=flavor.id, image_id=image.id,
                block_device_mapping=disks, networks=[{"port": port.id}],
            )  # fmt: skip
            servers.append(server)
        wait(lambda: project.are("ACTIVE", "loop-", count))
        for server in servers:
            member.compute.stop_server(server)

    def each(act: Callable[[Any], None]) -> None:
        for server in servers:
            act(server)

    def start_again() -> None:
        for id_ in project.off("loop-"):
            member.compute.start_server(id_)

    def delete() -> None:
        for server in servers:
            member.compute.delete_server(server)
        wait(lambda: not project.servers("loop-"))
        for port in ports:
            member.network.delete_port(port)

    off = partial(project.are, "SHUTOFF", "loop-", count)
    found.step("create", create, off)
    found.step(
        "power on",
        partial(each, member.compute.start_server),
        partial(project.are, "ACTIVE", "loop-", count),
        start_again,
    )
    found.step("power off", partial(each, member.compute.stop_server), off)
    between([server.id for server in servers])
    found.step("delete", delete, lambda: True)
    member.network.delete_network(network)
    return found


def of_sushy(
    clouds: Path, counts: Counts, project: Project, ids: Sequence[str], peers: Path
) -> Measured:
    """sushy-tools' emulator powers the loop's servers."""
    command = [
        str(peers / "bin" / "sushy-emulator"), "--port", str(EMULATOR_PORT), "--interface",
        "127.0.0.1", "--os-cloud", "counted",
    ]  # fmt: skip
    env = {"OS_CLIENT_CONFIG_FILE": str(clouds), "PATH": "/usr/bin:/bin"}
    systems = f"http://127.0.0.1:{EMULATOR_PORT}/redfish/v1/Systems"

    def power(reset: str, which: Sequence[str] = ids) -> None:
        with ThreadPoolExecutor(AT_ONCE) as clients:
            list(clients.map(lambda id_: ask(f"{systems}/{id_}", reset), which))

    with running(command, env) as pid:
        wait(lambda: _answers(f"{systems}/{ids[0]}"), most=60)
        found = Measured(counts, pid)
        are = partial(project.are, prefix="loop-", count=len(ids))
        found.step(
            "power on",
            partial(power, "On"),
            partial(are, "ACTIVE"),
            lambda: power("On", project.off("loop-")),
        )
        found.step("power off", partial(power, "ForceOff"), partial(are, "SHUTOFF"))
    return found


def ask(system: str, reset: str) -> None:
    body = f'{{"ResetType": "{reset}"}}'
    subprocess.run(
        ["curl", "-sf", "-H", "Content-Type: application/json", "-d", body,
         f"{system}/Actions/ComputerSystem.Reset"], check=True, timeout=300,
    )  # fmt: skip


def _answers(url: str) -> bool:
    return subprocess.run(["curl", "-sf", "-o", "/dev/null", url], check=False).returncode == 0


def measured(cloud: OwnCloud, count: int, peers: Path) -> None:
    counts = Counts()
    admin = connection(cloud.login("nospoon-cloud-admin"))
    login = {**cloud.login(), "region_name": REGION}
    direct = connection(cloud.login())
    project = Project(direct)
    allowed(admin, str(direct.current_project_id), count)
    with tempfile.TemporaryDirectory() as directory, counted(admin, counts):
        clouds = Path(directory, "clouds.yaml")
        clouds.write_text(yaml.safe_dump({"clouds": {"counted": login}}))
        found: dict[str, Measured] = {}

        def others() -> None:
            member = connection(login)
            print("sushy-tools and the loop", flush=True)

            def sushy(ids: Sequence[str]) -> None:
                found["sushy-tools"] = of_sushy(clouds, counts, project, ids, peers)

            found["the loop"] = of_calls(member, counts, project, count, sushy)

        with private_rack(OS_CLIENT_CONFIG_FILE=str(clouds)) as rack:
            ours = of_nospoon(rack, counts, project, count, others)
    show(ours, found, count)


def show(ours: Measured, found: Mapping[str, Measured], count: int) -> None:
    loop, sushy = found["the loop"], found["sushy-tools"]
    for name, took in ours.took.items():
        bare = loop.took[name]
        report(f"{name} {count} nodes", took.seconds, reference=bare.seconds, of="bare calls")
        more = (took.calls - bare.calls) / count
        calls = f"{took.calls / count:.1f} calls a node, {more:+.1f} beside bare calls"
        print(f"{'':<46} {calls}, {1000 * took.cpu / count:.0f} ms of CPU a node")
    for name, took in sushy.took.items():
        mine = ours.took[name]
        print(
            f"sushy-tools, {name}: {took.seconds:.1f} s ({mine.seconds / took.seconds:.2f} x for"
            f" nospoon), {took.calls / count:.1f} calls, {1000 * took.cpu / count:.0f} ms of CPU a"
            f" node ({mine.cpu / took.cpu:.2f} x)"
        )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--peers", type=Path)
    given = parser.parse_args()
    peers = given.peers or environment()
    with own_cloud() as cloud:
        measured(cloud, given.count, peers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
