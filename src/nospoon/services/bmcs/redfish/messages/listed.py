"""Resources with long lists of links, as JSON that is made once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nospoon.services.bmcs.redfish.messages.bodies import ref
from nospoon.services.bmcs.redfish.messages.listings import BATCH, Rest


@dataclass(frozen=True, slots=True)
class Listed:
    """A resource with a long list of links: `body` has none of them, `paths` are those.

    `place`: the names that lead to the list. `data`: all of it as JSON, `tag`: its ETag.
    """

    body: dict[str, object]
    paths: Sequence[str]
    data: bytes
    tag: str
    place: tuple[str, ...] = ("Members",)

    async def whole(self, rest: Rest) -> dict[str, object]:
        """The body with its links."""
        links = await links_of(self.paths, rest)
        return {**_with_links(self.body, self.place, links), "@odata.etag": self.tag}


async def links_of(paths: Sequence[str], rest: Rest) -> list[dict[str, str]]:
    """Made in slices."""
    links = list[dict[str, str]]()
    for start in range(0, len(paths), BATCH):
        await rest()
        links.extend(ref(each) for each in paths[start : start + BATCH])
    return links


def _with_links(
    body: Mapping[str, object], place: Sequence[str], links: list[dict[str, str]]
) -> dict[str, object]:
    first, *further = place
    if not further:
        return {**body, first: links}
    inner = body[first]
    assert isinstance(inner, Mapping), "a list below it has that place"
    return {**body, first: _with_links(inner, further, links)}
