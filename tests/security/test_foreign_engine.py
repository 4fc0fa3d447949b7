"""An engine of another user's is not obeyed: root acts on the processes that an engine names."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nospoon.errors import ProviderError
from nospoon.providers.docker.host import DockerHost
from nospoon.runtime.runner import LocalRunner
from nospoon.testing.trees import remove_tree

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
LISTENER = """
import os, socket, sys
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("listens", flush=True)
    while True:
        with listener.accept()[0] as one:
            asked = one.recv(65536)
            print(asked.decode() or "nothing", flush=True)
"""
NOBODY = 65534


@pytest.fixture
def engine() -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A socket of another user, and who listens there."""
    directory = Path(tempfile.mkdtemp(prefix="nospoon-engine-"))
    os.chown(directory, NOBODY, NOBODY)
    path = directory / "s"
    listener = subprocess.Popen(
        ["/usr/bin/python3", "-c", LISTENER, str(path)],
        stdout=subprocess.PIPE, text=True, user=NOBODY, group=NOBODY,
    )  # fmt: skip
    assert listener.stdout is not None
    assert listener.stdout.readline() == "listens\n"
    yield path, listener
    listener.kill()
    listener.wait()
    remove_tree(directory)


async def test_nothing_is_asked_of_an_engine_of_another_user(
    engine: tuple[Path, subprocess.Popen[str]], tmp_path: Path
) -> None:
    path, listener = engine
    (tmp_path / "pool").mkdir()
    host = DockerHost("here:docker", LocalRunner(), str(tmp_path), str(path))
    with pytest.raises(ProviderError, match=f"is not root's: it is user {NOBODY}'s"):
        await host.facts()
    with pytest.raises(ProviderError, match=f"is not root's: it is user {NOBODY}'s"):
        await host.look()
    listener.kill()
    said, _ = listener.communicate()
    assert set(said.split()) <= {"nothing"}
