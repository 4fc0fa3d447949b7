"""The start of `nospoon`, which takes a quarter of a second: Ctrl-C ends it without a traceback."""

from __future__ import annotations

import sys
from typing import NoReturn

from nospoon.cli.interrupted import INTERRUPTED


def main() -> NoReturn:
    try:
        from nospoon.cli.main import main as run  # noqa: PLC0415  (it is what takes so long)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
