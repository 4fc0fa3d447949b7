"""DMTF's protocol validator over a BMC, where it can reach nobody else: it multicasts SSDP."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from nospoon.runtime import process

pytestmark = pytest.mark.tools
KNOWN: Mapping[str, str] = {
    "PROTO_HTTP_UNSUPPORTED_METHODS": "the HTTP parser answers 400 to a method that no RFC has",
    "SEC_BASIC_AUTH_OVER_HTTPS": "the BMC serves plain HTTP, as the cluster file says; no TLS yet",
    "SEC_SESSION_CREATE_HTTPS_ONLY": "the same",
    "SEC_PRIV_SUPPORT_PREDEFINED_ROLES": "there is no AccountService yet",
}
"""Assertions that fail, and why. Nothing else may."""
ENOUGH = 180
"""Checks that must have passed: a run that reached nothing finds nothing wrong either."""
SERVE = """
import asyncio, os, subprocess, sys
from nospoon.testing.bench import bench

async def main(tool, place):
    async with bench(1) as b:
        bmc = b.first.bmc
        url = f"http://{bmc.address}:{bmc.redfish_port}"
        argv = [tool, "-u", bmc.username, "-p", b.first.password, "-r", url]
        argv += ["--report-dir", place, "--no-cert-check"]
        await asyncio.to_thread(subprocess.run, argv, check=False, timeout=100)

asyncio.run(main(*sys.argv[1:]))
"""


def environment() -> dict[str, str]:
    """Without what makes every request fail while a plausible table is printed all the same."""
    unwanted = {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}
    return {k: v for k, v in os.environ.items() if k not in unwanted and "proxy" not in k.lower()}


async def test_the_protocol_validator_finds_nothing_but_what_is_known(tmp_path: Path) -> None:
    tool = Path(sys.executable).parent / "rf_protocol_validator"
    inside = 'ip link set lo up && exec "$@"'
    ran = await process.run(
        ["unshare", "-rn", "sh", "-c", inside, "sh", sys.executable, "-c", SERVE, str(tool),
         str(tmp_path)],
        env=environment(), timeout=120,
    )  # fmt: skip
    reports = list(tmp_path.glob("*.tsv"))
    assert len(reports) == 1, ran.stdout + ran.stderr
    with reports[0].open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    told = [row for row in rows if row["Result"] in {"FAIL", "WARN", "ERROR"}]
    unknown = [(row["Assertion"], row["Message"]) for row in told if row["Assertion"] not in KNOWN]
    assert unknown == []
    assert sum(row["Result"] == "PASS" for row in rows) > ENOUGH
