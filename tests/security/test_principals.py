"""A caller has the rights of its user, and an owner those that the daemon gives it now."""

from __future__ import annotations

import pytest

from nospoon.api.peer import Members
from nospoon.errors import Forbidden
from nospoon.model.principal import ROOT, Administrators, Principal

ADMINS = Administrators(frozenset({ROOT, 1000}))


@pytest.mark.parametrize(("uid", "admin"), [(ROOT, True), (1000, True), (1001, False)])
def test_administrators_are_root_and_the_daemons_own_user(uid: int, *, admin: bool) -> None:
    caller = Members("", ADMINS).caller_of({"client": (f"uid={uid}", 7)})
    assert caller == Principal(uid, admin=admin)
    assert caller.owns(uid)
    assert caller.owns(4242) == admin
    assert (uid in ADMINS) == admin


def test_a_connection_without_credentials_has_no_caller() -> None:
    for client in (None, ("127.0.0.1", 80)):
        with pytest.raises(Forbidden, match="no peer credentials"):
            Members("", ADMINS).caller_of({"client": client})
