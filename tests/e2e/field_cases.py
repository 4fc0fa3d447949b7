"""For each field of the cluster file a change of it, and what is to be seen of that on libvirt."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import shutil
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4
from xml.etree import ElementTree as ET

import bcrypt
from cryptography import x509
from cryptography.x509.oid import NameOID
from pydantic import BaseModel
from tests.e2e.standing import SERVED, Changes, Standing, output, virsh

from nospoon.clusterfile.bmcs import BmcSection, NodeBmcSection, PduSection, TlsSection
from nospoon.clusterfile.changes import Rule, rule_of
from nospoon.clusterfile.hardware import DiskSection, HardwareSection, NicSection, PortgroupSection
from nospoon.clusterfile.models import (
    BootProfileSection,
    ClusterFile,
    HostSection,
    NetworkSection,
    OvercommitSection,
)
from nospoon.clusterfile.node_groups import (
    NodeGroupSection,
    NodeSection,
    PlacementSection,
)
from nospoon.testing.alone import alone

Look = Callable[[Standing], Any]
LookInXml = Callable[[ET.Element], Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A change of one field: `before` and `after` in the file, and what `look` sees of it then.

    `rule`: where it differs from the table's, for the field's parts have rules of their own.
    `around`: what is to be so while it is tried.
    """

    section: type[BaseModel]
    field: str
    after: Changes
    becomes: Any = True
    look: Look | None = None
    xml: LookInXml | None = None
    before: Changes = dataclasses.field(default_factory=dict)
    rule: Rule | None = None
    around: Callable[[Standing], AbstractContextManager[None]] = lambda _: nullcontext()

    @property
    def expected(self) -> Rule:
        return self.rule or rule_of(self.section, self.field)

    def seen(self, standing: Standing, *, live: bool = False) -> Any:
        if self.xml is not None:
            return self.xml(standing.xml(live=live))
        assert self.look is not None
        return self.look(standing)


def text(path: str) -> LookInXml:
    return lambda root: root.findtext(path)


def attribute(path: str, name: str) -> LookInXml:
    return lambda root: [each.get(name) for each in root.iterfind(path)]


def of_first_disk(part: str, name: str) -> LookInXml:
    return lambda root: attribute(f"devices/disk/{part}", name)(root)[0]


def bridge_of(nic: int) -> LookInXml:
    return lambda root: attribute("devices/interface/source", "bridge")(root)[nic]


def row(column: str) -> Look:
    """A column of `bmc list`, after ipmitool has got in with what stands there."""

    def look(standing: Standing) -> str:
        bmc = standing.bmc
        standing.rack.ipmitool(bmc, "power", "status")
        return bmc[column]

    return look


def by_key(standing: Standing) -> bool:
    """Whether the BMC asks for K_G, and is content with ours."""
    argv = ("-N", "1", "-R", "1", "-y", KEY, "power", "status")
    try:
        return "on" in standing.rack.ipmitool(standing.bmc, *argv)
    except AssertionError:
        return False


WORD = "follow the white rabbit"
HASH = bcrypt.hashpw(WORD.encode(), bcrypt.gensalt(4)).decode()


def by_hash(standing: Standing) -> bool:
    """Whether Redfish lets in who knows the password, of which the file has the hash."""
    secret = base64.b64encode(f"{standing.bmc['username']}:{WORD}".encode()).decode()
    request = Request(standing.bmc["redfish"], headers={"Authorization": f"Basic {secret}"})
    try:
        with urlopen(request, timeout=60) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except HTTPError as error:
        if error.code != HTTPStatus.UNAUTHORIZED:
            raise
        return False


ONE = {"certificate": "one.pem", "key": "one.key"}


def without_login(standing: Standing) -> bool:
    """Whether Redfish answers to those who do not log in."""
    try:
        with urlopen(row("redfish")(standing), timeout=60) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except HTTPError as error:
        if error.code != HTTPStatus.UNAUTHORIZED:
            raise
        return False


def certificate(standing: Standing) -> str:
    """The name in the certificate that Redfish is served with now."""
    host, _, port = row("redfish")(standing).split("/")[2].rpartition(":")
    served = x509.load_pem_x509_certificate(ssl.get_server_certificate((host, int(port))).encode())
    (name,) = served.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(name.value)


def exported(standing: Standing) -> str:
    """The inventory of a cluster of which no Ironic is told."""
    return standing.rack.run("export", "--to", "ansible", standing.name).stdout


