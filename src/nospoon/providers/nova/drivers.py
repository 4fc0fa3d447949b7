"""The driver of flavors. Tags are in their extra specs, under `nospoon:`, which no filter reads.

A flavor's id is ours: derived from the cluster's, so that a create whose answer was lost is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypedDict
from uuid import UUID

from nospoon.errors import Conflict, Gone, NotOurs, ProviderError
from nospoon.model.nova import NovaFlavor
from nospoon.model.resources.keys import NOVA, Key, Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.enrollment.enrol import settings, values
from nospoon.providers.answers import number_of, text_of
from nospoon.providers.nova.api import Api
from nospoon.providers.understood import understood

TAG = "nospoon:"
SAID = ("deployment", "cluster", "generation", "token", "name", "uid")
PAGE, MOST_PAGES, MARKER, MOST_LINKS = 1000, 20, 255, 8
"""Flavors of a page, pages, characters of a flavor's id, and links of a page."""
LONGEST_NAME = 255
"""Characters of a flavor's name."""
MOST_SPECS, LONGEST_SPEC = 1000, 255
"""Extra specs of a flavor, and characters of one, of which Nova takes no more."""
MOST_KEPT = 100_000
"""Extra specs of all flavors of nospoon: 20,000 with a thousand each would take gigabytes."""
FlavorShown = TypedDict(
    "FlavorShown",
    {
        "id": str,
        "name": str,
        "vcpus": int,
        "ram": int,
        "disk": int,
        "os-flavor-access:is_public": bool,
        "extra_specs": Mapping[str, str],
    },
)
"""As Nova's API shows one."""


class Flavors(TypedDict, total=False):
    """A page of them."""

    flavors: Sequence[FlavorShown]
    flavors_links: Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class _Page:
    """`own`: flavors of nospoon in it. `marker`: of the next one, or "". `is_long`: it has more
    than were asked for. `specs`: of its own.
    """

    own: Sequence[Observed]
    marker: str
    is_long: bool = False
    specs: int = 0


@understood
class FlavorDriver:
    """Flavors of one Nova. `force`: those that instances have are removed, too."""

    kind = Kind.NOVA_FLAVOR

    def __init__(self, api: Api, deployment: str, *, force: bool = False) -> None:
        self._api, self._deployment = api, deployment
        self._force = force

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        """Of all, public or not; Nova gives what its `max_limit` lets it, and says if there are
        more.
        """
        found, marker, specs = list[Observed](), "", 0
        for _ in range(MOST_PAGES):
            path = f"/flavors/detail?is_public=None&limit={PAGE}{marker}"
            page: _Page = await self._api.call("GET", path, read=partial(self._page, cluster))
            if page.is_long:
                break
            found += page.own
            specs += page.specs
            if specs > MOST_KEPT:
                raise ProviderError(f"flavors of Nova have more than {MOST_KEPT} extra specs")
            if not page.marker:
                return found
            marker = f"&marker={page.marker}"
        raise ProviderError(
            f"Nova lists more than {MOST_PAGES} pages of flavors, or more than {PAGE} on one"
        )

    def _page(self, cluster: UUID | None, answer: Flavors) -> _Page:
        """In a call's thread."""
        page, links = answer["flavors"], answer.get("flavors_links", ())[:MOST_LINKS]
        if len(page) > PAGE:
            return _Page((), "", is_long=True)
        own, specs = list[Observed](), 0
        for record in page:
            if (each := self._own(cluster, record)) is not None:
                specs += len(record["extra_specs"])
                own += [each] if specs <= MOST_KEPT else []
        goes_on = page and any(each["rel"] == "next" for each in links)
        marker = text_of(page[-1]["id"])[:MARKER] if goes_on else ""
        return _Page(own, marker, specs=specs)

    def _own(self, cluster: UUID | None, record: FlavorShown) -> Observed | None:
        _require_few(record.get("extra_specs") or {})
        tag = tag_of(record)
        if tag is None or tag.deployment != self._deployment:
            return None
        if cluster not in (None, tag.cluster):
            return None
        shape = shape_of(record)
        return Observed(Key(self.kind, NOVA, shape.name), shape, tag)

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        shape = _flavor(resource)
        body = {
            "id": str(shape.id), "name": shape.name, "vcpus": shape.vcpus, "ram": shape.ram,
            "disk": shape.disk, "os-flavor-access:is_public": shape.public,
        }  # fmt: skip
        try:
            await self._api.call("POST", "/flavors", {"flavor": body})
        except Conflict as error:
            await self._must_be_half_made(shape, str(error))
        await self._specify(shape, tag)

    async def _must_be_half_made(self, shape: NovaFlavor, why: str) -> None:
        """Its id is ours alone: what has it was begun here. What has its name only is others'."""
        try:
            await self._api.call("GET", f"/flavors/{shape.id}")
        except Gone:
            raise NotOurs(
                f"flavor {shape.name} cannot be made: {why}",
                hint="Nova has a flavor of that name that nospoon does not manage: choose another.",
            ) from None

    async def _specify(self, shape: NovaFlavor, tag: OwnerTag) -> None:
        path = f"/flavors/{shape.id}/os-extra_specs"
        wanted = {**values(shape.settings), **tag_specs(tag)}
        there = (await self._api.call("GET", path))["extra_specs"]
        _require_few(there)
        for name in there.keys() - wanted.keys():
            await self._api.call("DELETE", f"{path}/{name}")
        await self._api.call("POST", path, {"extra_specs": wanted})

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self._specify(_flavor(desired), tag)

    async def delete(self, observed: Observed) -> None:
        """Raises `Conflict` for a flavor that instances have."""
        shape = observed.shape
        assert isinstance(shape, NovaFlavor), "flavor keys have flavor shapes"
        try:
            there = (await self._api.call("GET", f"/flavors/{shape.id}"))["flavor"]
            tag = tag_of(there)
            if tag is None or tag.deployment != self._deployment:
                raise NotOurs(
                    f"{observed.key}: {shape.id} in Nova is not managed by nospoon: left unchanged"
                )
            await self._must_be_free(shape)
            await self._api.call("DELETE", f"/flavors/{shape.id}")
        except Gone:
            return

    async def _must_be_free(self, shape: NovaFlavor) -> None:
        path = f"/servers?all_tenants=1&limit=1&flavor={shape.id}"
        servers = (await self._api.call("GET", path))["servers"]
        if servers and not self._force:
            raise Conflict(
                f"flavor {shape.name} is in use in Nova: instance {text_of(servers[0]['id'])} has "
                "it",
                hint="Delete the instance, or remove the cluster with `nospoon down --force`.",
            )


