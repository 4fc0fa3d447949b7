"""Every route of the API, asked by the owner, by another member and by who is no member.

A route without a row in `ROUTES` fails the test: whoever adds one says what others get.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute, APIWebSocketRoute
from starlette.routing import BaseRoute, Route
from tests.security.asked import OTHER, OWNER, STRANGER, Asked, a_daemon

from nospoon.control.operations.snapshots import MOST
from nospoon.model.principal import Administrators
from nospoon.store import clusters, snapshots
from nospoon.store.snapshots import SnapshotState

TEXT = (
    "cluster: owned\nhosts: {s: simulated}\nnodes: [{name: n, bmc: [ipmi]}]\n"
    "flavors: {small: {disks: [10GiB]}}\nlabs: {dev: {}}\n"
)
THEIRS = "cluster: others\nhosts: {s: simulated}\nnodes: [{name: m, bmc: [ipmi]}]\n"
FILE = {"file": "f", "text": THEIRS}
CONTENT = b"\0" * 2048
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Gets(StrEnum):
    """What another member gets where the owner gets an answer."""

    NOT_FOUND = "404"
    FORBIDDEN = "403: administrators only"
    OWN = "what is this member's own, of which the owner has no part"
    NOTHING = "an empty plan, or an operation that finds nothing"


@dataclass(frozen=True, slots=True)
class Row:
    """How a route is asked. `{node}`, `{operation}`, `{uuid}`: the owner's; `owner`: statuses that
    the owner may get.
    """

    path: str
    other: Gets
    body: Any = None
    owner: tuple[int, ...] = (200,)


NODE = "/v1/nodes/{node}"
REQUEST = {"text": "<hostRequires/>", "key": "the same"}
SET, LEASE = "/v1/requests/1.1", "/v1/leases/1.1.0"
ROUTES: Mapping[tuple[str, str], Row] = {
    ("GET", "/openapi.json"): Row("/openapi.json", Gets.OWN),
    ("GET", "/daemon"): Row("/v1/daemon", Gets.OWN),
    ("GET", "/daemon/settings"): Row("/v1/daemon/settings", Gets.FORBIDDEN, owner=(403,)),
    ("POST", "/daemon/stop"): Row("/v1/daemon/stop", Gets.FORBIDDEN, owner=(403,)),
    ("GET", "/support-bundle"): Row("/v1/support-bundle?cluster=owned", Gets.NOT_FOUND),
    ("POST", "/files/missing"): Row("/v1/files/missing", Gets.OWN, ["0" * 64]),
    ("PUT", "/files/{sha256}"): Row(f"/v1/files/{SHA256}", Gets.OWN, CONTENT, (204,)),
    ("GET", "/images"): Row("/v1/images", Gets.OWN),
    ("GET", "/images/{name}"): Row("/v1/images/owned", Gets.NOT_FOUND),
    ("PUT", "/images/{name}"): Row("/v1/images/mine", Gets.OWN, {"sha256": SHA256}),
    ("DELETE", "/images/{name}"): Row("/v1/images/owned", Gets.NOT_FOUND, owner=(204,)),
    ("POST", "/plan"): Row("/v1/plan", Gets.OWN, FILE),
    ("POST", "/fetch"): Row("/v1/fetch", Gets.OWN, FILE, (202,)),
    ("GET", "/hosts"): Row("/v1/hosts", Gets.OWN),
    ("POST", "/hosts/check"): Row("/v1/hosts/check", Gets.OWN, FILE),
    ("POST", "/clusters"): Row("/v1/clusters", Gets.OWN, FILE, (202,)),
    ("GET", "/clusters"): Row("/v1/clusters", Gets.OWN),
    ("GET", "/clusters/{name}"): Row("/v1/clusters/owned", Gets.NOT_FOUND),
    ("GET", "/clusters/{name}/removal"): Row("/v1/clusters/owned/removal", Gets.NOTHING),
    ("GET", "/clusters/{name}/export/{to}"): Row(
        "/v1/clusters/owned/export/ironic", Gets.NOT_FOUND
    ),
    ("GET", "/nodes"): Row("/v1/nodes", Gets.OWN),
    ("GET", "/bmcs"): Row("/v1/bmcs", Gets.OWN),
    ("GET", "/services"): Row("/v1/services", Gets.OWN),
    ("GET", "/nodes/{node:path}/show"): Row(f"{NODE}/show", Gets.NOT_FOUND),
    ("GET", "/nodes/{node:path}/login"): Row(f"{NODE}/login", Gets.NOT_FOUND),
    ("POST", "/nodes/{node:path}/power"): Row(f"{NODE}/power", Gets.NOT_FOUND, {"command": "on"}),
    ("POST", "/nodes/{node:path}/faults"): Row(
        f"{NODE}/faults", Gets.NOT_FOUND, {"kind": "http-delay"}
    ),
    ("GET", "/nodes/{node:path}/faults"): Row(f"{NODE}/faults", Gets.NOT_FOUND),
    ("DELETE", "/nodes/{node:path}/faults"): Row(f"{NODE}/faults", Gets.NOT_FOUND),
    ("POST", "/nodes/{node:path}/boot"): Row(f"{NODE}/boot", Gets.NOT_FOUND, {"target": "cdrom"}),
    ("POST", "/nodes/{node:path}/media"): Row(
        f"{NODE}/media", Gets.NOT_FOUND, {"sha256": SHA256, "name": "x.iso"}
    ),
    ("DELETE", "/nodes/{node:path}/media"): Row(f"{NODE}/media", Gets.NOT_FOUND),
    ("GET", "/nodes/{node:path}/log"): Row(f"{NODE}/log", Gets.NOT_FOUND),
    ("websocket", "/nodes/{node:path}/console"): Row(f"{NODE}/console", Gets.NOT_FOUND),
    ("GET", "/operations"): Row("/v1/operations", Gets.OWN),
    ("GET", "/operations/{id}"): Row("/v1/operations/{operation}", Gets.NOT_FOUND),
    ("GET", "/operations/{id}/events"): Row("/v1/operations/{operation}/events", Gets.NOT_FOUND),
    ("POST", "/operations/{id}/cancel"): Row(
        "/v1/operations/{operation}/cancel", Gets.NOT_FOUND, owner=(409,)
    ),
    ("GET", "/clusters/{name}/snapshots"): Row("/v1/clusters/owned/snapshots", Gets.NOT_FOUND),
    ("POST", "/clusters/{name}/snapshots"): Row(
        "/v1/clusters/owned/snapshots", Gets.NOT_FOUND, {"name": "more"}, (202,)
    ),
    ("POST", "/clusters/{name}/snapshots/{snapshot}/restore"): Row(
        "/v1/clusters/owned/snapshots/first/restore", Gets.NOT_FOUND, owner=(202,)
    ),
    ("DELETE", "/clusters/{name}/snapshots/{snapshot}"): Row(
        "/v1/clusters/owned/snapshots/first", Gets.NOT_FOUND, owner=(202,)
    ),
    ("GET", "/labs"): Row("/v1/labs", Gets.OWN),
    ("GET", "/labs/{lab:path}/show"): Row("/v1/labs/owned/dev/show", Gets.NOT_FOUND),
    ("GET", "/labs/{lab:path}/refusals"): Row("/v1/labs/owned/dev/refusals", Gets.NOT_FOUND),
    ("POST", "/labs/{lab:path}/drain"): Row("/v1/labs/owned/dev/drain", Gets.NOT_FOUND, {}),
    ("POST", "/labs/{lab:path}/machines/{machine}/inventory"): Row(
        "/v1/labs/owned/dev/machines/m/inventory", Gets.NOT_FOUND, {}, (404,)
    ),
    ("POST", "/labs/{lab:path}/machines/{machine}"): Row(
        "/v1/labs/owned/dev/machines/m", Gets.NOT_FOUND, {"broken": "x"}, (404,)
    ),
    ("POST", "/requests/check"): Row("/v1/requests/check", Gets.FORBIDDEN, REQUEST),
    ("POST", "/requests"): Row("/v1/requests", Gets.FORBIDDEN, REQUEST, (201,)),
    ("GET", "/requests"): Row("/v1/requests", Gets.OWN),
    ("GET", "/requests/{set_id}"): Row(SET, Gets.NOT_FOUND),
    ("POST", "/leases/{lease}/extend"): Row(f"{LEASE}/extend", Gets.NOT_FOUND, {"seconds": 9}),
    ("POST", "/requests/{set_id}/extend"): Row(f"{SET}/extend", Gets.NOT_FOUND, {"seconds": 9}),
    ("GET", "/leases"): Row("/v1/leases", Gets.OWN),
    ("GET", "/leases/{lease}"): Row(LEASE, Gets.NOT_FOUND),
    ("GET", "/leases/{lease}/console"): Row(f"{LEASE}/console", Gets.NOT_FOUND, owner=(404,)),
    ("POST", "/leases/{lease}/power"): Row(
        f"{LEASE}/power", Gets.NOT_FOUND, {"command": "on"}, (409,)
    ),
    ("POST", "/leases/{lease}/release"): Row(f"{LEASE}/release", Gets.NOT_FOUND, {}),
    ("POST", "/requests/{set_id}/release"): Row(f"{SET}/release", Gets.NOT_FOUND, {}),
    ("POST", "/requests/{set_id}/cancel"): Row(f"{SET}/cancel", Gets.NOT_FOUND, {}),
    ("GET", "/requests/{set_id}/events"): Row(f"{SET}/events", Gets.NOT_FOUND),
    ("GET", "/metrics"): Row("/v1/metrics", Gets.FORBIDDEN, owner=(403,)),
    ("POST", "/orphans"): Row("/v1/orphans", Gets.FORBIDDEN, {}, (403,)),
    ("POST", "/orphans/reap"): Row("/v1/orphans/reap", Gets.FORBIDDEN, {}, (403,)),
    ("POST", "/recover"): Row("/v1/recover", Gets.FORBIDDEN, {}, (403,)),
    ("POST", "/recover/deployment"): Row(
        "/v1/recover/deployment", Gets.FORBIDDEN, {"deployment": "0" * 32}, (403,)
    ),
    ("POST", "/clusters/{name}/verify"): Row(
        "/v1/clusters/owned/verify", Gets.NOT_FOUND, {"timeout": 0.1}, (202,)
    ),
    ("POST", "/clusters/{name}/down"): Row("/v1/clusters/owned/down", Gets.NOTHING, {}, (202,)),
}


def routes(app: FastAPI) -> set[tuple[str, str]]:
    """(method, path) of every route, without the prefix of the version."""
    return {key for route in app.routes for key in _of(route)}


def _of(route: BaseRoute) -> Iterator[tuple[str, str]]:
    match route:
        case APIWebSocketRoute():
            yield "websocket", route.path
        case APIRoute() | Route():
            yield from ((method, route.path) for method in route.methods or () if method != "HEAD")
        case _:
            for inner in route.original_router.routes:  # type: ignore[attr-defined]
                yield from _of(inner)


async def answered(asked: Asked, uid: int, key: tuple[str, str], ids: Mapping[str, str]) -> Any:
    """(Status, body) of a route; of a websocket the status that a request would have got."""
    row = ROUTES[key]
    path = row.path.replace("{node}", ids["node"]).replace("{operation}", ids["operation"])
    if key[0] != "websocket":
        answer = await asked.ask(uid, key[0], path, row.body)
        return answer.status, answer.body
    sent = await asked.attach(uid, path)
    closes = [each for each in sent if each["type"] == "websocket.close"]
    kinds = {each["type"] for each in sent} - {"websocket.close", "websocket.accept"}
    codes = {4403: 403, 4000: 404}
    status = codes.get(closes[0].get("code", 0), 200) if closes else 200
    assert status == 200 or not kinds, "a console that is refused sends nothing"
    return status, json.dumps(sent, default=str).encode()


async def state(asked: Asked) -> Any:
    """What the owner has, as the owner sees it."""
    paths = (
        "/v1/clusters", "/v1/clusters/owned", "/v1/nodes", "/v1/bmcs", "/v1/nodes/owned/n/show",
        "/v1/nodes/owned/n/faults", "/v1/clusters/owned/snapshots", "/v1/operations",
        "/v1/labs/owned/dev/show", SET, "/v1/images",
    )  # fmt: skip
    return [(await asked.ask(OWNER, "GET", path)).json for path in paths]


async def ended(asked: Asked, uid: int) -> None:
    """All operations of a user have."""
    for each in (await asked.ask(uid, "GET", "/v1/operations")).json:
        await asked.finished(uid, each["id"])


def test_every_route_has_a_row() -> None:
    from nospoon.api.app import create_app  # noqa: PLC0415
    from nospoon.api.peer import Members  # noqa: PLC0415

    app = create_app(None, members=Members("", Administrators()))  # type: ignore[arg-type]
    assert routes(app) == set(ROUTES)


async def test_a_route_shows_and_does_nothing_of_other_users(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        begun = (await asked.up(OWNER, TEXT)).json["operation"]["id"]
        taken = await asked.ask(OWNER, "POST", "/v1/clusters/owned/snapshots", {"name": "first"})
        assert taken.status == 202, taken.body
        await ended(asked, OWNER)
        await asked.ask(OWNER, "POST", "/v1/labs/dev/drain", {})
        await asked.ask(OWNER, "PUT", f"/v1/files/{SHA256}", CONTENT)
        loaded = await asked.ask(OWNER, "PUT", "/v1/images/owned", {"sha256": SHA256})
        assert loaded.status == 200, loaded.body
        assert (await asked.ask(OWNER, "POST", "/v1/requests", REQUEST)).status == 201
        (bmc,) = (await asked.ask(OWNER, "GET", "/v1/bmcs")).json
        (cluster,) = (await asked.ask(OWNER, "GET", "/v1/clusters")).json
        secrets = [bmc["password"], bmc["uuid"], cluster["id"], begun]
        before = await state(asked)
        for reference in ("owned/n", bmc["uuid"], "n"):
            ids = {"node": reference, "operation": begun}
            for key in ROUTES:
                await _refused_to_strangers(asked, key, ids)
                await _nothing_for_others(asked, key, ids, secrets)
        await ended(asked, OTHER)
        assert await state(asked) == before
        for key, row in ROUTES.items():
            await ended(asked, OWNER)
            status, body = await answered(
                asked, OWNER, key, {"node": "owned/n", "operation": begun}
            )
            assert status in row.owner, (key, status, body)


async def _refused_to_strangers(asked: Asked, key: tuple[str, str], ids: Mapping[str, str]) -> None:
    status, body = await answered(asked, STRANGER, key, ids)
    assert status == 403, (key, status)
    assert b"owned" not in body.replace(ROUTES[key].path.encode(), b"")


async def _nothing_for_others(
    asked: Asked, key: tuple[str, str], ids: Mapping[str, str], secrets: list[str]
) -> None:
    status, body = await answered(asked, OTHER, key, ids)
    shown = body.decode(errors="replace")
    given = {ids["node"], ids["operation"]}
    told = [each for each in secrets if each in shown and each not in given]
    assert not told, (key, told)
    match ROUTES[key].other:
        case Gets.NOT_FOUND:
            assert status == 404, (key, status, shown)
        case Gets.FORBIDDEN:
            assert status == 403, (key, status, shown)
        case Gets.OWN:
            assert status in ROUTES[key].owner, (key, status, shown)
            asked_for = key == ("GET", "/operations")  # to take down one of that name of its own
            assert asked_for or '"owned"' not in shown
        case Gets.NOTHING:
            found = json.loads(shown)
            assert status in (200, 202), (key, status, shown)
            assert found.get("plan", {"steps": []})["steps"] == []


async def test_a_simulated_host_of_others_keeps_its_settings(tmp_path: Path) -> None:
    """Hosts of one name are one: failures, agents and consoles would be those of all machines."""
    plain = "cluster: a\nhosts: {here: simulated}\nnodes: [{name: n}]\n"
    failing = plain.replace("simulated}", "{simulated: {power_failures: 1}}}")
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, plain)).status == 202
        for path in ("/v1/plan", "/v1/clusters"):
            refused = await asked.ask(OTHER, "POST", path, {"file": "b.yaml", "text": failing})
            assert refused.status == 409
            assert "another user has machines there" in refused.json["error"]["message"]
        own = failing.replace("here:", "mine:")
        for uid, text in ((OTHER, plain), (OTHER, own), (OWNER, failing)):
            body = {"file": "b.yaml", "text": text}
            assert (await asked.ask(uid, "POST", "/v1/plan", body)).status == 200


async def test_a_cluster_has_so_many_snapshots(tmp_path: Path) -> None:
    text = "cluster: c\nhosts: {h: simulated}\nnodes: [{name: n}]\n"
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, text)
        (row,) = await asked.daemon.parts.database.call(clusters.outlines)
        for number in range(MOST):
            taken = snapshots.SnapshotRow(row.id, f"s{number}", SnapshotState.COMPLETE, 1.0, ())
            await asked.daemon.parts.database.call(snapshots.put, taken)
        refused = await asked.ask(OWNER, "POST", "/v1/clusters/c/snapshots", {"name": "more"})
        assert (refused.status, "as many as may be" in refused.body.decode()) == (409, True)
        await asked.daemon.parts.database.call(snapshots.remove, taken)
        made = await asked.ask(OWNER, "POST", "/v1/clusters/c/snapshots", {"name": "more"})
        assert made.status == 202
