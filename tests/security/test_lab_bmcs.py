"""BMCs of registered machines, which a member names: what they answer is read by ipmitool, in which
answers that are not whole cause memory errors (1.8.19 of Debian 12).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nospoon.control.labs import bmcs
from nospoon.control.labs.bmcs import OWNERS, RegisteredBmcs
from nospoon.errors import ProviderError
from nospoon.model.lab import Registered
from nospoon.runtime.reach import ANYWHERE
from nospoon.runtime.tasks import Tasks

OWNER = OWNERS + 1000
SHOW = """#!/bin/sh
echo uid "$(id -u)" groups "$(id -G)" \
$(grep -E '^(CapBnd|NoNewPrivs)' /proc/self/status) \
"$IPMI_PASSWORD" "${OS_PASSWORD:-clean}" >&2
exit 1
"""


@pytest.fixture
def tools() -> Iterator[Path]:
    """A directory that every user may read, with an ipmitool that shows what it is given."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with TemporaryDirectory(prefix="nospoon-tools-") as made:
        place = Path(made)
        place.chmod(0o755)
        (place / "ipmitool").write_text(SHOW)
        (place / "ipmitool").chmod(0o755)
        yield place


async def test_ipmitool_has_no_rights_and_nothing_of_the_daemons_environment(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("OS_PASSWORD", "of a cloud")
    monkeypatch.setattr(bmcs, "TRIES", 1)
    machine = Registered("m", address="127.0.0.1", username="u", password="of the BMC")
    with pytest.raises(ProviderError) as refused:
        await RegisteredBmcs(ANYWHERE).stop(machine, owner=1000)
    said = str(refused.value).partition("power off: ")[2]
    assert said.startswith(
        f"uid {OWNER} groups {OWNER} CapBnd: 0000000000000000 NoNewPrivs: 1 of the BMC clean"
    ), said


async def test_a_bmc_that_took_ipmitool_over_reads_no_password_of_a_command_for_another_owner(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes of one user may read one another's environments."""
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setattr(bmcs, "TRIES", 1)
    victim = Registered("m", address="192.0.2.2", username="u", password="secret of m")
    thief = Registered("hostile", address="192.0.2.1")
    both, begun = RegisteredBmcs(ANYWHERE), tools / "begun"
    begun.touch()
    begun.chmod(0o666)
    (tools / "ipmitool").write_text(
        f"#!/bin/sh\ncase $* in *192.0.2.2*) echo $$ >{begun}; exec sleep 600; esac\n"
        f"cat /proc/$(cat {begun})/environ >&2; exit 1\n"
    )
    async with Tasks("test") as tasks:
        tasks.start(both.stop(victim, owner=1001), name="victim")
        async with asyncio.timeout(60):
            while not begun.read_text():  # noqa: ASYNC110  (nothing else shows it)
                await asyncio.sleep(0.01)
        with pytest.raises(ProviderError, match="Permission denied"):
            await both.stop(thief, owner=1000)
