"""The first process of Docker Engine's containers waits for its signal, and becomes their init."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from nospoon.providers.docker.program import waiting
from nospoon.providers.docker.program.processes import began
from nospoon.providers.docker.program.wire import EngineError

SOURCES = Path(waiting.__file__).parent
SHOW = "echo $0 $1 $SAID; grep -E 'Sig(Blk|Ign)' /proc/self/status"


def tool(machine: str, name: str) -> str:
    """Of binutils for a machine."""
    cross = f"{machine}-linux-gnu-{name}"
    found = shutil.which(name) if platform.machine() == machine else shutil.which(cross)
    if found is None:
        pytest.skip(f"needs {cross}")
    return found


@pytest.mark.parametrize("machine", waiting.MACHINES)
def test_its_bytes_are_those_of_its_source(machine: str, tmp_path: Path) -> None:
    made, code = tmp_path / "made.o", tmp_path / "code"
    source = SOURCES / f"waiting.{machine}.s"
    subprocess.run([tool(machine, "as"), source, "-o", made], check=True)
    take = [tool(machine, "objcopy"), "-O", "binary", "-j", ".text", str(made), str(code)]
    subprocess.run(take, check=True)
    assert waiting.MACHINES[machine][1] == code.read_bytes().hex()


def until_blocks(pid: int) -> None:
    """The signals that the process that waits does."""
    status, until = Path(f"/proc/{pid}/status"), time.monotonic() + 60
    blocked = f"SigBlk:\t{1 << (waiting.WAITS - 1):016x}"
    while blocked not in status.read_text() and time.monotonic() < until:
        time.sleep(0.005)


@pytest.mark.skipif(platform.machine() not in waiting.MACHINES, reason="there is none of it")
def test_it_waits_for_its_signal_and_becomes_the_program_that_it_was_given(tmp_path: Path) -> None:
    file = tmp_path / waiting.NAME
    file.write_bytes(waiting.program(platform.machine()))
    file.chmod(0o755)
    given = ["/bin/sh", "-c", SHOW, "as-it-was", "given"]
    # What started the tests may ignore signals, as nohup does, and make those of the C library.
    plain = subprocess.run(given, stdout=subprocess.PIPE, env={"SAID": "it"}, check=True).stdout
    with subprocess.Popen([file, *given], stdout=subprocess.PIPE, env={"SAID": "it"}) as process:
        until_blocks(process.pid)
        os.kill(process.pid, signal.SIGCONT)  # another signal does not end it
        process.send_signal(waiting.BEGINS)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert said == plain
    assert said.startswith(b"as-it-was given it\nSigBlk:\t")


@pytest.mark.skipif(platform.machine() not in waiting.MACHINES, reason="there is none of it")
def test_an_init_that_has_ended_did_begin(tmp_path: Path) -> None:
    file = tmp_path / waiting.NAME
    file.write_bytes(waiting.program(platform.machine()))
    file.chmod(0o755)
    with subprocess.Popen([file, "/bin/true"]) as process:
        until_blocks(process.pid)
        os.kill(process.pid, waiting.BEGINS)
        until = time.monotonic() + 60
        while began(process.pid) and time.monotonic() < until:
            time.sleep(0.005)
        waiting.begin(process.pid)


def test_one_that_ended_before_it_waited_is_refused() -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait()
        with pytest.raises(EngineError, match="its first process ended: it does not wait"):
            waiting.until_waits(process.pid)


def test_a_machine_that_it_is_not_made_for_is_refused() -> None:
    with pytest.raises(EngineError, match="no containers of Docker Engine on riscv64: use Podman"):
        waiting.program("riscv64")
