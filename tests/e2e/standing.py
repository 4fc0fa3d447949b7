"""One small cluster on libvirt that stands and runs while its file changes and changes back."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree as ET

import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from nospoon.testing.certificates import written
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack

Changes = Mapping[str, Any]
"""Path in the file ("nodes/0/cpus") -> what is there now; None takes it away."""

SERVED: Changes = {
    "boot": {each: {"kernel": f"kernel-{each}", "cmdline": each} for each in "ab"},
    "nodes/0/boot": "a",
}
"""The node boots from the network. It does only where it must: commands read what a file names.
"""


def output(*argv: str) -> str:
    done = subprocess.run(argv, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout.strip()


def virsh(*argv: str) -> str:
    return output("virsh", "-c", "qemu:///system", *argv)


@contextlib.contextmanager
def bridges() -> Iterator[tuple[str, str, str]]:
    """Two bridges of Linux and one of Open vSwitch, on the datapath that needs no module."""
    one, two, ovs = (f"nst{uuid4().hex[:8]}" for _ in range(3))
    for name in (one, two):
        output("ip", "link", "add", name, "type", "bridge")
        output("ip", "link", "set", name, "up")
    output("ovs-vsctl", "--timeout=60", "add-br", ovs, "--", "set", "bridge", ovs,
           "datapath_type=netdev")  # fmt: skip
    yield one, two, ovs
    output("ovs-vsctl", "--timeout=60", "del-br", ovs)
    for name in (one, two):
        output("ip", "link", "delete", name)


class Standing:
    """The cluster. Node `n` runs while its file changes; `m0` is off."""

    def __init__(self, rack: Rack, linux: tuple[str, str], ovs: str) -> None:
        self.rack, self.name = rack, rack.name()
        self.linux, self.ovs, self.standing = linux, ovs, ""
        self.waits = False
        self.ports = yaml.safe_load(rack.bmc())["bmc"]
        for each in "ab":
            (rack.directory / f"{each}.raw").write_bytes(each.encode() * (1 << 20))
            (rack.directory / f"kernel-{each}").write_text(f"kernel {each}")
        key = ec.generate_private_key(ec.SECP256R1())
        for name in ("one", "renewed"):
            written(rack.directory, name, key)
        written(rack.directory, "two")

    def base(self) -> dict[str, Any]:
        one, two = self.linux
        tiny = {"memory": "64MiB", "firmware": "bios", "disks": ["16MiB"], "host": "here"}
        return {
            "cluster": self.name,
            "hosts": {
                "here": {"libvirt": "qemu:///system", "physnets": {"p": one, "q": two}},
                "there": {"simulated": {}},
            },
            "networks": {
                "lan": {"netboot": "builtin"},
                "ext": {"bridge": one},
                "phys": {"physnet": "p"},
                "tagged": {"bridge": self.ovs, "switch": "ovs", "vlan": 100},
            },
            "flavors": {"small": {}, "big": {"cpus": 2}},
            "bmc": copy.deepcopy(self.ports),
            "nodes": [
                {**copy.deepcopy(tiny), "name": "n", "flavor": "small",
                 "nics": [{"network": each} for each in ("lan", "ext", "phys", "tagged")],
                 "bmc": {"protocols": ["ipmi", "redfish", "pdu"]}},
                {**copy.deepcopy(tiny), "name": "m{n}", "flavor": "small", "nics": ["lan"]},
            ],
        }  # fmt: skip

    def file(self, *changes: Changes) -> str:
        """A file of the cluster with these changes, its path."""
        body = self.base()
        for each in changes:
            for path, value in each.items():
                _set(body, path.split("/"), self.filled(value))
        return self.rack.file(json.dumps(body, indent=1), f"{body['cluster']}.yaml")

    def filled(self, value: Any) -> Any:
        """Names of bridges and ports of this run: `<one>`, `<two>`, `<ovs>`, `<port+7>`."""
        words = {"one": self.linux[0], "two": self.linux[1], "ovs": self.ovs}
        port = self.ports["redfish_port"]

        def fill(found: re.Match[str]) -> str:
            return str(port + int(found[2])) if found[2] else words[found[1]]

        text = re.sub(r'"<(port)\+(\d+)>"', fill, json.dumps(value))
        return json.loads(re.sub(r"<(\w+)(?:\+(\d+))?>", fill, text))

    def up(self, *changes: Changes) -> str:
        """Bring it to this file, unless it is as the file says; what was said of that."""
        file = Path(self.file(*changes))
        if self.standing == (wanted := file.read_text()):
            return ""
        self.standing = ""
        said = self.rack.run("up", "--yes", str(file)).stderr
        self.standing = wanted
        self.waits = "n has to be powered off for" in said
        return said

    def run(self) -> str:
        """Have the node run as it is defined now; its id, which each start changes."""
        before = virsh("domid", self.domain)
        if before == "-" or self.waits:
            command = "on" if before == "-" else "cycle"
            self.rack.run("node", "power", f"{self.name}/n", command)
            self.waits = False
            until(lambda: virsh("domid", self.domain) not in {"-", before})
            self._give_way()
        return virsh("domid", self.domain)

    def _give_way(self) -> None:
        """The node finds nothing to boot, and tries for ever, while other tests want to work."""
        pid = Path(f"/run/libvirt/qemu/{virsh('domname', self.domain)}.pid").read_text().strip()
        for thread in Path("/proc", pid, "task").iterdir():
            with contextlib.suppress(ProcessLookupError):  # QEMU ends some of them at any time
                os.setpriority(os.PRIO_PROCESS, int(thread.name), 19)

    @property
    def bmc(self) -> dict[str, str]:
        return self.rack.bmcs(self.name)["n"]

    @cached_property
    def domain(self) -> str:
        return str(self._shown["uuid"])

    @cached_property
    def bridge(self) -> str:
        return str(self._shown["ports"][0]["local_link_connection"]["switch_info"])

    @cached_property
    def port(self) -> str:
        return str(self._shown["ports"][0]["local_link_connection"]["port_id"])

    @cached_property
    def _shown(self) -> Any:
        """What is derived from names, and the same however often the file changes."""
        return self.rack.json("node", "show", f"{self.name}/n")

    def xml(self, *, live: bool) -> ET.Element:
        return ET.fromstring(virsh("dumpxml", self.domain, *(() if live else ("--inactive",))))

    def domains(self) -> set[str]:
        """Nodes that libvirt has."""
        return {d.rsplit("-", 1)[1] for d in virsh("list", "--all", "--name").split()
                if d.startswith(f"{self.name}-")}  # fmt: skip

    def booted(self) -> list[str]:
        """What the network boot gives the node: the script, and each file that it names."""
        port = (self.rack.directory / "state" / "boot-port").read_text()
        (address, *_) = self.link(self.bridge)["addr_info"]
        script = _fetched(f"http://{address['local']}:{port}/boot/{self.domain}/ipxe")
        return [script, *map(_fetched, re.findall(r"http://\S+/files/\S+", script))]

    def link(self, name: str) -> dict[str, Any]:
        (told,) = json.loads(output("ip", "-json", "address", "show", "dev", name))
        return dict(told)

    def served(self) -> list[Path]:
        """Configurations of the DHCP services."""
        return list((self.rack.directory / "state" / "netboot").glob("*/*/dnsmasq.conf"))


def _fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def _set(body: Any, path: list[str], value: Any) -> None:
    *way, last = path
    for each in way:
        if isinstance(body, list):
            body = body[int(each)]
        else:
            if not isinstance(body.get(each), dict | list):
                body[each] = {}
            body = body[each]
    key: Any = int(last) if isinstance(body, list) else last
    if value is None:
        del body[key]
    elif isinstance(body, list) and key == len(body):
        body.append(value)
    else:
        body[key] = value
