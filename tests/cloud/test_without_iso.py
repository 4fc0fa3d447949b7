"""Nodes of a real cloud whose Glance takes no ISO boot by the same images as qcow2."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
import yaml
from openstack.identity.v3._proxy import Proxy
from tests.cloud.test_cloud import connection
from tests.cloud.test_rack import everything, overwrite_disk
from tests.cloud.test_rescue import theirs

from nospoon.model.cluster import Firmware
from nospoon.testing.cloud import OwnCloud
from nospoon.testing.guests import BOOTED
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack, private_rack

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
REGION = "WithoutIso"
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: without, flavors: [metal.tiny], boot_address: 172.24.5.1}}
    physnets: {{external: rack}}
networks: {{external: {{physnet: external}}}}
nodes:
  - {{name: b, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB], nics: [external]}}
  - {{name: u, cpus: 1, memory: 512MiB, firmware: uefi, disks: [1GiB], nics: [external]}}
  - {{name: t, adopt: {id}}}
"""


def front(glance: str) -> type[BaseHTTPRequestHandler]:
    """What is in front of a Glance: it takes no image in the format `iso`, and says so."""
    place = urlsplit(glance)

    class Front(BaseHTTPRequestHandler):
        def handle_one(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(size)
            is_made = (self.command, self.path) == ("POST", "/v2/images")
            if is_made and json.loads(body)["disk_format"] == "iso":
                self.answer(400, b"Invalid value 'iso' for disk_format", {})
                return
            with closing(HTTPConnection(str(place.hostname), place.port, timeout=120)) as back:
                back.request(self.command, place.path + self.path, body, dict(self.headers))
                got = back.getresponse()
                said, headers = got.read(), dict(got.getheaders())
            if self.path == "/v2/schemas/image":
                schema = json.loads(said)
                schema["properties"]["disk_format"]["enum"].remove("iso")
                said = json.dumps(schema).encode()
            self.answer(got.status, said, headers)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one  # noqa: N815  (its names)

        def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                    self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

    return Front


@contextmanager
def without_iso(cloud: OwnCloud) -> Iterator[None]:
    """A region of the same cloud, but for its Glance."""
    glance = endpoint(cloud, "image")
    server = ThreadingHTTPServer(("127.0.0.1", 0), front(glance.rstrip("/")))
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        with region(cloud, REGION, {"image": url}):
            yield
    finally:
        server.shutdown()
        server.server_close()


def endpoint(cloud: OwnCloud, service: str) -> str:
    """Where a service of the cloud answers, by its type."""
    admin = connection(cloud, "nospoon-cloud-admin")
    found = admin.session.get_endpoint(service_type=service, interface="public")
    assert found is not None
    return str(found)


@contextmanager
def region(cloud: OwnCloud, name: str, urls: Mapping[str, str]) -> Iterator[None]:
    """A region of the same cloud, but for these services, by their types."""
    identity = connection(cloud, "nospoon-cloud-admin").identity
    assert isinstance(identity, Proxy)
    identity.create_region(id=name)
    made = []
    try:
        for each in identity.endpoints(interface="public"):
            service = identity.get_service(each.service_id)
            made.append(
                identity.create_endpoint(
                    service_id=each.service_id,
                    interface="public",
                    region_id=name,
                    url=urls.get(service.type, each.url),
                )
            )
        yield
    finally:
        for each in made:
            identity.delete_endpoint(each)
        identity.delete_region(name)


@pytest.fixture
def rack(cloud: OwnCloud, tmp_path: Path) -> Iterator[Rack]:
    login = {**cloud.login(), "region_name": REGION}
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text(yaml.safe_dump({"clouds": {"without": login}}))
    with without_iso(cloud), private_rack(OS_CLIENT_CONFIG_FILE=str(clouds)) as made:
        yield made


@pytest.mark.skipif(
    not os.environ.get("NOSPOON_OPENSTACK_FULL"),
    reason="three emulated VMs behind a Glance without ISOs take minutes: make test-openstack-full",
)
@pytest.mark.timeout(1800, func_only=True)
def test_nodes_boot_by_qcow2_where_glance_takes_no_iso(
    cloud: OwnCloud, rack: Rack, tmp_path: Path
) -> None:
    member, name = connection(cloud), rack.name()
    with theirs(member, Firmware.BIOS, tmp_path) as id_:
        before = everything(member)
        file = rack.file(FILE.format(name=name, id=id_) + rack.bmc())
        assert "Boot images are qcow2." in rack.run("host", "check", file).stdout
        assert "Glance takes no `iso` there, so b, u, t boot" in rack.run("plan", file).stdout
        rack.run("up", file, "--yes")
        assert "Nothing to do" in rack.run("plan", file).stdout
        boots_and_asks_at_each_boot(cloud, rack, name)
        rack.run("down", name, "--yes")
        assert everything(member) == before


def boots_and_asks_at_each_boot(cloud: OwnCloud, rack: Rack, name: str) -> None:
    """One at a time; the adopted server is rescued by its image."""
    bmcs = rack.bmcs(name)
    verdicts = rack.json("verify", name, "-n", "b", "-n", "u", "--timeout", "600")
    assert [each["verdict"] for each in verdicts] == ["as declared"] * 2

    def said(node: str, text: str, times: int = 1) -> bool:
        return rack.run("node", "console", node, "--log").stdout.count(text) >= times

    (server,) = connection(cloud).compute.servers(name=f"{name}-b")
    overwrite_disk(cloud, server.id)
    asked = rack.run("node", "console", "b", "--log").stdout.count("nospoon: boot image for")
    for number, command in enumerate(("on", "reset"), 1):
        rack.ipmitool(bmcs["b"], "power", command)
        until(partial(said, "b", BOOTED.decode(), number), 600)
        assert said("b", "nospoon: boot image for", asked + number)
    rack.power("b", "off")
    rack.ipmitool(bmcs["t"], "chassis", "bootdev", "pxe")
    rack.power("t", "on")
    until(partial(said, "t", "nospoon: boot the network"), 600)
