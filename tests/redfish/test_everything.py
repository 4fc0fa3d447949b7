"""Whatever is asked of whatever resource, it is answered, and what is refused says why."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from nospoon.model.cluster import Firmware
from nospoon.services.bmcs.redfish.app import RESOURCES, VERBS, App
from nospoon.testing.bench import Bench, bench, with_disk
from nospoon.testing.redfish import basic

NAMES = (
    "Boot", "AssetTag", "PowerRestorePolicy", "IndicatorLED", "DateTime", "Attributes",
    "SecureBootEnable", "ServiceEnabled", "DeliveryRetryAttempts", "UserName", "Password", "RoleId",
    "Enabled", "AccountTypes", "Destination", "Protocol", "HttpHeaders", "MessageId", "MessageArgs",
    "EventTimestamp", "ResetType", "Image", "ImageURI", "Targets", "Inserted", "CapacityBytes",
    "RAIDType", "Links", "Name", "VerifyCertificate", "CertificateString", "CertificateUri",
    "CommonName", "AlternativeNames", "KeyBitLength", "ResetKeysType", "LogEntriesETag",
    "@Redfish.OperationApplyTime", "@odata.id", "OriginResources", "BootSourceOverrideTarget",
    "HttpBootUri",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1 << 40, 10**25, 1e300, "", "x", "http://h/x-1.2.3.iso", "http://[", "On",
    "Pxe", "Redfish", "Operator", "0001-01-01T00:00:00+23:59", "\u0660", "\x00", "a" * 300,
    [], {}, [None], ["x"], {"@odata.id": 5}, {"a": {"b": []}}, "ResourceEvent.1.3.TestMessage",
    "PEM",
)  # fmt: skip
BODIES = (b"", b"{", b"[]", b"\xff", b"null", b"{}{}", b" ")
QUERIES = (
    "$expand=.", "$expand=~($levels=3)", "$select=A/B", "$top=1&$skip=1", f"$skip={'9' * 5000}",
    "$filter=A/B%20gt%205", "$filter=not", "only", "foo=1", "%ff=%00", "$filter=%27",
)  # fmt: skip
PLACES = {
    "{id}": ("", "x", "0" * 40),
    "{member}": ("1", "2", "Cd", "SEL", "9" * 5000, "\u0660", "Boot0000", "InletTemp", "Operator"),
    "{storage}": ("0", "x"),
    "{nic}": ("0", "9" * 5000),
    "{database}": ("db", "x"),
}
HEADERS = (b"if-match", b"if-none-match", b"content-type", b"x-auth-token", b"odata-version")


def bodies(chance: random.Random) -> Iterator[bytes]:
    yield from BODIES
    while True:
        names = chance.sample(NAMES, 3)
        yield json.dumps({name: value(chance, 0) for name in names}).encode()


def value(chance: random.Random, depth: int) -> Any:
    if depth < 2 and chance.random() < 0.3:
        return {chance.choice(NAMES): value(chance, depth + 1) for _ in range(2)}
    return chance.choice(VALUES)


def path_of(chance: random.Random, path: str, uuid: str) -> str:
    for word, choices in PLACES.items():
        path = path.replace(word, chance.choice(choices) or uuid)
    return path.replace("{", "").replace("}", "")


async def ask(app: App, scope: dict[str, Any], body: bytes) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(30):
        await app(scope, receive, send)
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


def scope(b: Bench, method: str, path: str, query: str, more: bytes) -> dict[str, Any]:
    bmc = b.first.bmc
    headers = [(k.lower().encode(), v.encode()) for k, v in basic(b.first).items()]
    return {
        "type": "http", "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", b"bmc"), *headers, *([(more, b"\xff,*")] if more else [])],
        "server": (bmc.address, bmc.redfish_port), "client": ("127.0.0.1", 1), "scheme": "http",
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_is_asked_is_answered_with_what_is_wrong(seed: int) -> None:
    chance = random.Random(seed)
    statuses = set()
    async with bench(2, firmware=Firmware.UEFI_SECURE, restart_seconds=0) as b:
        await b.service.put(with_disk(b.first))
        app, more = App(b.service.redfish, b.service.listeners.accounts), bodies(chance)
        for resource in RESOURCES:
            if resource.path.endswith("/SSE"):
                continue  # it has no end
            for method in (*resource.methods, *resource.methods, chance.choice(sorted(VERBS))):
                path = path_of(chance, resource.path, str(b.first.bmc.uuid))
                query = chance.choice(QUERIES) if chance.random() < 0.4 else ""
                extra = chance.choice(HEADERS) if chance.random() < 0.2 else b""
                body = next(more) if method not in {"GET", "HEAD"} else b""
                asked = scope(b, method, path, query, extra)
                status, told = await ask(app, asked, body)
                statuses.add(status)
                assert status != 500, (method, path, query, body)
                assert status < 400 or b"@Message.ExtendedInfo" in told, (method, path)
                await asyncio.sleep(0)
    assert {200, 400, 404, 405} <= statuses
