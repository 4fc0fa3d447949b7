"""Root in a container of an engine tries to leave it, in the ways that are known; each fails."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.docker.conftest import both_engines, cli_of, init_of
from tests.security.test_container_escape import ATTEMPTS, DROPPED, OF_STATUS

from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Kind
from nospoon.providers.docker.program import confinement
from nospoon.testing.racks import PLAN, Bench, make, rack_for

pytestmark = pytest.mark.docker


AGENT = "/sys/fs/cgroup/systemd/release_agent"
"""On hosts with cgroup v1 Podman shows containers with systemd all of that hierarchy, and hides
this file of it.
"""


APPARMOR = Path("/sys/module/apparmor/parameters/enabled")


def within(engine: Path, name: str, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*cli_of(engine), "exec", name, "/bin/busybox", "sh", "-c", script],
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
        errors="replace",
    )


@both_engines
async def test_root_in_a_container_cannot_leave_it(
    bench: Bench, engine: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret-of-host"
    secret.write_text("secret")
    rack = rack_for(bench)
    await make(bench, *rack.all)
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    script = ATTEMPTS.replace("@secret@", str(secret)).replace("@host-only@", "boot")
    done = within(engine, f"{rack.pool.key.name}.m0-0", script)
    said = done.stdout.splitlines()
    assert "all were tried" in done.stdout, done.stderr
    if APPARMOR.exists() and APPARMOR.read_text().strip() == "Y":
        profile = Path(f"/proc/{init_of(bench)}/attr/current").read_text()
        assert profile.strip() == f"{confinement.NAME} (enforce)"
    escaped = [line for line in said if line.startswith("escaped")]
    shows_all = engine.name == "podman.sock" and Path(AGENT).exists()
    assert escaped == [f"escaped: {AGENT}: "] * shows_all, "Podman has /dev/null there"
    assert [line for line in said if "not found" in line] == [], "it was not tried"
    words = dict(line.split(":", 1) for line in said if line.startswith(OF_STATUS))
    assert words["NoNewPrivs"].strip() == "1"
    assert words["Seccomp"].strip() == "2", "SECCOMP_MODE_FILTER"
    bounded = int(words["CapBnd"], 16)
    assert [each for each, bit in DROPPED.items() if bounded >> bit & 1] == []
    of_host = ["/sys/fs/cgroup/systemd/cgroup.procs"] * shows_all  # else that is its own group
    for name in (AGENT, "/sys/fs/cgroup/pids/pids.max", *of_host):
        script = f"umount {name}; mount -o remount,rw $(dirname {name}); exec echo $$ >{name}"
        done = within(engine, f"{rack.pool.key.name}.m0-0", f"export PATH=/applets; {script}")
        assert done.returncode != 0, name
    full = within(engine, f"{rack.pool.key.name}.m0-0", "exec /bin/busybox tail /dev/zero")
    assert full.returncode == 128 + 9, "its memory is limited"


@both_engines
@pytest.mark.usefixtures("engine")
async def test_programs_gain_rights_by_their_files_where_the_file_says_so(bench: Bench) -> None:
    """Of roots that are made from then on."""
    bench.connection.drivers[Kind.VOLUME]._new_privileges = True  # type: ignore[attr-defined]
    rack = rack_for(bench)
    await make(bench, *rack.all)
    await bench.connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    assert "NoNewPrivs:\t0\n" in Path(f"/proc/{init_of(bench)}/status").read_text()
