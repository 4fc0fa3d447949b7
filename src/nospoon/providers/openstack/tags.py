"""Whose a thing in a cloud is: in Nova's metadata, Glance's properties, Neutron's descriptions.

Each is written with the thing itself, in one call: what is there and has no tag was made by others.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.answers import text_of

FIRST = "nospoon:1"
"""Begins a description that nospoon wrote."""
PARTS = 9
SEPARATOR = "_"
"""In names: no part of them has one."""
PREFIX = "nospoon_"
SAID = ("deployment", "cluster", "generation", "token", "owner", "uid", "name", "more")
LONGEST_VALUE = 255
"""Of metadata, in characters, and of a description in Neutron."""
MOST_VALUES = 128
"""Of a thing's metadata (Nova's usual quota) that are looked at."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """A tag, and the name that its thing's key has. `more`: what its driver notes with it."""

    tag: OwnerTag
    name: str
    more: str = ""


def described(tagged: Tagged) -> str:
    """As a description: at most 255 characters."""
    tag = tagged.tag
    cluster = urlsafe_b64encode(tag.cluster.bytes).decode().rstrip("=")
    uid = "" if tag.uid is None else str(tag.uid)
    said = (FIRST, tag.deployment, cluster, str(tag.generation), uid, tag.name, tagged.name)
    return ":".join((*said, tagged.more))


def of_description(text: object) -> Tagged | None:
    """None for what nospoon did not write."""
    if not isinstance(text, str) or len(text) > LONGEST_VALUE:
        return None
    parts = text.split(":")
    if len(parts) != PARTS or ":".join(parts[:2]) != FIRST:
        return None
    _, _, deployment, cluster, generation, uid, name, key, more = parts
    try:
        id_ = UUID(bytes=urlsafe_b64decode(f"{cluster}=="))
        tag = OwnerTag(deployment, id_, int(generation), name=name, uid=int(uid) if uid else None)
    except ValueError:
        return None
    return Tagged(tag, key, more) if tag.is_plausible(key) else None


def named(tagged: Tagged, place: str) -> str:
    """As a name of at most 255 letters, digits, hyphens and underscores, which is all that Nova
    takes for a key pair. `place`: hexadecimal digits.
    """
    tag = tagged.tag
    uid = "" if tag.uid is None else str(tag.uid)
    said = (tag.deployment, tag.cluster.hex, place, str(tag.generation), uid, tag.name, tagged.name)
    return SEPARATOR.join((*FIRST.split(":"), *said))


def of_name(text: str) -> tuple[Tagged, str] | None:
    """And its place; None for what nospoon did not write."""
    parts = text.split(SEPARATOR)
    if len(parts) != PARTS or parts[:2] != FIRST.split(":"):
        return None
    _, _, deployment, cluster, place, generation, uid, name, key = parts
    try:
        id_, owner = UUID(hex=cluster), int(uid) if uid else None
        tag = OwnerTag(deployment, id_, int(generation), name=name, uid=owner)
    except ValueError:
        return None
    return (Tagged(tag, key), place) if tag.is_plausible(key) else None


def properties(tagged: Tagged) -> dict[str, str]:
    """As metadata of Nova and properties of Glance."""
    tag = tagged.tag
    said = {
        "deployment": tag.deployment,
        "cluster": str(tag.cluster),
        "generation": str(tag.generation),
        "token": tag.token,
        "owner": tag.name,
        "uid": "" if tag.uid is None else str(tag.uid),
        "name": tagged.name,
        "more": tagged.more,
    }
    return {f"{PREFIX}{key}": value for key, value in said.items()} | in_pieces("note", tag.note)


def of_properties(tagged: Mapping[str, object]) -> Tagged | None:
    """None for what nospoon did not write."""
    try:
        said = {key: short(tagged[f"{PREFIX}{key}"]) for key in SAID}
        tag = OwnerTag(
            deployment=said["deployment"],
            cluster=UUID(said["cluster"]),
            generation=int(said["generation"]),
            token=said["token"],
            name=said["owner"],
            uid=int(said["uid"]) if said["uid"] else None,
            note=whole("note", tagged),
        )
    except (KeyError, ValueError):
        return None
    name = said["name"]
    return Tagged(tag, name, said["more"]) if tag.is_plausible(name) else None


def kept_properties(record: Mapping[str, object], *names: str) -> dict[str, str]:
    """These values of an image, and those that nospoon writes."""
    own = [name for name in record if name.startswith(PREFIX)][:MOST_VALUES]
    return {name: short(record[name]) for name in (*own, *names) if name in record}


def is_of_server(record: Mapping[str, object]) -> bool:
    """Whether Nova made an image of a server. It has all properties of the image that the server
    was made of, a tag too, and is of whoever asked for it.
    """
    return record.get("image_type") == "snapshot"


def short(value: object) -> str:
    """What stays of a value that a cloud shows, which may be of any length and type."""
    return text_of(value)[:LONGEST_VALUE]


def in_pieces(name: str, text: str) -> dict[str, str]:
    """A long text as several values."""
    pieces = [text[at : at + LONGEST_VALUE] for at in range(0, len(text), LONGEST_VALUE)]
    return {f"{PREFIX}{name}_{number}": piece for number, piece in enumerate(pieces)}


def whole(name: str, tagged: Mapping[str, object]) -> str:
    """The text that was cut into pieces."""
    keys: Sequence[str] = [key for key in tagged if key.startswith(f"{PREFIX}{name}_")]
    return "".join(
        short(tagged[key])
        for key in sorted(keys, key=lambda key: int(key.rpartition("_")[2]))[:MOST_VALUES]
    )
