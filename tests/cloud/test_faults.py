"""What is between nospoon and a real cloud refuses, resets connections, and does not answer: `up`
and `down` say so, and the next ones complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from tests.cloud.test_cloud import connection
from tests.cloud.test_rack import everything
from tests.cloud.test_without_iso import endpoint, region

from nospoon.testing.cloud import FULL, OwnCloud
from nospoon.testing.faulty import Front, LineFault, in_front_of
from nospoon.testing.rack import Rack, private_rack

pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack"),
    pytest.mark.skipif(
        not FULL,
        reason="faults between nospoon and a cloud take minutes: make test-openstack-full",
    ),
]
REGION = "Faulty"
TYPES = {"nova": "compute", "neutron": "network", "glance": "image"}
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: faulty, flavors: [metal.tiny], boot_address: 172.24.5.1}}
networks: {{lab: {{nat: true}}, provision: {{}}}}
nodes:
  - {{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB],
     nics: [{{network: lab}}, {{network: provision}}]}}
"""
SERVERS, SERVER = ("nova", r"POST /v2\.1/servers$"), ("nova", r"DELETE /v2\.1/servers/")
NETWORK, PORT = ("neutron", r"DELETE /v2\.0/networks/"), ("neutron", r"DELETE /v2\.0/ports/")
SAID: dict[LineFault | int, str] = {
    401: "401", 403: "403", 404: "404", 409: "409", 429: "429", 500: "500", 503: "503",
}  # fmt: skip
"""In the error of a command; "does not answer" for all others."""
CASES = (
    (401, SERVERS, SERVER),
    (403, ("neutron", r"POST /v2\.0/ports"), PORT),
    (409, ("nova", r"POST /v2\.1/servers/.*/action"), NETWORK),
    (429, ("neutron", r"POST /v2\.0/networks"), SERVER),
    (500, ("neutron", r"POST /v2\.0/networks"), ("glance", r"DELETE /v2/images/")),
    (503, ("glance", r"PUT /v2/images/.*/file"), PORT),
    (LineFault.RESET, ("neutron", r"POST /v2\.0/ports"), NETWORK),
    (LineFault.SWALLOW, SERVERS, SERVER),
    (404, SERVERS, SERVER),
)
"""A fault, the service and the call that it meets of an `up`, and those of a `down`."""


@pytest.fixture
def fronts(cloud: OwnCloud) -> Iterator[dict[str, Front]]:
    with ExitStack() as stack:
        made, urls = dict[str, Front](), dict[str, str]()
        for name, type_ in TYPES.items():
            url = endpoint(cloud, type_)
            made[name] = stack.enter_context(in_front_of(url))
            urls[type_] = made[name].url + urlsplit(url).path
        stack.enter_context(region(cloud, REGION, urls))
        yield made


@pytest.fixture
def rack(cloud: OwnCloud, fronts: dict[str, Front], tmp_path: Path) -> Iterator[Rack]:
    assert fronts
    login = {**cloud.login(), "region_name": REGION, "api_timeout": 30}
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text(yaml.safe_dump({"clouds": {"faulty": login}}))
    with private_rack(OS_CLIENT_CONFIG_FILE=str(clouds)) as made:
        yield made


@pytest.mark.timeout(900, func_only=True)
@pytest.mark.parametrize(("fault", "making", "removing"), CASES)
def test_a_fault_is_reported_and_the_next_command_completes(
    cloud: OwnCloud,
    fronts: dict[str, Front],
    rack: Rack,
    fault: LineFault | int,
    making: tuple[str, str],
    removing: tuple[str, str],
) -> None:
    member, name = connection(cloud), rack.name()
    before = everything(member)
    file = rack.file(FILE.format(name=name) + rack.bmc())

    def fails(where: tuple[str, str], *command: str) -> None:
        service, call = where
        fronts[service].inject(call, fault, times=99)
        failed = rack.attempt(*command)
        said = failed.stdout + failed.stderr
        assert failed.returncode, said
        assert fronts[service].met, "it came so far"
        assert SAID.get(fault, "does not answer") in said
        assert "Traceback" not in said
        fronts[service].clear()

    fails(making, "up", file, "--yes")
    rack.run("up", file, "--yes")
    assert "Nothing to do" in rack.run("plan", file).stdout
    assert [each.status for each in member.compute.servers(name=f"{name}-n")] == ["SHUTOFF"]
    (row,) = rack.json("status", name)
    assert row["power"] == "off"
    fails(removing, "down", name, "--yes")
    rack.run("down", name, "--yes")
    assert everything(member) == before
    rack.names.clear()


@pytest.mark.timeout(900, func_only=True)
def test_up_finds_a_server_again_that_was_made_without_an_answer(
    cloud: OwnCloud, fronts: dict[str, Front], rack: Rack
) -> None:
    member, name = connection(cloud), rack.name()
    before = everything(member)
    file = rack.file(FILE.format(name=name) + rack.bmc())
    fronts["nova"].inject(SERVERS[1], LineFault.HANG)
    done = rack.run("up", file, "--yes")
    assert "does not answer" in done.stdout + done.stderr, "and why it took longer"
    assert len(fronts["nova"].met) == 1
    assert [each.status for each in member.compute.servers(name=f"{name}-n")] == ["SHUTOFF"]
    assert "Nothing to do" in rack.run("plan", file).stdout
    rack.run("down", name, "--yes")
    assert everything(member) == before
    rack.names.clear()
