"""An address that the real keepalived moves between two nodes of a cloud with port security."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import openstack
import pytest
from openstack.connection import Connection
from openstack.network.v2.port import Port

from nospoon.testing.cloud import OwnCloud
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")

VIRTUAL = "172.24.5.254"
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [metal.tiny], boot_address: 172.24.5.1}}
    physnets: {{external: rack}}
networks: {{lan: {{physnet: external, anti_spoofing: true{more}}}}}
nodes: [{{count: 2, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB], nics: lan}}]
"""
KEEPALIVED = """
vrrp_instance address {{
  version 3
  state BACKUP
  interface {link}
  virtual_router_id 51
  priority {priority}
  advert_int 1
  unicast_src_ip {own}
  unicast_peer {{ {other} }}
  virtual_ipaddress {{ {virtual}/24 }}
}}
"""


@dataclass(frozen=True)
class Guest:
    """A namespace in the cloud that is plugged into a port, as what runs on its server would be."""

    cloud: OwnCloud
    link: str
    address: str

    def command(self, *argv: str) -> list[str]:
        return [*inside(self.cloud), "ip", "netns", "exec", self.link, *argv]

    def run(self, *argv: str) -> str:
        done = subprocess.run(self.command(*argv), check=True, capture_output=True, text=True)
        return done.stdout

    def is_filtered(self) -> bool:
        """Whether the agent has set up port security: until then everything passes."""
        get = [*inside(self.cloud), "ovs-vsctl", "get", "Interface", self.link, "ofport"]
        number = subprocess.run(get, check=True, capture_output=True, text=True).stdout.strip()
        dump = [*inside(self.cloud), "ovs-ofctl", "--no-names", "dump-flows", "br-int", "table=71"]
        flows = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
        return any(
            f"in_port={number}," in each and f"arp_spa={self.address} " in each
            for each in flows.splitlines()
        )

    def pings(self, address: str) -> bool:
        """Whether one of three echoes is answered."""
        ping = self.command("busybox", "ping", "-q", "-c", "3", "-A", "-W", "1", address)
        done = subprocess.run(ping, check=False, capture_output=True, text=True)
        assert "packets transmitted" in done.stdout, done.stderr
        return done.returncode == 0

    def has(self, address: str) -> bool:
        return f" {address}/" in self.run("ip", "-br", "-4", "address", "show", "dev", self.link)

    @contextmanager
    def keepalived(self, priority: int, other: Guest) -> Iterator[subprocess.Popen[bytes]]:
        """It runs until the end, or until it is killed."""
        text = KEEPALIVED.format(
            link=self.link, priority=priority, own=self.address, other=other.address,
            virtual=VIRTUAL,
        )  # fmt: skip
        write = [*inside(self.cloud), "tee", f"/run/{self.link}.conf"]
        subprocess.run(write, input=text.encode(), check=True, capture_output=True)
        pids = [f"--pid=/run/{self.link}.pid", f"--vrrp_pid=/run/{self.link}-vrrp.pid"]
        flags = ["--dont-fork", "--log-console", "--vrrp", f"--use-file=/run/{self.link}.conf"]
        argv = self.command("keepalived", *flags, *pids)
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as made:
            try:
                yield made
            finally:
                self.kill()

    def kill(self) -> None:
        """Kill all that runs there."""
        listed = [*inside(self.cloud), "ip", "netns", "pids", self.link]
        pids = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
        if pids:
            subprocess.run([*inside(self.cloud), "kill", "-KILL", *pids], check=False)


def inside(cloud: OwnCloud) -> list[str]:
    return ["nsenter", "--all", f"--target={cloud.first}", "--"]


