"""Bios, its settings resource and its attribute registry (DSP0268; DSP0266 §9.10)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import Response

from nospoon.bmc import firmware
from nospoon.bmc.bios import (
    ATTRIBUTES,
    BY_NAME,
    REGISTRY,
    REGISTRY_VERSION,
    Attribute,
    Choice,
    Problem,
    Text,
    Value,
    Whole,
    problem,
)
from nospoon.bmc.messages import BiosRequested
from nospoon.model.cluster import Firmware
from nospoon.services.bmcs.redfish.http.answers import ODATA, check_match, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.parameters import Action
from nospoon.services.bmcs.redfish.http.routes import Resource, read
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import ref, resource
from nospoon.services.bmcs.redfish.messages.jobs import when
from nospoon.services.bmcs.redfish.messages.metadata import odata_type
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources import secure_boot
from nospoon.services.bmcs.redfish.resources.changes import done, refuse_others

if TYPE_CHECKING:
    from nospoon.bmc.bios import Bios
    from nospoon.services.bmcs.served import Served

ON_RESET = "OnReset"
APPLY_TIME = "@Redfish.SettingsApplyTime"
RESET = Action("Bios.ResetBios")


def _path(served: Served) -> str:
    return f"Systems/{served.bmc.uuid}/Bios"


def shown(served: Served) -> dict[str, object] | None:
    """Bios: what is in force; None of a machine without firmware."""
    if not served.config.machine.has_firmware:
        return None
    path, state = _path(served), served.aggregate.runtime.bios
    actions = f"{ROOT}/{path}/Actions/Bios"
    return {
        **resource("Bios", path, "BIOS", "BIOS Configuration"),
        "AttributeRegistry": REGISTRY,
        "Attributes": {**_of_shape(served), **firmware.in_force(served.aggregate.runtime)},
        "ResetBiosToDefaultsPending": state.to_defaults,
        "@Redfish.Settings": _settings(path, state),
        "Actions": {"#Bios.ResetBios": {"target": f"{actions}.ResetBios"}},
    }


def _of_shape(served: Served) -> dict[str, Value]:
    machine = served.config.machine
    return {
        "BootMode": "Bios" if machine.firmware is Firmware.BIOS else "Uefi",
        "SecureBoot": "Enabled" if secure_boot.is_current(served) else "Disabled",
        "Tpm": "Enabled" if machine.tpm else "Disabled",
    }


def _settings(path: str, state: Bios) -> dict[str, object]:
    """The Settings annotation; `Time` and `Messages` once something was applied."""
    told: dict[str, object] = {
        "@odata.type": odata_type("Settings"),
        "SettingsObject": ref(f"{path}/Settings"),
        "SupportedApplyTimes": [ON_RESET],
    }
    if state.applied is None:
        return told
    return {**told, "Time": when(state.applied), "Messages": [errors.SUCCESS]}


def _pending(served: Served) -> dict[str, object] | None:
    return pending(served) if served.config.machine.has_firmware else None


def _there(exchange: Exchange) -> Served:
    """The BMC of a machine that has firmware."""
    served = exchange.served()
    if not served.config.machine.has_firmware:
        raise errors.not_found(exchange.path)
    return served


def pending(served: Served) -> dict[str, object]:
    """Bios/Settings: what waits for the next boot."""
    return {
        **resource("Bios", f"{_path(served)}/Settings", "Settings", "Pending BIOS Settings"),
        "AttributeRegistry": REGISTRY,
        "Attributes": dict(served.aggregate.runtime.bios.pending),
        APPLY_TIME: {
            "@odata.type": odata_type("Settings", "PreferredApplyTime"),
            "ApplyTime": ON_RESET,
            "ApplyTime@Redfish.AllowableValues": [ON_RESET],
        },
    }


async def _patch(exchange: Exchange) -> Response:
    """Every attribute is checked before any is taken."""
    served = _there(exchange)
    check_match(exchange, partial(pending, served))
    body = await exchange.body()
    refuse_others(body, ("Attributes", APPLY_TIME), partial(pending, served))
    _check_apply_time(body.get(APPLY_TIME, {}))
    changes = body.get("Attributes", {})
    if not isinstance(changes, dict):
        raise errors.wrong_type("Attributes", changes)
    for name, value in changes.items():
        _check(name, value)
    after = firmware.with_pending(served.aggregate.runtime, changes)
    done(await exchange.service.ask(served, lambda ticket: BiosRequested(after, ticket)))
    return tagged(exchange, pending(served))


def _check_apply_time(asked: object) -> None:
    if not isinstance(asked, dict):
        raise errors.wrong_type(APPLY_TIME, asked)
    time = asked.get("ApplyTime", ON_RESET)
    if time != ON_RESET:
        raise errors.not_in_list(f"{APPLY_TIME}/ApplyTime", time, (ON_RESET,))


def _check(name: str, value: object) -> None:
    """Raises `RedfishError` for a value that the registry does not allow."""
    match problem(name, value):
        case None:
            return
        case Problem.UNKNOWN:
            raise errors.unknown_property(f"Attributes/{name}")
        case Problem.READ_ONLY:
            raise errors.read_only(f"Attributes/{name}")
        case Problem.WRONG_TYPE:
            raise errors.wrong_type(f"Attributes/{name}", value)
        case Problem.NOT_IN_LIST:
            attribute = BY_NAME[name]
            assert isinstance(attribute, Choice), "others have no list"
            raise errors.not_in_list(f"Attributes/{name}", value, attribute.values)
        case Problem.OUT_OF_RANGE:
            raise errors.out_of_range(f"Attributes/{name}", value)
        case Problem.TOO_LONG:
            raise errors.too_long(f"Attributes/{name}", value, _longest(name))


def _longest(name: str) -> int:
    attribute = BY_NAME[name]
    assert isinstance(attribute, Text), "others have no length"
    return attribute.longest


async def _reset(exchange: Exchange) -> Response:
    """Bios.ResetBios: defaults from the next boot on."""
    served = _there(exchange)
    RESET.read(await exchange.given())
    after = firmware.with_defaults(served.aggregate.runtime)
    done(await exchange.service.ask(served, lambda ticket: BiosRequested(after, ticket)))
    return Response(status_code=204, headers=ODATA)


async def _change_password(exchange: Exchange) -> Response:
    """Virtual firmware asks no one for a password, so that there is none to change."""
    _there(exchange)
    raise errors.no_action("Bios.ChangePassword")


def registry() -> dict[str, object]:
    """AttributeRegistry: every attribute, what it may be and what it does."""
    return {
        "@odata.type": odata_type("AttributeRegistry"),
        "Id": REGISTRY,
        "Name": "BIOS Attribute Registry",
        "Language": "en",
        "OwningEntity": "nospoon",
        "RegistryVersion": REGISTRY_VERSION,
        "RegistryEntries": {
            "Attributes": [_entry(*each) for each in enumerate(ATTRIBUTES)],
            "Dependencies": [],
            "Menus": [],
        },
    }


def _entry(order: int, attribute: Attribute) -> dict[str, object]:
    return {
        "AttributeName": attribute.name,
        "DisplayName": attribute.display,
        "DisplayOrder": order,
        "HelpText": attribute.help,
        "ReadOnly": attribute.read_only,
        "Immutable": attribute.read_only,
        "ResetRequired": True,
        **({"DefaultValue": attribute.default} if attribute.default != "" else {}),
        **_limits(attribute),
    }


def _limits(attribute: Attribute) -> dict[str, object]:
    match attribute:
        case Choice(values=values):
            named = [{"ValueName": each, "ValueDisplayName": each} for each in values]
            return {"Type": "Enumeration", "Value": named}
        case Whole(lower=lower, upper=upper):
            return {"Type": "Integer", "LowerBound": lower, "UpperBound": upper}
        case Text(longest=longest):
            return {"Type": "String", "MinLength": 0, "MaxLength": longest}


_BIOS = f"{ROOT}/Systems/{{id}}/Bios"
RESOURCES = (
    Resource(_BIOS, {"GET": read(shown)}),
    Resource(f"{_BIOS}/Settings", {"GET": read(_pending), "PATCH": _patch}),
    Resource(f"{_BIOS}/Actions/Bios.ResetBios", {"POST": _reset}),
    Resource(f"{_BIOS}/Actions/Bios.ChangePassword", {"POST": _change_password}),
)
