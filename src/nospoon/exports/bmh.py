"""Metal3's BareMetalHost objects, and the Secrets with their BMCs' credentials.

https://github.com/metal3-io/baremetal-operator/blob/main/docs/api.md (metal3.io/v1alpha1)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nospoon.exports.inventory import Inventory, LeftOut, Made, Place, Registered, unsaid
from nospoon.model.cluster import Firmware
from nospoon.model.resources.bmcs import Bmc
from nospoon.plan.enrollment.root_device import known_disks, root_disk

BOOT_MODES = {
    Firmware.BIOS: "legacy",
    Firmware.UEFI: "UEFI",
    Firmware.UEFI_SECURE: "UEFISecureBoot",
}
HINTS: Mapping[str, tuple[str, type]] = {
    "name": ("deviceName", str),
    "by_path": ("deviceName", str),
    "hctl": ("hctl", str),
    "model": ("model", str),
    "vendor": ("vendor", str),
    "serial": ("serialNumber", str),
    "wwn": ("wwn", str),
    "wwn_with_extension": ("wwnWithExtension", str),
    "wwn_vendor_extension": ("wwnVendorExtension", str),
    "rotational": ("rotational", bool),
}
"""Ironic's hints for the root device -> Metal3's, and what those are."""
_OPERATOR = re.compile(r"(<in>|<all-in>|<or>|s?(==|!=|>=|<=|>|<)|=) ")
"""With what Ironic's hints may begin, and Metal3's may not (oslo.utils, specs_matcher)."""
PART_OF = frozenset({"model", "vendor"})
"""Metal3 makes Ironic's hint `<in> …` of these, and `s== …` of all other text (MakeHintMap in
api/metal3.io/v1alpha1 of its baremetal-operator).
"""
BY_PATH = "/dev/disk/by-path/"
"""Of a deviceName there it makes Ironic's hint by_path, in place of name."""
AT_LEAST = re.compile(r"(?:>=|=) (\d+)")
"""A size in GiB that Metal3 can say: minSizeGigabytes becomes Ironic's hint `>= N`."""
REDFISH: Mapping[str, str] = {
    "redfish-virtual-media": "redfish-virtualmedia",
    "redfish-https": "redfish-uefihttp",
}
"""Ironic's boot interface -> the scheme of a BMC's address that means it (pkg/hardwareutils/bmc of
its baremetal-operator); `redfish` means iPXE.
"""
BY_BOOT_MODE = frozenset({"", "boot_mode", "secure_boot"})
_LOGIN = ("address", "port", "username", "password", "system_id", "verify_ca")
SAID = frozenset(
    {
        "description", "automated_clean", "ports.address",
        *(f"driver_info.{driver}_{each}" for driver in ("ipmi", "redfish") for each in _LOGIN),
        *(f"properties.{each}" for each in ("cpu_arch", "root_device", "capabilities")),
        # what its own inspection finds
        *(f"properties.{each}" for each in ("cpus", "memory_mb", "local_gb")),
    }
)  # fmt: skip
"""What a BareMetalHost says, or this module itself says that it does not."""


def make(inventory: Inventory) -> Made:
    """A Secret and a BareMetalHost for each node whose BMC speaks IPMI or Redfish."""
    told: list[dict[str, object]] = []
    left_out: list[LeftOut] = []
    for place in inventory.places:
        found = inventory.registered(place)
        address = _address(place.bmc, found, by_ipmi=place.node.enrolment.driver == "ipmi")
        if address:
            told += [_secret(place), _host(inventory, place, found, address)]
            left_out += _unsaid(place, found, boot=address.startswith(tuple(REDFISH.values())))
        else:
            why = ": the BMC speaks neither IPMI nor Redfish"
            left_out.append(LeftOut("", place.name, why))
    return Made(told, tuple(left_out))


def _address(bmc: Bmc, found: Registered, *, by_ipmi: bool) -> str:
    """Redfish, which alone inserts media and sets secure boot, unless the file says IPMI."""
    if bmc.redfish and not by_ipmi:
        how = REDFISH.get(found.interfaces.get("boot_interface", ""), "redfish")
        scheme = how if bmc.tls else f"{how}+http"
        return f"{scheme}://{bmc.redfish}/redfish/v1/Systems/{bmc.uuid}"
    return f"ipmi://{bmc.ipmi}" if bmc.ipmi else ""


