"""What a system boots: the override, the HTTP boot URI and the order, shown and changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from nospoon.bmc.messages import BootOrderRequested, HttpBootUriRequested, OverrideRequested
from nospoon.model.boot import (
    NO_OVERRIDE,
    ROOT_ALONE,
    BootDevice,
    BootMode,
    BootOverride,
    OverrideEnabled,
)
from nospoon.model.cluster import Firmware
from nospoon.runtime.http import without_account
from nospoon.services.bmcs.redfish.messages import errors, uris
from nospoon.services.bmcs.redfish.messages.bodies import ref, resource
from nospoon.services.bmcs.redfish.resources.changes import BootChange

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served

TARGETS: Mapping[str, BootDevice | None] = {
    "None": None,
    "Pxe": BootDevice.NETWORK,
    "UefiHttp": BootDevice.HTTP,
    "Hdd": BootDevice.DISK,
    "Cd": BootDevice.CDROM,
    "BiosSetup": BootDevice.SETUP,
}
TARGET_NAMES = {device: name for name, device in TARGETS.items()}
_ALL = tuple(TARGETS)
_OF_ROOTS = tuple(name for name, device in TARGETS.items() if device in ROOT_ALONE)
ENABLED = tuple(str(each) for each in OverrideEnabled)
_TARGET, _ENABLED, _MODE = (
    "BootSourceOverrideTarget",
    "BootSourceOverrideEnabled",
    "BootSourceOverrideMode",
)
_URI = "HttpBootUri"
_ORDER = "BootOrder"
_OVERRIDE = frozenset({_TARGET, _ENABLED, _MODE})
_BOOT = frozenset({*_OVERRIDE, _URI, _ORDER})


def _mode(served: Served) -> str:
    """The firmware's mode, which no override changes here."""
    return _modes(served)[0]


def _modes(served: Served) -> tuple[str, ...]:
    """Modes that this firmware can do."""
    if served.config.machine.firmware is Firmware.BIOS:
        return (str(BootMode.LEGACY),)
    return (str(BootMode.UEFI),)


def boot(served: Served, path: str) -> dict[str, object]:
    """Boot of a system, whose path this is."""
    override = served.override
    active = override.active
    return {
        "BootSourceOverrideEnabled": str(override.enabled) if active else "Disabled",
        "BootSourceOverrideEnabled@Redfish.AllowableValues": list(ENABLED),
        "BootSourceOverrideTarget": TARGET_NAMES[override.target if active else None],
        "BootSourceOverrideTarget@Redfish.AllowableValues": list(_targets(served)),
        **_mode_shown(served),
        "HttpBootUri": _uri_shown(served) or None,
        "BootOrder": boot_order(served),
        "BootOptions": ref(f"{path}/BootOptions"),
    }


def _mode_shown(served: Served) -> dict[str, object]:
    """Of a machine with firmware."""
    if not served.config.machine.has_firmware:
        return {}
    return {
        _MODE: _mode(served),
        f"{_MODE}@Redfish.AllowableValues": list(_modes(served)),
    }


def _targets(served: Served) -> tuple[str, ...]:
    """Those that have an effect on its machine."""
    return _OF_ROOTS if served.config.machine.boots_root else _ALL


def _uri_shown(served: Served) -> str:
    """As all users of the BMC may see it."""
    return without_account(served.aggregate.runtime.http_boot_uri)


def boot_order(served: Served) -> list[str]:
    """References of boot options, in the persistent order."""
    return [_reference(device) for device in served.aggregate.boot_order]


def _reference(device: BootDevice) -> str:
    """The firmware's name of a boot option (UEFI 2.10 §3.1.1)."""
    return _REFERENCES[device]


_REFERENCES = {device: f"Boot{number:04X}" for number, device in enumerate(BootDevice)}


def boot_option(served: Served, member: str) -> dict[str, object] | None:
    """BootOption: a class of devices, as the persistent order has them."""
    found = (d for d in served.config.machine.boot_order if _reference(d) == member)
    device = next(found, None)
    if device is None:
        return None
    return {
        **resource("BootOption", f"Systems/{served.bmc.uuid}/BootOptions/{member}", member, member),
        "BootOptionReference": member,
        "BootOptionEnabled": True,
        "DisplayName": str(device),
        "Alias": TARGET_NAMES[device],
    }


def changed_boot(served: Served, body: Mapping[str, object]) -> Iterator[BootChange]:
    """What of `Boot` a PATCH with this body changes."""
    boot = body.get("Boot", {})
    if not isinstance(boot, dict):
        raise errors.wrong_type("Boot", boot)
    for name in boot.keys() - _BOOT:
        known = name == "BootOptions"
        raise (errors.read_only if known else errors.unknown_property)(f"Boot/{name}")
    if _URI in boot:
        uri = _http_boot_uri(boot[_URI])
        if uri and served.config.machine.boots_root:
            raise errors.read_only(f"Boot/{_URI}")
        if not uri or uri != _uri_shown(served):  # as it is shown: it stays
            yield HttpBootUriRequested(uri)
    if _ORDER in boot:
        yield BootOrderRequested(_order(served, boot[_ORDER]))
    if boot.keys() & _OVERRIDE:
        yield OverrideRequested(_override(served, boot))


def _http_boot_uri(given: object) -> str:
    """null takes it away."""
    uri = given if given is not None else ""
    if not isinstance(uri, str):
        raise errors.wrong_type(f"Boot/{_URI}", uri)
    if uri and not uris.is_web(uri):
        raise errors.wrong_format(f"Boot/{_URI}", uri, uris.SHAPE)
    return uri


def _order(served: Served, given: object) -> tuple[BootDevice, ...]:
    """Every boot option once."""
    options = {_reference(each): each for each in served.aggregate.boot_order}
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise errors.wrong_type(f"Boot/{_ORDER}", given)
    for each in given:
        if each not in options:
            raise errors.not_in_list(f"Boot/{_ORDER}", each, tuple(options))
    if sorted(given) != sorted(options):
        expected = f"each of {', '.join(options)} once"
        raise errors.wrong_format(f"Boot/{_ORDER}", given, expected)
    return tuple(options[each] for each in given)


def _override(served: Served, boot: Mapping[str, object]) -> BootOverride:
    """The override after this PATCH; what it leaves out stays as it is."""
    now = served.override
    targets, last = _targets(served), TARGET_NAMES[now.target]
    target_name = _choice(boot, _TARGET, targets, last if last in targets else "None")
    enabled_name = _choice(boot, _ENABLED, ENABLED, _enabled_default(boot, now))
    mode = BootMode(_choice(boot, _MODE, _modes(served), _mode(served)))
    target, enabled = TARGETS[target_name], OverrideEnabled(enabled_name)
    if target is None or enabled is OverrideEnabled.DISABLED:
        return NO_OVERRIDE
    return BootOverride(target, enabled, mode)


def _enabled_default(boot: Mapping[str, object], now: BootOverride) -> str:
    """A target alone means once, where nothing else was said before."""
    if now.enabled is OverrideEnabled.DISABLED and _TARGET in boot:
        return str(OverrideEnabled.ONCE)
    return str(now.enabled)


def _choice(boot: Mapping[str, object], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = boot.get(name, default)
    if not isinstance(value, str):
        raise errors.wrong_type(f"Boot/{name}", value)
    if value not in allowed:
        raise errors.not_in_list(f"Boot/{name}", value, allowed)
    return value
