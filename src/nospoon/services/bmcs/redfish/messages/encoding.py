"""JSON of large answers, encoded in slices: long lists, and resources with others expanded in them.

What is small is one piece. `msgspec` encodes about a hundred MB a second, so that an answer of
10,000 links, or of 1,000 expanded resources, would keep the event loop for many milliseconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from nospoon.services.bmcs.redfish.messages.listings import BATCH, Rest

JSON = msgspec.json.Encoder()
_HASHED = 1 << 18
"""Bytes that are hashed without a rest."""


async def encoded(value: object, rest: Rest) -> bytes:
    """A body as JSON."""
    found = []
    for piece in pieces(value):
        found.append(piece)
        await rest()
    return b"".join(found)


def pieces(value: object) -> Iterator[bytes]:
    """What makes up its JSON, none of them much."""
    if isinstance(value, dict) and any(_is_large(each) for each in value.values()):
        before = b"{"
        for name, each in value.items():
            yield before + JSON.encode(name) + b":"
            yield from pieces(each)
            before = b","
        yield b"}"
    elif isinstance(value, list) and _is_large(value):
        before = b"["
        for start in range(0, len(value), BATCH):
            batch = value[start : start + BATCH]
            if any(_is_large(each) for each in batch):
                for each in batch:
                    yield before
                    yield from pieces(each)
                    before = b","
            else:
                yield before + JSON.encode(batch)[1:-1]
            before = b","
        yield b"]"
    else:
        yield JSON.encode(value)


def _is_large(value: object) -> bool:
    """Whether it is many, or holds a resource that was expanded, in `Links` for example."""
    match value:
        case list():
            return len(value) > BATCH or any(_is_large(each) for each in value)
        case dict():
            return _is_expanded(value) or any(
                _is_expanded(each) or (isinstance(each, list) and _is_large(each))
                for each in value.values()
            )
        case _:
            return False


def _is_expanded(value: object) -> bool:
    return isinstance(value, dict) and len(value) > 1 and "@odata.id" in value


def tag_of(data: bytes) -> str:
    """The ETag of what is short."""
    return _tag(hashlib.blake2b(data, digest_size=8).hexdigest())


async def long_tag_of(data: bytes, rest: Rest) -> str:
    """The same ETag, in slices."""
    digest, view = hashlib.blake2b(digest_size=8), memoryview(data)
    for start in range(0, len(view), _HASHED):
        digest.update(view[start : start + _HASHED])
        await rest()
    return _tag(digest.hexdigest())


def _tag(digest: str) -> str:
    return f'W/"{digest}"'