@contextmanager
def plugged(
    cloud: OwnCloud, link: str, port: Port, *, address: str = "", trunk: str = ""
) -> Iterator[Guest]:
    """A namespace with an interface of Open vSwitch, which Neutron's agent takes for the port. The
    tap that Nova keeps for a server that is off goes first: the agent knows one interface of a
    port, and removes its port security with any. `address`: where Neutron gave none. `trunk`: id of
    the port's; it has a bridge of its own, with which the tap goes.
    """
    bridge = f"tbr-{trunk}"[:14] if trunk else "br-int"
    netdev = ("set", "bridge", bridge, "datapath_type=netdev", "--")
    made = ("add-br", bridge, "--", *netdev)

    def run(*argv: str) -> None:
        subprocess.run([*inside(cloud), *argv], check=True, capture_output=True)

    run("ip", "netns", "add", link)
    ids = [f"iface-id={port.id}", f"attached-mac={port.mac_address}", "iface-status=active"]
    remove = ("del-br", bridge) if trunk else ("del-port", bridge)
    run("ovs-vsctl", "--if-exists", *remove, *(() if trunk else (f"tap{port.id[:11]}",)))
    member = connection(cloud)
    until(lambda: member.network.get_port(port.id).status == "DOWN")
    run(
        "ovs-vsctl", *(made if trunk else ()),
        "add-port", bridge, link, "--", "set", "Interface", link, "type=internal",
        *(f"external_ids:{each}" for each in ids),
    )  # fmt: skip
    try:
        run("ip", "link", "set", link, "netns", link)
        guest = Guest(cloud, link, address or port.fixed_ips[0]["ip_address"])
        guest.run("ip", "link", "set", link, "address", port.mac_address, "up")
        guest.run("ip", "address", "add", f"{guest.address}/24", "dev", link)
        yield guest
    finally:
        run("ovs-vsctl", "--if-exists", *remove, *(() if trunk else (link,)))
        run("ip", "netns", "delete", link)


def connection(cloud: OwnCloud, name: str = "nospoon-cloud") -> Connection:
    return openstack.connect(load_yaml_config=False, load_envvars=False, **cloud.login(name))


def ports_of(member: Connection, names: Sequence[str]) -> list[Port]:
    """The only port of each server."""
    servers = {each.name: each.id for each in member.compute.servers()}
    return [next(member.network.ports(device_id=servers[name])) for name in names]


def pairs(member: Connection, ports: Sequence[Port]) -> list[list[str]]:
    now = [member.network.get_port(each.id) for each in ports]
    return [[pair["ip_address"] for pair in each.allowed_address_pairs] for each in now]


@pytest.mark.timeout(600, func_only=True)
def test_keepalived_moves_a_virtual_ip_that_the_file_names(cloud: OwnCloud, rack: Rack) -> None:
    member, name = connection(cloud), rack.name()
    without = FILE.format(name=name, more="") + rack.bmc()
    file = rack.file(without)
    rack.run("up", file, "--yes")
    ports = ports_of(member, [f"{name}-node-0", f"{name}-node-1"])
    network = next(member.network.networks(name="rack"))
    third = member.network.create_port(network_id=network.id)
    admin = connection(cloud, "nospoon-cloud-admin")
    (host,) = {admin.network.get_port(each.id).binding_host_id for each in ports}
    admin.network.update_port(third.id, binding_host_id=host)
    with ExitStack() as stack:
        links = {"vip0": ports[0], "vip1": ports[1], "vip2": third}
        first, second, watcher = (
            stack.enter_context(plugged(cloud, *each)) for each in links.items()
        )
        until(lambda: all(each.is_filtered() for each in (first, second, watcher)))
        until(lambda: all(map(watcher.pings, (first.address, second.address))))
        stack.enter_context(first.keepalived(150, second))
        stack.enter_context(second.keepalived(100, first))
        until(lambda: first.has(VIRTUAL))
        assert not watcher.pings(VIRTUAL), "port security lets only a port's own address through"
        assert watcher.pings(first.address)

        rack.file(
            without.replace("anti_spoofing: true", f"anti_spoofing: true, virtual_ips: [{VIRTUAL}]")
        )
        plan = rack.json("plan", file)
        steps = [(each["action"], each["kind"]) for each in plan["steps"]]
        assert steps == [("change", "port")] * 2
        rack.run("up", file, "--yes")
        assert pairs(member, ports) == [[VIRTUAL]] * 2
        until(lambda: watcher.pings(VIRTUAL))
        until(lambda: not second.has(VIRTUAL))  # it had it, where the first was late to say so
        first.kill()
        first.run("ip", "address", "flush", "dev", first.link)
        until(lambda: second.has(VIRTUAL))
        until(lambda: watcher.pings(VIRTUAL))

        member.network.update_port(ports[1].id, allowed_address_pairs=[])
        until(lambda: not watcher.pings(VIRTUAL))
        (step,) = rack.json("plan", file)["steps"]
        (change,) = step["changes"]
        assert (change["field"], change["observed"]) == ("virtual_ips", "none")
        assert change["desired"] == f"[{VIRTUAL}]"
        rack.run("up", file, "--yes")
        assert "Nothing to do" in rack.run("plan", file).stdout
        until(lambda: watcher.pings(VIRTUAL))
    member.network.delete_port(third.id)
    rack.run("down", name, "--yes")
