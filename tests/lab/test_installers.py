"""Machines of labs on libvirt: an installer runs to its end on a dynamic and a registered one."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from nospoon.model.cluster import Arch
from nospoon.probe import cpio
from nospoon.probe.build import build, compress
from nospoon.runtime.clock import monotonic
from nospoon.testing import disks
from nospoon.testing.bench import free_port
from nospoon.testing.free_nets import free_net
from nospoon.testing.ironic import DEAR
from nospoon.testing.rack import CACHE, Rack, private_rack

pytestmark = [pytest.mark.libvirt, pytest.mark.boots, pytest.mark.timeout(1200)]

MAC = "52:54:00:1a:b0:01"
PANIC = "Kernel panic - not syncing: sysrq"
SECONDS = 600
INIT = """#!/bin/busybox sh
# An installer: it fetches its kickstart, which is a shell script, and runs it.
export PATH=/bin
busybox mkdir -p /proc /sys /dev /tmp
busybox mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
echo 'installer: hello'
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
for pass in 1 2 3; do modprobe -abq $(cat /sys/bus/*/devices/*/modalias) 2>/dev/null; done
modprobe -abq af_packet 2>/dev/null
ip link set eth0 up
udhcpc -i eth0 -s /etc/udhcpc -n -q
read -r cmdline </proc/cmdline
for word in $cmdline; do
    case $word in ks=*) busybox wget -q -O /tmp/ks "${word#ks=}" ;; esac
