"""Log lines that a client causes by asking for what fails."""

from __future__ import annotations

import structlog

from nospoon.errors import NospoonError, ProviderError
from nospoon.model.machine import PowerCommand
from nospoon.testing.bench import bench


async def test_power_that_fails_again_and_again_is_logged_a_few_times_for_each_machine() -> None:
    async with bench(12) as b:
        configs = b.configs[-2:]  # the log remembers machines, and other tests have the first ones
        b.machines.error = ProviderError("no such domain")
        with structlog.testing.capture_logs() as lines:
            for config in configs:
                for _ in range(20):
                    try:
                        await b.service.power(config.bmc.uuid, PowerCommand.ON)
                    except NospoonError:
                        continue
        of = [each["machine"] for each in lines if each["event"] == "power failed"]
        assert {each: of.count(each) for each in set(of)} == {
            str(config.machine.uuid): 5 for config in configs
        }
