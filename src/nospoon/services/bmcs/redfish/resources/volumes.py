"""Volumes of a system's storage: each disk of its shape, and those that clients make and remove.

A volume that is made is a disk of its own, whatever its RAID type and drives, which are kept as
they were asked for; together they have no more bytes than the drives. The machine has it from its
next start or reset on, and loses it likewise.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import Response

from nospoon.bmc.messages import VolumesRequested
from nospoon.model.volumes import AddedVolume
from nospoon.services.bmcs.redfish.http.answers import ODATA, check_match, respond, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.routes import Resource
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import OK, collection, ref, resource
from nospoon.services.bmcs.redfish.messages.metadata import odata_type
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources.changes import done, refuse_others
from nospoon.services.bmcs.redfish.resources.hardware import (
    CONTROLLER,
    RAID_TYPES,
    drives,
    size_of,
    storages,
)

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served

MIB = 1 << 20
LARGEST = 64 << 40
MOST = 16
"""Volumes that clients may make on one machine: it has room for 26 disks in all."""
NAME_LENGTH = 64
APPLY_TIME = "@Redfish.OperationApplyTime"
ON_RESET = "OnReset"
_WRITABLE = ("CapacityBytes", "RAIDType", "VolumeType", "Name", "DisplayName", "Encrypted",
             "Links", APPLY_TIME)  # fmt: skip
VOLUME_TYPES: Mapping[str, str] = {
    "RawDevice": "",
    "NonRedundant": "RAID0",
    "Mirrored": "RAID1",
    "StripedWithParity": "RAID5",
    "SpannedMirrors": "RAID10",
}
"""VolumeType, which RAIDType has replaced, as that one."""


def _path(served: Served) -> str:
    return f"Systems/{served.bmc.uuid}/Storage/{CONTROLLER}/Volumes"


def _drive_refs(served: Served, places: tuple[int, ...]) -> list[dict[str, str]]:
    return [ref(f"Chassis/{served.bmc.uuid}/Drives/{place}") for place in places]


def _served(exchange: Exchange) -> Served:
    """Raises `RedfishError` for a storage subsystem that is not there."""
    served = exchange.served()
    if exchange.request.path_params["storage"] not in storages(served):
        raise errors.not_found(exchange.path)
    return served


def members(served: Served) -> list[str]:
    """Those of the shape by their place, then those that clients made."""
    return [*drives(served), *(each.id for each in served.aggregate.runtime.volumes)]


async def _list(exchange: Exchange) -> Response:
    served = _served(exchange)
    body = {
        **collection("Volume", _path(served), members(served)),
        "@Redfish.OperationApplyTimeSupport": {
            "@odata.type": odata_type("Settings", "OperationApplyTimeSupport"),
            "SupportedValues": [ON_RESET],
        },
    }
    return tagged(exchange, body)


async def _get(exchange: Exchange) -> Response:
    return tagged(exchange, _volume(exchange, _served(exchange)))


def _volume(exchange: Exchange, served: Served) -> dict[str, object]:
    member = exchange.request.path_params["member"]
    if member in drives(served):
        return _of_shape(served, int(member))
    found = _added(served, member)
    if found is None:
        raise errors.not_found(exchange.path)
    return _shown(served, found)


def _added(served: Served, member: str) -> AddedVolume | None:
    found = (each for each in served.aggregate.runtime.volumes if each.id == member)
    return next(found, None)


def _of_shape(served: Served, place: int) -> dict[str, object]:
    """Volume: what the guest sees of a drive, which is all of it."""
    return {
        **resource("Volume", f"{_path(served)}/{place}", str(place), f"Volume {place}"),
        "CapacityBytes": size_of(served, place),
        "VolumeType": "RawDevice",
        "Status": OK,
        "Links": {"Drives": _drive_refs(served, (place,))},
    }


def _shown(served: Served, volume: AddedVolume) -> dict[str, object]:
    """Volume that a client made."""
    name = volume.name or f"Volume {volume.id}"
    raid = {"RAIDType": volume.raid} if volume.raid else {"VolumeType": "RawDevice"}
    return {
        **resource("Volume", f"{_path(served)}/{volume.id}", volume.id, name),
        "CapacityBytes": volume.size,
        **raid,
        "Encrypted": False,
        "Status": OK,
        "Links": {"Drives": _drive_refs(served, volume.drives)},
    }


async def _create(exchange: Exchange) -> Response:
    """Everything is checked first; then the volume is on record."""
    served = _served(exchange)
    if served.config.machine.adopted:
        raise errors.general(409, "An adopted machine is given no volumes.")
    if not served.config.machine.takes_volumes:
        raise errors.general(409, "This machine's host gives it no volumes but its own disks.")
    volume = _asked(served, await exchange.body())
    before = served.aggregate.runtime.volumes
    if len(before) >= MOST:
        raise errors.general(409, f"The machine has {MOST} such volumes already.")
    _check_room(served, volume, before)
    await _request(exchange, served, (*before, volume))
    headers = {"Location": f"{ROOT}/{_path(served)}/{volume.id}"}
    return respond(_shown(served, volume), status=201, headers=headers)


def _check_room(served: Served, volume: AddedVolume, before: Sequence[AddedVolume]) -> None:
    """As of a controller's drives: the cluster file says by them what a node may take of its host.
    Raises `RedfishError`.
    """
    has = sum(size_of(served, int(place)) or 0 for place in drives(served))
    used = sum(each.size for each in before)
    if used + volume.size > has:
        raise errors.general(
            409, f"The drives have {has} bytes, of which other volumes take {used}."
        )


def _asked(served: Served, body: dict[str, object]) -> AddedVolume:
    refuse_others(body, _WRITABLE)
    check_apply_time(body)
    encrypted = body.get("Encrypted")
    if encrypted is not None and not isinstance(encrypted, bool):
        raise errors.wrong_type("Encrypted", encrypted)
    if encrypted:
        raise errors.not_in_list("Encrypted", encrypted, ("false",))
    return AddedVolume(
        id=secrets.token_hex(4),
        size=_size(body),
        name=_name(body),
        raid=_raid(body),
        drives=_drives(served, body.get("Links", {})),
    )


def check_apply_time(body: Mapping[str, object]) -> None:
    time = body.get(APPLY_TIME, ON_RESET)
    if time != ON_RESET:
        raise errors.not_in_list(APPLY_TIME, time, (ON_RESET,))


def _size(body: Mapping[str, object]) -> int:
    """In whole MiB, rounded up."""
    if "CapacityBytes" not in body:
        raise errors.missing_property("CapacityBytes")
    size = body["CapacityBytes"]
    if not isinstance(size, int) or isinstance(size, bool):
        raise errors.wrong_type("CapacityBytes", size)
    if not 0 < size <= LARGEST:
        raise errors.out_of_range("CapacityBytes", size)
    return -(-size // MIB) * MIB


def _name(body: Mapping[str, object]) -> str:
    name = body.get("Name", body.get("DisplayName", ""))
    if not isinstance(name, str):
        raise errors.wrong_type("Name", name)
    if len(name) > NAME_LENGTH:
        raise errors.too_long("Name", name, NAME_LENGTH)
    return name


def _raid(body: Mapping[str, object]) -> str:
    if "RAIDType" in body:
        raid = body["RAIDType"]
        if raid not in RAID_TYPES:
            raise errors.not_in_list("RAIDType", raid, RAID_TYPES)
        return str(raid)
    kind = body.get("VolumeType", "RawDevice")
    if not isinstance(kind, str) or kind not in VOLUME_TYPES:
        raise errors.not_in_list("VolumeType", kind, tuple(VOLUME_TYPES))
    return VOLUME_TYPES[kind]


def _drives(served: Served, links: object) -> tuple[int, ...]:
    asked = links.get("Drives", []) if isinstance(links, dict) else None
    if not isinstance(asked, list):
        raise errors.wrong_type("Links/Drives", asked)
    known = [each["@odata.id"] for each in _drive_refs(served, tuple(map(int, drives(served))))]
    for each in asked:
        if not isinstance(each, dict) or each.get("@odata.id") not in known:
            raise errors.not_in_list("Links/Drives", each, tuple(known))
    return tuple(dict.fromkeys(known.index(each["@odata.id"]) for each in asked))


async def _delete(exchange: Exchange) -> Response:
    """What a client made; disks of the shape are the cluster file's."""
    served, member = _served(exchange), exchange.request.path_params["member"]
    if member in drives(served):
        raise errors.cannot_be_deleted()
    found = _added(served, member)
    if found is None:
        raise errors.not_found(exchange.path)
    check_match(exchange, partial(_shown, served, found))
    body = await exchange.given()
    refuse_others(body, (APPLY_TIME,))
    check_apply_time(body)
    left = tuple(each for each in served.aggregate.runtime.volumes if each is not found)
    await _request(exchange, served, left)
    return Response(status_code=204, headers=ODATA)


async def _request(exchange: Exchange, served: Served, volumes: tuple[AddedVolume, ...]) -> None:
    done(await exchange.service.ask(served, lambda ticket: VolumesRequested(volumes, ticket)))


_VOLUMES = f"{ROOT}/Systems/{{id}}/Storage/{{storage}}/Volumes"
RESOURCES = (
    Resource(_VOLUMES, {"GET": _list, "POST": _create}),
    Resource(f"{_VOLUMES}/{{member}}", {"GET": _get, "DELETE": _delete}),
)
