"""What bodies of resources are made of: links, collections, what every resource begins with."""

from __future__ import annotations

from collections.abc import Iterable

from nospoon.services.bmcs.redfish.messages.metadata import odata_type
from nospoon.services.bmcs.redfish.messages.uris import ROOT

OK = {"State": "Enabled", "Health": "OK"}


def ref(path: str) -> dict[str, str]:
    """A link; `path` below the service root."""
    return {"@odata.id": f"{ROOT}/{path}"}


def collection(kind: str, path: str, members: Iterable[str]) -> dict[str, object]:
    """A resource collection, for example of ComputerSystem at Systems."""
    refs = [ref(f"{path}/{each}") for each in members]
    return {
        "@odata.type": f"#{kind}Collection.{kind}Collection",
        "@odata.id": f"{ROOT}/{path}",
        "Name": f"{kind} Collection",
        "Members@odata.count": len(refs),
        "Members": refs,
    }


def resource(kind: str, path: str, id_: str, name: str) -> dict[str, object]:
    """What every resource begins with."""
    return {
        "@odata.type": odata_type(kind),
        "@odata.id": f"{ROOT}/{path}",
        "Id": id_,
        "Name": name,
    }
