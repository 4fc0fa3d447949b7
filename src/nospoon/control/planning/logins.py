"""Logins at clouds: what cluster files say of them, under names without meaning.

A host refers to its login by that name, so that no secret is kept with hosts. The name is a keyed
digest of all that the file says: who has a login under it knows what it says.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from threading import Lock

from nospoon.errors import ProviderError
from nospoon.model.cluster import Cluster, Host
from nospoon.model.principal import OwnerId
from nospoon.store.crypt import Cipher

MOST_PLANNED = 64
"""Logins of one user's plans: of more, the oldest is forgotten."""


def with_new_logins(known: Iterable[Host], now: Iterable[Host]) -> tuple[Host, ...]:
    """Hosts of before, with the logins that a file has for the same projects now: those of before
    may be refused since.
    """
    given = {each.machine: each.connection.login for each in now if each.connection.login}
    return tuple(
        _with_login(each, given[each.machine])
        if each.connection.login and each.machine in given
        else each
        for each in known
    )


def _with_login(host: Host, login: str) -> Host:
    return replace(host, connection=host.connection.with_login(login))


class Logins:
    """Knows each login of the store, and those of plans that were made of late."""

    def __init__(self, cipher: Cipher) -> None:
        self._cipher = cipher
        self._kept: dict[str, str] = {}
        self._planned = defaultdict[int, dict[str, str]](dict)
        self._lock = Lock()  # files are read in threads

    def taken(self, cluster: Cluster, owner: OwnerId) -> Cluster:
        """The cluster with the names of its logins in its hosts, instead of what they say."""
        if not cluster.logins:
            return cluster
        names = {host: self._name(settings) for host, settings in cluster.logins}
        with self._lock:
            mine = self._planned[owner]
            for host, settings in cluster.logins:
                mine.pop(names[host], None)
                mine[names[host]] = settings
            while len(mine) > MOST_PLANNED:
                del mine[next(iter(mine))]
        hosts = tuple(
            _with_login(host, names[host.name]) if host.name in names else host
            for host in cluster.hosts
        )
        return replace(cluster, hosts=hosts, logins=())

    def sealed(self, hosts: Iterable[Host]) -> dict[str, bytes]:
        """The logins of these hosts as the store keeps them; from now on they are remembered."""
        names = {each.connection.login for each in hosts} - {""}
        with self._lock:
            found = {name: self._settings(name) for name in names if self._settings(name)}
            self._kept |= found
        return {name: self._cipher.encrypt(settings) for name, settings in found.items()}

    def restore(self, kept: Mapping[str, bytes]) -> None:
        """What the store has."""
        with self._lock:
            self._kept |= {name: self._cipher.decrypt(settings) for name, settings in kept.items()}

    def of(self, name: str) -> dict[str, object]:
        """Settings of openstacksdk. Raises `ProviderError` for one that is not known any more."""
        with self._lock:
            settings = self._settings(name)
        if not settings:
            raise ProviderError(
                "the login at its cloud is not known any more",
                hint="Run `nospoon up` with its file, which has it.",
            )
        found: dict[str, object] = json.loads(settings)
        return found

    def planned_by(self, name: str) -> int | None:
        """A user who planned with it of late."""
        with self._lock:
            return next((owner for owner, mine in self._planned.items() if name in mine), None)

    def _settings(self, name: str) -> str:
        planned = (mine[name] for mine in self._planned.values() if name in mine)
        return self._kept.get(name) or next(planned, "")

    def _name(self, settings: str) -> str:
        return self._cipher.digest(f"login\0{settings}")
