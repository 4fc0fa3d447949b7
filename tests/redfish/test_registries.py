"""Registries and JsonSchemas: everything that is used is named there, and nothing else."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from nospoon.bmc.events import EVENTS
from nospoon.services.bmcs.redfish.messages.base import REGISTRY
from nospoon.services.bmcs.redfish.resources.registries import REGISTRIES
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import client

from .test_service import links


async def types_of(b: Bench) -> set[str]:
    """Every `@odata.type` that a walk over all links meets."""
    todo, seen, types = ["/redfish/v1/"], set[str](), set[str]()
    while todo:
        path = todo.pop()
        if path in seen or path.startswith("/redfish/v1/JsonSchemas/"):
            continue
        seen.add(path)
        answer = await client(b.first).get(path)
        types |= set(re.findall(r'"@odata\.type":"#([^"]*)"', answer.data.decode()))
        todo += links(answer.json)
    return types


async def test_every_type_that_is_used_is_in_the_metadata_and_has_a_schema_file() -> None:
    async with bench(1) as b:
        used = await types_of(b)
        document = ET.fromstring((await client(b.first).get("/redfish/v1/$metadata")).data)
        namespaces = {each.get("Namespace") for each in document.iter() if each.get("Namespace")}
        schemas = (await client(b.first).get("/redfish/v1/JsonSchemas")).json["Members"]
        files = {each["@odata.id"].rpartition("/")[2] for each in schemas}
        assert len(used) > 30
        wanted = {each.rpartition(".")[0] for each in used}
        assert wanted - namespaces == set()
        assert wanted - files == set()
        assert "RedfishExtensions.v1_0_0" in namespaces


async def test_a_schema_file_names_where_dmtf_publishes_it() -> None:
    async with bench(1) as b:
        path = "/redfish/v1/JsonSchemas/ComputerSystem.v1_22_1"
        body = (await client(b.first).get(path)).json
        assert body["Schema"] == "#ComputerSystem.v1_22_1.ComputerSystem"
        (location,) = body["Location"]
        assert location["PublicationUri"].endswith("/schemas/v1/ComputerSystem.v1_22_1.json")
        assert (await client(b.first).get("/redfish/v1/JsonSchemas/Spoon")).status == 404


async def test_registries_are_those_that_messages_come_from() -> None:
    async with bench(1) as b:
        found = (await client(b.first).get("/redfish/v1/Registries")).json["Members"]
        bodies = [(await client(b.first).get(each["@odata.id"])).json for each in found]
        assert [each["Id"] for each in bodies] == [each.id for each in REGISTRIES]
        assert {REGISTRY, "ResourceEvent.1.3", "TaskEvent.1.0"} <= {b["Registry"] for b in bodies}


async def test_a_registry_is_served_where_its_file_says() -> None:
    async with bench(1) as b:
        for each in REGISTRIES:
            path = f"/redfish/v1/Registries/{each.id}"
            (location,) = (await client(b.first).get(path)).json["Location"]
            assert ("PublicationUri" in location) == each.published
            content = (await client(b.first).get(location["Uri"])).json
            assert content["Id"] == each.id
            other = location["Uri"].replace(each.id, "Spoon.1.0.0", 1)
            assert (await client(b.first).get(other)).status == 404
        assert (await client(b.first).get("/redfish/v1/Registries/Spoon.1.0.0")).status == 404


async def test_messages_of_errors_and_events_are_in_the_registries_that_are_served() -> None:
    async with bench(1) as b:
        known = {}
        for each in REGISTRIES:
            content = (await client(b.first).get(each.uri)).json
            for key, message in content.get("Messages", {}).items():
                known[f"{each.short}.{key}"] = message
        assert {each.id for each in EVENTS} <= known.keys()
        refused = await client(b.first).get("/redfish/v1/Spoons")
        (said,) = refused.json["error"]["@Message.ExtendedInfo"]
        message = known[said["MessageId"]]
        assert message["NumberOfArgs"] == len(said["MessageArgs"]) == len(message["ParamTypes"])
        assert message["Message"].replace("%1", "/redfish/v1/Spoons") == said["Message"]
