"""BMCs for machines that are there already: nospoon beside virtualbmc and sushy-emulator.

As many domains are defined, and never started; each tool gives all of them BMCs. Measured: seconds
until the last one answers, memory (PSS of all its processes), and the CPU time that a server's
processes take for a request (`chassis power status` by ipmitool, a GET of a System). The limits
that no asyncio server passes are measured as well: an interpreter that has imported what such a
server needs, and a bare asyncio server that sends back as many datagrams as ipmitool sends for a
status, and does nothing else.

usage: adopted.py [--count N] [--peers DIRECTORY]
DIRECTORY is a virtual environment with virtualbmc and sushy-tools; one is made where none is named.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

from measure import asked, private_daemon, report, timed

FIRST_PORT, REDFISH_PORT, EMULATOR_PORT = 27_000, 26_998, 26_999
PACKAGES = ("virtualbmc", "sushy-tools", "libvirt-python", "openstacksdk")
DOMAIN = """<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid>
<memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type arch='x86_64'>hvm</type></os></domain>"""
DATAGRAMS = 12
"""That ipmitool sends for a power status by lanplus, with its session."""
ECHOED = 200
ECHO = f"""
import asyncio

class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, peer):
        self.transport.sendto(data, peer)

async def main():
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", {FIRST_PORT}))
    await asyncio.sleep(600)

asyncio.run(main())
"""
Names = Mapping[str, UUID]


@contextlib.contextmanager
def domains(count: int) -> Iterator[Names]:
    """So many, by name."""
    mark = f"bench{uuid4().hex[:6]}"
    made = {f"{mark}-{number}": uuid4() for number in range(count)}
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            for name, uuid in made.items():
                file.seek(0)
                file.truncate()
                file.write(DOMAIN.format(name=name, uuid=uuid))
                file.flush()
                virsh("define", file.name)
        yield made
    finally:
        for name in made:
            virsh("undefine", name, check=False)


def virsh(*argv: str, check: bool = True) -> None:
    command = ["virsh", "-q", "-c", "qemu:///system", *argv]
    subprocess.run(command, check=check, stdout=subprocess.DEVNULL)


def processes(root: int) -> list[int]:
    """A process and all below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                stat = (entry / "stat").read_text().rpartition(") ")[2].split()
                parents[int(entry.name)] = int(stat[1])
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def memory(root: int) -> float:
    """MiB of all of them: what they share counts once (PSS, proc(5))."""
    return sum(map(_pss, processes(root))) / 1024


def _pss(pid: int) -> int:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))


def cpu(root: int) -> float:
    """Seconds of processor time of all of them, and of what they waited for."""
    return sum(map(_cpu, processes(root))) / os.sysconf("SC_CLK_TCK")