def told(column: str) -> Look:
    """What `status` says of the node."""

    def look(standing: Standing) -> Any:
        rows = standing.rack.json("status", standing.name)
        return next(each for each in rows if each["node"] == "n").get(column)

    return look


def of_bond(name: str) -> Look:
    """A field of the first portgroup, as Ironic calls it."""
    return lambda standing: told("portgroups")(standing)[0][name]


def boots_with(part: str) -> Look:
    return lambda standing: any(part in each for each in standing.booted())


def shown(key: str) -> Look:
    return lambda standing: standing.rack.json("node", "show", f"{standing.name}/n").get(key)


def of_bridge(key: str) -> Look:
    return lambda standing: standing.link(standing.bridge)[key]


def plugged(standing: Standing) -> tuple[int, bool]:
    """The MTU of the network, and whether the running node's port is (again) on it."""
    bridge = standing.bridge
    return standing.link(bridge)["mtu"], standing.link(standing.port)["master"] == bridge


def capacity(disk: str) -> Look:
    """Bytes of a disk, as the running QEMU says."""

    def look(standing: Standing) -> int:
        info = virsh("domblkinfo", standing.domain, disk)
        return int(re.findall(r"Capacity:\s+(\d+)", info)[0])

    return look


def backing(standing: Standing) -> str:
    """The image on which the first disk is based, by the beginning of its name's digest."""
    (path,) = (standing.rack.directory / "pool").rglob("n-0.*.qcow2")
    told = json.loads(output("qemu-img", "info", "-U", "--output", "json", str(path)))
    return str(told["backing-filename"]).partition("--")[2][:8]


def served_range(standing: Standing) -> list[str]:
    lines = [line for path in standing.served() for line in path.read_text().splitlines()]
    return [line.partition(",")[0] for line in lines if line.startswith("dhcp-range")]


def rules_of_nat(_: Standing) -> bool:
    return "198.51.100.128/26" in output("iptables-save")


KEY = "a0112233445566778899aabbccddeeff00112233"
N = "nodes/0"
LAN = "networks/lan"
CIDR = "198.51.100.64/26"  # TEST-NET-2 (RFC 5737)


@contextmanager
def at_port_623(standing: Standing) -> Iterator[None]:
    """IPMI's own port, which one daemon on a machine has: given back at the end."""
    with alone("port-623"):
        try:
            yield
        finally:
            standing.up()


THEIRS = f"nst{uuid4().hex[:8]}"


@contextmanager
def volumes_of_others(standing: Standing) -> Iterator[None]:
    """A storage pool that is not nospoon's."""
    directory = standing.rack.directory / THEIRS
    directory.mkdir(mode=0o711)
    virsh("pool-create-as", THEIRS, "dir", "--target", str(directory))
    for name in ("a.qcow2", "a.raw", "b.raw"):
        virsh("vol-create-as", THEIRS, name, "4MiB", "--format", name[2:])
    try:
        yield
    finally:
        standing.up()
        standing.run()
        virsh("pool-destroy", THEIRS)
        shutil.rmtree(directory)


