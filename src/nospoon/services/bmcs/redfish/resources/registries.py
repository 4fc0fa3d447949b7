"""Registries and JsonSchemas: where clients find the messages and schemas that are used here.

Registries are served below their files: a client without a way to the Internet would wait for what
DMTF publishes. Of DMTF's they have the messages that are used here. Schemas are not copied: their
files name where DMTF publishes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.responses import Response

from nospoon.bmc.bios import REGISTRY as BIOS_ATTRIBUTES
from nospoon.bmc.events import EVENTS
from nospoon.bmc.log import Severity
from nospoon.services.bmcs.redfish.http.answers import respond, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.routes import Resource
from nospoon.services.bmcs.redfish.messages import errors, metadata
from nospoon.services.bmcs.redfish.messages.base import MESSAGES, REGISTRY, Entry
from nospoon.services.bmcs.redfish.messages.bodies import collection, ref, resource
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources import bios

PUBLISHED = "https://redfish.dmtf.org/registries"
SCHEMAS = "https://redfish.dmtf.org/schemas/v1"
LANGUAGE = "en"


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry, for example Base.1.18.1, with its version in full.

    `content` makes it. `published`: whether DMTF has it, whole. `name` is for people.
    """

    id: str
    name: str
    content: Callable[[Registry], dict[str, object]]
    published: bool = True

    @property
    def short(self) -> str:
        """As message identifiers begin: prefix, major and minor version (DSP0266 §9.5.11)."""
        return self.id.rpartition(".")[0]

    @property
    def prefix(self) -> str:
        """As subscriptions name it."""
        return self.id.partition(".")[0]

    @property
    def uri(self) -> str:
        """Where its content is served."""
        return f"{ROOT}/Registries/{self.id}/{self.id}.json"


def _messages(registry: Registry) -> dict[str, object]:
    """MessageRegistry (DSP0266 §9.5.11): those of its messages that are used here."""
    events = {each.id: Entry(each.text, each.severity) for each in EVENTS}
    known = {**{f"{REGISTRY}.{key}": entry for key, entry in MESSAGES.items()}, **events}
    return {
        "@odata.type": "#MessageRegistry.v1_6_3.MessageRegistry",
        "Id": registry.id,
        "Name": registry.name,
        "Language": LANGUAGE,
        "Description": "The messages of this registry that this service uses.",
        "OwningEntity": "DMTF",
        "RegistryPrefix": registry.prefix,
        "RegistryVersion": registry.id.partition(".")[2],
        "Messages": {
            id_.rpartition(".")[2]: _message(entry)
            for id_, entry in known.items()
            if id_.rpartition(".")[0] == registry.short
        },
    }


def _message(entry: Entry) -> dict[str, object]:
    return {
        "Description": entry.text,
        "Message": entry.text,
        "Severity": str(entry.severity),
        "MessageSeverity": str(entry.severity),
        "NumberOfArgs": entry.count,
        **({"ParamTypes": ["string"] * entry.count} if entry.count else {}),
        "Resolution": "None." if entry.severity is Severity.OK else "Each message says its own.",
    }


def _attributes(_: Registry) -> dict[str, object]:
    return bios.registry()


REGISTRIES: tuple[Registry, ...] = (
    Registry("Base.1.18.1", "Base Message Registry", _messages),
    Registry("ResourceEvent.1.3.0", "Resource Event Message Registry", _messages),
    Registry("TaskEvent.1.0.3", "Task Event Message Registry", _messages),
    Registry(BIOS_ATTRIBUTES, "BIOS Attribute Registry", _attributes, published=False),
)
"""Add a row to serve another one: everything else follows from this table."""
_BY_ID: Mapping[str, Registry] = {each.id: each for each in REGISTRIES}


def _found(exchange: Exchange) -> Registry:
    found = _BY_ID.get(exchange.request.path_params["member"])
    if found is None:
        raise errors.not_found(exchange.path)
    return found


async def _registries(exchange: Exchange) -> Response:
    return tagged(exchange, collection("MessageRegistryFile", "Registries", list(_BY_ID)))


async def _registry(exchange: Exchange) -> Response:
    found = _found(exchange)
    place = {"Uri": found.uri}
    if found.published:
        place["PublicationUri"] = f"{PUBLISHED}/{found.id}.json"
    body = {
        **resource("MessageRegistryFile", f"Registries/{found.id}", found.id, found.name),
        "Registry": found.short,
        "Languages": [LANGUAGE],
        "Location": [{"Language": LANGUAGE, **place}],
    }
    return tagged(exchange, body)


async def _content(exchange: Exchange) -> Response:
    """The registry itself; it is no resource, and has no ETag."""
    found = _found(exchange)
    if exchange.request.path_params["file"] != f"{found.id}.json":
        raise errors.not_found(exchange.path)
    return respond(found.content(found))


def _schema_files() -> dict[str, tuple[str, str]]:
    """Id of each JsonSchemaFile -> its `@odata.type`, and DMTF's file."""
    files = {}
    for name, version in metadata.schemas():
        id_ = f"{name}.{version}" if version else name
        files[id_] = (f"#{id_}.{name}", f"{SCHEMAS}/{id_}.json")
    return files


SCHEMA_FILES: Mapping[str, tuple[str, str]] = _schema_files()


async def _schemas(exchange: Exchange) -> Response:
    return tagged(exchange, collection("JsonSchemaFile", "JsonSchemas", list(SCHEMA_FILES)))


async def _schema(exchange: Exchange) -> Response:
    id_ = exchange.request.path_params["member"]
    if id_ not in SCHEMA_FILES:
        raise errors.not_found(exchange.path)
    type_, published = SCHEMA_FILES[id_]
    body = {
        **resource("JsonSchemaFile", f"JsonSchemas/{id_}", id_, f"{id_} Schema File"),
        "Schema": type_,
        "Languages": [LANGUAGE],
        "Location": [{"Language": LANGUAGE, "PublicationUri": published}],
    }
    return tagged(exchange, body)


RESOURCES = (
    Resource(f"{ROOT}/Registries", {"GET": _registries}),
    Resource(f"{ROOT}/Registries/{{member}}", {"GET": _registry}),
    Resource(f"{ROOT}/Registries/{{member}}/{{file}}", {"GET": _content}),
    Resource(f"{ROOT}/JsonSchemas", {"GET": _schemas}),
    Resource(f"{ROOT}/JsonSchemas/{{member}}", {"GET": _schema}),
)
LINKS = {
    "CertificateService": ref("CertificateService"),
    "EventService": ref("EventService"),
    "JsonSchemas": ref("JsonSchemas"),
    "Registries": ref("Registries"),
}
"""Of the service root."""
