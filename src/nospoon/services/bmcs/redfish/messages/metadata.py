"""The `$metadata` document (DSP0266 §8.2): which schemas this service uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from xml.etree import ElementTree as ET

EDMX = "http://docs.oasis-open.org/odata/ns/edmx"
EDM = "http://docs.oasis-open.org/odata/ns/edm"
VERSIONS: Mapping[str, str] = {
    "AccountService": "v1_18_1",
    "AttributeRegistry": "v1_4_0",
    "Bios": "v1_2_3",
    "BootOption": "v1_0_6",
    "Certificate": "v1_9_0",
    "CertificateLocations": "v1_0_4",
    "CertificateService": "v1_1_0",
    "Chassis": "v1_25_1",
    "ComputerSystem": "v1_22_1",
    "Drive": "v1_22_0",
    "EnvironmentMetrics": "v1_5_0",
    "EthernetInterface": "v1_12_1",
    "Event": "v1_11_0",
    "EventDestination": "v1_16_0",
    "EventService": "v1_12_0",
    "Fan": "v1_6_0",
    "JsonSchemaFile": "v1_1_5",
    "LogEntry": "v1_21_0",
    "LogService": "v1_9_0",
    "Manager": "v1_19_1",
    "ManagerAccount": "v1_14_1",
    "ManagerNetworkProtocol": "v1_12_0",
    "Memory": "v1_23_0",
    "Message": "v1_2_1",
    "MessageRegistryFile": "v1_1_5",
    "Power": "v1_7_3",
    "PowerSubsystem": "v1_1_3",
    "PowerSupply": "v1_6_0",
    "Processor": "v1_22_0",
    "Role": "v1_3_3",
    "SecureBoot": "v1_1_2",
    "SecureBootDatabase": "v1_0_3",
    "Sensor": "v1_12_0",
    "SerialInterface": "v1_3_0",
    "ServiceRoot": "v1_16_1",
    "Session": "v1_7_1",
    "SessionService": "v1_1_9",
    "Settings": "v1_4_0",
    "Signature": "v1_0_3",
    "SoftwareInventory": "v1_13_0",
    "Storage": "v1_21_0",
    "StorageController": "v1_11_0",
    "Task": "v1_7_4",
    "TaskService": "v1_3_0",
    "Thermal": "v1_7_3",
    "ThermalMetrics": "v1_3_2",
    "ThermalSubsystem": "v1_5_0",
    "UpdateService": "v1_17_0",
    "VirtualMedia": "v1_6_5",
    "Volume": "v1_10_2",
}
"""Schemas of DSP8010 2024.4 that have every property used here."""

SINGLE = frozenset(
    {
        "ServiceRoot",
        "SessionService",
        "AttributeRegistry",
        "CertificateLocations",
        "CertificateService",
        "Message",
        "Bios",
        "Settings",
        "SecureBoot",
        "Thermal",
        "Power",
        "ThermalSubsystem",
        "PowerSubsystem",
        "ThermalMetrics",
        "EnvironmentMetrics",
        "ManagerNetworkProtocol",
        "TaskService",
        "AccountService",
        "UpdateService",
        "Event",
        "EventService",
    }
)
"""Of these there is no collection."""


@cache
def odata_type(schema: str, name: str = "") -> str:
    """The `@odata.type` of a resource, or of another type of its schema."""
    return f"#{schema}.{VERSIONS[schema]}.{name or schema}"


def schemas() -> Iterator[tuple[str, str]]:
    """Every schema that is used, and its version; collections have none."""
    for name, version in VERSIONS.items():
        yield name, version
        if name not in SINGLE:
            yield f"{name}Collection", ""


def _extensions(root: ET.Element) -> None:
    """What annotations such as `@Redfish.AllowableValues` mean (DSP0266 §8.2.1)."""
    uri = "http://redfish.dmtf.org/schemas/v1/RedfishExtensions_v1.xml"
    reference = ET.SubElement(root, f"{{{EDMX}}}Reference", Uri=uri)
    namespace = "RedfishExtensions.v1_0_0"
    ET.SubElement(reference, f"{{{EDMX}}}Include", Namespace=namespace, Alias="Redfish")


@cache
def document() -> bytes:
    """OData CSDL that includes DMTF's schemas by reference. It is always the same."""
    ET.register_namespace("edmx", EDMX)
    root = ET.Element(f"{{{EDMX}}}Edmx", Version="4.0")
    for name, version in schemas():
        uri = f"http://redfish.dmtf.org/schemas/v1/{name}_v1.xml"
        reference = ET.SubElement(root, f"{{{EDMX}}}Reference", Uri=uri)
        include = f"{{{EDMX}}}Include"
        ET.SubElement(reference, include, Namespace=name)
        if version:
            ET.SubElement(reference, include, Namespace=f"{name}.{version}")
    _extensions(root)
    services = ET.SubElement(root, f"{{{EDMX}}}DataServices")
    schema = ET.SubElement(services, f"{{{EDM}}}Schema", Namespace="Service")
    ET.SubElement(
        schema,
        f"{{{EDM}}}EntityContainer",
        Name="Service",
        Extends="ServiceRoot.v1_16_1.ServiceContainer",
    )
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text
