"""Query parameters (DSP0266 §7.3): `$filter`, `$expand`, `$select`, `$top`, `$skip` and `only`.

They work on a body that was made without them; what is expanded is asked for like any resource, by
the same caller, who has to log in for that. A page of expanded members has at most `PAGE`; the next
one is linked.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from urllib.parse import urlencode

from nospoon.services.bmcs.redfish.http import filters
from nospoon.services.bmcs.redfish.messages import errors

PAGE = 200
MAX_LEVELS = 3
MOST_EXPANDED, LONGEST_EXPANDED = 1000, 4 << 20
"""Resources in one answer, and bytes of JSON after which no more are; further ones stay links."""
KNOWN = frozenset({"$filter", "$expand", "$select", "$top", "$skip", "only"})
_EXPAND = re.compile(r"(?P<what>[.*~])(\(\$levels=(?P<levels>[0-9]{1,9})\))?\Z")
_COUNT = re.compile(r"[0-9]+\Z")
LARGEST = (1 << 31) - 1
"""Of `$top` and `$skip`."""
_ELSEWHERE = frozenset({"$expand", "$filter", "only"})
"""Those whose answer depends on other resources, too."""
_ALWAYS = ("@odata.id", "@odata.type", "@odata.etag", "@odata.context")

Body = Mapping[str, object]
Fetch = Callable[[str], Awaitable[Body | None]]
"""The body of a resource for this caller, None when there is none."""


Rest = Callable[[], Awaitable[None]]
"""Lets others have their turn on the loop."""


async def at_once() -> None:
    """No rest: for work that is short."""


async def apply(
    body: Body,
    query: Mapping[str, str],
    fetch: Fetch,
    rest: Rest = at_once,
    *,
    size: Callable[[], int] = lambda: 0,
) -> Body:
    """The body as it was asked for. `size`: bytes fetched so far. Raises `RedfishError`."""
    _check(query)
    if "only" in query:
        return await _only(body, fetch)
    if "$filter" in query:
        body = await _filtered(body, query["$filter"], fetch, rest)
    expand = _expansion(query["$expand"]) if "$expand" in query else None
    body = _page(body, query, limit=PAGE if expand is not None else None)
    if expand is not None:
        what, levels = expand
        body = await _expanded(body, what, levels, _bounded(fetch, rest, size))
    if "$select" in query:
        body = await _selected(body, query["$select"], rest)
    return body


def looks_elsewhere(query: Mapping[str, str]) -> bool:
    """Whether the answer may change while the resource itself stays as it is."""
    return not _ELSEWHERE.isdisjoint(query)


def _check(query: Mapping[str, str]) -> None:
    for name in query:
        if name.startswith("$") and name not in KNOWN:
            raise _unsupported(name)
    if query.get("only"):
        raise _bad("only", query["only"], "no value: it has none")
    if "only" in query and len(KNOWN.intersection(query)) > 1:
        raise _not_together()


async def _only(body: Body, fetch: Fetch) -> Body:
    """The one member of a collection; of more or none, the collection."""
    members = _members(body)
    return await fetch(_id(members[0])) or body if len(members) == 1 else body


def filter_of(text: str, known: AbstractSet[str] | None = None) -> filters.Expression:
    """`$filter` as it was given, of `known` properties if told. Raises `RedfishError`."""
    try:
        found = filters.parse(text)
    except filters.UnknownFunction as error:
        raise errors.general(501, f"The query parameter $filter: {error}.") from None
    except filters.FilterError as error:
        raise _bad("$filter", text, f"a filter: {error}") from None
    if known is not None and not filters.properties(found) <= known:
        raise _bad("$filter", text, f"a filter of {', '.join(sorted(known))}")
    return found


async def _filtered(body: Body, text: str, fetch: Fetch, rest: Rest) -> Body:
    """Members of which it is true, and their count; members that are there in full stay so."""
    expression = filter_of(text)
    kept = []
    for each in _members(body):
        await rest()
        found = await fetch(_id(each)) if set(each) == {"@odata.id"} else each
        if found is not None and filters.matches(expression, found):
            kept.append(each)
    return {**body, "Members": kept, "Members@odata.count": len(kept)}


def _expansion(text: str) -> tuple[str, int]:
    match = _EXPAND.match(text)
    levels = int(match["levels"] or 1) if match is not None else 0
    if match is None or not 1 <= levels <= MAX_LEVELS:
        raise _bad("$expand", text, f"one of ., * and ~, with $levels from 1 to {MAX_LEVELS}")
    return match["what"], levels


def page(body: Body, query: Mapping[str, str]) -> Body:
    """A collection as `$top` and `$skip` want it. Raises `RedfishError`."""
    return _page(body, query, limit=None)


def _page(body: Body, query: Mapping[str, str], *, limit: int | None) -> Body:
    asked = "$top" in query or "$skip" in query
    if "Members" not in body and not asked:
        return body
    skip, members = _count("$skip", query, 0), _members(body)
    top = _count("$top", query, len(members))
    size = min(top, limit) if limit is not None else top
    rest = top - size if "$top" in query else len(members) - skip - size
    result = {**body, "Members": members[skip : skip + size]}
    if limit is not None and rest > 0 and skip + size < len(members):
        more = {**query, "$skip": str(skip + size)}
        if "$top" in query:
            more["$top"] = str(rest)
        result["Members@odata.nextLink"] = f"{body['@odata.id']}?{urlencode(more, safe='$.*~()=')}"
    return result


def _members(body: Body) -> Sequence[Body]:
    """Those of a collection. Raises `RedfishError` for what is not one."""
    found = body.get("Members")
    if not isinstance(found, Sequence):
        raise _not_on_resource()
    return found


def _id(link: Body) -> str:
    return str(link["@odata.id"])


def _count(name: str, query: Mapping[str, str], default: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not _COUNT.match(text):
        raise _bad(name, text, "a whole number, at least 0")
    if len(text) > len(str(LARGEST)) or int(text) > LARGEST:
        raise _out_of_range(name, text, f"0 to {LARGEST}")
    return int(text)


def _bounded(fetch: Fetch, rest: Rest, size: Callable[[], int]) -> Fetch:
    """The same, in slices, and not without an end."""
    fetched, before = itertools.count(), size()

    async def found(path: str) -> Body | None:
        await rest()
        is_full = next(fetched) >= MOST_EXPANDED or size() - before >= LONGEST_EXPANDED
        return None if is_full else await fetch(path)

    return found


async def _expanded(body: Body, what: str, levels: int, fetch: Fetch) -> Body:
    """`.`: what is below; `~`: what `Links` name; `*`: both."""
    result = dict[str, object]()
    for name, value in body.items():
        inside = name in {"Links", "Actions"}
        if name == "Actions" or (inside and what == ".") or (not inside and what == "~"):
            result[name] = value
        elif inside and isinstance(value, dict):
            result[name] = {
                key: await _followed(item, what, levels, fetch) for key, item in value.items()
            }
        else:
            result[name] = await _followed(value, what, levels, fetch)
    return result


async def _followed(value: object, what: str, levels: int, fetch: Fetch) -> object:
    if isinstance(value, list):
        return [await _followed(item, what, levels, fetch) for item in value]
    if not isinstance(value, dict) or set(value) != {"@odata.id"}:
        return value
    found = await fetch(value["@odata.id"])
    if found is None:
        return value
    if levels == 1:
        return found
    if "Members" in found:  # as a collection that is asked for itself, it comes in pages
        found = _page(found, {"$expand": what}, limit=PAGE)
    return await _expanded(found, what, levels - 1, fetch)


async def _selected(body: Body, text: str, rest: Rest) -> Body:
    """Top-level properties and `A/B` below them; members of a collection one by one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise _bad("$select", text, "names of properties")
    members, are_links = list[Body](), True
    for each in _members(body) if "Members" in body else ():
        await rest()
        members.append(_kept(each, names))
        are_links = are_links and each.keys() == {"@odata.id"}
    return _kept(body, names) if are_links else {**body, "Members": members}


