"""The table of what is below systems, managers and chassis: paths, and what each shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from nospoon.services.bmcs.redfish.http.routes import Handler, Resource, listing, member, read
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources import environment, hardware, logs, managers, media
from nospoon.services.bmcs.redfish.resources.boot import boot_option, boot_order

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served

Ids = Callable[["Served"], Iterable[str] | None]
Make = Callable[["Served", str], dict[str, object] | None]
Show = Callable[["Served"], dict[str, object] | None]

_SYSTEM, _MANAGER, _CHASSIS = "Systems/{id}", "Managers/{id}", "Chassis/{id}"
_STORAGE = f"{_SYSTEM}/Storage/{{storage}}"

_COLLECTIONS: tuple[tuple[str, str, Ids, Make], ...] = (
    ("Processor", f"{_SYSTEM}/Processors", hardware.processors, hardware.processor),
    ("Memory", f"{_SYSTEM}/Memory", hardware.memories, hardware.memory),
    ("Storage", f"{_SYSTEM}/Storage", hardware.storages, hardware.storage),
    ("StorageController", f"{_STORAGE}/Controllers", hardware.controllers, hardware.controller),
    ("Drive", f"{_CHASSIS}/Drives", hardware.drives, hardware.drive),
    ("BootOption", f"{_SYSTEM}/BootOptions", boot_order, boot_option),
    ("VirtualMedia", f"{_SYSTEM}/VirtualMedia", media.drives, partial(media.drive, "Systems")),
    ("VirtualMedia", f"{_MANAGER}/VirtualMedia", media.drives, partial(media.drive, "Managers")),
    ("Sensor", f"{_CHASSIS}/Sensors", environment.sensors, environment.sensor),
    ("Fan", f"{_CHASSIS}/ThermalSubsystem/Fans", environment.fans, environment.fan),
    (
        "PowerSupply",
        f"{_CHASSIS}/PowerSubsystem/PowerSupplies",
        environment.power_supplies,
        environment.power_supply,
    ),
    (
        "EthernetInterface",
        f"{_MANAGER}/EthernetInterfaces",
        managers.ethernet_interfaces,
        managers.ethernet_interface,
    ),
    (
        "SerialInterface",
        f"{_MANAGER}/SerialInterfaces",
        managers.serial_interfaces,
        managers.serial_interface,
    ),
    ("LogService", f"{_SYSTEM}/LogServices", logs.services, partial(logs.service, "Systems")),
    ("LogService", f"{_MANAGER}/LogServices", logs.services, partial(logs.service, "Managers")),
)
"""Kind, path, what is in it, and how a member looks."""

CHANGES: Mapping[str, Handler] = {
    f"{owner}/{{id}}/VirtualMedia": partial(media.patch, owner) for owner in ("Systems", "Managers")
}
"""Collections whose members can be changed."""

_SINGLE: tuple[tuple[str, Show], ...] = (
    (f"{_MANAGER}/NetworkProtocol", managers.network_protocol),
    (f"{_CHASSIS}/Power", environment.power),
    (f"{_CHASSIS}/Thermal", environment.thermal),
    (f"{_CHASSIS}/PowerSubsystem", environment.power_subsystem),
    (f"{_CHASSIS}/ThermalSubsystem", environment.thermal_subsystem),
    (f"{_CHASSIS}/ThermalSubsystem/ThermalMetrics", environment.thermal_metrics),
    (f"{_CHASSIS}/EnvironmentMetrics", environment.metrics),
    *(
        (f"{owner}/{{id}}/LogServices/{logs.SERVICE}/Entries", partial(logs.entries, owner))
        for owner in ("Systems", "Managers")
    ),
)


def _parts() -> Iterator[Resource]:
    """What is below systems, managers and chassis."""
    for kind, path, ids, make in _COLLECTIONS:
        yield Resource(f"{ROOT}/{path}", {"GET": listing(kind, path, ids)})
        change = {"PATCH": CHANGES[path]} if path in CHANGES else {}
        yield Resource(f"{ROOT}/{path}/{{member}}", {"GET": member(make), **change})
    for path, show in _SINGLE:
        yield Resource(f"{ROOT}/{path}", {"GET": read(show)})
    for owner in ("Systems", "Managers"):
        drive = f"{ROOT}/{owner}/{{id}}/VirtualMedia/{media.DRIVE}"
        yield Resource(f"{drive}/Actions/VirtualMedia.InsertMedia", {"POST": media.insert})
        yield Resource(f"{drive}/Actions/VirtualMedia.EjectMedia", {"POST": media.eject})
    for owner in ("Systems", "Managers"):
        log = f"{ROOT}/{owner}/{{id}}/LogServices/{logs.SERVICE}"
        yield Resource(f"{log}/Entries/{{member}}", {"GET": member(partial(logs.entry, owner))})
        clear = partial(logs.clear, owner)
        yield Resource(f"{log}/Actions/LogService.ClearLog", {"POST": clear})


PARTS = tuple(_parts())
