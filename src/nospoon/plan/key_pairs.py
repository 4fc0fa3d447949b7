"""Which key pair of its cloud a VM has: one that the host names, else one of its first ssh key.

A server of Nova has one key pair. What else of keys a VM is to have is in its user data, if the
file has none of its own. https://docs.openstack.org/api-ref/compute/#keypairs-keypairs
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from binascii import Error
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from nospoon.model.cluster import Cluster, Host, Node
from nospoon.model.host_facts import HostFacts
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.key_pairs import THEIRS, KeyPair
from nospoon.plan.addresses.allocate import Allocations

IMPORTED = frozenset({
    "ssh-rsa", "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
})  # fmt: skip
"""Types that Nova can read (`load_ssh_public_key` of cryptography)."""
LENGTH = 4
"""Bytes of the length of a string (RFC 4251 section 5)."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a VM gets its keys by. `pair`: as its shape has it, "" for none; `made`: that pair,
    where it is to be made; `beside`: keys in its user data.
    """

    pair: str = ""
    made: KeyPair | None = None
    beside: tuple[str, ...] = ()


def given(node: Node, host: Host) -> Given:
    """Of a node on a host; nothing of one where keys go another way."""
    if (
        node.adopted is not None
        or node.kind is NodeKind.BAREMETAL
        or not host.declares.has_key_pairs
    ):
        return Given()
    keys, named = node.cloud_init.ssh_authorized_keys, host.connection.key_pair
    if named:
        return Given(THEIRS + named, beside=keys)
    pair = pair_of(keys)
    if pair is None:
        return Given(beside=keys)
    return Given(name_of(pair), pair, beside(keys))


def pair_of(keys: Iterable[str]) -> KeyPair | None:
    """Of the first of these that Nova takes."""
    return next((KeyPair(_bare(each)) for each in keys if _is_imported(each)), None)


def beside(keys: Iterable[str]) -> tuple[str, ...]:
    """Those that are not of the key pair."""
    listed = tuple(keys)
    pair = pair_of(listed)
    return tuple(each for each in listed if pair is None or _bare(each) != pair.public_key)


def name_of(pair: KeyPair) -> str:
    """Within a cluster: the same key is the same pair."""
    return f"key-{hashlib.sha256(pair.public_key.encode()).hexdigest()[:16]}"


def pairs_on(host: Host, nodes: Iterable[Node]) -> dict[str, KeyPair]:
    """Those that are made for nodes of a host, by name."""
    found = (given(each, host) for each in nodes)
    return {each.pair: each.made for each in found if each.made is not None}


def against_key_pairs(
    cluster: Cluster, allocations: Allocations, facts: Mapping[str, HostFacts]
) -> Iterator[str]:
    """Why VMs cannot get their keys in a cloud."""
    hosts = {each.name: each for each in cluster.hosts}
    for name in sorted({*allocations.hosts.values()} & facts.keys() & hosts.keys()):
        named, known = hosts[name].connection.key_pair, facts[name].key_pairs
        if named and known is not None and named not in known:
            yield (
                f"host {name}: the user of its login has no key pair {named!r}. Key pairs belong "
                "to users, not to projects. See `openstack keypair list`, or leave `key_pair` out."
            )
    for node in cluster.nodes:
        host = hosts.get(allocations.hosts.get(node.name, ""))
        if host is None or not node.cloud_init.user_data:
            continue
        if left := given(node, host).beside:
            what = f"`key_pair` {host.connection.key_pair}" if host.connection.key_pair else "one"
            yield (
                f"node {node.name} on host {host.name}: a server has one key pair there, {what}, "
                f"which leaves {len(left)} of its `ssh_keys`, and its user data is its own. Write "
                "them into `user_data`."
            )


def _bare(key: str) -> str:
    return " ".join(key.split()[:2])


def _is_imported(key: str) -> bool:
    type_, content = key.split()[:2]
    try:
        blob = b64decode(content, validate=True)
    except (Error, ValueError):
        return False
    length = int.from_bytes(blob[:LENGTH])
    said = blob[LENGTH : LENGTH + length]
    return type_ in IMPORTED and said == type_.encode() and len(blob) > LENGTH + length
