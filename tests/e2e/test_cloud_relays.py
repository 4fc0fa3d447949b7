"""A relay of a cloud in memory: a real ssh server, through which guests ask a daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nospoon.testing.cloud_connection import fake_cloud
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.own_network import own_network
from nospoon.testing.rack import Rack, private_rack
from nospoon.testing.relay import RelayMachines, free_place, relay_machines

CLUSTER = """
cluster: relayed
hosts:
  cloud:
    openstack: {{cloud: {settings}, flavors: [metal.512], relay: {{{relay}}}}}
    physnets: {{external: external, other: other}}
networks: {{external: {{physnet: external}}, other: {{physnet: other}}}}
nodes: [{{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB],
  nics: [{{network: external}}, {{network: other}}]}}]
"""


@dataclass
class Relayed:
    """A cluster with a relay. `address`: of the relay, on loopback."""

    cloud: FakeCloud
    rack: Rack
    address: str
    port: int
    bmc: str

    def file(self, more: str = "", **changes: str | int) -> str:
        usual = {"network": "external", "image": "debian-12", "flavor": "metal.512",
                 "address": self.address, "port": self.port}  # fmt: skip
        relay = ", ".join(f"{key}: {value}" for key, value in {**usual, **changes}.items())
        settings = json.dumps({"name": "mine", **self.cloud.settings})
        return self.rack.file(CLUSTER.format(settings=settings, relay=relay + more) + self.bmc)

    async def run(self, *argv: str) -> str:
        done = await asyncio.to_thread(self.rack.run, *argv)
        return done.stdout

    async def plan(self, more: str = "", **changes: str | int) -> dict[str, str]:
        """Kind and name -> action."""
        file = self.file(more, **changes)
        told = await asyncio.to_thread(self.rack.json, "plan", file)
        return {f"{each['kind']} {each['name']}": each["action"] for each in told["steps"]}

    async def asks(self, path: str) -> str:
        """What a guest gets of the relay: the last word of the status line, and the body."""
        reader, writer = await asyncio.open_connection(self.address, 8069)
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        async with asyncio.timeout(60):
            answer = (await reader.read()).decode()
        writer.close()
        head, _, body = answer.partition("\r\n\r\n")
        return f"{head.split()[1]} {body}"


@pytest.fixture(autouse=True)
def network() -> Iterator[None]:
    """IPMI's own port is free there, which another test may have on all addresses here."""
    with own_network():
        yield


@pytest.fixture
async def relayed() -> AsyncIterator[Relayed]:
    async with fake_cloud() as cloud:
        cloud.networks["n0"]["project_id"] = "0" * 32  # its own: MACs may be chosen there
        cloud.networks["n1"] = {**cloud.networks["n0"], "id": "n1", "name": "other"}
        cloud.networks["n1"]["router:external"] = False
        for name in ("debian-12", "debian-13"):
            cloud.images[name] = {"id": name, "name": name, "status": "active"}
        with relay_machines() as machines, private_rack() as rack:
            cloud.boots, cloud.ends = machines.boot, machines.end
            address, port = free_place()
            yield Relayed(cloud, rack, address, port, rack.bmc())


async def test_guests_ask_with_their_secret_alone_through_a_relay(relayed: Relayed) -> None:
    before = relayed.cloud.everything()
    await relayed.run("up", relayed.file(), "--yes")
    servers = {each["name"]: id_ for id_, each in relayed.cloud.servers.items()}
    mac = next(
        each["mac_address"]
        for each in relayed.cloud.ports.values()
        if each["device_id"] == servers["relayed-n"]
    )
    told = await relayed.asks(f"/boot/{servers['relayed-n']}/ipxe")
    assert told.startswith("200 #!ipxe")
    assert (await relayed.asks(f"/boot/mac/{mac}/ipxe")).startswith("404")
    grub = await relayed.asks(f"/boot/{servers['relayed-n']}/grub")
    assert grub.startswith("404"), "no other loader asks through it"
    name = (await asyncio.to_thread(relayed.rack.json, "bmc", "list"))[0]["redfish"]
    own = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", name)
    assert own is not None
    assert (await relayed.asks(f"/boot/{own.group()}/ipxe")).startswith("404"), "others know it"
    assert (await relayed.asks("/v1/clusters")).startswith("404")
    assert (await relayed.asks(f"/lab/mac/{mac}/ipxe")).startswith("404")

    await relayed.run("daemon", "stop")
    with pytest.raises(ConnectionRefusedError):
        await relayed.asks("/boot")
    await relayed.run("status")
    asked = f"/boot/{servers['relayed-n']}/ipxe"

    async def answered() -> bool:
        try:
            return (await relayed.asks(asked)).startswith("200")
        except ConnectionError:
            return False

    async with asyncio.timeout(120):
        while not await answered():  # noqa: ASYNC110
            await asyncio.sleep(0.1)  # a daemon that starts opens its tunnels
    await relayed.run("down", "relayed", "--yes")
    assert relayed.cloud.everything() == before
    with pytest.raises(ConnectionRefusedError):
        await relayed.asks("/boot")


