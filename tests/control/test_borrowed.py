"""Volumes of others are for those who can have them without us."""

from __future__ import annotations

import os

import pytest

from nospoon.clusterfile.load import load
from nospoon.control.planning.borrowed import existing_volumes, refuse_borrowers
from nospoon.errors import Forbidden

WITH = load("cluster: c\nnodes: [{disks: [1GiB, {volume: default/data}]}]", file="x")
WITHOUT = load("cluster: c\nnodes: [{disks: [1GiB]}]", file="x")


@pytest.mark.parametrize("uid", [0, os.getuid()])
def test_root_and_the_daemons_own_user_may_have_existing_volumes(uid: int) -> None:
    assert existing_volumes(WITH) == {"default/data"}
    refuse_borrowers(WITH, uid)


def test_another_user_of_the_daemon_may_not() -> None:
    with pytest.raises(Forbidden, match=r"user 4242 may not attach .* \(default/data\)"):
        refuse_borrowers(WITH, 4242)
    refuse_borrowers(WITHOUT, 4242)
