"""Processes of other local users that have the arguments of one of nospoon's."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from nospoon.runtime.users import unprivileged_uid
from nospoon.services.netboot import dnsmasq

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts processes of others")
OTHER = 12_345
WAITING = "echo; read end"


@pytest.fixture
def shell() -> Iterator[str]:
    """A shell that is called as the server is, and that every user may run."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield shutil.copy("/bin/sh", f"{made}/{dnsmasq.PROGRAM}")


@contextmanager
def running(uid: int, configuration: Path, program: str) -> Iterator[int]:
    """The pid of a process of a user with that argument."""
    argv = [program, "-c", WAITING, "sh", f"{dnsmasq.OPTION}{configuration}"]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=uid, group=uid, extra_groups=[],
        cwd="/",
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def test_a_process_of_another_user_is_no_server_of_a_cluster(tmp_path: Path, shell: str) -> None:
    """Plans of a cluster, whose id everyone sees among the arguments of its server, had another
    one, on a host of any name, so that `up` failed.
    """
    configuration = tmp_path / str(uuid4()) / "other@lan" / "dnsmasq.conf"
    with running(OTHER, configuration, shell) as pid:
        assert dnsmasq.all_below(tmp_path) == {}
        assert dnsmasq.find(configuration, pid_file=tmp_path / "pid") is None
        (tmp_path / "pid").write_text(str(pid))
        assert dnsmasq.find(configuration, pid_file=tmp_path / "pid") is None


@pytest.mark.parametrize("uid", [0, unprivileged_uid()])
def test_one_of_nospoons_is_found_by_its_arguments(tmp_path: Path, uid: int, shell: str) -> None:
    configuration = tmp_path / str(uuid4()) / "here@lan" / "dnsmasq.conf"
    with running(uid, configuration, shell) as pid:
        assert [each.pid for each in dnsmasq.all_below(tmp_path).values()] == [pid]


def test_another_program_is_no_server_whoever_runs_it(tmp_path: Path) -> None:
    """Anyone may have sudo, which is root's then, wait for a password with any arguments."""
    configuration = tmp_path / str(uuid4()) / "other@lan" / "dnsmasq.conf"
    with running(0, configuration, "sh") as pid:
        assert dnsmasq.all_below(tmp_path) == {}
        (tmp_path / "pid").write_text(str(pid))
        assert dnsmasq.find(configuration, pid_file=tmp_path / "pid") is None