async def test_changes_of_a_relay_follow_their_rules(relayed: Relayed) -> None:
    await relayed.run("up", relayed.file(), "--yes")
    replaced = {"relay relay": "replace"}
    assert await relayed.plan() == {}
    assert await relayed.plan(", nameservers: [192.0.2.1]") == {}, "where Neutron serves DHCP"
    assert await relayed.plan(image="debian-13") == replaced
    assert await relayed.plan(flavor="metal.2048") == replaced
    assert await relayed.plan(port=relayed.port + 1) == replaced
    relayed.bmc, usual = relayed.rack.bmc(pool="127.99.0.0/24"), relayed.bmc
    assert (await relayed.plan(", bmcs: true"))["relay relay"] == "replace"
    relayed.bmc = usual
    moved = await relayed.plan(address="127.0.0.9")
    assert sorted((name.rstrip("0123456789abcdef"), action) for name, action in moved.items()) == [
        ("boot-image boot-bios-", "create"), ("boot-image boot-bios-", "delete"),
        ("machine n", "replace"), ("port relay", "change"), ("relay relay", "replace"),
    ]  # fmt: skip
    assert await relayed.plan(network="other") == {"port relay": "replace"}
    assert await relayed.plan(", floating_ip: external") == {"floating-ip relay": "create"}
    chosen = ", floating_ip: external, floating_address: 203.0.113.9"
    assert await relayed.plan(chosen) == {"floating-ip relay": "create"}

    servers = set(relayed.cloud.servers)
    node = next(i for i, each in relayed.cloud.servers.items() if each["name"] == "relayed-n")
    await relayed.run("up", relayed.file(image="debian-13"), "--yes")
    assert await relayed.plan(image="debian-13") == {}
    assert servers & set(relayed.cloud.servers) == {node}, "the node stays"
    assert (await relayed.asks(f"/boot/{node}/ipxe")).startswith("200")
    await relayed.run("down", "relayed", "--yes")


async def test_its_drift_is_shown_and_repaired(relayed: Relayed) -> None:
    file = relayed.file()
    await relayed.run("up", file, "--yes")
    (id_,) = (i for i, each in relayed.cloud.servers.items() if each["name"] == "relayed-relay")
    relayed.cloud.remove(id_)
    assert await relayed.plan() == {"relay relay": "create"}
    await relayed.run("up", file, "--yes")
    (id_,) = (i for i, each in relayed.cloud.servers.items() if each["name"] == "relayed-relay")
    relayed.cloud.servers[id_]["status"] = "SHUTOFF"
    assert "its server is SHUTOFF" in await relayed.run("plan", file)
    await relayed.run("up", file, "--yes")
    assert await relayed.plan() == {}
    assert relayed.cloud.acted.count("os-start") == 1
    await relayed.run("down", "relayed", "--yes")


SEEN = "203.0.113.7"
"""What the cloud in memory gives as a floating IP."""
NETWORKS = f"""
ip netns add {{relay}}
ip netns add {{client}}
ip link add ns-up type veth peer name wan netns {{relay}}
ip address add 203.0.113.1/24 dev ns-up
ip link set ns-up up
ip -n {{relay}} address add {SEEN}/24 dev wan
ip -n {{relay}} link set wan up
ip -n {{relay}} link set lo up
ip -n {{relay}} link add lan type veth peer name lan netns {{client}}
ip -n {{relay}} address add 10.78.0.254/24 dev lan
ip -n {{relay}} link set lan mtu 1442
ip -n {{relay}} link set lan up
ip -n {{client}} address add 10.78.0.10/24 dev lan
ip -n {{client}} link set lan up
"""
"""The daemon here, a relay that it reaches, and a client that reaches the relay alone."""


