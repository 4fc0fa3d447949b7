"""The administrator's list is asked for by each host of a member's file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nospoon.clusterfile.grants import load_grants
from nospoon.daemon import grants
from nospoon.daemon.grants import GrantsFile
from nospoon.errors import Forbidden
from nospoon.model.grants import Grants


def test_the_list_is_decoded_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was for each of 1,000 hosts, on the event loop: 0.4 s each time that a member asked."""
    path, often = tmp_path / "grants.yaml", 0
    load = load_grants

    def counted(*args: Any, **named: Any) -> Grants:
        nonlocal often
        often += 1
        return load(*args, **named)

    monkeypatch.setattr(grants, "load_grants", counted)
    file = GrantsFile(path, frozenset({os.getuid()}))
    without = file.read()
    path.write_text("machines: [a]\n")
    for _ in range(3):
        assert file.read().machines == ("a",)
    assert often == 1
    path.write_text("machines: [b, c]\n")
    assert file.read().machines == ("b", "c")
    path.chmod(0o666)
    for _ in range(2):
        with pytest.raises(Forbidden, match="others may write it"):
            file.read()
    path.chmod(0o644)
    assert file.read().machines == ("b", "c")
    path.unlink()
    assert file.read() == without
