"""Start-up of `nospoon --help`, against a Python that does nothing."""

from __future__ import annotations

import subprocess
import sys
import time

from measure import NOSPOON, report

ROUNDS = 10


def best(*argv: str) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    bare = best(sys.executable, "-c", "pass")
    report("nospoon --help", best(NOSPOON, "--help"), reference=bare, of="a bare Python")


if __name__ == "__main__":
    main()
