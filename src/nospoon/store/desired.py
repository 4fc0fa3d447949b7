"""Desired state as the store has it: the cluster that a file describes, as a value.

Nodes are kept as what they have other than the one before them of their flavor: 10,000 of a group
are hardly more than their names, and share in memory what they share in the file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from itertools import chain
from typing import Any, get_type_hints

import msgspec

from nospoon.model.cluster import BmcAddressing, Cluster, Node
from nospoon.store.hosts import host_of, record_of

FORMAT = 1
"""Of what `packed` gives. With a change that `unpacked` cannot read it grows by one: values of
before are then made again from their files.
"""


def packed(cluster: Cluster) -> bytes:
    """Not encrypted, though it has passwords; of logins at clouds it has the names alone. 10,000
    nodes take a tenth of a second: run it in a worker.
    """
    head = {name: _plain(getattr(cluster, name)) for name in _HEAD}
    lines = ({"format": FORMAT}, head, [record_of(host) for host in cluster.hosts])
    packer = zlib.compressobj(1)
    pieces = [packer.compress(_line(each)) for each in chain(lines, _lines_of(cluster.nodes))]
    return b"".join((*pieces, packer.flush()))


def unpacked(kept: bytes) -> Cluster | None:
    """None for b"", and for what a version with another format has packed."""
    if not kept:
        return None
    form, *lines = zlib.decompress(kept).splitlines()
    if json.loads(form) != {"format": FORMAT}:
        return None
    head, hosts, *nodes = map(json.loads, lines)
    return Cluster(
        hosts=tuple(map(host_of, hosts)),
        nodes=tuple(_nodes_of(nodes)),
        **{name: _read(Cluster, name, value) for name, value in head.items()},
    )


def _lines_of(nodes: Iterable[Node]) -> Iterator[dict[str, object]]:
    before = dict[str, Node]()
    for node in nodes:
        like = before.get(node.flavor, _FIRST)
        yield {"flavor": node.flavor} | {
            name: _plain(value)
            for name in _NODE
            if (value := getattr(node, name)) != getattr(like, name)
        }
        before[node.flavor] = node


def _nodes_of(lines: Iterable[Mapping[str, object]]) -> Iterator[Node]:
    before = dict[object, Node]()
    for line in lines:
        like = before.get(line["flavor"], _FIRST)
        node = replace(like, **{name: _read(Node, name, value) for name, value in line.items()})
        yield node
        before[node.flavor] = node


_FIRST = Node("")
_NODE = tuple(each.name for each in fields(Node))
_HEAD = tuple(each.name for each in fields(Cluster) if each.name not in {"hosts", "nodes"})


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _plain(value: object) -> object:
    return msgspec.to_builtins(value, enc_hook=_shown)


def _shown(value: object) -> object:
    """What msgspec does not know."""
    match value:
        case IPv4Address() | IPv6Address() | IPv4Network() | IPv6Network():
            return str(value)
        case Mapping():
            return dict(value)
    raise NotImplementedError(type(value).__name__)


@cache
def _types(of: type) -> Mapping[str, object]:
    return get_type_hints(of)


def _read(of: type, name: str, value: Any) -> Any:
    """A field's value. msgspec takes no union of two types that it does not know."""
    if (of, name) == (Cluster, "addressing"):
        return BmcAddressing(**{each: _read(BmcAddressing, each, value[each]) for each in value})
    if (of, name) == (BmcAddressing, "address"):
        return ip_address(value)
    return msgspec.convert(value, _types(of)[name], dec_hook=_made)


def _made(kind: type, value: object) -> object:
    """Networks of IPv4 and IPv6."""
    return kind(value)
