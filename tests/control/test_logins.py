"""Logins at clouds: hosts have names of them, and who does not know one cannot name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nospoon.control.planning.logins import MOST_PLANNED, Logins, with_new_logins
from nospoon.errors import ProviderError
from nospoon.model.cluster import Cluster, Host
from nospoon.model.connections import OpenStack
from nospoon.store.crypt import Cipher


def cluster(told: str, at: str = "http://keystone p") -> Cluster:
    host = Host("cloud", OpenStack("mine", at))
    return Cluster("dev", (host,), (), (), (), logins=(("cloud", told),))


def login_of(taken: Cluster) -> str:
    return taken.hosts[0].connection.login


@pytest.fixture
def cipher(tmp_path: Path) -> Cipher:
    return Cipher.from_file(tmp_path / "key")


def test_a_host_has_a_name_that_tells_nothing(cipher: Cipher) -> None:
    logins = Logins(cipher)
    taken = logins.taken(cluster('{"password": "secret"}'), 0)
    assert not taken.logins
    assert "secret" not in login_of(taken)
    assert logins.of(login_of(taken)) == {"password": "secret"}
    assert login_of(logins.taken(cluster('{"password": "other"}'), 0)) != login_of(taken)
    assert login_of(Logins(cipher).taken(cluster('{"password": "secret"}'), 0)) == login_of(taken)


def test_what_is_sealed_is_known_after_a_restart(cipher: Cipher) -> None:
    logins = Logins(cipher)
    taken = logins.taken(cluster('{"password": "secret"}'), 0)
    kept = logins.sealed(taken.hosts)
    assert b"secret" not in b"".join(kept.values())
    again = Logins(cipher)
    again.restore(kept)
    assert again.of(login_of(taken)) == {"password": "secret"}


def test_plans_that_came_to_nothing_are_forgotten(cipher: Cipher) -> None:
    logins = Logins(cipher)
    first = logins.taken(cluster("{}"), 7)
    for number in range(MOST_PLANNED):
        logins.taken(cluster(f'{{"password": "{number}"}}'), 8)
    assert logins.of(login_of(first)) == {}, "those of others stay"
    for number in range(MOST_PLANNED):
        logins.taken(cluster(f'{{"password": "{number}"}}'), 7)
    with pytest.raises(ProviderError, match="not known any more"):
        logins.of(login_of(first))


def test_a_new_password_holds_for_what_is_there_already(cipher: Cipher) -> None:
    logins = Logins(cipher)
    before = logins.taken(cluster('{"password": "old"}'), 0)
    now = logins.taken(cluster('{"password": "new"}'), 0)
    elsewhere = logins.taken(cluster('{"password": "new"}', at="http://other p"), 0)
    assert with_new_logins(before.hosts, now.hosts) == now.hosts
    assert with_new_logins(before.hosts, elsewhere.hosts) == before.hosts


def test_whose_plan_a_login_came_with_is_known_for_what_its_answers_may_take(
    cipher: Cipher,
) -> None:
    logins = Logins(cipher)
    mine = login_of(logins.taken(cluster('{"password": "mine"}'), 7))
    theirs = login_of(logins.taken(cluster('{"password": "theirs"}'), 8))
    assert [logins.planned_by(each) for each in (mine, theirs, "other")] == [7, 8, None]
