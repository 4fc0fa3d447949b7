"""How much is free where pools are made."""

from __future__ import annotations

from pathlib import Path

from nospoon.providers.linux import free_space
from nospoon.runtime.runner import LocalRunner


async def test_a_full_file_system_is_not_one_that_is_unknown(tmp_path: Path) -> None:
    """0 means unknown, and nothing is too large for that."""
    runner = LocalRunner()
    await runner.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(tmp_path)])
    try:
        assert await free_space(runner, str(tmp_path)) == 16 << 10
        (tmp_path / "file").write_bytes(bytes(16 << 10))
        assert await free_space(runner, f"{tmp_path}/pools/one") == 1
    finally:
        await runner.run(["umount", str(tmp_path)])
