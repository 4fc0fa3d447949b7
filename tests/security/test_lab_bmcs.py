"""BMCs of registered machines, which a member names: what they answer is read by ipmitool, in which
answers that are not whole cause memory errors (1.8.19 of Debian 12).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nospoon.control.labs import bmcs
from nospoon.control.labs.bmcs import RegisteredBmcs
from nospoon.errors import ProviderError
from nospoon.model.lab import Registered
from nospoon.runtime.reach import ANYWHERE

SHOW = """#!/bin/sh
echo uid "$(id -u)" groups "$(id -G)" \
"$(grep -E '^(CapBnd|NoNewPrivs)' /proc/self/status | tr -s '\\t\\n' '  ')" \
"$IPMI_PASSWORD" "${OS_PASSWORD:-clean}" >&2
exit 1
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_ipmitool_has_no_rights_and_nothing_of_the_daemons_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in (tmp_path, *tmp_path.parents[:2]):
        each.chmod(0o755)
    tool = tmp_path / "ipmitool"
    tool.write_text(SHOW)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("OS_PASSWORD", "of a cloud")
    monkeypatch.setattr(bmcs, "TRIES", 1)
    machine = Registered("m", address="127.0.0.1", username="u", password="of the BMC")
    with pytest.raises(ProviderError) as refused:
        await RegisteredBmcs(ANYWHERE).stop(machine)
    said = str(refused.value).partition("power off: ")[2]
    assert said.startswith(
        "uid 65533 groups 65533 CapBnd: 0000000000000000 NoNewPrivs: 1 of the BMC clean"
    ), said