def _require_few(specs: Mapping[str, str]) -> None:
    if len(specs) > MOST_SPECS or any(len(each) > LONGEST_SPEC for each in specs.values()):
        raise ProviderError(
            f"a flavor of Nova has more than {MOST_SPECS} extra specs, or one of more than "
            f"{LONGEST_SPEC} characters"
        )


def tag_of(record: FlavorShown) -> OwnerTag | None:
    """Whose it is; None where it has no nospoon tag, or one that no one can read."""
    specs = record.get("extra_specs") or {}
    try:
        said = {name: text_of(specs[f"{TAG}{name}"]) for name in SAID}
        tag = OwnerTag(
            deployment=said["deployment"],
            cluster=UUID(said["cluster"]),
            generation=int(said["generation"]),
            token=said["token"],
            name=said["name"],
            uid=int(said["uid"]) if said["uid"] else None,
        )
    except (KeyError, ValueError):
        return None
    return tag if tag.is_plausible(text_of(record["name"])) else None


def tag_specs(tag: OwnerTag) -> dict[str, str]:
    """A tag as extra specs."""
    told = {
        "deployment": tag.deployment,
        "cluster": str(tag.cluster),
        "generation": str(tag.generation),
        "token": tag.token,
        "name": tag.name,
        "uid": "" if tag.uid is None else str(tag.uid),
    }
    return {f"{TAG}{name}": value for name, value in told.items()}


def shape_of(record: FlavorShown) -> NovaFlavor:
    """Of a flavor with our tag: its id is a UUID."""
    specs = {n: text_of(v) for n, v in record["extra_specs"].items() if not n.startswith(TAG)}
    return NovaFlavor(
        id=UUID(record["id"]),
        name=text_of(record["name"])[:LONGEST_NAME],
        vcpus=number_of(record["vcpus"]),
        ram=number_of(record["ram"]),
        disk=number_of(record["disk"]),
        public=bool(record["os-flavor-access:is_public"]),
        settings=settings(specs),
    )


def _flavor(resource: Resource) -> NovaFlavor:
    if not isinstance(resource.shape, NovaFlavor):
        raise ProviderError(f"{resource.key} is not a flavor")
    return resource.shape
