"""Guests of a network with `anti_spoofing` send from their own MAC and address alone."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from queue import Queue
from typing import cast
from uuid import UUID, uuid4
from xml.etree import ElementTree as ET

import libvirt
import pytest

from nospoon.clusterfile.load import load
from nospoon.clusterfile.recovered import cluster_file
from nospoon.errors import SpecError
from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Cluster, Firmware, Host
from nospoon.model.connections import Libvirt
from nospoon.model.host_facts import HostFacts
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineNic
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.refuse import reasons_against
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.plan.words import field_text
from nospoon.providers.libvirt.bindings import Domain
from nospoon.providers.libvirt.boots import start_domain
from nospoon.providers.libvirt.capabilities import has_filter
from nospoon.providers.libvirt.domain_parse import nics_of
from nospoon.providers.libvirt.domain_xml import Stage, render_domain
from nospoon.providers.libvirt.faults import NO_NWFILTER
from nospoon.providers.libvirt.owner import Owner
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack, private_rack

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
TAG = OwnerTag("here", ID)
HOST = HostFacts(frozenset(Firmware), frozenset(Arch), tpm=True, anti_spoofing=True)
OWN, FOREIGN = "02:00:00:00:00:01", "02:66:66:66:66:66"
NIC = MachineNic(OWN, "br0", "virtio", port="ns0", sends_from="10.7.0.5")
MACHINE = Machine(
    uuid=UUID(int=7),
    cpus=1,
    memory=64 << 20,
    arch=Arch.X86_64,
    firmware=Firmware.BIOS,
    tpm=False,
    disks=(),
    nics=(NIC,),
    boot_order=(BootDevice.NETWORK,),
    boot=BootMethod.NATIVE,
)


def read(text: str) -> Cluster:
    return load(f"cluster: dev\n{text}", file="cluster.yaml")


def decided(cluster: Cluster) -> Allocations:
    allocations, reasons = allocate(cluster, Allocations(), Occupied())
    assert not reasons
    return allocations


def rendered(nic: MachineNic) -> ET.Element:
    owner = Owner(TAG, "m0", "nospoon-dev", MACHINE.boot_order)
    xml = render_domain(replace(MACHINE, nics=(nic,)), owner, Stage("/pools/p", "/records/m0"))
    return ET.fromstring(xml)


@pytest.mark.parametrize(
    ("sends_from", "parameters"), [("10.7.0.5", [{"name": "IP", "value": "10.7.0.5"}]), ("", [])]
)
def test_a_nic_has_the_filter_with_its_address_where_that_is_known(
    sends_from: str, parameters: list[dict[str, str]]
) -> None:
    nic = replace(NIC, sends_from=sends_from)
    root = rendered(nic)
    (found,) = root.iterfind("devices/interface/filterref")
    assert found.attrib == {"filter": "clean-traffic"}
    assert [each.attrib for each in found] == parameters
    assert list(nics_of(root)) == [nic]
    assert rendered(replace(nic, sends_from=None)).find("devices/interface/filterref") is None


def test_a_filter_lets_virtual_ips_through_beside_the_nics_address() -> None:
    nic = replace(NIC, virtual_ips=("10.7.0.200", "10.7.0.201"))
    root = rendered(nic)
    values = [each.get("value") for each in root.iterfind("devices/interface/filterref/parameter")]
    assert values == ["10.7.0.5", "10.7.0.200", "10.7.0.201"]
    assert list(nics_of(root)) == [nic]
    assert "sends only from 10.7.0.5 and 10.7.0.200 and" in field_text("nics", (nic,))


Edit = Callable[[ET.Element], object]
"""Of a NIC's filter."""
EDITS: tuple[Edit, ...] = (
    lambda found: found.set("filter", "allow-arp"),
    lambda found: found[0].set("value", "10.7.0.6"),
    lambda found: ET.SubElement(found, "parameter", name="IP", value="10.7.0.6"),
    lambda found: ET.SubElement(found, "parameter", name="CTRL_IP_LEARNING", value="any"),
    lambda found: found.remove(found[0]),
)


@pytest.mark.parametrize("edit", EDITS)
def test_a_filter_that_somebody_edited_shows_as_another_nic(edit: Edit) -> None:
    root = rendered(NIC)
    found = root.find("devices/interface/filterref")
    assert found is not None
    edit(found)
    (seen,) = nics_of(root)
    assert seen != NIC
    assert replace(seen, sends_from=NIC.sends_from, virtual_ips=()) == NIC
    assert field_text("nics", (seen,)) != field_text("nics", (NIC,))


