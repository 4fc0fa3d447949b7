"""SecureBoot of UEFI machines (DSP0268).

Keys are enrolled in machines of firmware `uefi-secure`, by whoever made the firmware; there secure
boot is switched, from the next start on. Other UEFI machines have no keys, and switching it on is
refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.responses import Response

from nospoon.bmc.messages import SecureBootRequested
from nospoon.bmc.secure_boot import SecureBoot
from nospoon.model.cluster import Firmware
from nospoon.services.bmcs.redfish.http.answers import ODATA, check_match, tagged
from nospoon.services.bmcs.redfish.http.exchange import Exchange
from nospoon.services.bmcs.redfish.http.parameters import Action, Parameter
from nospoon.services.bmcs.redfish.http.routes import Resource, read
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.bodies import ref, resource
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources.changes import done, refuse_others

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served

ENABLE = "SecureBootEnable"
ACTION = "SecureBoot.ResetKeys"
RESETS = ("ResetAllKeysToDefault",)
"""Guests may add to them, as updates of dbx do; no one deletes them here."""
RESET_KEYS = Action(ACTION, (Parameter("ResetKeysType", required=True, allowed=RESETS),))


def has_secure_boot(served: Served) -> bool:
    """Whether its BMC manages secure boot."""
    machine = served.config.machine
    return machine.has_firmware and machine.firmware is not Firmware.BIOS


def _has_keys(served: Served) -> bool:
    secure = served.config.machine.firmware is Firmware.UEFI_SECURE
    return secure and has_secure_boot(served)


def is_current(served: Served) -> bool:
    """Whether the boot at hand is a secure one."""
    return _has_keys(served) and served.aggregate.runtime.secure_boot.current


def shown(served: Served) -> dict[str, object] | None:
    """SecureBoot; BIOS machines, and those without firmware, have none."""
    if not has_secure_boot(served):
        return None
    path, keys = f"Systems/{served.bmc.uuid}/SecureBoot", _has_keys(served)
    return {
        **resource("SecureBoot", path, "SecureBoot", "UEFI Secure Boot"),
        ENABLE: keys and served.aggregate.runtime.secure_boot.enabled,
        "SecureBootCurrentBoot": "Enabled" if is_current(served) else "Disabled",
        "SecureBootMode": "UserMode" if keys else "SetupMode",
        "SecureBootDatabases": ref(f"{path}/SecureBootDatabases"),
        **({"Actions": _actions(path)} if keys else {}),
    }


def _actions(path: str) -> dict[str, object]:
    reset = {
        "target": f"{ROOT}/{path}/Actions/{ACTION}",
        "ResetKeysType@Redfish.AllowableValues": list(RESETS),
    }
    return {f"#{ACTION}": reset}


def _there(exchange: Exchange) -> tuple[Served, dict[str, object]]:
    served = exchange.served()
    body = shown(served)
    if body is None:
        raise errors.not_found(exchange.path)
    return served, body


async def _patch(exchange: Exchange) -> Response:
    served, before = _there(exchange)
    check_match(exchange, lambda: before)
    body = await exchange.body()
    refuse_others(body, (ENABLE,), lambda: before)
    enabled = body.get(ENABLE, before[ENABLE])
    if not isinstance(enabled, bool):
        raise errors.wrong_type(ENABLE, enabled)
    if enabled and not _has_keys(served):
        raise errors.conflict(ENABLE, "SecureBootMode", "Firmware `uefi-secure` has keys.")
    if _has_keys(served):
        await _request(exchange, served, replace(_now(served), enabled=enabled))
    return tagged(exchange, _there(exchange)[1])


def _now(served: Served) -> SecureBoot:
    return served.aggregate.runtime.secure_boot


async def _request(exchange: Exchange, served: Served, wanted: SecureBoot) -> None:
    done(await exchange.service.ask(served, lambda ticket: SecureBootRequested(wanted, ticket)))


async def _reset_keys(exchange: Exchange) -> Response:
    """ResetKeys: to what the firmware was made with, from the next start on."""
    served, _ = _there(exchange)
    if not _has_keys(served):
        raise errors.no_action(ACTION)
    RESET_KEYS.read(await exchange.given())
    await _request(exchange, served, replace(_now(served), reset=True))
    return Response(status_code=204, headers=ODATA)


_PATH = f"{ROOT}/Systems/{{id}}/SecureBoot"
RESOURCES = (
    Resource(_PATH, {"GET": read(shown), "PATCH": _patch}),
    Resource(f"{_PATH}/Actions/{ACTION}", {"POST": _reset_keys}),
)
