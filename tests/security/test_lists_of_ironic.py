"""Ironics and Novas that members name: what is in their answers is looked at beside all else, and
as much of it as theirs would have.

A member froze the daemon for six seconds with a list of two million nodes, and for ten minutes with
one node that had, and noted, as many traits as fit into an answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest

pytest.importorskip("openstack")
from tests.security.asked import OTHER, OWNER, a_daemon
from tests.security.test_cloud_answers import service

from nospoon.control.maintenance.survey import Scope
from nospoon.errors import Conflict, NospoonError, ProviderError
from nospoon.model.ironic import (
    IronicConnector,
    IronicNode,
    IronicPlace,
    IronicPort,
    IronicPortgroup,
    IronicStanding,
    IronicTarget,
    Settings,
)
from nospoon.model.nova import NovaFlavor
from nospoon.model.resources.bmcs import Secrets
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.enrollment.enrol import settings
from nospoon.providers.cloud_calls import Clouds, Means
from nospoon.providers.ironic import api, progress, records, standing
from nospoon.providers.ironic.api import PAGE, Api
from nospoon.providers.ironic.connection import Ironics
from nospoon.providers.ironic.records import own_traits
from nospoon.providers.nova import api as nova_api
from nospoon.providers.nova import drivers as nova
from nospoon.providers.nova.api import Api as NovaApi
from nospoon.providers.nova.api import Read
from nospoon.runtime.tasks import Tasks
from nospoon.store import clusters

pytestmark = [
    pytest.mark.filterwarnings("ignore:Support for InfluxDB"),
    pytest.mark.filterwarnings("ignore:The 'service_type' parameter"),
]
VERSION = "X-OpenStack-Ironic-API-Maximum-Version"
LONG = "x" * 300_000
Page = Callable[[str, bool], dict[str, object]]
"""Kind of records, and whether it is the first page -> the page."""


def uuid(number: int) -> str:
    return str(UUID(int=number))


@pytest.fixture
def ironic() -> Callable[[Page], Any]:
    """Serves an Ironic of such pages, by its URL."""

    def serve(page: Page) -> Any:
        def answer(to: BaseHTTPRequestHandler) -> None:
            parts = urlsplit(to.path)
            kind = parts.path.rpartition("/v1/")[2].rpartition("/")[2]
            body: object = {}
            if kind not in ("", "v1"):
                body = page(kind, "marker" not in parse_qs(parts.query))
            if parts.path == "/":
                url = f"http://{to.headers['Host']}/v1/"
                version = {"id": "v1", "status": "CURRENT", "links": [{"rel": "self", "href": url}]}
                body = {"default_version": version, "versions": [version]}
            content = json.dumps(body).encode()
            to.send_response(200)
            to.send_header(VERSION, "1.80")
            to.send_header("Content-Length", str(len(content)))
            to.end_headers()
            to.wfile.write(content)

        return service(answer)

    return serve


async def no_secrets(machine: UUID) -> Secrets:
    raise AssertionError(f"nothing is written, not even of {machine}")


async def listed(url: str) -> int:
    with ThreadPoolExecutor(1) as threads:
        return len(await Api(IronicPlace(endpoint=url), Means(threads)).listed("nodes", read=bool))


async def test_a_page_has_no_more_than_was_asked_for(ironic: Callable[[Page], Any]) -> None:
    def page(kind: str, first: bool) -> dict[str, object]:  # noqa: FBT001  (a protocol)
        del first
        return {kind: [{"uuid": uuid(number)} for number in range(PAGE + 1)]}

    with ironic(page) as url, pytest.raises(ProviderError, match=f"has {PAGE + 1} records"):
        await listed(url)


async def test_a_list_has_so_many_records(
    ironic: Callable[[Page], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def page(kind: str, first: bool) -> dict[str, object]:  # noqa: FBT001  (a protocol)
        records = [{"uuid": uuid(number)} for number in range(10)]
        return {kind: records, "next": "more"} if first else {kind: records}

    with ironic(page) as url:
        monkeypatch.setattr(api, "MOST_RECORDS", 20)
        assert await listed(url) == 20
        monkeypatch.setattr(api, "MOST_RECORDS", 19)
        with pytest.raises(ProviderError, match="and 19 records, got more"):
            await listed(url)


async def test_a_record_is_as_long_as_one_of_ironics(ironic: Callable[[Page], Any]) -> None:
    def page(kind: str, first: bool) -> dict[str, object]:  # noqa: FBT001  (a protocol)
        del first
        return {kind: [{"uuid": uuid(1), "extra": "x" * api.LONGEST_RECORD}]}

    with ironic(page) as url, pytest.raises(ProviderError, match="records of /nodes of at most"):
        await listed(url)


async def test_records_are_read_beside_the_event_loop(
    ironic: Callable[[Page], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By each who looks: what does so on the event loop holds it up with every long record."""
    threads, tag_of = set[int](), records.tag_of

    def noted(record: records.Record) -> OwnerTag | None:
        threads.add(threading.get_ident())
        return tag_of(record)

    monkeypatch.setattr(records, "tag_of", noted)

    def page(kind: str, first: bool) -> dict[str, object]:  # noqa: FBT001  (a protocol)
        del first
        record = {"name": "n", "address": "02:00:00:00:00:01", "node_uuid": uuid(1)}
        return {kind: [{**record, "uuid": uuid(number)} for number in range(5)]}

    async with Tasks("test") as tasks:
        ironics = Ironics("kit", no_secrets, tasks, Clouds())
        with ironic(page) as url:
            place = IronicPlace(endpoint=url)
            for driver in ironics.drivers(place, 1).values():
                assert await driver.observe(None) == []
                assert threads, driver
                assert threading.get_ident() not in threads
                threads.clear()
            assert await ironics.nodes(place, 1) == []
            assert threads
            assert threading.get_ident() not in threads
            assert await ironics.addresses(place, 1) == {"02:00:00:00:00:01"}
            assert (await ironics.held(place, 1)).names == {"n": UUID(uuid(4))}


