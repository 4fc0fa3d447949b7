"""What each resource shows: pure functions from one served BMC to JSON of DMTF's schemas.

Schema versions are those of DSP8010 2024.4 that have every property used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID, uuid5

from nospoon import __version__
from nospoon.bmc import octets
from nospoon.bmc.log import Severity
from nospoon.bmc.messages import Defaults
from nospoon.bmc.software import Component, told
from nospoon.model.boot import BootDevice, BootMode, OverrideEnabled
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.machine import PowerCommand, PowerPolicy, PowerState
from nospoon.runtime.http import without_account
from nospoon.services.bmcs.accounts import SESSION_TIMEOUT, RedfishSession
from nospoon.services.bmcs.redfish.http.answers import CLOCK
from nospoon.services.bmcs.redfish.http.query import MAX_LEVELS
from nospoon.services.bmcs.redfish.messages.bodies import ref, resource
from nospoon.services.bmcs.redfish.messages.jobs import when
from nospoon.services.bmcs.redfish.messages.metadata import odata_type
from nospoon.services.bmcs.redfish.messages.uris import ROOT
from nospoon.services.bmcs.redfish.resources import environment

if TYPE_CHECKING:
    from nospoon.services.bmcs.served import Served

GIB = 1 << 30

RESET_TYPES: Mapping[str, PowerCommand] = {
    "On": PowerCommand.ON,
    "ForceOn": PowerCommand.ON,
    "ForceOff": PowerCommand.OFF,
    "GracefulShutdown": PowerCommand.SOFT,
    "GracefulRestart": PowerCommand.SOFT,
    "ForceRestart": PowerCommand.RESET,
    "PowerCycle": PowerCommand.CYCLE,
    "Nmi": PowerCommand.DIAG,
    "PushPowerButton": PowerCommand.SOFT,
}
TURN_ON = frozenset({"PushPowerButton", "GracefulRestart", "ForceRestart", "PowerCycle"})
"""These turn on a machine that is off (ADR 11)."""
RESTARTS = frozenset({"GracefulRestart"})
"""On again once the guest has shut down."""

MANAGER_RESETS = ("GracefulRestart", "ForceRestart")
"""There is no difference: nothing of a BMC takes its time to end."""
MANAGER_DEFAULTS: Mapping[str, Defaults] = {
    "ResetAll": Defaults.ALL,
    "PreserveNetwork": Defaults.ALL,
    "PreserveNetworkAndUsers": Defaults.BUT_USERS,
}
"""Of the network nothing is a client's to set, so that it is preserved anyway."""

POLICIES: Mapping[PowerPolicy, str] = {
    PowerPolicy.ALWAYS_ON: "AlwaysOn",
    PowerPolicy.ALWAYS_OFF: "AlwaysOff",
    PowerPolicy.PREVIOUS: "LastState",
}
"""PowerRestorePolicy: that of IPMI (§28.8)."""

TARGETS: Mapping[str, BootDevice | None] = {
    "None": None,
    "Pxe": BootDevice.NETWORK,
    "UefiHttp": BootDevice.HTTP,
    "Hdd": BootDevice.DISK,
    "Cd": BootDevice.CDROM,
    "BiosSetup": BootDevice.SETUP,
}
TARGET_NAMES = {device: name for name, device in TARGETS.items()}
ENABLED = tuple(str(each) for each in OverrideEnabled)
POWER_STATES: Mapping[PowerState, str | None] = {
    PowerState.ON: "On",
    PowerState.FAILED: "On",
    PowerState.OFF: "Off",
    PowerState.ABSENT: "Off",
    PowerState.UNKNOWN: None,
}
"""Of a machine whose host does not answer nothing is known: null, not "Off"."""
STATES: Mapping[PowerState, str] = {
    PowerState.ON: "Enabled",
    PowerState.FAILED: "Enabled",
    PowerState.OFF: "Disabled",
    PowerState.ABSENT: "Absent",
    PowerState.UNKNOWN: "UnavailableOffline",
}
INDICATORS = ("Lit", "Off")


def service_uuid(install: UUID) -> str:
    return str(uuid5(install, "redfish"))


