"""Registries and JsonSchemas: where clients find the messages and schemas that are used here.

DMTF's own are not copied: their files name where DMTF publishes them. A registry of ours is one row
of `REGISTRIES` with the function that makes its content, which is served below its file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.responses import Response

from nospoon.bmc.bios import REGISTRY as BIOS_ATTRIBUTES
from nospoon.services.bmcs.redfish.http.exchange import (
    Exchange,
    Resource,
    collection,
    ref,
    resource,
    respond,
    tagged,
)
from nospoon.services.bmcs.redfish.messages import errors, metadata
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources import bios

PUBLISHED = "https://redfish.dmtf.org/registries"
SCHEMAS = "https://redfish.dmtf.org/schemas/v1"
LANGUAGE = "en"


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry, for example Base.1.18.1, with its version in full.

    `content` makes it, served here; None: DMTF publishes it. `name` is for people.
    """

    id: str
    name: str
    content: Callable[[], dict[str, object]] | None = None

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
        """Where its content is served, when it is served here."""
        return f"{ROOT}/Registries/{self.id}/{self.id}.json"


REGISTRIES: tuple[Registry, ...] = (
    Registry("Base.1.18.1", "Base Message Registry"),
    Registry("ResourceEvent.1.3.0", "Resource Event Message Registry"),
    Registry("TaskEvent.1.0.3", "Task Event Message Registry"),
    Registry(BIOS_ATTRIBUTES, "BIOS Attribute Registry", bios.registry),
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
    place = (
        {"PublicationUri": f"{PUBLISHED}/{found.id}.json"}
        if found.content is None
        else {"Uri": found.uri}
    )
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
    if found.content is None or exchange.request.path_params["file"] != f"{found.id}.json":
        raise errors.not_found(exchange.path)
    return respond(found.content())


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
