"""What commands do not import: pydantic with all sections of a cluster file, YAML and asyncio take
longer than all else that most commands do.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import nospoon.cli.commands
from nospoon.testing.rack import private_rack

WITH_PARTS = {"dev", "dev_cloud", "distro", "image", "import_", "sushy"}
"""Commands that read files of others, or do the work themselves."""
COMMANDS = {
    each.stem
    for place in nospoon.cli.commands.__path__
    for each in Path(place).glob("*.py")
    if each.stem != "__init__"
}
LOOK = """
import sys
{then}
sys.exit(" ".join({{"asyncio", "pydantic", "yaml"}} & sys.modules.keys()) or None)
"""
RUN = """
import contextlib
from nospoon.cli.main import main
with contextlib.suppress(SystemExit):
    main()
"""


@pytest.mark.parametrize("command", sorted(COMMANDS - WITH_PARTS))
def test_a_command_imports_little(command: str) -> None:
    look = LOOK.format(then=f"import nospoon.cli.main, nospoon.cli.commands.{command}")
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_that_names_no_others_is_read_by_the_daemon_alone() -> None:
    look = LOOK.format(then=RUN)
    with private_rack() as rack:
        name = rack.name()
        text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}nodes: [{{name: n}}]\n"
        file = rack.file(text)
        for argv in (("up", "--yes", file), ("status", name), ("node", "power", "n", "on")):
            command = [sys.executable, "-c", look, *argv]
            done = subprocess.run(
                command, env=rack.environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
