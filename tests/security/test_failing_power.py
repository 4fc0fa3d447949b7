"""What a client causes by asking for what fails: log lines, and records of a BMC's log."""

from __future__ import annotations

import contextlib

import structlog

from nospoon.errors import NospoonError, ProviderError
from nospoon.model.machine import PowerCommand
from nospoon.services.bmcs.effects import LONGEST_WHY
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


async def test_of_a_long_reason_little_is_kept_with_each_failure() -> None:
    """A log has 512 records, each of which had all of an error, such as a URL twice."""
    async with bench(1) as b:
        b.machines.error = ProviderError("no " + "\N{BUG}" * 50_000)
        served = b.service.registry.at((b.first.bmc.address, b.first.bmc.ipmi_port))
        assert served is not None
        with contextlib.suppress(NospoonError):
            await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        *_, last = served.aggregate.log.records
        assert last.text == served.power_fault
        assert last.text.startswith("no \N{BUG}")
        assert len(last.text) == LONGEST_WHY