def test_the_address_is_the_one_that_dhcp_reserves() -> None:
    cluster = read(
        """
hosts: {here: {libvirt: "qemu:///system"}, sim: {simulated: true}}
networks:
  kept: {netboot: builtin, cidr: 10.7.0.0/24, anti_spoofing: true}
  silent: {anti_spoofing: true}
  free: {netboot: builtin, cidr: 10.8.0.0/24}
nodes:
  - {host: here, count: 2, nics: [free, kept, silent]}
  - {host: sim, name: "s{n}", nics: [kept]}
"""
    )
    around = Surroundings({host.name: "/pools" for host in cluster.hosts}, {}, {})
    made = resolve(cluster, ID, decided(cluster), around)
    shapes = {(key.kind, key.place, key.name): each.shape for key, each in made.items()}
    served = shapes[Kind.NETBOOT, "here", "kept"]
    assert isinstance(served, NetbootService)
    reserved = {each.hostname: each.address for each in served.reservations}
    for node in ("node-0", "node-1"):
        machine = shapes[Kind.MACHINE, "here", node]
        assert isinstance(machine, Machine)
        assert [nic.sends_from for nic in machine.nics] == [None, reserved[node], ""]
    simulated = shapes[Kind.MACHINE, "sim", "s0"]
    assert isinstance(simulated, Machine)
    assert [nic.sends_from for nic in simulated.nics] == [""]


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (
            'cidr: "fd00:7::/64"',
            (
                "expected IPv4 alone, got fd00:7::/64: the filter drops IPv6. "
                "Take an IPv4 `cidr` alone, or drop `anti_spoofing`"
            ),
        ),
        (
            'cidr: [10.7.0.0/24, "fd00:7::/64"]',
            (
                "expected IPv4 alone, got fd00:7::/64: the filter drops IPv6. "
                "Take an IPv4 `cidr` alone, or drop `anti_spoofing`"
            ),
        ),
        (
            "bridge: br0, switch: ovs, vlan: 7",
            (
                "expected a Linux bridge: ports of Open vSwitch, with or without VLANs and trunks, "
                "have no filters. Use Open vSwitch's own means, or drop `anti_spoofing`"
            ),
        ),
        (
            "bridge: br0, vlan: 7",
            (
                "expected no `vlan`: the filter drops tagged frames. "
                "Leave `vlan` out, or drop `anti_spoofing`"
            ),
        ),
    ],
)
def test_networks_that_the_filter_would_break_are_refused_where_they_stand(
    network: str, told: str
) -> None:
    with pytest.raises(SpecError) as caught:
        read(f"networks:\n  n: {{anti_spoofing: true, {network}}}\nnodes: [{{nics: [n]}}]\n")
    problems = [str(each) for each in caught.value.problems]
    assert f"cluster.yaml:3:22: networks.n.anti_spoofing: {told}" in problems


@pytest.mark.parametrize(
    ("facts", "uri", "told"),
    [
        (
            HOST,
            "qemu:///session",
            (
                "network n: host here is unprivileged (qemu:///session) and may not filter what "
                "guests send. Use qemu:///system."
            ),
        ),
        (
            replace(HOST, anti_spoofing=False),
            "qemu:///system",
            (
                "network n: host here has no network filter clean-traffic, by which "
                "`anti_spoofing` works. Install libvirt-daemon-config-nwfilter there and restart "
                "libvirtd (see `virsh nwfilter-list`), or leave `anti_spoofing` out."
            ),
        ),
    ],
)
def test_hosts_that_cannot_filter_are_refused(facts: HostFacts, uri: str, told: str) -> None:
    def reasons(option: str, facts: HostFacts, uri: str) -> list[str]:
        cluster = read(f"networks: {{n: {{{option}}}}}\nnodes: [{{nics: [n]}}]\n")
        cluster = replace(cluster, hosts=(Host("here", Libvirt(uri)),))
        return list(reasons_against(cluster, ID, decided(cluster), {"here": facts}))

    assert reasons("anti_spoofing: true", facts, uri) == [told]
    assert reasons("anti_spoofing: true", HOST, "qemu:///system") == []
    assert reasons("", facts, uri) == []


def test_a_libvirt_without_filters_has_none() -> None:
    """The test driver (https://libvirt.org/drvtest.html) has no network filters at all."""
    assert has_filter(libvirt.open("test:///default")) is False


class Disturbed:
    """A domain whose filters cannot be made at first."""

    def __init__(self, *, why: str, times: int) -> None:
        self.why, self.times, self.asked = why, times, 0

    def createWithFlags(self, flags: int) -> None:  # noqa: N802  (libvirt calls it so)
        assert flags == libvirt.VIR_DOMAIN_START_PAUSED
        self.asked += 1
        if self.asked <= self.times:
            raise libvirt.libvirtError(self.why)