def service_root(install: UUID) -> dict[str, object]:
    """DSP0268, ServiceRoot: what anybody may read."""
    return {
        "@odata.type": odata_type("ServiceRoot"),
        "@odata.id": f"{ROOT}/",
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": "1.18.0",
        "UUID": service_uuid(install),
        "Product": f"nospoon {__version__}",
        "Vendor": "nospoon",
        "Systems": ref("Systems"),
        "Chassis": ref("Chassis"),
        "Managers": ref("Managers"),
        "SessionService": ref("SessionService"),
        "Tasks": ref("TaskService"),
        "AccountService": ref("AccountService"),
        "UpdateService": ref("UpdateService"),
        "ProtocolFeaturesSupported": {
            "ExpandQuery": {
                "ExpandAll": True,
                "Levels": True,
                "Links": True,
                "NoLinks": True,
                "MaxLevels": MAX_LEVELS,
            },
            "SelectQuery": True,
            "FilterQuery": True,
            "OnlyMemberQuery": True,
            "ExcerptQuery": False,
        },
        "Links": {"Sessions": ref("SessionService/Sessions")},
    }


def software_version(served: Served, component: Component) -> str:
    state = served.aggregate.state
    return told(state.runtime.software, component, state.inventory)


def mode_of(served: Served) -> str:
    """The firmware's mode, which no override changes here."""
    return modes(served)[0]


def modes(served: Served) -> tuple[str, ...]:
    """Modes that this firmware can do."""
    if served.config.machine.firmware is Firmware.BIOS:
        return (str(BootMode.LEGACY),)
    return (str(BootMode.UEFI),)


def system(served: Served) -> dict[str, object]:
    """ComputerSystem."""
    machine, uuid = served.config.machine, str(served.bmc.uuid)
    path = f"Systems/{uuid}"
    return {
        "@odata.type": odata_type("ComputerSystem"),
        "@odata.id": f"{ROOT}/{path}",
        "Id": uuid,
        "Name": served.config.node,
        "HostName": served.config.node,
        "SystemType": "Virtual",
        "Manufacturer": "nospoon",
        "Model": f"{machine.arch} {machine.firmware}",
        "SerialNumber": machine.serial_number,
        "UUID": str(served.smbios or uuid),
        "AssetTag": _asset_tag(served),
        "PowerState": POWER_STATES[served.aggregate.power],
        "PowerRestorePolicy": POLICIES[served.aggregate.runtime.settings.policy],
        **_light(served),
        "Status": _status(served),
        "Boot": _boot(served, path),
        "ProcessorSummary": {
            "Count": machine.cpus,
            "CoreCount": machine.cpus,
            "LogicalProcessorCount": machine.cpus,
            "Model": "QEMU x86_64" if machine.arch is Arch.X86_64 else "QEMU aarch64",
        },
        "MemorySummary": {"TotalSystemMemoryGiB": machine.memory / GIB},
        "EthernetInterfaces": ref(f"{path}/EthernetInterfaces"),
        "Processors": ref(f"{path}/Processors"),
        "Memory": ref(f"{path}/Memory"),
        "Storage": ref(f"{path}/Storage"),
        "LogServices": ref(f"{path}/LogServices"),
        "VirtualMedia": ref(f"{path}/VirtualMedia"),
        "BiosVersion": software_version(served, Component.BIOS),
        "Bios": ref(f"{path}/Bios"),
        **({"SecureBoot": ref(f"{path}/SecureBoot")} if has_secure_boot(served) else {}),
        "Links": {"Chassis": [ref(f"Chassis/{uuid}")], "ManagedBy": [ref(f"Managers/{uuid}")]},
        "Actions": {
            "#ComputerSystem.Reset": {
                "target": f"{ROOT}/{path}/Actions/ComputerSystem.Reset",
                "ResetType@Redfish.AllowableValues": list(RESET_TYPES),
            }
        },
    }


def _light(served: Served) -> dict[str, object]:
    """The same light by its two names: the first is deprecated, and what older clients know."""
    return {
        "IndicatorLED": "Lit" if served.aggregate.identify else "Off",
        "IndicatorLED@Redfish.AllowableValues": list(INDICATORS),
        "LocationIndicatorActive": served.aggregate.identify,
    }


