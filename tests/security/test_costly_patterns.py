"""Patterns that search what others wrote: no match begins within what another has looked through.

CPU time is compared, in which other processes do not count; where each of n places is looked
through to the end, it is many times as long.
"""

from __future__ import annotations

import re
import time

import pytest

from nospoon.services.bmcs.redfish.resources.update import _VERSION


def patterns() -> list[tuple[re.Pattern[str], str]]:
    found = [(_VERSION, "1" * 40_000)]
    libvirt = pytest.importorskip("nospoon.providers.libvirt.adopted")
    drives = pytest.importorskip("nospoon.providers.libvirt.adopted_drives")
    return [*found, (libvirt.EMPTY, " " * 100_000), (drives.IDE, " " * 100_000)]


@pytest.mark.parametrize("number", range(3))
def test_what_repeats_is_looked_through_once(number: int) -> None:
    """A name of 8,000 digits, which a BMC client gave an image, stopped everything for 0.6 s."""
    pattern, text = patterns()[number]
    began = time.process_time()
    assert not pattern.findall(text)
    assert time.process_time() - began < 2
