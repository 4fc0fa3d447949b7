"""What a command does that is not what it is for."""

from __future__ import annotations

import subprocess
import sys

LOOKED = """
import gc, sys
from nospoon.cli.start import main

def looks(phase, found):
    if not gc.get_freeze_count():  # those are all objects that there were
        print("looks for garbage", file=sys.stderr)

gc.collect()
gc.callbacks.append(looks)
main()
"""


def test_a_command_looks_for_no_garbage() -> None:
    """There is none while it imports, and at its end all memory is freed anyway."""
    done = subprocess.run(
        [sys.executable, "-c", LOOKED, "schema"], capture_output=True, text=True, check=True
    )
    assert done.stdout
    assert done.stderr == ""
