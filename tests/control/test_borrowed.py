"""Volumes of others are for those who can have them without us."""

from __future__ import annotations

import pytest

from nospoon.clusterfile.load import load
from nospoon.control.planning.borrowed import existing_volumes, refuse_borrowers
from nospoon.errors import Forbidden
from nospoon.model.principal import Principal

WITH = load("cluster: c\nnodes: [{disks: [1GiB, {volume: default/data}]}]", file="x")
WITHOUT = load("cluster: c\nnodes: [{disks: [1GiB]}]", file="x")


def test_administrators_may_have_existing_volumes() -> None:
    assert existing_volumes(WITH) == {"default/data"}
    refuse_borrowers(existing_volumes(WITH), Principal(0, admin=True))


def test_another_user_of_the_daemon_may_not() -> None:
    with pytest.raises(Forbidden, match=r"user 4242 may not attach .* \(default/data\)"):
        refuse_borrowers(existing_volumes(WITH), Principal(4242))
    refuse_borrowers(existing_volumes(WITHOUT), Principal(4242))