def _kept(body: Body, names: list[str]) -> Body:
    result = {name: body[name] for name in _ALWAYS if name in body}
    for name in names:
        first, _, rest = name.partition("/")
        if first not in body:
            continue
        inner = body[first]
        if rest and isinstance(inner, dict):
            before = result.get(first)
            more = _kept(inner, [rest])
            result[first] = {**before, **more} if isinstance(before, dict) else more
        else:
            result[first] = inner
    return result


def _bad(name: str, value: str, expected: str) -> errors.RedfishError:
    return errors.RedfishError(
        400,
        "QueryParameterValueFormatError",
        value,
        name,
        resolution=f"Give {expected}.",
    )


def _not_on_resource() -> errors.RedfishError:
    """For a query parameter of collections on something else."""
    return errors.RedfishError(
        400,
        "QueryNotSupportedOnResource",
        resolution="Remove the query parameters, which are for collections.",
    )


def _unsupported(name: str) -> errors.RedfishError:
    """For one that begins with `$` and that no one knows (DSP0266 §7.3.1)."""
    return errors.RedfishError(
        501,
        "QueryParameterUnsupported",
        name,
        resolution="Correct or remove the query parameter and resubmit the request.",
    )


def _not_together() -> errors.RedfishError:
    return errors.RedfishError(
        400,
        "QueryCombinationInvalid",
        resolution="Give `only` alone.",
    )


def _out_of_range(name: str, value: str, range_: str) -> errors.RedfishError:
    return errors.RedfishError(
        400,
        "QueryParameterOutOfRange",
        value,
        name,
        range_,
        resolution="Reduce the value for the query parameter to a value that is within range.",
    )


def not_on_operation() -> errors.RedfishError:
    """For a query parameter with another method than GET."""
    return errors.RedfishError(
        400,
        "QueryNotSupportedOnOperation",
        resolution="Remove the query parameters and resubmit the request.",
    )
