"""Where the daemon connects to for a cloud of a cluster file: never to its own boot listeners."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.security.asked import OWNER, a_daemon
from tests.security.test_cloud_answers import giving, ironic, service

pytest.importorskip("openstack")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Support for InfluxDB"),
    pytest.mark.filterwarnings("ignore:The 'service_type' parameter"),
]
REFUSED = "nospoon does not connect to"


def text(ironic: object) -> str:
    given = {"cluster": "c", "hosts": {"s": "simulated"}, "ironic": ironic, "nodes": [{}]}
    return json.dumps(given)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_a_cloud_at_the_daemons_own_boot_listener_is_refused(
    tmp_path: Path, host: str
) -> None:
    async with a_daemon(tmp_path) as asked:
        url = f"http://{host}:{asked.daemon.parts.boot_http.port}"
        auth = {"auth_url": f"{url}/v3", "username": "u", "password": "p", "project_name": "p"}
        for each in (
            {"endpoint": url},
            {"cloud": {"auth_type": "none", "auth": {"endpoint": url}}},
            {"cloud": {"auth": auth}},
        ):
            answer = await asked.ask(OWNER, "POST", "/v1/plan", {"file": "f", "text": text(each)})
            assert REFUSED in answer.body.decode()


async def test_a_service_that_a_catalog_or_version_document_names_is_judged_as_well(
    tmp_path: Path,
) -> None:
    async with a_daemon(tmp_path) as asked:
        there = f"http://127.0.0.1:{asked.daemon.parts.boot_http.port}"
        cloud = {"auth_type": "none", "auth": {"endpoint": there}}
        empty = {"nodes": giving(b'{"nodes": []}'), "ports": giving(b'{"ports": []}')}
        with service(ironic(empty)) as url:
            cloud["baremetal_endpoint_override"] = url
            nova = {"nova": {"flavors": {"f": {"resource_class": "baremetal"}}}}
            given = json.loads(text({"cloud": cloud}))
            body = {"file": "f", "text": json.dumps({**given, **nova})}
            answer = await asked.ask(OWNER, "POST", "/v1/plan", body)
        assert REFUSED in answer.body.decode(), answer.body


async def test_another_service_on_loopback_is_connected_to(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        empty = {
            each: giving(json.dumps({each: []}).encode())
            for each in ("nodes", "ports", "portgroups", "connectors", "targets")
        }
        with service(ironic(empty)) as url:
            body = {"file": "f", "text": text({"endpoint": url})}
            answer = await asked.ask(OWNER, "POST", "/v1/plan", body)
        assert answer.status == 200, answer.body