def _cpu(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return sum(map(int, fields[11:15]))


def each(root: int, count: int, ask: Callable[[int], None]) -> float:
    """Seconds of processor time of the server for a request, asked of each BMC once."""
    before = cpu(root)
    for number in range(count):
        ask(number)
    return (cpu(root) - before) / count


def power_status(port: int, password: str) -> None:
    subprocess.run(
        ["ipmitool", "-I", "lanplus", "-H", "127.0.0.1", "-p", str(port), "-U", "admin", "-P",
         password, "-R", "3", "chassis", "power", "status"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def get(url: str, password: str = "") -> None:
    headers = {}
    if password:
        pair = base64.b64encode(f"admin:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {pair}"
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        answer.read()


def until(answers: Callable[[], object], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            answers()
        except (OSError, subprocess.CalledProcessError):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def of_nospoon(names: Names) -> dict[str, float]:
    with private_daemon() as env:
        mark = next(iter(names)).partition("-")[0]
        file = Path(env["NOSPOON_STATE_DIR"]).parent / "adopted.yaml"
        ports = f"{FIRST_PORT}-{FIRST_PORT + len(names)}"
        file.write_text(
            f"cluster: adopted\nbmc: {{ports: {ports}, redfish_port: {REDFISH_PORT},"
            f" password: password}}\nnodes: [{{adopt: {{match: '{mark}-*'}}}}]\n"
        )
        timed("daemon", "start", env=env)  # as vbmcd, before the clock runs
        seconds = timed("up", "--yes", str(file), env=env)
        rows = asked(env, "bmc", "list")
        pid = int((Path(env["NOSPOON_RUNTIME_DIR"]) / "nospoond.pid").read_text())
        used = memory(pid)
        ports_of = [int(row["ipmi"].rpartition(":")[2]) for row in rows]
        found = {
            "seconds": seconds,
            "memory": used,
            "ipmi": each(pid, len(rows), lambda n: power_status(ports_of[n], "password")),
            "redfish": each(pid, len(rows), lambda n: get(rows[n]["redfish"], "password")),
        }
        timed("down", "--yes", "adopted", env=env)
    return found


def of_virtualbmc(names: Names, peers: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="vbmc-bench-") as home:
        env = {**os.environ, "HOME": home, "VIRTUALBMC_CONFIG": f"{home}/virtualbmc.conf"}
        places = f"config_dir = {home}/vbmc\npid_file = {home}/pid\nserver_port = 50899\n"
        Path(home, "vbmc").mkdir()
        Path(home, "virtualbmc.conf").write_text(
            f"[default]\n{places}server_response_timeout = 60000\n[log]\nlogfile = {home}/log\n"
        )
        command = [str(peers / "bin" / "vbmcd"), "--foreground"]
        with running(command, env) as pid:
            vbmc = str(peers / "bin" / "vbmc")
            until(lambda: subprocess.run([vbmc, "list"], env=env, check=True, capture_output=True))
            began = time.perf_counter()
            for number, name in enumerate(names):
                port = str(FIRST_PORT + number)
                add = ["add", name, "--port", port, "--address", "127.0.0.1"]
                subprocess.run([vbmc, *add], env=env, check=True)
            subprocess.run([vbmc, "start", *names], env=env, check=True)
            for number in range(len(names)):
                until(partial(power_status, FIRST_PORT + number, "password"))
            seconds = time.perf_counter() - began
            used = memory(pid)
            ipmi = each(pid, len(names), lambda n: power_status(FIRST_PORT + n, "password"))
            return {"seconds": seconds, "memory": used, "ipmi": ipmi}


def of_sushy(names: Names, peers: Path) -> dict[str, float]:
    command = [
        str(peers / "bin" / "sushy-emulator"), "--port", str(EMULATOR_PORT), "--interface",
        "127.0.0.1", "--libvirt-uri", "qemu:///system",
    ]  # fmt: skip
    systems = f"http://127.0.0.1:{EMULATOR_PORT}/redfish/v1/Systems"
    began = time.perf_counter()
    with running(command, dict(os.environ)) as pid:
        uuids = list(names.values())
        until(lambda: get(f"{systems}/{uuids[-1]}"))
        seconds = time.perf_counter() - began
        redfish = each(pid, len(uuids), lambda n: get(f"{systems}/{uuids[n]}"))
        return {"seconds": seconds, "memory": memory(pid), "redfish": redfish}


def of_python() -> dict[str, float]:
    with running([sys.executable, "-c", ECHO], dict(os.environ)) as pid:
        until(lambda: echoed(1))
        before = cpu(pid)
        for _ in range(ECHOED):
            echoed(DATAGRAMS)
        ipmi = (cpu(pid) - before) / ECHOED
    asleep = "import asyncio, ssl, libvirt, time; time.sleep(600)"
    with running([sys.executable, "-c", asleep], dict(os.environ)) as pid:
        time.sleep(2)  # until it sleeps
        return {"memory": memory(pid), "ipmi": ipmi}


def echoed(count: int) -> None:
    """Each datagram after the answer to the last, with a pause as ipmitool's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", FIRST_PORT))
        client.settimeout(5)
        for _ in range(count):
            client.send(bytes(60))
            client.recv(100)
            time.sleep(0.001)


@contextlib.contextmanager
def running(command: list[str], env: dict[str, str]) -> Iterator[int]:
    """The pid of a server; it and all below it end with the block."""
    with subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as server:  # fmt: skip
        try:
            yield server.pid
        finally:
            os.killpg(server.pid, signal.SIGTERM)


def environment() -> Path:
    """A virtual environment with the peers."""
    place = Path(tempfile.mkdtemp(prefix="peers-"))
    venv.create(place, with_pip=True)
    subprocess.run([str(place / "bin" / "pip"), "install", "-q", *PACKAGES], check=True)
    return place


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--peers", type=Path)
    given = parser.parse_args()
    peers = given.peers or environment()
    with domains(given.count) as names:
        ours, vbmc, sushy = of_nospoon(names), of_virtualbmc(names, peers), of_sushy(names, peers)
    bare = of_python()
    print(f"{given.count} domains; the ratio is that of nospoon to the peer")
    report("BMCs for all: nospoon", ours["seconds"], reference=vbmc["seconds"], of="virtualbmc")
    for what, name, theirs, peer in (
        ("memory in MiB", "memory", vbmc, "virtualbmc"),
        ("memory in MiB", "memory", sushy, "sushy-emulator"),
        ("memory in MiB", "memory", bare, "Python with asyncio, ssl and libvirt"),
        ("CPU ms, power status by IPMI", "ipmi", vbmc, "virtualbmc"),
        ("CPU ms, power status by IPMI", "ipmi", bare, "an echo of as many datagrams"),
        ("CPU ms, GET of a System", "redfish", sushy, "sushy-emulator"),
    ):
        scale = 1 if name == "memory" else 1000
        one, other = ours[name] * scale, theirs[name] * scale
        print(f"{what:<46} {one:8.2f}    {one / other:.3f} x {peer} ({other:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
