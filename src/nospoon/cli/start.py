"""The start of `nospoon`, which takes a tenth of a second: Ctrl-C ends it without a traceback.

Python would look for garbage while it imports, where there is none, and twice more at its end,
where all memory is freed anyway: a quarter of what commands took of the processor.
"""

from __future__ import annotations

import atexit
import gc
import sys
from typing import NoReturn

from nospoon.cli.interrupted import INTERRUPTED

MANY = 200_000
"""Objects after which garbage is looked for: more than imports make. Some commands run for days."""


def main() -> NoReturn:
    gc.set_threshold(MANY)
    atexit.register(gc.freeze)
    try:
        from nospoon.cli.main import main as run  # noqa: PLC0415  (it is what takes so long)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
