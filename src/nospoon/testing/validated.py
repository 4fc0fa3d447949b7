"""DMTF's validators over one BMC, and what they found.

As a program it serves a BMC of its own, of memory or (`libvirt`) of a real machine, and prints what
was found as JSON. To be run in a network namespace that has only loopback, for the protocol
validator multicasts SSDP (libvirt is reached by its socket, which is in no network namespace):
`unshare -n sh -c 'ip link set lo up; exec python -m nospoon.testing.validated DIRECTORY …'`.
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from nospoon.testing.bench import bench
from nospoon.testing.rack import Rack
from nospoon.testing.redfish import System

BIN = Path(sys.executable).parent
NODE = "{name: n, firmware: uefi-secure, memory: 320MiB, disks: [16MiB]}"


@dataclass(frozen=True, slots=True)
class Target:
    """A Redfish service: its URL without a path, and an account."""

    url: str
    username: str
    password: str


@dataclass(frozen=True, slots=True)
class Found:
    """How many checks passed; the texts of warnings and of failures."""

    passed: int
    warnings: list[str]
    failures: list[str]


def environment() -> dict[str, str]:
    """Ours without proxies and certificates, which would defeat the validators in silence."""
    unwanted = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    return {k: v for k, v in os.environ.items() if k not in unwanted and "proxy" not in k.lower()}


def check_service(target: Target, place: Path, schemas: Path) -> Found:
    """`redfish-service-validator`; `schemas`: DSP8010's CSDL files. Its log is kept in `place`."""
    argv = [
        *(str(BIN / "rf_service_validator"), "-r", target.url, "--nooemcheck"),
        *("-u", target.username, "-p", target.password),
        *("--schema_directory", str(schemas), "--logdir", str(place)),
    ]
    done = subprocess.run(
        argv, text=True, capture_output=True, env=environment(), timeout=800, check=False
    )
    table = re.search(r"\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+(\d+)\s+\|", done.stdout)
    assert table is not None, done.stdout[-2000:] + done.stderr[-2000:]
    (report,) = place.glob("*/*Debug*.log")
    told = report.read_text()
    warnings, failures = (re.findall(rf" - {word} - (.*)", told) for word in ("WARN", "FAIL"))
    assert (len(failures) == 0) is (int(table[3]) == 0), told
    return Found(int(table[1]), warnings, failures)


def check_protocol(target: Target, place: Path) -> Found:
    """`redfish-protocol-validator`; its report is kept in `place`."""
    argv = [
        *(str(BIN / "rf_protocol_validator"), "--rhost", target.url),
        *("--user", target.username, "--password", target.password),
        *("--no-cert-check", "--report-dir", str(place)),
    ]
    subprocess.run(argv, env=environment(), capture_output=True, timeout=800, check=False)
    (report,) = place.glob("*.tsv")
    lines = report.read_text().splitlines()
    rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    told = {
        word: [" ".join(row) for row in rows if word in row] for word in ("PASS", "WARN", "FAIL")
    }
    return Found(len(told["PASS"]), told["WARN"], told["FAIL"])


async def of_memory(place: Path) -> dict[str, Found]:
    async with bench(1, tls=place / "certificates") as rack:
        bmc = rack.first.bmc
        url = f"https://{bmc.address}:{bmc.redfish_port}"
        target = Target(url, bmc.username, rack.first.password)
        return {"protocol": await asyncio.to_thread(check_protocol, target, place)}


@contextmanager
def real_node(place: Path) -> Iterator[Target]:
    """A node of libvirt that runs, with a disc in its drive and a volume that a client made."""
    rack = Rack.at(place)
    try:
        bmc = rack.bmc(tls="true")
        text = f"cluster: {rack.name()}\nnetworks: {{lan: {{}}}}\n{bmc}nodes: [{NODE}]\n"
        rack.run("up", "--yes", rack.file(text))
        (bmc,) = rack.json("bmc", "list", "--show-secrets")
        disc = place / "disc.iso"
        disc.write_bytes(bytes(4096))
        rack.run("node", "media", "insert", "n", str(disc))
        System(bmc).ask("POST", "/Storage/0/Volumes", {"CapacityBytes": 8 << 20})
        rack.run("node", "power", "n", "on")
        yield Target(bmc["redfish"].partition("/redfish")[0], bmc["username"], bmc["password"])
        rack.close()
    finally:
        rack.kill()


def of_libvirt(place: Path, schemas: Path) -> dict[str, Found]:
    with real_node(place) as target:
        return {
            "service": check_service(target, place / "service", schemas),
            "protocol": check_protocol(target, place),
        }


def main(place: Path, *schemas: Path) -> None:
    found = of_libvirt(place, *schemas) if schemas else asyncio.run(of_memory(place))
    sys.stdout.write(json.dumps({name: asdict(each) for name, each in found.items()}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