def _asset_tag(served: Served) -> str | None:
    return octets.shown(served.aggregate.runtime.settings.asset_tag) or None


def _status(served: Served) -> dict[str, object]:
    fault = served.power_fault
    health = "Critical" if fault else "OK"
    status: dict[str, object] = {
        "State": STATES[served.aggregate.power],
        "Health": health,
        "HealthRollup": health,
    }
    if fault:
        status["Conditions"] = [_condition(fault)]
    return status


def _condition(fault: str) -> dict[str, object]:
    return {
        "MessageId": "Base.1.18.GeneralError",
        "Message": fault,
        "Severity": "Critical",
    }


def has_secure_boot(served: Served) -> bool:
    """Whether its BMC manages secure boot."""
    return served.config.machine.firmware is not Firmware.BIOS


def _boot(served: Served, path: str) -> dict[str, object]:
    override = served.override
    active = override.active
    return {
        "BootSourceOverrideEnabled": str(override.enabled) if active else "Disabled",
        "BootSourceOverrideEnabled@Redfish.AllowableValues": list(ENABLED),
        "BootSourceOverrideTarget": TARGET_NAMES[override.target if active else None],
        "BootSourceOverrideTarget@Redfish.AllowableValues": list(TARGETS),
        "BootSourceOverrideMode": mode_of(served),
        "BootSourceOverrideMode@Redfish.AllowableValues": list(modes(served)),
        "HttpBootUri": http_boot_uri(served) or None,
        "BootOrder": boot_order(served),
        "BootOptions": ref(f"{path}/BootOptions"),
    }


def http_boot_uri(served: Served) -> str:
    """As all users of the BMC may see it."""
    return without_account(served.aggregate.runtime.http_boot_uri)


def boot_order(served: Served) -> list[str]:
    """References of boot options, in the persistent order."""
    return [boot_reference(device) for device in served.aggregate.boot_order]


def boot_reference(device: BootDevice) -> str:
    """The firmware's name of a boot option (UEFI 2.10 §3.1.1)."""
    return _REFERENCES[device]


_REFERENCES = {device: f"Boot{number:04X}" for number, device in enumerate(BootDevice)}


def boot_option(served: Served, member: str) -> dict[str, object] | None:
    """BootOption: a class of devices, as the persistent order has them."""
    found = (d for d in served.config.machine.boot_order if boot_reference(d) == member)
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


def interface(served: Served, index: int) -> dict[str, object]:
    """EthernetInterface: a NIC of the system, by its place."""
    nic = served.config.machine.nics[index]
    return {
        "@odata.type": odata_type("EthernetInterface"),
        "@odata.id": f"{ROOT}/Systems/{served.bmc.uuid}/EthernetInterfaces/{index}",
        "Id": str(index),
        "Name": f"NIC {index}",
        "Description": f"{nic.model} on {nic.network or 'a user-mode network'}",
        "MACAddress": nic.mac,
        "PermanentMACAddress": nic.mac,
        "InterfaceEnabled": True,
        "LinkStatus": "LinkUp" if served.aggregate.is_on else "NoLink",
        "Status": {"State": "Enabled", "Health": "OK"},
    }