@pytest.mark.parametrize(
    ("why", "times", "asked", "starts"),
    [
        ("internal error: Failed to apply firewall rules ebtables -t nat …", 2, 3, True),
        ("internal error: Failed to apply firewall rules ebtables -t nat …", 9, 4, False),
        ("internal error: qemu unexpectedly closed the monitor", 1, 1, False),
    ],
)
def test_filters_that_another_program_disturbed_are_made_again(
    why: str, times: int, asked: int, *, starts: bool
) -> None:
    domain = Disturbed(why=why, times=times)
    with nullcontext() if starts else pytest.raises(libvirt.libvirtError):
        start_domain(cast("Domain", domain), libvirt.VIR_DOMAIN_START_PAUSED)
    assert domain.asked == asked


def test_a_recovered_file_keeps_the_option() -> None:
    nics = {"a": NIC, "b": MachineNic(FOREIGN, "br1", "virtio")}
    seen = [
        Observed(Key(Kind.MACHINE, "here", name), replace(MACHINE, nics=(nic,)), TAG)
        for name, nic in nics.items()
    ]
    text = cluster_file("dev", ID, read("nodes: [{}]").hosts, seen, lambda _: {})
    networks = {each.bridge: each.anti_spoofing for each in load(text, file="x").networks}
    assert networks == {"br0": True, "br1": False}


SPOOF = """#!ipxe
imgfetch --timeout 20000 tftp://{host}/undionly.kpxe &&
imgfetch --timeout 20000 http://{host}:{port}/own ||
set net0/ip {other}
imgfetch --timeout 2000 http://{host}:{port}/ip ||
clear net0/ip
set net0/mac {mac}
imgfetch --timeout 2000 http://{host}:{port}/mac ||
clear net0/mac
imgfetch --timeout 20000 http://{host}:{port}/last ||
poweroff
"""
"""What iPXE sends: TFTP and HTTP as itself, as another address, as another MAC, and as itself."""


