"""Which boot of a machine this is: a random id that a kernel makes as it starts (random(4))."""

from __future__ import annotations

from pathlib import Path

from nospoon.runtime.process import printed_by
from nospoon.runtime.runner import Runner

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_UNLESS_STOPPING = f'[ "$(systemctl is-system-running 2>/dev/null)" = stopping ] || cat {BOOT_ID}'
"""systemctl(1) says `stopping` from the request of a shutdown on; without systemd it says nothing
of the kind.
"""

LONGEST = 100
"""Characters: BMCs keep it in the store, each of them."""


def here() -> str:
    """The id of this machine's boot."""
    return BOOT_ID.read_text().strip()


async def steady(runner: Runner) -> str:
    """The id of a host's boot, "" while it shuts down. Raises `ProviderError`."""
    done = await runner.run(["sh", "-c", _UNLESS_STOPPING])
    return printed_by(done, LONGEST).strip()