def manager(served: Served, install: UUID) -> dict[str, object]:
    """Manager: the BMC itself. `install`: of the service through which it is seen."""
    uuid = served.bmc.uuid
    return {
        "@odata.type": odata_type("Manager"),
        "@odata.id": f"{ROOT}/Managers/{uuid}",
        "Id": str(uuid),
        "Name": f"BMC of {served.config.node}",
        "ManagerType": "BMC",
        "Model": "nospoon",
        "UUID": str(uuid5(uuid, "manager")),
        "ServiceEntryPointUUID": service_uuid(install),
        "FirmwareVersion": software_version(served, Component.BMC),
        CLOCK: when(served.aggregate.state.clock(served.now())),
        "DateTimeLocalOffset": "+00:00",
        "PowerState": "On",
        "Status": {"State": "Enabled", "Health": "OK"},
        "NetworkProtocol": ref(f"Managers/{uuid}/NetworkProtocol"),
        "EthernetInterfaces": ref(f"Managers/{uuid}/EthernetInterfaces"),
        "SerialInterfaces": ref(f"Managers/{uuid}/SerialInterfaces"),
        "LogServices": ref(f"Managers/{uuid}/LogServices"),
        "VirtualMedia": ref(f"Managers/{uuid}/VirtualMedia"),
        "Links": {
            "ManagerForServers": [ref(f"Systems/{uuid}")],
            "ManagerForChassis": [ref(f"Chassis/{uuid}")],
        },
        "Actions": {
            "#Manager.Reset": {
                "target": f"{ROOT}/Managers/{uuid}/Actions/Manager.Reset",
                "ResetType@Redfish.AllowableValues": list(MANAGER_RESETS),
            },
            "#Manager.ResetToDefaults": {
                "target": f"{ROOT}/Managers/{uuid}/Actions/Manager.ResetToDefaults",
                "ResetType@Redfish.AllowableValues": list(MANAGER_DEFAULTS),
            },
        },
    }


def chassis(served: Served) -> dict[str, object]:
    """Chassis: the case that is not there."""
    uuid = served.bmc.uuid
    return {
        "@odata.type": odata_type("Chassis"),
        "@odata.id": f"{ROOT}/Chassis/{uuid}",
        "Id": str(uuid),
        "Name": f"Chassis of {served.config.node}",
        "ChassisType": "StandAlone",
        "Manufacturer": "nospoon",
        "SerialNumber": served.config.machine.serial_number,
        "AssetTag": _asset_tag(served),
        "PowerState": POWER_STATES[served.aggregate.power],
        **_light(served),
        "Status": _chassis_status(served),
        "Power": ref(f"Chassis/{uuid}/Power"),
        "Thermal": ref(f"Chassis/{uuid}/Thermal"),
        "PowerSubsystem": ref(f"Chassis/{uuid}/PowerSubsystem"),
        "ThermalSubsystem": ref(f"Chassis/{uuid}/ThermalSubsystem"),
        "EnvironmentMetrics": ref(f"Chassis/{uuid}/EnvironmentMetrics"),
        "Sensors": ref(f"Chassis/{uuid}/Sensors"),
        "Drives": ref(f"Chassis/{uuid}/Drives"),
        "Links": {
            "ComputerSystems": [ref(f"Systems/{uuid}")],
            "ManagedBy": [ref(f"Managers/{uuid}")],
        },
    }


def _chassis_status(served: Served) -> dict[str, str]:
    """A power fault is its own; sensors are what depends on it."""
    own = Severity.CRITICAL if served.power_fault else Severity.OK
    worst = own if own is Severity.CRITICAL else environment.rollup(served)
    return {"State": "Enabled", "Health": str(own), "HealthRollup": str(worst)}


def session_service() -> dict[str, object]:
    """SessionService."""
    return {
        "@odata.type": odata_type("SessionService"),
        "@odata.id": f"{ROOT}/SessionService",
        "Id": "SessionService",
        "Name": "Session Service",
        "ServiceEnabled": True,
        "SessionTimeout": int(SESSION_TIMEOUT),
        "Status": {"State": "Enabled", "Health": "OK"},
        "Sessions": ref("SessionService/Sessions"),
    }


def session(each: RedfishSession) -> dict[str, object]:
    """Session; the token is told once, in a header."""
    return {
        "@odata.type": odata_type("Session"),
        "@odata.id": f"{ROOT}/SessionService/Sessions/{each.id}",
        "Id": each.id,
        "Name": f"Session of {each.username}",
        "UserName": each.username,
    }


def odata() -> dict[str, object]:
    """The OData service document (DSP0266 §8.3)."""
    names = ("Systems", "Chassis", "Managers", "SessionService", "Sessions")
    places = {name: f"{ROOT}/{name}" for name in names}
    places["Sessions"] = f"{ROOT}/SessionService/Sessions"
    value = [{"name": "Service", "kind": "Singleton", "url": f"{ROOT}/"}]
    value += [{"name": name, "kind": "Singleton", "url": url} for name, url in places.items()]
    return {"@odata.context": f"{ROOT}/$metadata", "value": value}