done
for disk in /dev/sda /dev/vda; do [ -b $disk ] && break; done
. /tmp/ks
"""
INSTALL = """busybox wget -q -O - {{install_start}}
busybox wget -q -O - {{tree}}/disk.raw >$disk
sync
echo 'installer: written'
busybox wget -q -O - {{install_done}}
"""
REBOOT = "reboot -f\n"
CRASH = "echo c >/proc/sysrq-trigger\n"


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@contextmanager
def tree(directory: Path, address: str = "") -> Iterator[str]:
    """The URL of an installation tree of ours, at `address` or one that guests route to."""
    directory.mkdir()
    probe = asyncio.run(build(CACHE, arch=Arch.X86_64))
    (directory / "linux").write_bytes(probe.kernel.read_bytes())
    first = probe.initrd.read_bytes()
    init = cpio.archive([cpio.file("init", INIT.encode(), mode=0o755)])
    # the kernel unpacks one archive after another, and the last file of a name stays
    (directory / "initrd").write_bytes(first + bytes(-len(first) % 4) + compress(init))
    disks.bios_disk(directory / "disk.raw")
    with served_at(address, directory) if address else served(directory) as url:
        yield url


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """Its URL at an address of this machine that guests route to."""
    address, link = f"{free_net()}.1", f"nsl{os.getpid():x}"
    ip("link", "add", link, "type", "bridge")
    try:
        ip("addr", "add", f"{address}/32", "dev", link)
        ip("link", "set", link, "up")
        with served_at(address, directory) as url:
            yield url
    finally:
        ip("link", "del", link)


@contextmanager
def served_at(address: str, directory: Path) -> Iterator[str]:
    """Its URL at an address of this machine."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(directory))
    with ThreadingHTTPServer((address, 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{address}:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def rack() -> Iterator[Rack]:
    near = "127.0.0.0/8, ::1, 172.31.0.0/16"
    with private_rack(
        NOSPOON_BOOT_PORT=str(free_port(socket.SOCK_STREAM)), NOSPOON_MEDIA_NETWORKS=near
    ) as made:
        yield made


def until(show: Callable[[], Any], reached: Callable[[Any], bool], seconds: float = SECONDS) -> Any:
    end = monotonic() + seconds
    while True:
        began = monotonic()
        if reached(shown := show()):
            return shown
        now = monotonic()
        assert now < end, shown if isinstance(shown, str) else json.dumps(shown, indent=1)
        time.sleep(min(max(0.2, DEAR * (now - began)), 2))


def metal(rack: Rack, memory: str = "256MiB") -> tuple[str, str]:
    """A machine that leads to the lab's script: its cluster, and the BMC that a lab knows."""
    name, net = rack.name(), free_net()
    script = f"http://{net}.1:{rack.environment['NOSPOON_BOOT_PORT']}/lab/mac/{MAC}/ipxe"
    text = f"""
cluster: {name}
{rack.bmc()}
networks: {{lan: {{netboot: builtin, cidr: {net}.0/24, nat: true}}}}
boot: {{lab: {{script: "{script}"}}}}
nodes:
  - {{name: m, boot: lab, firmware: bios, memory: {memory}, disks: [64MiB], bmc: [ipmi],
     nics: [{{network: lan, mac: "{MAC}"}}]}}
"""
    rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
    (bmc,) = rack.bmcs(name).values()
    address, _, port = bmc["ipmi"].rpartition(":")
    return name, f"{{address: {address}, port: {port}, password: {bmc['password']}}}"


def left(rack: Rack, lab: str) -> list[str]:
    """What is there of the sets of a lab: domains, services, volumes, and what is tagged."""
    virsh = ["virsh", "-c", "qemu:///system", "list", "--all", "--name"]
    domains = subprocess.run(virsh, check=True, capture_output=True, text=True).stdout.split()
    listed = subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True)
    services = [
        line
        for line in listed.stdout.splitlines()
        if "dnsmasq" in line and str(rack.directory) in line
    ]
    pool = [str(path) for path in (rack.directory / "pool").rglob("*") if path.is_file()]
    tagged = [json.dumps(row) for row in rack.json("orphans")]
    return sorted([*(each for each in domains if f"lab-{lab}-" in each), *services, *pool, *tagged])


def test_a_mixed_set_is_installed_panics_once_and_leaves_nothing(rack: Rack) -> None:
    with tree(rack.directory / "tree") as url:
        other, bmc = metal(rack)
        name = rack.name()
        lab = f"l{name}"  # other tests have domains on this libvirtd, too
        indented = (INSTALL + REBOOT).replace("\n", "\n          ")
        text = f"""
cluster: {name}
{rack.bmc()}
networks: {{lan: {{netboot: builtin, nat: true}}}}
flavors: {{small: {{firmware: bios, memory: 256MiB, disks: [64MiB]}}}}
labs:
  {lab}:
    lease: 2h
    minimum_disk: 64MiB
    timeouts: {{panic: 20min}}
    machines:
      m1: {{bmc: {bmc}, memory: 256MiB, macs: ["{MAC}"], attributes: {{system/vendor: Acme}}}}
    distros:
      tiny:
        kernel: {url}/linux
        initrd: {url}/initrd
        tree: {url}
        cmdline: panic=1 ks={{{{kickstart}}}}
        kickstart: |
          {indented}
nodes: []
"""
        rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
        before = left(rack, lab)
        request = f"""<recipeSet>
<recipe><kickstart><![CDATA[{INSTALL + CRASH}]]></kickstart>
<hostRequires><memory op='&gt;=' value='200'/></hostRequires></recipe>
<recipe><hostRequires><system><vendor value='Acme'/></system></hostRequires></recipe>
</recipeSet>"""
        submit = ("request", "submit", rack.file(request, "request.xml"), "--lab", f"{name}/{lab}")
        set_id = rack.json(*submit)[0]["set"]

        def show() -> Any:
            return rack.client.get(f"/v1/requests/{set_id}")

        def console() -> str:
            return rack.run("request", "console", f"{set_id}.0").stdout

        def ready(shown: Any) -> bool:
            assert shown["state"] != "ended", json.dumps(shown, indent=1)
            return {each["stage"] for each in shown["leases"]} == {"ready"}

        shown = until(show, ready)
        assert [each["machine"] for each in shown["leases"]] == ["", "m1"]
        shown = until(show, lambda found: bool(found["leases"][0]["panic"]))
        assert PANIC in shown["leases"][0]["panic"]
        assert shown["leases"][0]["expires"] < shown["leases"][1]["expires"]
        greeting = disks.GREETING.decode()
        log = until(console, lambda text: greeting in text)
        first = log.index("iPXE")
        places = [log.index(each) for each in ("installer: hello", "installer: written", PANIC)]
        assert [first, *places, log.index(greeting)] == sorted(
            [first, *places, log.index(greeting)]
        )
        metal_log = ("node", "console", f"{other}/m", "--log")
        until(lambda: rack.run(*metal_log).stdout, lambda text: greeting in text)
        panics = [each for each in show()["history"] if each["event"] == "panic"]
        of_crash = [each["recipe"] for each in panics if PANIC in each["message"]]
        assert of_crash.count(0) == 1  # kernels may have others of their own on a slow machine
        rack.run("request", "release", set_id)
        ended = until(show, lambda found: found["state"] == "ended")
        assert ended["result"] == "completed"
        assert left(rack, lab) == before
        assert rack.json("node", "show", f"{other}/m")["power"] == "off"
        assert console().startswith(log), "it is kept"
        rack.run("down", "--yes", "--purge", name)
        rack.run("down", "--yes", "--purge", other)
