"""Programs that write without end are ended, whoever stops listening to them and why."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from nospoon.errors import ProviderError
from nospoon.runtime import process
from nospoon.runtime.process import OutputTooLong, pipe, run
from nospoon.testing.due import forward

PATIENCE = 60.0


@pytest.mark.parametrize("to", ["", " >&2"], ids=["output", "errors"])
async def test_one_that_says_too_much_is_ended(to: str) -> None:
    for _ in range(10):
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(OutputTooLong):
                await run(["sh", "-c", f"exec yes{to}"], most=1 << 20)


async def test_one_that_does_not_end_in_time_is_ended() -> None:
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ProviderError, match="did not end within"):
            await run(["sh", "-c", "exec yes"], timeout=0.05)


@pytest.mark.parametrize("ends", ["exec sleep 600", "exit 3"])
async def test_a_program_that_is_an_argument_is_not_shown_whole(ends: str) -> None:
    """Programs are sent to hosts so: thousands of lines, of which users know nothing."""
    with pytest.raises(ProviderError) as refused:
        await run(["sh", "-c", f"{ends}\n" + "# more of it\n" * 10_000, "sh", "last"], timeout=0.5)
    assert str(refused.value).startswith("`sh -c 'e")
    assert "…' sh last` " in str(refused.value)
    assert len(str(refused.value)) < 300


async def test_one_whose_child_holds_its_output_is_waited_for_no_longer(tmp_path: Path) -> None:
    child, before = tmp_path / "child", open_files()
    argv = ["sh", "-c", f"sleep 600 & echo $! >{child}.part; mv {child}.part {child}; wait"]
    task = asyncio.create_task(run(argv, timeout=600))  # noqa: TID251  (it is awaited below)
    async with asyncio.timeout(PATIENCE):
        while not child.exists():  # noqa: ASYNC110  (the program tells nobody else)
            await asyncio.sleep(0.01)
    while not task.done():  # its time begins when it is awaited, which may be after its child's
        forward(600)
        await asyncio.sleep(0.01)
    with pytest.raises(ProviderError, match="did not end within"):
        await task
    async with asyncio.timeout(PATIENCE):
        while open_files() > before:  # noqa: ASYNC110  (asyncio closes its pipes in a later turn)
            await asyncio.sleep(0.01)
    os.kill(int(child.read_text()), signal.SIGKILL)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_one_whose_caller_is_gone_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    argv = ["sh", "-c", f"echo $$ >{pid}.part; mv {pid}.part {pid}; exec yes"]
    task = asyncio.create_task(run(argv))  # noqa: TID251  (to be cancelled)
    async with asyncio.timeout(PATIENCE):
        while not pid.exists():  # noqa: ASYNC110  (the program tells nobody else)
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not Path("/proc", pid.read_text().strip()).exists()


async def test_one_that_ends_with_its_input_may_do_so(tmp_path: Path) -> None:
    end = tmp_path / "end"
    piped = await pipe(["sh", "-c", f"cat; echo by itself >{end}"], errors=True)
    await piped.write(b"in")
    assert await piped.read(100) == b"in"
    await piped.close(patience=PATIENCE)
    assert end.read_text() == "by itself\n"


async def test_one_that_does_not_end_with_its_input_is_killed() -> None:
    piped = await pipe(["sh", "-c", "exec yes"], errors=True)
    async with asyncio.timeout(PATIENCE):
        assert await piped.read(2) == b"y\n"
        await piped.close(patience=0.05)
        assert not Path(f"/proc/{piped.pid}").exists()


async def test_one_that_writes_errors_without_end_is_ended() -> None:
    piped = await pipe(["sh", "-c", "exec yes >&2"], errors=True)
    async with asyncio.timeout(PATIENCE):
        said = await piped.errors(1000)
        assert said == b"y\n" * 500 + b"y", "a byte more than that tells it from less"
        assert await piped.read(1) == b""
    await piped.close()


async def test_what_children_of_one_that_was_ended_go_on_to_write_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A BMC of a member's choice may take ipmitool over, and have it leave others behind."""
    monkeypatch.setattr(process, "ENDING", 0.05)
    before = open_files()
    piped = await pipe(["sh", "-c", "yes >&2 & wait"], errors=True)
    async with asyncio.timeout(PATIENCE):
        assert len(await piped.errors(1000)) == 1001
        await piped.close(patience=0.05)
        while open_files() > before:  # noqa: ASYNC110  (asyncio closes its pipes in a later turn)
            await asyncio.sleep(0.01)