async def test_of_a_list_no_page_is_held_but_the_one_that_is_read(
    ironic: Callable[[Page], Any],
) -> None:
    """A plan held six lists of eight million values: four gigabytes, which were freed at once."""
    held = list[list[object]]()

    def page(kind: str, first: bool) -> dict[str, object]:  # noqa: FBT001  (a protocol)
        record = {"uuid": uuid(1), "junk": [[1], {"a": [2, {}]}]}
        return {kind: [record], "next": "more"} if first else {kind: [record]}

    def read(record: records.Record) -> int:
        assert not any(held), "what was read before is freed"
        held.append(record["junk"])
        held.append(record["junk"][1]["a"])
        return len(held)

    with ironic(page) as url, ThreadPoolExecutor(1) as threads:
        there = Api(IronicPlace(endpoint=url), Means(threads))
        assert await there.listed("nodes", read=read) == [2, 4]
    assert held == [[]] * 4


@pytest.mark.parametrize("what", ["ours", "traits", "instance", "roots"])
async def test_records_have_no_more_settings_than_nodes_of_files(
    ironic: Callable[[Page], Any], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Four million of them took half a gigabyte, and two seconds of the event loop."""
    names = [f"extra/a{n}" for n in range(40)] if what == "ours" else [f"a{n}" for n in range(40)]

    def page(kind: str, first: bool) -> dict[str, object]:  # noqa: FBT001  (a protocol)
        del first
        tag = {
            "deployment": "kit", "cluster": uuid(7), "generation": 1, "token": "t", "name": "c",
            "key": "n", "state": "active", "uid": 1, "traits": [], what: names,
        }  # fmt: skip
        filled = {f"a{n}": n for n in range(40)}
        found = [
            {
                "uuid": uuid(n), "extra": {"nospoon": tag, **filled}, "instance_info": filled,
                "traits": names, "provision_state": "active",
            }
            for n in range(count)
        ]  # fmt: skip
        return {kind: found if kind == "nodes" else []}

    monkeypatch.setattr(api, "MOST_PARTS", 100)
    kind = Kind.IRONIC_NODE if what in {"ours", "traits"} else Kind.IRONIC_STANDING
    async with Tasks("test") as tasks:
        ironics = Ironics("kit", no_secrets, tasks, Clouds())
        with ironic(page) as url:
            driver = ironics.drivers(IronicPlace(endpoint=url), 1)[kind]
            count = 2
            assert len(await driver.observe(None)) == 2
            count = 3
            with pytest.raises(ProviderError, match="a list of /nodes with at most 100 settings"):
                await driver.observe(None)


async def test_what_a_tag_has_besides_is_not_kept(
    ironic: Callable[[Page], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of each of 64 nodes was decoded on the event loop, and held at once."""
    seen = set[int]()
    whole = standing.StandingDriver._observed

    def observed(
        of: standing.StandingDriver, record: records.Record, tag: OwnerTag, wanted: str
    ) -> Observed:
        seen.add(threading.get_ident())
        return whole(of, record, tag, wanted)

    def page(kind: str, first: bool) -> dict[str, object]:  # noqa: FBT001  (a protocol)
        del first
        tag = {
            "deployment": "kit", "cluster": uuid(7), "generation": 1, "token": "t", "name": "c",
            "key": "n", "state": "active", "uid": 1, "more": [[]] * 1000,
        }  # fmt: skip
        record = {"uuid": uuid(1), "provision_state": "deploy failed", "extra": {"nospoon": tag}}
        error = {"severity": "ERROR", "event_type": "x", "event": "why" * 100_000}
        return {kind: [record], "history": [error]}

    monkeypatch.setattr(standing.StandingDriver, "_observed", observed)
    async with Tasks("test") as tasks:
        ironics = Ironics("kit", no_secrets, tasks, Clouds())
        with ironic(page) as url:
            driver = ironics.drivers(IronicPlace(endpoint=url), 1)[Kind.IRONIC_STANDING]
            (found,) = await driver.observe(None)
    assert seen
    assert threading.get_ident() not in seen
    assert found.fault.startswith("deploy failed: whywhy")
    assert len(found.fault) < 1100, "the history of each of 20,000 nodes may have 4 MiB"


async def test_of_a_node_that_is_brought_somewhere_little_is_kept(
    ironic: Callable[[Page], Any],
) -> None:
    """Hundreds are at a time, for an hour each: their records had 4 MiB each."""
    kept = list[records.Record]()
    differ = progress.differs

    def looked(record: records.Record, shape: IronicStanding) -> bool:
        kept.append(record)
        return differ(record, shape)

    def page(kind: str, first: bool) -> dict[str, object]:  # noqa: FBT001  (a protocol)
        del kind, first
        noted = {
            "state": "active", "stale": LONG, "instance": ["a", "b", LONG], "roots": [LONG],
            "key": LONG,
        }  # fmt: skip
        return {
            "uuid": uuid(1), "provision_state": "active", "protected": True, "name": LONG,
            "protected_reason": LONG, "properties": {"x": LONG}, "extra": {"nospoon": noted},
            "instance_info": {"a": {"b": 1}, "b": LONG, LONG: 1},
        }  # fmt: skip

    wanted = settings({"a": {"b": 1}, "b": "short"})
    resource = Resource(
        Key(Kind.IRONIC_STANDING, "ironic", "n"), IronicStanding(UUID(int=1), "active", wanted)
    )
    async with Tasks("test") as tasks:
        ironics = Ironics("kit", no_secrets, tasks, Clouds())
        with ironic(page) as url, pytest.MonkeyPatch.context() as patch:
            patch.setattr(standing, "differs", looked)
            driver = ironics.drivers(IronicPlace(endpoint=url), 1)[Kind.IRONIC_STANDING]
            with pytest.raises(Conflict, match="node n is protected in Ironic: x") as refused:
                await driver.create(resource, OwnerTag("kit", UUID(int=7)))
    assert len(str(refused.value)) < 3000
    (record, *_) = kept
    assert len(json.dumps(record)) < 10_000
    assert record["instance_info"] == {"a": {"b": 1}, "b": records.OTHER}
    (one, other) = progress.deployed({**record, "extra": {"nospoon": {"instance": ["a", "b"]}}})
    assert (one == wanted[0], other == wanted[1]) == (True, False)


MAC = "52:54:00:00:00:01"
LONGEST = {
    "uuid": uuid(1), "driver": "ipmi", "address": MAC, "node_uuid": uuid(2),
    "portgroup_uuid": LONG, "traits": ["A", LONG], "name": LONG, "description": LONG,
    "driver_info": {"ipmi_password": LONG}, "properties": {"cpus": 4, "x": LONG, LONG: 1},
    "maintenance": True,
    "maintenance_reason": LONG, "provision_state": LONG, "power_state": LONG,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        (Kind.IRONIC_NODE, partial(IronicNode, UUID(int=1))),
        (Kind.IRONIC_PORT, partial(IronicPort, UUID(int=1), UUID(int=2))),
        (Kind.IRONIC_PORTGROUP, partial(IronicPortgroup, UUID(int=1), UUID(int=2))),
        (Kind.IRONIC_CONNECTOR, partial(IronicConnector, UUID(int=1), UUID(int=2))),
        (Kind.IRONIC_TARGET, partial(IronicTarget, UUID(int=1), UUID(int=2))),
    ],
)
async def test_of_a_record_that_is_changed_little_is_kept(
    kind: Kind, shape: Callable[..., Any], ironic: Callable[[Page], Any]
) -> None:
    """32 operations of a member change 8 at a time, each for as long as Ironic takes."""
    gone = [f"properties/{LONG}", "properties/gone", "driver/x", "description"]
    tag = OwnerTag("kit", UUID(int=7))
    noted = records.tag_body(tag, key="n", ours=["properties/cpus", *gone], state=LONG, traits=[])
    record = {**LONGEST, "extra": {"nospoon": noted, "theirs": LONG}}
    kept, missing = list[records.Record](), list[object]()
    operations = records.operations

    def page(path: str, first: bool) -> dict[str, object]:  # noqa: FBT001  (a protocol)
        del path, first
        return record

    def changed(
        there: records.Record, told: Settings, more: Mapping[str, object]
    ) -> list[records.Operation]:
        kept.append(there)
        some = operations(there, told, more)
        missing.extend(each["path"] for each in operations(record, told, more) if each not in some)
        raise NospoonError("seen")

    async def secrets(_: UUID) -> Secrets:
        return Secrets("p")

    given = {"driver": "ipmi", "properties/cpus": 4, "properties/x": "s", "address": MAC}
    wanted = Resource(Key(kind, "ironic", "n"), shape(settings=settings(given)))
    async with Tasks("test") as tasks:
        ironics = Ironics("kit", secrets, tasks, Clouds())
        with ironic(page) as url, pytest.MonkeyPatch.context() as patch:
            patch.setattr(records, "operations", changed)
            driver = ironics.drivers(IronicPlace(endpoint=url), 1)[kind]
            with pytest.raises(NospoonError, match="seen"):
                await driver.change(Observed(wanted.key, wanted.shape, tag), wanted, tag)
    assert len(json.dumps(kept[0])) < 10_000
    assert missing == [f"/properties/{LONG}"], "no name of nospoon's is as long"
    assert records.tag_of(kept[0]) == tag
    noted["ours"] = ["extra", "properties", "properties/a", "extra/nospoon"]
    assert records.tag_of(records.kept({"properties/cpus": 4}, record)) == tag