@contextlib.contextmanager
def networks() -> Iterator[tuple[str, str]]:
    relay, client = (f"t-{each}-{os.getpid()}" for each in ("relay", "client"))
    with own_network():
        try:
            for line in NETWORKS.format(relay=relay, client=client).strip().splitlines():
                subprocess.run(line.split(), check=True)
            yield relay, client
        finally:
            for each in (relay, client):
                subprocess.run(["ip", "netns", "delete", each], check=False)


def said(client: str, *argv: str) -> str:
    """What a command there says."""
    line = ["ip", "netns", "exec", client, *argv]
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


async def test_bmcs_answer_on_the_network_of_the_relay_each_at_its_address() -> None:
    with networks() as (relay, client):
        async with fake_cloud() as cloud:
            cloud.networks["n0"]["project_id"] = "0" * 32
            cloud.networks["n1"] = {**cloud.networks["n0"], "id": "n1", "name": "other"}
            cloud.images["i"] = {"id": "i", "name": "debian-12", "status": "active"}
            inside = ["ip", "netns", "exec", relay]
            with relay_machines(*inside) as machines, private_rack() as rack:
                cloud.boots, cloud.ends = machines.boot, machines.end
                bmc = rack.bmc(pool="10.78.0.128/25")
                relayed = Relayed(cloud, rack, "10.78.0.254", 22, bmc)
                await relayed.run("up", relayed.file(", bmcs: true, floating_ip: n0"), "--yes")
                (found,) = (await asyncio.to_thread(rack.bmcs, "relayed")).values()
                address = found["ipmi"].partition(":")[0]
                assert address == "10.78.0.129"
                login = ["-U", found["username"], "-P", found["password"], "-H", address]

                def ipmitool(*argv: str) -> str:
                    return said(client, "ipmitool", "-I", "lanplus", *login, *argv)

                async def ipmi(*argv: str) -> str:
                    return await asyncio.to_thread(ipmitool, *argv)

                assert "Chassis Power is off" in await ipmi("power", "status")
                assert "Set Boot Device to pxe" in await ipmi("chassis", "bootdev", "pxe")
                assert "Up/On" in await ipmi("power", "on")
                (server,) = (e for e in cloud.servers.values() if e["name"] == "relayed-n")
                async with asyncio.timeout(60):
                    while "is on" not in await ipmi("power", "status"):  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                assert server["status"] == "ACTIVE"
                url = found["redfish"].partition("/redfish")[0]
                root = await asyncio.to_thread(said, client, "curl", "-s", f"{url}/redfish/v1")
                assert json.loads(root)["RedfishVersion"]
                others = url.replace(address, "10.78.0.200")
                silent = ["curl", "-s", "-S", "--max-time", "20", f"{others}/redfish/v1"]
                assert "curl: (" in await asyncio.to_thread(said, client, *silent)
                await relayed.run("down", "relayed", "--yes")
                assert "Unable to establish" in await ipmi("power", "status")


SERVED = """
cluster: served
hosts:
  cloud:
    openstack:
      cloud: {settings}
      flavors: [metal.512]
      relay: {{network: lab, image: debian-12, flavor: metal.512, floating_ip: n0,
        address: 10.78.0.254, nameservers: [192.0.2.53]}}
networks: {{lab: {{nat: true, cidr: 10.78.0.0/24, netboot: builtin}}}}
nodes: [{nodes}]
"""
NODE = "{{name: {}, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB], nics: [lab]}}"
LEASED = '#!/bin/sh\n[ "$1" = bound ] && env\nexit 0\n'


