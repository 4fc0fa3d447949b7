"""Rules of DSP0266 that hold for every resource: each is walked to and tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nospoon.model.cluster import Firmware
from nospoon.services.bmcs.redfish.app import find
from nospoon.services.bmcs.redfish.http.routes import Resource
from nospoon.testing.bench import Bench, bench, with_disk
from nospoon.testing.redfish import Client, client, system_of

from .test_service import links

METHODS = ("POST", "PUT", "PATCH", "DELETE")
NEVER = 'W/"never"'


def resource_at(path: str) -> Resource:
    found = find(path)
    assert found is not None
    return found[0]


def test_dots_of_paths_are_dots_and_nothing_follows_what_is_named() -> None:
    reset = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"
    assert find(reset) is not None
    assert find(reset.replace(".", "x")) is None
    assert find(f"{reset}/") is None
    assert find(f"{reset}\n") is None
    found = find("/redfish/v1/Systems/1/VirtualMedia/Cd")
    assert found is not None
    assert found[1] == {"id": "1", "member": "Cd"}


async def walked(line: Client) -> list[str]:
    """Every path that a link leads to, but for the schema files, which are alike."""
    todo, seen = ["/redfish/v1/"], dict[str, None]()
    while todo:
        path = todo.pop()
        if path not in seen and not path.startswith("/redfish/v1/JsonSchemas/"):
            seen[path] = None
            todo += links((await line.get(path)).json)
    return list(seen)


@asynccontextmanager
async def furnished() -> AsyncIterator[Bench]:
    """With a subscription, a session and another account, so that there is one of each."""
    async with bench(1, firmware=Firmware.UEFI_SECURE) as b:
        line = client(b.first)
        bob = {"UserName": "bob", "Password": "hunter2222", "RoleId": "ReadOnly"}
        await line.ask("POST", "/redfish/v1/AccountService/Accounts", bob)
        there = {"Destination": "http://127.0.0.1:1/", "Protocol": "Redfish"}
        await line.ask("POST", "/redfish/v1/EventService/Subscriptions", there)
        login = {"UserName": "admin", "Password": b.first.password}
        await line.ask("POST", "/redfish/v1/SessionService/Sessions", login)
        yield b


async def test_everything_that_is_changed_is_guarded_by_its_etag() -> None:
    async with furnished() as b:
        line, tried = client(b.first), 0
        for path in await walked(line):
            if "PATCH" not in resource_at(path).methods:
                continue
            answer = await line.ask("PATCH", path, {}, If_Match=NEVER)
            assert (answer.status, path) == (412, path)
            assert answer.message == "PreconditionFailed"
            tag = (await line.get(path)).headers["etag"]
            assert (await line.ask("PATCH", path, {}, If_Match=tag)).status != 412
            tried += 1
        assert tried > 5


async def test_everything_that_is_deleted_is_guarded_by_its_etag() -> None:
    async with furnished() as b:
        await b.service.put(with_disk(b.first))
        line, tried = client(b.first), 0
        volumes = f"{system_of(b.first)}/Storage/0/Volumes"
        await line.ask("POST", volumes, {"CapacityBytes": 1 << 30})
        for path in await walked(line):
            if "DELETE" not in resource_at(path).methods:
                continue
            answer = await line.ask("DELETE", path, If_Match=NEVER)
            if answer.message == "ResourceCannotBeDeleted":
                continue
            assert (answer.status, path) == (412, path)
            tag = (await line.get(path)).headers["etag"]
            assert (await line.ask("DELETE", path, If_Match=tag)).status == 204
            tried += 1
        assert tried == 4


async def test_what_is_not_allowed_says_what_is() -> None:
    async with furnished() as b:
        line = client(b.first)
        for path in await walked(line):
            resource = resource_at(path)
            for method in METHODS:
                if method in resource.methods:
                    continue
                answer = await line.ask(method, path, {})
                assert (answer.status, method, path) == (405, method, path)
                assert answer.headers["allow"] == resource.allowed
                assert answer.message == "OperationNotAllowed"


async def test_head_is_get_without_the_body() -> None:
    async with furnished() as b:
        line = client(b.first)
        for path in await walked(line):
            whole, head = await line.get(path), await line.ask("HEAD", path)
            assert (head.status, head.data) == (200, b"")
            for name in ("etag", "link", "allow", "odata-version", "content-length"):
                assert head.headers.get(name) == whole.headers.get(name), (path, name)


async def test_every_resource_of_ours_has_its_etag_in_header_and_body() -> None:
    async with furnished() as b:
        line = client(b.first)
        for path in await walked(line):
            answer = await line.get(path)
            if "LogServices/SEL/Entries" not in path:
                assert answer.json["@odata.etag"] == answer.headers["etag"], path


async def test_what_is_below_no_resource_is_missing_and_methods_nobody_knows_are_501() -> None:
    async with bench(1) as b:
        line = client(b.first)
        missing = await line.get("/redfish/v1/Spoon")
        assert (missing.status, missing.message) == (404, "ResourceMissingAtURI")
        unknown = await line.ask("TRACE", "/redfish/v1/Systems")
        assert (unknown.status, unknown.message) == (501, "GeneralError")
