"""BareMetalHosts of adopted machines have addresses that Metal3's operator takes, and they answer.

Its grammar is in pkg/hardwareutils/bmc of metal3-io/baremetal-operator: `GetParsedURL` and
`NewAccessDetails` in access.go, `DriverInfo` and `BootInterface` of ipmi.go, redfish.go,
redfish_virtualmedia.go and redfish_https.go.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
import urllib.request
from ipaddress import ip_address
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml

from nospoon.testing.rack import Rack

TYPES = {
    "ipmi": "ipxe",
    "redfish": "ipxe",
    "redfish-virtualmedia": "redfish-virtual-media",
    "redfish-uefihttp": "redfish-https",
}
"""Type of a BMC (RegisterFactory) -> Ironic's boot interface."""
SCHEMES = {kind for kind in TYPES if kind != "ipmi"}
"""Types that take `+http` and `+https`; without one, it is HTTPS (redfishDefaultScheme)."""
DNS = re.compile(r"(([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])\.)*"
                 r"([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9\-]{0,61}[A-Za-z0-9])")  # fmt: skip


class Access(NamedTuple):
    """What the operator makes of an address: Ironic's boot interface and `driver_info`."""

    boot: str
    info: dict[str, str]


def access(address: str) -> Access:
    """Raises `ValueError` where the operator refuses it."""
    url = urlsplit(address)
    kind, plus, transport = url.scheme.partition("+")
    if kind not in TYPES or (plus and (kind not in SCHEMES or transport not in {"http", "https"})):
        raise ValueError(f"unknown BMC type {url.scheme!r} for address {address}")
    host = url.hostname or ""
    try:
        ip_address(host)
    except ValueError:
        if not DNS.fullmatch(host):
            raise ValueError(f"BMC address hostname/IP : [{host}] is invalid") from None
    if kind == "ipmi":
        return Access(TYPES[kind], {"ipmi_address": host, "ipmi_port": str(url.port or 623)})
    info = {"redfish_address": f"{transport or 'https'}://{url.netloc}"}
    if url.path.strip("/") not in {"", "redfish/v1"}:
        info["redfish_system_id"] = url.path
    return Access(TYPES[kind], info)


@pytest.mark.parametrize(
    "address",
    ["ipmi+http://192.0.2.1", "redfish+tcp://192.0.2.1", "http://192.0.2.1", "redfish://a_b/x"],
)
def test_addresses_that_the_operator_refuses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"192\.0\.2\.1|a_b"):
        access(address)


NODES = """
hosts: {sim: {simulated: {machines: [by-ipmi, by-media, by-http, by-ipxe, by-both]}}}
nodes:
  - {adopt: by-ipmi, bmc: {protocols: [ipmi]}}
  - {adopt: by-ipxe, bmc: {protocols: [redfish]}}
  - {adopt: by-media, ironic: {driver: redfish, interfaces: {boot: redfish-virtual-media}}}
  - {adopt: by-http, ironic: {driver: redfish, interfaces: {boot: redfish-https}}}
  - {adopt: by-both, ironic: {driver: ipmi}}
"""
BOOTS = {
    "by-ipmi": "ipxe", "by-ipxe": "ipxe", "by-media": "redfish-virtual-media",
    "by-http": "redfish-https", "by-both": "ipxe",
}  # fmt: skip


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_hosts_of_adopted_machines_have_addresses_that_lead_to_their_bmcs(
    shared: Rack, address: str, *, tls: bool
) -> None:
    name = shared.name()
    bmc = shared.bmc(address=f"'{address}'", tls=json.dumps(tls))
    shared.run("up", "--yes", shared.file(f"cluster: {name}\n{bmc}{NODES}", f"{name}.yaml"))
    documents = list(yaml.safe_load_all(shared.run("export", "--to", "bmh", name).stdout))
    hosts = {each["metadata"]["name"]: each["spec"] for each in documents if "spec" in each}
    secrets = {each["metadata"]["name"]: each for each in documents if each["kind"] == "Secret"}
    found = {node: access(spec["bmc"]["address"]) for node, spec in hosts.items()}
    assert {node: each.boot for node, each in found.items()} == BOOTS
    by_ironic = json.loads(shared.run("export", "--to", "ironic", name).stdout)["nodes"]
    enrolled = {each["name"]: each for each in by_ironic}
    bmcs = shared.bmcs(name)
    for node, (_, info) in found.items():
        login = secrets[hosts[node]["bmc"]["credentialsName"]]["stringData"]
        given = enrolled[node]["driver_info"]
        assert {key: str(given[key]) for key in info} == info, "as Ironic is given it by nospoon"
        if "ipmi_port" in info:
            assert ":".join((info["ipmi_address"], info["ipmi_port"])) == (
                bmcs[node]["ipmi"].replace("[", "").replace("]", "")
            )
            assert "is off" in shared.ipmitool(bmcs[node], "chassis", "power", "status")
        else:
            system = get(info["redfish_address"] + info["redfish_system_id"], **login)
            assert system["UUID"] == bmcs[node]["uuid"]
            assert hosts[node]["bmc"].get("disableCertificateVerification", False) is tls


def get(url: str, *, username: str, password: str) -> Any:
    """Of a BMC whose certificate is not verified."""
    login = base64.b64encode(f"{username}:{password}".encode()).decode()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {login}"})
    secure = context if url.startswith("https:") else None
    with urllib.request.urlopen(request, timeout=60, context=secure) as answer:
        return json.load(answer)


def test_bmcs_at_all_addresses_are_exported_with_a_note_that_clients_need_one(
    shared: Rack,
) -> None:
    """As virtualbmc has them by default."""
    name = shared.name()
    body = "hosts: {sim: {simulated: {machines: [a]}}}\nnodes: [{adopt: a}]\n"
    bmc = shared.bmc(address="'::'")
    shared.run("up", "--yes", shared.file(f"cluster: {name}\n{bmc}{body}", f"{name}.yaml"))
    note = "address of BMCs at ::, which means all addresses of their host: write the one"
    for kind in ("bmh", "ironic", "prometheus-sd"):
        assert note in shared.run("export", "--to", kind, name).stderr
    assert "address of BMCs" not in shared.run("export", "--to", "ssh-config", name).stderr
