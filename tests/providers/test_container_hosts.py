"""Commands on a host of containers: those that change something may take longer than a look."""

from __future__ import annotations

import pytest

from nospoon.errors import ProviderError
from nospoon.providers.containers.host import CHANGE_SECONDS, ContainerHost
from nospoon.runtime.runner import LocalRunner, SshRunner, patient

SLOW = ["sleep", "1"]
HURRIED = 0.2


async def test_a_change_may_take_longer_than_a_look() -> None:
    host = ContainerHost("h", LocalRunner(HURRIED), "/pools", SLOW)
    assert (await host.run(SLOW)).status == 0
    assert (await host.sh("sleep 1")).status == 0
    with pytest.raises(ProviderError, match="`sleep 1` did not end within"):
        await host.look()


def test_a_host_over_ssh_has_the_same() -> None:
    runner = SshRunner("rack-1")
    longer = patient(runner, CHANGE_SECONDS)
    assert isinstance(longer, SshRunner)
    assert (longer.seconds, longer.destination) == (CHANGE_SECONDS, "rack-1")
    assert longer.command(["true"]) == runner.command(["true"])
    assert runner.seconds < CHANGE_SECONDS
