"""Runs DMTF's protocol validator over a service of its own; prints what it found as JSON.

To be run in a network namespace that has only loopback, for the validator multicasts SSDP:
`unshare -n sh -c 'ip link set lo up; exec python -m nospoon.testing.validated DIRECTORY'`.
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import subprocess
import sys
from pathlib import Path

from nospoon.testing.bench import bench

PROGRAM = Path(sys.executable).with_name("rf_protocol_validator")


def environment() -> dict[str, str]:
    """Ours without proxies and certificates, which would defeat the validators in silence."""
    unwanted = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    return {k: v for k, v in os.environ.items() if k not in unwanted and "proxy" not in k.lower()}


async def main(place: Path) -> None:
    async with bench(1, tls=place / "certificates") as rack:
        bmc = rack.first.bmc
        argv = [
            *(str(PROGRAM), "--rhost", f"https://{bmc.address}:{bmc.redfish_port}"),
            *("--user", bmc.username, "--password", rack.first.password),
            *("--no-cert-check", "--report-dir", str(place)),
        ]
        await asyncio.to_thread(
            subprocess.run, argv, env=environment(), capture_output=True, timeout=240, check=False
        )
    (report,) = place.glob("*.tsv")
    rows = list(csv.reader(report.read_text().splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    found = {
        word: [" ".join(row) for row in rows if word in row] for word in ("PASS", "WARN", "FAIL")
    }
    sys.stdout.write(json.dumps({**found, "PASS": len(found["PASS"])}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
