"""What a plan is resolved with: facts and digests that are in no file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nospoon.control.content.certificates import certificate_digest
from nospoon.control.planning.accounts import Account
from nospoon.control.planning.prepared import Seen
from nospoon.model.cluster import Host
from nospoon.model.resources.machines import Machine
from nospoon.plan.resolution.around import Surroundings
from nospoon.store.crypt import Cipher


def pool_root(host: Host, here: str) -> str:
    """The directory on a host in which pools are made; `here`: on this machine."""
    root = "/var/lib/nospoon/pools" if host.ssh else here
    return f"{root}/{host.connection.pools}".rstrip("/")


def surroundings(
    seen: Seen,
    accounts: Mapping[str, Account],
    pool_root_of: Callable[[Host], str],
    cipher: Cipher,
    boot_port: int,
) -> Surroundings:
    """But for the seeds, which are made of the rest."""
    machines = {
        each.key.name: each.shape for each in seen.observed if isinstance(each.shape, Machine)
    }
    return Surroundings(
        pool_roots={host.name: pool_root_of(host) for host in seen.cluster.hosts},
        images=seen.images,
        credentials_keys={name: account.key for name, account in accounts.items()},
        facts=seen.surveyed.facts,
        adopted=seen.adopted,
        boot_port=boot_port,
        certificate=certificate_digest(seen.cluster, seen.uploads),
        relay_keys={
            host.name: cipher.digest(f"relay {seen.id} {host.name}")
            for host in seen.cluster.hosts
            if host.connection.relay is not None
        },
        made=machines,
        unnoted=frozenset(
            each.key
            for each in seen.observed
            if isinstance(each.shape, Machine) and each.shape.asks and not each.shape.asks_at
        ),
    )
