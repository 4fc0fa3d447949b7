"""Arguments that name no cluster file, and those that the daemon refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from nospoon.cli.files import read_cluster
from nospoon.cli.output import report
from nospoon.errors import UsageError


@pytest.mark.parametrize("ending", [".yaml", ".yml"])
def test_the_name_of_a_cluster_leads_to_its_file(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"dev{ending}").write_text("cluster: dev\nnodes: [{count: 2}]\n")
    with pytest.raises(UsageError) as refused:
        read_cluster(str(tmp_path / "dev"))
    assert "No such file or directory" in str(refused.value)
    assert refused.value.hint == f"Did you mean {tmp_path / 'dev'}{ending}?"


def test_a_name_without_a_file_is_answered_by_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Expected a cluster file, such as cluster\.yaml"):
        read_cluster(str(tmp_path / "dev"))
    with pytest.raises(UsageError) as refused:
        read_cluster(str(tmp_path / "dev.yaml"))
    assert not refused.value.hint


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            "body.name: expected text; body: expected a value",
            "name: expected text; expected a value",
        ),
        ("a body: x", "a body: x"),
    ],
)
def test_parts_of_requests_are_not_shown(
    said: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report(UsageError(said))
    assert capsys.readouterr().err == f"Error: {shown}\n"
