"""Desired state as the store has it: the cluster that a file describes, as a value.

Nodes are kept as what they have other than the one before them of their flavor: 10,000 of a group
are hardly more than their names, and share in memory what they share in the file. Longer texts are
kept once, before all else: by aliases, a short file may give each node one of 64 Ki characters.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from itertools import chain
from typing import Any, get_type_hints

import msgspec

from nospoon.model.cluster import BmcAddressing, Cluster, Node
from nospoon.model.decoders import meet
from nospoon.store.hosts import host_of, record_of

FORMAT = 3
"""Of what `packed` gives. With a change that `unpacked` cannot read it grows by one: values of
before are then made again from their files. Sets of labs have none since 3: what comes after has
to read it.
"""
OLDEST = 2
"""What can be read where a file cannot be: sets of labs are made of no such value, which has no
`templates`, and all else of it holds.
"""
LONG, MARK = 32, "~"
"""Characters of a text that is kept once, and what begins its place among those."""
PIECE = 16 << 10
"""Bytes that are unpacked at a time: they may be a thousand times as many then."""


def packed(cluster: Cluster) -> bytes:
    """Not encrypted, though it has passwords; of logins at clouds it has the names alone. 10,000
    nodes take a tenth of a second: run it in a worker.
    """
    texts = dict[str, int]()
    head = {name: _plain(getattr(cluster, name)) for name in _HEAD}
    parts = chain((head, list(map(record_of, cluster.hosts))), _lines_of(cluster.nodes))
    lines = [_line(_short(part, texts)) for part in parts]
    first = _line({"format": FORMAT, "texts": len(texts)})
    packer = zlib.compressobj(1)
    pieces = [packer.compress(each) for each in chain((first,), map(_line, texts), lines)]
    return b"".join((*pieces, packer.flush()))


def unpacked(kept: bytes, *, oldest: int = FORMAT) -> Cluster | None:
    """None for b"", and for what a version with an older format than `oldest`, or with a newer one
    than this has packed.
    """
    if not kept:
        return None
    lines = map(json.loads, _lines(kept))
    form = next(lines)
    if not oldest <= form["format"] <= FORMAT:
        return None
    texts = [next(lines) for _ in range(form["texts"])]
    head, hosts, *nodes = map(partial(_whole, texts=texts), lines)
    return Cluster(
        hosts=tuple(map(host_of, hosts)),
        nodes=tuple(_nodes_of(nodes)),
        **{name: _read(Cluster, name, value) for name, value in head.items()},
    )


def _short(value: object, texts: dict[str, int]) -> object:
    """The same with places of long texts, which are added to `texts`."""
    match value:
        case str():
            if len(value) < LONG and not value.startswith(MARK):
                return value
            return f"{MARK}{texts.setdefault(value, len(texts))}"
        case dict():
            return {_short(name, texts): _short(each, texts) for name, each in value.items()}
        case list() | tuple():
            return [_short(each, texts) for each in value]
    return value


def _whole(value: Any, texts: Sequence[str]) -> Any:
    match value:
        case str():
            return texts[int(value[len(MARK) :])] if value.startswith(MARK) else value
        case dict():
            return {_whole(name, texts): _whole(each, texts) for name, each in value.items()}
        case list():
            return [_whole(each, texts) for each in value]
    return value


def _lines(kept: bytes) -> Iterator[bytes]:
    unpacker, rest = zlib.decompressobj(), b""
    for begin in range(0, len(kept), PIECE):
        *whole, rest = (rest + unpacker.decompress(kept[begin : begin + PIECE])).split(b"\n")
        yield from whole


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
    raise TypeError(f"the store has no form for a {type(value).__name__}")


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


_READ_APART = {(Cluster, "hosts"), (Cluster, "addressing"), (BmcAddressing, "address")}
for _of in (Cluster, BmcAddressing, Node):
    meet(*(kind for name, kind in _types(_of).items() if (_of, name) not in _READ_APART))