# fmt: off
CASES = (
    Case(section=ClusterFile, field="id",
         after={"id": "5f2c3a60-5f0e-4a3f-9d7e-0123456789ab"}, becomes="the file pins"),
    Case(section=HostSection, field="simulated",
         after={"hosts/here": {"simulated": {}}}, becomes="there is still what is the cluster's"),
    Case(section=HostSection, field="physnets", after={"hosts/here/physnets/p": "<two>"},
         xml=bridge_of(2), becomes="<two>"),
    Case(section=HostSection, field="drained", after={"hosts/here/drained": True}),
    Case(section=OvercommitSection, field="cpus", after={"hosts/here/overcommit/cpus": 2}),
    Case(section=OvercommitSection, field="memory", after={"hosts/here/overcommit/memory": 2}),
    Case(section=OvercommitSection, field="disk", after={"hosts/here/overcommit/disk": 2}),
    Case(section=NetworkSection, field="cidr", before={f"{LAN}/cidr": "198.51.100.0/26"},
         after={f"{LAN}/cidr": CIDR}, look=served_range, becomes=["dhcp-range=198.51.100.66"]),
    Case(section=NetworkSection, field="netboot", after={f"{LAN}/netboot": "none"},
         look=Standing.served, becomes=[]),
    Case(section=NetworkSection, field="mtu", after={f"{LAN}/mtu": 1400},
         look=plugged, becomes=(1400, True)),
    Case(section=NetworkSection, field="nat", before={f"{LAN}/cidr": "198.51.100.128/26"},
         after={f"{LAN}/nat": True}, look=rules_of_nat),
    Case(section=NetworkSection, field="host_ports", after={f"{LAN}/host_ports": [7777]},
         look=lambda _: "--dport 7777 -j RETURN" in output("iptables-save")),
    Case(section=NetworkSection, field="anti_spoofing", after={f"{LAN}/anti_spoofing": True},
         xml=attribute("devices/interface/filterref", "filter"), becomes=["clean-traffic"]),
    Case(section=NetworkSection, field="virtual_ips",
         before={f"{LAN}/cidr": "198.51.100.0/26", f"{LAN}/anti_spoofing": True},
         after={f"{LAN}/virtual_ips": "198.51.100.60"},
         xml=attribute("devices/interface/filterref/parameter", "value"),
         becomes=["198.51.100.2", "198.51.100.60"]),
    Case(section=NetworkSection, field="physnet", after={"networks/phys/physnet": "q"},
         xml=bridge_of(2), becomes="<two>"),
    Case(section=NetworkSection, field="bridge", after={"networks/ext/bridge": "<two>"},
         xml=bridge_of(1), becomes="<two>"),
    Case(section=NetworkSection, field="vlan", after={"networks/tagged/vlan": 101},
         xml=attribute("devices/interface/vlan/tag", "id"), becomes=["101"]),
    Case(section=NetworkSection, field="switch",
         after={"networks/ext": {"bridge": "<ovs>", "switch": "ovs"}},
         xml=lambda root: len(root.findall("devices/interface/virtualport")), becomes=2),
    Case(section=HardwareSection, field="cpus", after={f"{N}/cpus": 2},
         xml=text("vcpu"), becomes="2"),
    Case(section=HardwareSection, field="memory", after={f"{N}/memory": "80MiB"},
         xml=text("memory"), becomes=str(80 << 10)),
    Case(section=HardwareSection, field="arch", before={f"{N}/firmware": "uefi"},
         after={f"{N}/arch": "aarch64"}, xml=attribute("os/type", "arch"), becomes=["aarch64"]),
    Case(section=HardwareSection, field="firmware", after={f"{N}/firmware": "uefi"},
         xml=lambda root: root.find("os").get("firmware"), becomes="efi"),  # type: ignore[union-attr]
    Case(section=HardwareSection, field="tpm", before={f"{N}/firmware": "uefi"},
         after={f"{N}/tpm": True}, xml=lambda root: len(root.findall("devices/tpm")), becomes=1),
    Case(section=HardwareSection, field="disks", after={f"{N}/disks/1": "8MiB"},
         xml=lambda root: len(root.findall("devices/disk/serial")), becomes=2),
    Case(section=HardwareSection, field="nics", after={f"{N}/nics/4": "lan"},
         xml=lambda root: len(root.findall("devices/interface")), becomes=5),
    Case(section=HardwareSection, field="boot", before=SERVED, after={f"{N}/boot": "b"},
         look=lambda standing: "kernel b" in standing.booted()),
    Case(section=HardwareSection, field="boot_order", after={f"{N}/boot_order": ["network"]},
         xml=lambda root: len(root.findall("devices/disk/boot")), becomes=0),
    Case(section=HardwareSection, field="restore", after={f"{N}/restore": "off"},
         look=lambda standing: "always-off" in standing.rack.ipmitool(
             standing.bmc, "chassis", "status")),
    Case(section=NodeSection, field="host", after={f"{N}/host": "there"},
         look=lambda standing: "n" in standing.domains(), becomes=False),
    Case(section=NodeSection, field="labels", after={f"{N}/labels": {"rack": "7"}}),
    Case(section=NodeSection, field="traits", after={f"{N}/traits": ["CUSTOM_GOLD"]},
         look=lambda standing: "custom_gold" in exported(standing)),
    Case(section=NodeGroupSection, field="flavor", after={f"{N}/flavor": "big"},
         xml=text("vcpu"), becomes="2", rule=Rule.AT_POWER_OFF),
    Case(section=ClusterFile, field="flavors", after={"flavors/small/cpus": 2},
         xml=text("vcpu"), becomes="2", rule=Rule.AT_POWER_OFF),
    Case(section=NodeGroupSection, field="overrides", after={f"{N}/overrides": {"n": {"cpus": 2}}},
         xml=text("vcpu"), becomes="2", rule=Rule.AT_POWER_OFF),
    Case(section=NodeGroupSection, field="count", after={"nodes/1/count": 2},
         look=Standing.domains, becomes={"n", "m0", "m1"}),
    Case(section=NodeGroupSection, field="name", after={"nodes/1/name": "k{n}"},
         look=Standing.domains, becomes={"n", "k0"}),
    Case(section=NodeGroupSection, field="start", after={"nodes/1/start": 3},
         look=Standing.domains, becomes={"n", "m3"}),
    Case(section=PlacementSection, field="strategy", after={f"{N}/placement": "pack"}),
    Case(section=PlacementSection, field="affinity",
         after={f"{N}/placement": {"affinity": "flavor"}}),
    Case(section=PlacementSection, field="anti_affinity",
         after={f"{N}/placement": {"anti_affinity": "flavor"}}),
    Case(section=DiskSection, field="size", after={f"{N}/disks/0": "24MiB"},
         look=capacity("vda"), becomes=24 << 20),
    Case(section=DiskSection, field="size", after={f"{N}/disks/0": "8MiB"},
         look=capacity("vda"), becomes=8 << 20, rule=Rule.REPLACE),
    Case(section=DiskSection, field="image", before={f"{N}/disks/0": {"image": "a.raw"}},
         after={f"{N}/disks/0": {"image": "b.raw"}}, rule=Rule.REPLACE,
         look=backing, becomes="e56ec8dc"),
    Case(section=DiskSection, field="bus", after={f"{N}/disks/0": {"size": "16MiB", "bus": "sata"}},
         xml=of_first_disk("target", "bus"), becomes="sata"),
    Case(section=DiskSection, field="serial",
         after={f"{N}/disks/0": {"size": "16MiB", "serial": "mine"}},
         xml=text("devices/disk/serial"), becomes="mine"),
    *(Case(section=DiskSection, field=name, becomes=becomes,
           before={f"{N}/disks/0": {"size": "16MiB", "bus": "scsi"}},
           after={f"{N}/disks/0/{name}": value}, xml=of_first_disk(part, called))
      for name, value, part, called, becomes in (
          ("rotational", True, "target", "rotation_rate", "7200"),
          ("cache", "none", "driver", "cache", "none"),
          ("discard", "ignore", "driver", "discard", "ignore"))),
    *(Case(section=DiskSection, field=name, around=volumes_of_others, becomes=becomes,
           before={f"{N}/disks/0": {"volume": f"{THEIRS}/a.qcow2", "format": "qcow2"}},
           after={f"{N}/disks/0": after}, xml=of_first_disk(part, called))
      for name, after, part, called, becomes in (
          ("volume", {"volume": f"{THEIRS}/b.raw"}, "source", "volume", "b.raw"),
          ("format", {"volume": f"{THEIRS}/a.raw"}, "driver", "type", "raw"))),
    Case(section=ClusterFile, field="throwaway", after={"throwaway": True},
         xml=of_first_disk("driver", "cache"), becomes="unsafe"),
    Case(section=NicSection, field="network", after={f"{N}/nics/0/network": "ext"},
         xml=bridge_of(0), becomes="<one>"),
    Case(section=NicSection, field="mac", after={f"{N}/nics/0/mac": "02:00:00:00:00:77"},
         xml=lambda root: attribute("devices/interface/mac", "address")(root)[0],
         becomes="02:00:00:00:00:77"),
    Case(section=NicSection, field="model", after={f"{N}/nics/0/model": "e1000e"},
         xml=lambda root: attribute("devices/interface/model", "type")(root)[0], becomes="e1000e"),
    Case(section=NicSection, field="trunk", after={f"{N}/nics/3/trunk": [102, 101]},
         xml=attribute("devices/interface/vlan/tag", "id"), becomes=["100", "101", "102"]),
    Case(section=NicSection, field="portgroup", before={f"{N}/portgroups": {"b": {}, "c": {}},
         f"{N}/nics/1/network": "lan", f"{N}/nics/2/network": "lan",
         f"{N}/nics/0/portgroup": "b", f"{N}/nics/1/portgroup": "c", f"{N}/nics/2/portgroup": "b"},
         after={f"{N}/nics/0/portgroup": "c"},
         look=lambda standing: [len(each["ports"]) for each in told("portgroups")(standing)],
         becomes=[1, 2]),
    *(Case(section=PortgroupSection, field=name,
           before={f"{N}/portgroups": {"b": {}}, f"{N}/nics/0/portgroup": "b"},
           after={f"{N}/portgroups/b/{name}": value}, becomes=value,
           look=of_bond(name))
      for name, value in (("mode", "802.3ad"), ("address", "02:00:00:00:00:66"),
                          ("properties", {"miimon": "100"}),
                          ("standalone_ports_supported", False))),
    Case(section=NodeBmcSection, field="protocols", after={f"{N}/bmc/protocols": ["ipmi", "pdu"]},
         look=row("redfish"), becomes=""),
    Case(section=NodeBmcSection, field="port", after={f"{N}/bmc/port": "<port+350>"},
         look=row("ipmi"), becomes="127.0.0.1:<port+350>"),
    Case(section=NodeBmcSection, field="address",
         after={f"{N}/bmc": {"address": "127.0.0.2", "port": "<port+350>"}},
         look=row("ipmi"), becomes="127.0.0.2:<port+350>"),
    Case(section=NodeBmcSection, field="username", after={f"{N}/bmc/username": "neo"},
         look=row("username"), becomes="neo"),
    Case(section=NodeBmcSection, field="password", after={f"{N}/bmc/password": "white rabbit"},
         look=row("password"), becomes="white rabbit"),
    Case(section=NodeBmcSection, field="k_g", after={f"{N}/bmc/k_g": KEY}, look=by_key),
    Case(section=BmcSection, field="k_g", after={"bmc/k_g": KEY}, look=by_key),
    *(Case(section=BootProfileSection, field=name, before=SERVED,
           after={f"boot/a/{name}": value}, look=boots_with(part))
      for name, value, part in (("kernel", "kernel-b", "kernel b"), ("cmdline", "new=1", "new=1"),
                                ("initrd", "kernel-b", "kernel b"))),
    Case(section=BootProfileSection, field="script", before=SERVED,
         after={"boot/a": {"script": "http://192.0.2.1/x.ipxe"}},
         look=boots_with("http://192.0.2.1/x.ipxe")),
    Case(section=BmcSection, field="address", after={"bmc/address": "127.0.0.2"},
         look=lambda standing: row("ipmi")(standing).partition(":")[0], becomes="127.0.0.2"),
    Case(section=BmcSection, field="ports", after={"bmc/ports": "<port+300>-<port+320>"},
         look=row("ipmi"), becomes="127.0.0.1:<port+300>"),
    Case(section=BmcSection, field="redfish_port", after={"bmc/redfish_port": "<port+400>"},
         look=lambda standing: row("redfish")(standing).split("/")[2],
         becomes="127.0.0.1:<port+400>"),
    Case(section=BmcSection, field="redfish_auth", after={"bmc/redfish_auth": "none"},
         look=without_login),
    Case(section=BmcSection, field="tls", after={"bmc/tls": True},
         look=lambda standing: row("redfish")(standing).partition(":")[0], becomes="https"),
    Case(section=TlsSection, field="certificate", before={"bmc/tls": ONE},
         after={"bmc/tls/certificate": "renewed.pem"}, look=certificate, becomes="renewed"),
    Case(section=TlsSection, field="key", before={"bmc/tls": ONE},
         after={"bmc/tls": {"certificate": "two.pem", "key": "two.key"}},
         look=certificate, becomes="two"),
    Case(section=BmcSection, field="pool", around=at_port_623,
         after={"bmc": {"pool": "127.77.0.0/28", "redfish_port": "<port+0>"}},
         look=row("ipmi"), becomes="127.77.0.1:623"),
    Case(section=BmcSection, field="username", after={"bmc/username": "trinity"},
         look=row("username"), becomes="trinity"),
    Case(section=BmcSection, field="password", after={"bmc/password": "follow"},
         look=row("password"), becomes="follow"),
    Case(section=BmcSection, field="password_hash",
         before={"nodes/0/bmc": ["redfish"], "nodes/1/bmc": ["redfish"]},
         after={"bmc/password_hash": HASH}, look=by_hash),
    Case(section=PduSection, field="outlets", before={"nodes/1/bmc": ["pdu"]},
         after={"bmc/pdu/outlets": 1}, becomes="1",
         look=lambda each: each.rack.bmcs(each.name)["m0"]["pdu"].rpartition(" ")[2]),
    Case(section=PduSection, field="ports", after={"bmc/pdu/ports": "<port+480>-<port+489>"},
         look=row("pdu"), becomes="127.0.0.1:<port+480> outlet 1"),
    Case(section=PduSection, field="secret", after={"bmc/pdu/secret": "there is no spoon"},
         look=row("pdu_secret"), becomes="there is no spoon"),
    Case(section=PduSection, field="v2c", before={"nodes/1/bmc": ["pdu"]},
         after={"bmc/pdu/v2c": False}, look=row("pdu_community"), becomes=""),
)
# fmt: on
