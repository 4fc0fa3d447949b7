"""BMCs of registered machines, which a member names: what they answer is read by ipmitool, in which
answers that are not whole cause memory errors (1.8.19 of Debian 12).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nospoon.control.labs import bmcs
from nospoon.control.labs.bmcs import RegisteredBmcs
from nospoon.errors import ProviderError
from nospoon.model.lab import Registered
from nospoon.runtime.reach import ANYWHERE

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
        await RegisteredBmcs(ANYWHERE).stop(machine)
    said = str(refused.value).partition("power off: ")[2]
    assert said.startswith(
        "uid 65533 groups 65533 CapBnd: 0000000000000000 NoNewPrivs: 1 of the BMC clean"
    ), said