@dataclass
class Lab:
    """A network of a cloud on which a relay serves DHCP. `client`: a namespace on it."""

    cloud: FakeCloud
    machines: RelayMachines
    rack: Rack
    client: str
    script: Path

    def file(self, *nodes: str) -> str:
        settings = json.dumps({"name": "mine", **self.cloud.settings})
        listed = ", ".join(NODE.format(each) for each in nodes)
        return self.rack.file(SERVED.format(settings=settings, nodes=listed) + self.rack.bmc())

    async def up(self, *nodes: str) -> str:
        file = self.file(*nodes)
        await asyncio.to_thread(self.rack.run, "up", file, "--yes")
        return file

    async def plan(self, file: str) -> dict[str, str]:
        told = await asyncio.to_thread(self.rack.json, "plan", file)
        return {f"{each['kind']} {each['name']}": each["why"] for each in told["steps"]}

    def port(self, node: str) -> dict[str, Any]:
        """Of a node's only NIC."""
        (found,) = (e for e in self.cloud.ports.values() if e.get("name") == f"served-{node}-0")
        return found

    async def leased(self, mac: str, *, tries: int = 10) -> dict[str, str]:
        """What DHCP gives a NIC with this MAC, {} where nothing answers."""
        link = ["link", "set", "lan", "down", "address", mac]
        await asyncio.to_thread(said, self.client, "ip", *link)
        await asyncio.to_thread(said, self.client, "ip", "link", "set", "lan", "up")
        client = ["busybox", "udhcpc", "-i", "lan", "-n", "-q", "-f", "-t", str(tries), "-T", "1"]
        options = ["-s", str(self.script), "-O", "bootfile", "-O", "mtu", "-x", "0x5d:0000"]
        answer = await asyncio.to_thread(said, self.client, *client, *options)
        return dict(line.split("=", 1) for line in answer.splitlines() if "=" in line)

    async def fetched(self, url: str) -> str:
        return await asyncio.to_thread(said, self.client, "curl", "-s", "-S", url)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    script = tmp_path / "leased"
    script.write_text(LEASED)
    script.chmod(0o755)
    with networks() as (relay, client):
        async with fake_cloud() as cloud:
            cloud.images["i"] = {"id": "i", "name": "debian-12", "status": "active"}
            inside = ["ip", "netns", "exec", relay]
            with relay_machines(*inside) as machines, private_rack() as rack:
                cloud.boots, cloud.ends = machines.boot, machines.end
                yield Lab(cloud, machines, rack, client, script)


async def until_served(lab: Lab, mac: str, address: str) -> None:
    async with asyncio.timeout(120):
        while (await lab.leased(mac)).get("ip") != address:
            pass  # its client waits


async def login(lab: Lab, node: str) -> str:
    """Where ssh is to find a node."""
    told = await asyncio.to_thread(lab.rack.client.get, f"/v1/nodes/served/{node}/login")
    return str(told["address"])


async def test_a_relay_serves_dhcp_and_tftp_to_the_nodes_of_its_network(lab: Lab) -> None:
    before = lab.cloud.everything()
    file = await lab.up("n")
    assert await lab.plan(file) == {}
    changed = Path(file).read_text().replace("[192.0.2.53]", "[192.0.2.54]")
    assert set(await lab.plan(lab.rack.file(changed))) == {"network lab"}
    (subnet,) = (each for each in lab.cloud.subnets.values() if each["cidr"] == "10.78.0.0/24")
    assert (subnet["enable_dhcp"], subnet["dns_nameservers"]) == (False, ["192.0.2.53"])
    port = lab.port("n")
    assert [each["ip_address"] for each in port["fixed_ips"]] == ["10.78.0.2"]

    told = await lab.leased(port["mac_address"])
    assert (told["ip"], told["router"], told["dns"]) == ("10.78.0.2", "10.78.0.1", "10.78.0.254")
    assert (told["siaddr"], told["bootfile"]) == ("10.78.0.254", "undionly.kpxe")
    assert told["mtu"] == "1442", "that of its own interface, which its config drive sets"
    assert await lab.leased("02:66:00:00:00:66", tries=3) == {}, (
        "others have addresses of the cloud's"
    )
    said(lab.client, "ip", "address", "add", "10.78.0.10/24", "dev", "lan")
    script = await lab.fetched("tftp://10.78.0.254/boot.ipxe")
    assert "http://10.78.0.254:8069/boot/${uuid}/network" in script
    node = next(id_ for id_, each in lab.cloud.servers.items() if each["name"] == "served-n")
    asked = await lab.fetched(f"http://10.78.0.254:8069/boot/{node}/network")
    assert "nothing to boot from the network" in asked

    await lab.up("n", "m")
    other = lab.port("m")
    assert (await lab.leased(other["mac_address"]))["ip"] == "10.78.0.3"
    alone = Path(await lab.up("m")).read_text()
    assert await login(lab, "m") == "10.78.0.3", "no other one leads to it"
    led = alone.replace("nics: [lab]", "nics: [{network: lab, floating_ip: n0}]")
    await asyncio.to_thread(lab.rack.run, "up", lab.rack.file(led), "--yes")
    (floating,) = (e for e in lab.cloud.floatingips.values() if e["port_id"] == other["id"])
    assert await login(lab, "m") == floating["floating_ip_address"]
    assert await lab.leased(port["mac_address"], tries=3) == {}
    assert (await lab.leased(other["mac_address"]))["ip"] == "10.78.0.3", "it keeps its own"
    await asyncio.to_thread(lab.rack.run, "down", "served", "--yes")
    assert lab.cloud.everything() == before
    assert await lab.leased(other["mac_address"], tries=3) == {}


