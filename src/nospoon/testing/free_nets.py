"""Networks of tests' own among those of this machine: no two tests choose the same."""

from __future__ import annotations

import os
import random
import subprocess

from nospoon.testing.alone import held

NUMBERS = range(64, 250)
"""Of 172.31.0.0/16, which is not nospoon's own choice; tests have written down others of it."""
MOST_HELD = 20
"""Networks that are kept from other processes, the last that were given."""
_given: list[int] = []
"""Descriptors that hold the names of networks which this process got."""


def free_net() -> str:
    """A /24 that this machine has no route to, as its first three numbers, and that no test of
    another process gets meanwhile.
    """
    for number in random.sample(NUMBERS, len(NUMBERS)):
        net = f"172.31.{number}"
        name = held(f"net-{net}")
        if name is None:
            continue
        argv = ["ip", "route", "show", f"{net}.0/24"]
        if not subprocess.run(argv, check=True, capture_output=True).stdout:
            _given.append(name)
            if len(_given) > MOST_HELD:  # of tests that are long over
                os.close(_given.pop(0))
            return net
        os.close(name)
    raise AssertionError("no network is free")