async def test_a_record_that_is_kept_has_few_values(
    ironic: Callable[[Page], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def page(kind: str, first: bool) -> dict[str, object]:  # noqa: FBT001  (a protocol)
        del kind, first
        return {"uuid": uuid(1), "extra": [[]] * count}

    monkeypatch.setattr(api, "MOST_VALUES", 100)
    with ironic(page) as url, ThreadPoolExecutor(1) as threads:
        there = Api(IronicPlace(endpoint=url), Means(threads))
        count = 45
        assert (await there.get(f"/nodes/{uuid(1)}"))["uuid"] == uuid(1)
        count = 60
        with pytest.raises(ProviderError, match="expected at most 100 values"):
            await there.get(f"/nodes/{uuid(1)}")


async def test_odd_records_are_an_error_of_the_ironic(ironic: Callable[[Page], Any]) -> None:
    """Administrators look at all Ironics together for orphans: one of them is no error of that."""

    def page(kind: str, first: bool) -> dict[str, object]:  # noqa: FBT001  (a protocol)
        del first
        return {kind: [{"uuid": 1, "extra": [1], "name": [], "address": 3}]}

    async with Tasks("test") as tasks:
        ironics = Ironics("kit", no_secrets, tasks, Clouds())
        with ironic(page) as url:
            place = IronicPlace(endpoint=url)
            for driver in ironics.drivers(place, 1).values():
                with pytest.raises(ProviderError, match="something else than its API says"):
                    await driver.observe(None)
            for look in (ironics.nodes, ironics.held):
                with pytest.raises(ProviderError, match="something else than its API says"):
                    await look(place, 1)


class _Compared(str):
    """A trait that counts how often it is compared."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        _Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_traits_are_not_compared_with_each_other() -> None:
    traits = [_Compared(f"CUSTOM_{number}") for number in range(5000)]
    noted = [f"CUSTOM_{number}" for number in range(4000, 9000)]
    record = {"traits": traits, "extra": {"nospoon": {"traits": noted}}}
    assert own_traits(record) == ()
    assert _Compared.times < len(traits)
    few = {"traits": ["A", "B"], "extra": {"nospoon": {"traits": ["B", "C"]}}}
    assert own_traits(few) == ("B",)


class _EndlessNova(NovaApi):
    """Flavors without end."""

    def __init__(self) -> None:
        self.pages = 0

    async def call(
        self, method: str, path: str, body: object = None, *, read: Read | None = None
    ) -> Any:
        del method, path, body
        self.pages += 1
        assert self.pages <= nova.MOST_PAGES
        assert read is not None
        flavor = {"id": "1", "extra_specs": {"nospoon:deployment": "other"}}
        return read({"flavors": [flavor], "flavors_links": [{"rel": "next"}]})


async def test_flavors_without_end_are_refused() -> None:
    endless = _EndlessNova()
    with pytest.raises(ProviderError, match="more than 20 pages of flavors"):
        await nova.FlavorDriver(endless, "kit").observe(None)
    assert endless.pages == nova.MOST_PAGES
    assert nova.FlavorDriver.kind is Kind.NOVA_FLAVOR


class _WideNova(NovaApi):
    """Flavors of nospoon, each with many extra specs, on several pages."""

    def __init__(self, pages: int, **specs: object) -> None:
        self.left, self.specs = pages, specs

    async def call(
        self, method: str, path: str, body: object = None, *, read: Read | None = None
    ) -> Any:
        del method, path, body
        self.left -= 1
        assert read is not None
        tag = {f"nospoon:{name}": "1" for name in nova.SAID}
        tag |= {"nospoon:deployment": "kit", "nospoon:cluster": uuid(7)}
        flavor = {
            "id": uuid(self.left), "name": "f", "vcpus": 10**399, "ram": 1, "disk": 1,
            "os-flavor-access:is_public": True, "extra_specs": {**tag, **self.specs},
        }  # fmt: skip
        links = [{"rel": "next"}] if self.left else []
        return read({"flavors": [flavor], "flavors_links": links})


async def test_flavors_have_no_more_specs_than_files_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 flavors with a thousand each took two gigabytes with one plan."""
    monkeypatch.setattr(nova, "MOST_KEPT", 100)
    specs = {f"a{n}": f"{n}" for n in range(40)}
    found = await nova.FlavorDriver(_WideNova(2, **specs), "kit").observe(None)
    assert [each.shape.vcpus for each in found if isinstance(each.shape, NovaFlavor)] == [
        1 << 40
    ] * 2
    with pytest.raises(ProviderError, match="flavors of Nova have more than 100 extra specs"):
        await nova.FlavorDriver(_WideNova(3, **specs), "kit").observe(None)


@pytest.mark.parametrize(
    "odd",
    [{"generation": "9" * 200}, {"token": "a\x00"}, {"name": "a\nb"}, {"uid": "-1"}],
)
async def test_a_tag_of_a_flavor_that_no_store_takes_is_none(odd: dict[str, object]) -> None:
    specs = {f"nospoon:{name}": value for name, value in odd.items()}
    assert await nova.FlavorDriver(_WideNova(1, **specs), "kit").observe(None) == []


async def test_answers_of_nova_and_placement_are_read_beside_the_event_loop(
    ironic: Callable[[Page], Any],
) -> None:
    """A million traits were compared, and freed, on the event loop."""
    threads, held = set[int](), list[object]()

    def page(kind: str, first: bool) -> dict[str, object]:  # noqa: FBT001  (a protocol)
        del kind, first
        return {"traits": ["x" * (nova_api.LARGEST // 2), "y" * (nova_api.LARGEST // 2)]}

    def read(answer: dict[str, list[str]]) -> int:
        threads.add(threading.get_ident())
        held.append(answer["traits"])
        return len(answer["traits"])

    with ironic(page) as url, ThreadPoolExecutor(1) as workers:
        auth = {"auth_type": "none", "auth": {"endpoint": url}}
        cloud = json.dumps({**auth, "placement_endpoint_override": url})
        there = NovaApi(IronicPlace(cloud=cloud), Means(workers), service=nova_api.PLACEMENT)
        assert await there.call("GET", "/traits", read=read) == 2
        assert threads
        assert threading.get_ident() not in threads
        assert held == [[]]
        with pytest.raises(ProviderError, match="bytes: expected 1048576 at most"):
            await there.call("GET", "/traits")


def _node(number: int, cluster: UUID, uid: int, deployment: str) -> dict[str, object]:
    tag = {
        "deployment": deployment, "cluster": str(cluster), "generation": 1, "token": "t",
        "name": f"c{number}", "uid": uid, "key": f"n-{number}", "ours": [],
    }  # fmt: skip
    return {"uuid": uuid(number), "extra": {"nospoon": tag}, "provision_state": "available"}


async def test_an_ironic_has_nothing_of_others_than_those_who_are_enrolled_there(
    ironic: Callable[[Page], Any], tmp_path: Path
) -> None:
    """`recover` once took a member's Ironic for that of the administrator's cluster."""
    text = "cluster: c\nhosts: {{{}: simulated}}\nnodes: []\n"
    async with a_daemon(tmp_path) as asked:
        daemon = asked.daemon
        for uid in (OWNER, OTHER):
            assert (await asked.up(uid, text.format(f"s{uid}"))).status in {200, 202}
        rows = {}
        for uid in (OWNER, OTHER):
            found = await daemon.parts.database.read(partial(clusters.find, owner=uid, name="c"))
            assert found is not None
            rows[uid] = found
        mine, others, lost = rows[OWNER].id, rows[OTHER].id, UUID(int=99)

        def page(kind: str, first: bool) -> dict[str, object]:  # noqa: FBT001  (a protocol)
            del first
            claims = ((mine, OWNER), (lost, OWNER), (others, OWNER), (others, OTHER), (mine, 0))
            nodes = [
                _node(n, *each, daemon.parts.database.deployment) for n, each in enumerate(claims)
            ]
            return {kind: nodes if kind == "nodes" else []}

        with ironic(page) as url:
            place = IronicPlace(endpoint=url)
            row = replace(rows[OWNER], enrolled=daemon.parts.enrolment.sealed(place))
            await daemon.parts.database.call(partial(clusters.save, row=row))
            survey = daemon.control.controller.survey
            (seen,) = [each for each in await survey.around(Scope()) if each.place == place]
            assert {each.key.name for each in seen.things} == {"n-0", "n-1"}
            told = await survey.look(Scope(ironics=(place,)))
            assert len({each.key.name for each in told[0].things}) == 5, "it is named by who looks"
