"""Ironic's interoperability profile and DMTF's use case checkers find nothing wrong."""

from __future__ import annotations

import re
import sys
import tarfile
from pathlib import Path

import pytest

from nospoon.dev.ironic import LOCK_FILE
from nospoon.runtime import process
from nospoon.testing import dmtf_tools
from nospoon.testing.bench import bench
from nospoon.testing.rack import CACHE
from nospoon.testing.validated import environment

pytestmark = [pytest.mark.tools]

PROFILE = "OpenStackIronicProfile.v1_2_0.json"
RESULTS = re.compile(r"\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+(\d+)\s+\|")
"""Passed, warnings, failures, not tested."""
WITHOUT_PAUSES = """
import sys, time
time.sleep = lambda seconds: None
from redfish_use_case_checkers.console_scripts import main
sys.exit(main())
"""
"""The checkers wait 10 s after each reset; machines of the bench need no time."""


async def ironic_profile(place: Path) -> Path:
    """The profile, which only the source distribution of the Ironic that we test with contains."""
    kept = CACHE / PROFILE
    if not kept.exists():
        (pinned,) = re.findall(
            r"^ironic==.*\n(?:    --hash.*\n)+", LOCK_FILE.read_text(), re.MULTILINE
        )
        wanted = place / "ironic.txt"
        wanted.write_text(pinned.rstrip("\\\n"))
        download = ["pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        from_source = ["--no-binary", ":all:", "--require-hashes", "--requirement", str(wanted)]
        argv = [sys.executable, "-m", *download, *from_source, "--dest", str(place)]
        await process.run(argv, timeout=400)
        (archive,) = place.glob("ironic-*.tar.gz")
        with tarfile.open(archive) as opened:
            (member,) = (each for each in opened.getmembers() if each.name.endswith(PROFILE))
            content = opened.extractfile(member)
            assert content is not None
            part = kept.with_suffix(".part")
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(content.read())
        part.rename(kept)
    return kept


def failures(told: str, place: Path) -> tuple[int, str]:
    """How many checks passed, and what the log says of those that did not."""
    table = RESULTS.search(told)
    assert table is not None, told[-2000:]
    log = next(place.glob("*/*Debug*.log")).read_text()
    wrong = [line for line in log.splitlines() if " - ERROR - " in line or " - WARNING - " in line]
    return int(table[1]), "\n".join(wrong) if int(table[2]) + int(table[3]) else ""


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_what_ironic_needs_of_a_redfish_service_is_there(scheme: str, tmp_path: Path) -> None:
    profile = await ironic_profile(tmp_path)
    async with bench(1, tls=tmp_path / "certificates" if scheme == "https" else None) as b:
        logs = tmp_path / "logs"
        told = await dmtf_tools.run(
            b, "rf_interop_validator", "--logdir", str(logs), "--nooemcheck", str(profile)
        )
        passed, wrong = failures(told, logs)
    assert wrong == ""
    assert passed > 80


async def test_dmtfs_use_cases_work(tmp_path: Path) -> None:
    async with bench(1) as b:
        command = [sys.executable, "-c", WITHOUT_PAUSES, *dmtf_tools.login(b)]
        done = await process.run(
            [*command, "--report-dir", str(tmp_path)], env=environment(), timeout=400, check=False
        )
    passed, wrong = failures(done.stdout + done.stderr, tmp_path)
    assert wrong == ""
    assert passed > 60