async def test_what_a_relay_serves_begins_again_by_itself(lab: Lab) -> None:
    """When dnsmasq ends, and without the daemon."""
    file = await lab.up("n")
    mac = lab.port("n")["mac_address"]
    (pid,) = dnsmasqs(lab)
    os.kill(pid, signal.SIGKILL)
    await until_served(lab, mac, "10.78.0.2")
    await asyncio.to_thread(lab.rack.run, "daemon", "stop")
    assert (await lab.leased(mac))["ip"] == "10.78.0.2", "while the daemon is away"
    assert await lab.plan(file) == {}
    (server,) = (i for i, each in lab.cloud.servers.items() if each["name"] == "served-relay")
    lab.cloud.remove(server)
    assert "relay relay" in await lab.plan(file)
    await asyncio.to_thread(lab.rack.run, "up", file, "--yes")
    await until_served(lab, mac, "10.78.0.2")
    await asyncio.to_thread(lab.rack.run, "down", "served", "--yes")


WITHOUT = """
program=$(command -v dnsmasq)
mount --bind /dev/null "$program"
mount --bind {installer} /usr/bin/apt-get
"""
INSTALLER = """#!/bin/sh
[ "$1 $2" = "-q update" ] && exit
if [ -e {mirror} ]; then exec umount "$(realpath /usr/sbin/dnsmasq)"; fi
echo "E: Unable to locate package dnsmasq-base" >&2
exit 100
"""


async def test_a_relay_says_what_it_cannot_install_and_serves_once_it_can(
    lab: Lab, tmp_path: Path
) -> None:
    """Its image has no dnsmasq, and its distribution's mirrors do not answer."""
    mirror, installer = tmp_path / "mirror", tmp_path / "installer"
    installer.write_text(INSTALLER.format(mirror=mirror))
    installer.chmod(0o755)
    lab.machines.image = WITHOUT.format(installer=installer)
    file = lab.file("n")
    done = await asyncio.to_thread(lambda: lab.rack.run("up", file, "--yes", status=3))
    why = "its image has no dnsmasq, and `apt-get` installs none: E: Unable to locate package"
    assert why in done.stdout + done.stderr
    async with asyncio.timeout(120):  # nothing is known of it while its helper connects again
        while why not in (await lab.plan(file)).get("netboot lab", ""):
            pass  # to plan takes its time
    mirror.touch()
    await until_served(lab, lab.port("n")["mac_address"], "10.78.0.2")
    await asyncio.to_thread(lab.rack.run, "up", file, "--yes")
    assert await lab.plan(file) == {}
    assert (await lab.leased(lab.port("n")["mac_address"]))["ip"] == "10.78.0.2"
    await asyncio.to_thread(lab.rack.run, "down", "served", "--yes")


def dnsmasqs(lab: Lab) -> list[int]:
    """Those that run beside its client."""
    relay = lab.client.replace("client", "relay")
    listed = subprocess.run(
        ["ip", "netns", "pids", relay], check=True, capture_output=True, text=True
    ).stdout.split()
    names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in listed}
    return [int(pid) for pid, name in names.items() if name == "dnsmasq"]
