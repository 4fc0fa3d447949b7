"""DMTF's scripts and checkers on a BMC of the bench, as someone at a keyboard runs them."""

from __future__ import annotations

import sys
from pathlib import Path

from nospoon.runtime import process
from nospoon.testing.bench import Bench
from nospoon.testing.validated import environment

BIN = Path(sys.executable).parent


def login(rack: Bench) -> list[str]:
    """Who logs in, and where: these options are the same for all of them."""
    bmc = rack.first.bmc
    url = f"{'https' if bmc.tls else 'http'}://{bmc.address}:{bmc.redfish_port}"
    return ["-u", bmc.username, "-p", rack.first.password, "-r", url]


async def run(rack: Bench, program: str, *argv: str) -> str:
    """What a program prints. Raises `ProviderError` with the end of it when it fails."""
    command = [str(BIN / program), *login(rack), *argv]
    return (await process.run(command, env=environment())).stdout