@contextmanager
def serving(address: str, texts: dict[str, str]) -> Iterator[tuple[int, Queue[tuple[str, str]]]]:
    """Its port, and (client, path) of each request. `texts`: path -> what is answered."""
    asked: Queue[tuple[str, str]] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.put((self.client_address[0], self.path))
            body = texts.get(self.path, "x").encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's)
            """Not a word."""

    with ThreadingHTTPServer((address, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], asked
        finally:
            server.shutdown()
            thread.join()


def virsh(*argv: str) -> str:
    command = ["virsh", "-c", "qemu:///system", *argv]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with private_rack() as made:
        yield made


NODE = "{{name: {0}, firmware: bios, memory: 64MiB, disks: [16MiB], nics: [{0}], boot: {0}}}"


@pytest.mark.libvirt
@pytest.mark.boots
def test_what_a_guest_sends_as_another_never_reaches_the_bridge(rack: Rack) -> None:
    """All guests try the same: one of them may, and one may from a virtual IP."""
    name = rack.name()
    head = f"cluster: {name}\nid: {uuid4()}\n{rack.bmc()}"
    networks = (
        "networks: {kept: {netboot: builtin, host_ports: all, anti_spoofing: true}, "
        "free: {netboot: builtin, host_ports: all}, "
        "moved: {netboot: builtin, host_ports: all, anti_spoofing: true, cidr: 198.18.77.0/24, "
        "virtual_ips: 198.18.77.250}}\n"
    )
    all_ = ("kept", "free", "moved")
    nodes = f"nodes: [{', '.join(map(NODE.format, all_))}]\n"
    scripts = ", ".join(f"{each}: {{script: 'http://192.0.2.1/'}}" for each in all_)
    profiles = f"boot: {{{scripts}}}\n"
    file = rack.file(head + networks + profiles + nodes)
    rack.run("up", "--yes", file)
    with ExitStack() as stack:
        asked, others = {}, {}
        for each in all_:
            host, others[each] = places_on(rack, name, each)
            texts: dict[str, str] = {}
            port, asked[each] = stack.enter_context(serving(host, texts))
            texts["/spoof"] = SPOOF.format(host=host, port=port, other=others[each], mac=FOREIGN)
            profiles = profiles.replace("http://192.0.2.1/", f"http://{host}:{port}/spoof", 1)
        rack.file(head + networks + profiles + nodes)
        rack.run("up", "--yes", file)
        for bmc in rack.bmcs(name).values():
            rack.ipmitool(bmc, "chassis", "bootdev", "pxe")
            rack.ipmitool(bmc, "power", "on")
        heard = {each: list(until_last(queue)) for each, queue in asked.items()}
    (own, _), *_ = heard["free"]
    ways = [(own, "/spoof"), (own, "/own"), (others["free"], "/ip"), (own, "/mac"), (own, "/last")]
    assert heard["free"] == ways, "without the filter it may"
    (own, _), *_ = heard["moved"]
    ways = [(own, "/spoof"), (own, "/own"), ("198.18.77.250", "/ip"), (own, "/last")]
    assert (heard["moved"], others["moved"]) == (ways, "198.18.77.250")
    (domain,) = (
        each
        for each in virsh("list", "--all", "--name").split()
        if name in each and each.endswith("kept")
    )
    (given,) = ET.fromstring(virsh("dumpxml", domain)).iterfind("devices/interface/filterref/*")
    own = given.get("value", "")
    assert heard["kept"] == [(own, "/spoof"), (own, "/own"), (own, "/last")]


def until_last(asked: Queue[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    path = ""
    while path != "/last":
        client, path = asked.get(timeout=120)
        yield client, path


def places_on(rack: Rack, cluster: str, node: str) -> tuple[str, str]:
    """Of a node's only network: the host's address, and one that is nobody's."""
    (port,) = rack.json("node", "show", f"{cluster}/{node}")["ports"]
    bridge = port["local_link_connection"]["switch_info"]
    argv = ["ip", "-json", "-4", "addr", "show", "dev", bridge]
    shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    (place,) = json.loads(shown)[0]["addr_info"]
    network = ip_network(f"{place['local']}/{place['prefixlen']}", strict=False)
    return place["local"], str(network[-6])


@pytest.mark.libvirt
def test_a_filter_that_somebody_took_away_is_drift_and_put_back_at_power_off(rack: Rack) -> None:
    name = rack.name()
    node = "{name: n, firmware: bios, memory: 64MiB, disks: [16MiB]}"
    networks = "networks: {lan: {netboot: builtin, anti_spoofing: true}}\n"
    file = rack.file(f"cluster: {name}\nid: {uuid4()}\n{rack.bmc()}{networks}nodes: [{node}]\n")
    rack.run("up", "--yes", file)
    domain = next(each for each in virsh("list", "--all", "--name").split() if name in each)
    rack.ipmitool(rack.bmcs(name)["n"], "power", "on")
    until(lambda: virsh("domstate", domain).strip() == "running")
    (nic,) = ET.fromstring(virsh("dumpxml", domain)).iterfind("devices/interface")
    (tap,) = (each.get("dev", "") for each in nic.iterfind("target"))
    assert f"libvirt-I-{tap}" in ebtables()
    nic.remove(nic.find("filterref"))  # type: ignore[arg-type]  # it is there
    edited = rack.directory / "nic.xml"
    edited.write_text(ET.tostring(nic, encoding="unicode"))
    virsh("update-device", domain, str(edited), "--live", "--config")
    assert f"libvirt-I-{tap}" not in ebtables()
    (step,) = rack.json("plan", file)["steps"]
    (change,) = step["changes"]
    assert (change["field"], step["at_power_off"]) == ("nics", True)
    assert "sends only from" in change["desired"]
    assert "sends only from" not in change["observed"]
    rack.run("up", "--yes", file)
    assert "has to be powered off for nics" in rack.run("plan", file).stdout
    rack.ipmitool(rack.bmcs(name)["n"], "power", "cycle")
    until(lambda: tap in virsh("nwfilter-binding-list"))
    until(lambda: virsh("domstate", domain).strip() == "running")
    assert f"libvirt-I-{tap}" in ebtables()
    assert rack.run("plan", "--detailed-exitcode", file).returncode == 0
    rack.run("down", "--yes", "--purge", name)
    assert f"libvirt-I-{tap}" not in ebtables()


def ebtables() -> str:
    """What it lists, once it can: it cannot while other tests change filters (4)."""
    argv = ["ebtables", "-t", "nat", "-L"]
    listed: list[str] = []

    def lists() -> bool:
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        assert done.returncode in {0, 4}, done.stderr
        listed[:] = [done.stdout] if done.returncode == 0 else []
        return bool(listed)

    until(lists)
    return listed[0]


@pytest.mark.libvirt
def test_the_number_of_the_error_for_no_filter_is_libvirts() -> None:
    with pytest.raises(libvirt.libvirtError) as caught:
        libvirt.open("qemu:///system").nwfilterLookupByName("nospoon-has-none-of-this-name")
    assert caught.value.get_error_code() == NO_NWFILTER == libvirt.VIR_ERR_NO_NWFILTER
    assert has_filter(libvirt.open("qemu:///system")) is True