def _metadata(inventory: Inventory, place: Place) -> dict[str, object]:
    labels = {"nospoon/cluster": inventory.cluster.name, "nospoon/flavor": place.node.flavor}
    return {"name": place.name, "labels": labels}


def _secret_name(place: Place) -> str:
    return f"{place.name}-bmc"


def _secret(place: Place) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": _secret_name(place)},
        "type": "Opaque",
        "stringData": {"username": place.bmc.username, "password": place.secrets.password},
    }


def _host(inventory: Inventory, place: Place, found: Registered, address: str) -> dict[str, object]:
    spec = {
        "online": False,
        "architecture": str(place.machine.arch),
        "bmc": {
            "address": address,
            "credentialsName": _secret_name(place),
            # its certificate is its own
            **({"disableCertificateVerification": True} if place.bmc.tls else {}),
        },
        "bootMode": BOOT_MODES[place.node.firmware],
        "rootDeviceHints": dict(_hints(place, found)),
        "description": place.node.enrolment.description,
        "bootMACAddress": found.boot_mac,
    }
    if place.node.enrolment.automated_clean is False:
        spec["automatedCleaningMode"] = "disabled"
    return {
        "apiVersion": "metal3.io/v1alpha1",
        "kind": "BareMetalHost",
        "metadata": _metadata(inventory, place),
        "spec": {name: value for name, value in spec.items() if value not in ("", {})},
    }


def _hints(place: Place, found: Registered) -> Iterator[tuple[str, object]]:
    """Those of the file; the serial number of the disk that they mean where one of them cannot be
    said, and of the first disk where there are none, for the default is /dev/sda.
    """
    given = found.properties.get("root_device") or {}
    said = _said(given)
    yield from (each for each in said.values() if each is not None)
    if None in said.values() or not given:
        disks = known_disks(place.machine, place.bmc.disk_sizes)
        chosen = root_disk(given, disks) if given else next(iter(disks), None)
        if chosen is not None and "serial" not in given:
            yield "serialNumber", chosen.serial


def _said(given: Mapping[str, object]) -> dict[str, tuple[str, object] | None]:
    """Ironic's hints -> those of Metal3; None for what it cannot say."""
    said = {name: _hint(name, value) for name, value in given.items()}
    if said.get("name") and said.get("by_path"):  # both would be its deviceName
        said["by_path"] = None
    return said


def _hint(name: str, value: object) -> tuple[str, object] | None:
    if name == "size":
        least = AT_LEAST.fullmatch(str(value))
        return ("minSizeGigabytes", int(least[1])) if least is not None else None
    if name not in HINTS:
        return None
    label, kind = HINTS[name]
    if kind is str and isinstance(value, str):
        part = name in PART_OF and value.startswith("<in> ")
        value = value.removeprefix("<in> " if part else "s== ")
    known = type(value) is kind and not _OPERATOR.match(str(value))
    if name in ("name", "by_path"):
        known &= str(value).startswith(BY_PATH) is (name == "by_path")
    return (label, value) if known else None


def _unsaid(place: Place, found: Registered, *, boot: bool) -> Iterator[LeftOut]:
    """`boot`: its address says how it boots."""
    hints = found.properties.get("root_device") or {}
    for name, said in _said(hints).items():
        hint, value = f"root device hint {name}", hints[name]
        if said is None:
            yield LeftOut(hint, place.name, f": Metal3 has none like {value!r}")
        elif name in PART_OF and not value.startswith("<in> "):
            yield LeftOut(hint, place.name, f": Metal3 takes it for a part of the {name}")
    if not found.boot_mac:
        yield LeftOut("bootMACAddress", place.name, ": no port to boot from")
    elif len(found.ports) > 1:
        yield LeftOut("ports", place.name, " but that of bootMACAddress")
    capabilities = str(found.properties.get("capabilities", ""))
    more = [each for each in capabilities.split(",") if each.partition(":")[0] not in BY_BOOT_MODE]
    if any(more):
        yield LeftOut("properties.capabilities", place.name, f": {','.join(more)}")
    yield from unsaid(place, found, SAID | {"boot_interface"} if boot else SAID)
