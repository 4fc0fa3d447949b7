"""The `$metadata` document (DSP0266 §8.2): which schemas this service uses."""

from __future__ import annotations

from xml.etree import ElementTree as ET

EDMX = "http://docs.oasis-open.org/odata/ns/edmx"
EDM = "http://docs.oasis-open.org/odata/ns/edm"
SCHEMAS = {
    "ServiceRoot": "v1_16_1",
    "ComputerSystemCollection": "",
    "ComputerSystem": "v1_22_1",
    "EthernetInterfaceCollection": "",
    "EthernetInterface": "v1_12_1",
    "ManagerCollection": "",
    "Manager": "v1_19_1",
    "ChassisCollection": "",
    "Chassis": "v1_25_1",
    "SessionService": "v1_1_9",
    "SessionCollection": "",
    "Session": "v1_7_1",
    "Message": "v1_2_1",
}


def document() -> bytes:
    """OData CSDL that includes DMTF's schemas by reference."""
    ET.register_namespace("edmx", EDMX)
    root = ET.Element(f"{{{EDMX}}}Edmx", Version="4.0")
    for name, version in SCHEMAS.items():
        uri = f"http://redfish.dmtf.org/schemas/v1/{name}_v1.xml"
        reference = ET.SubElement(root, f"{{{EDMX}}}Reference", Uri=uri)
        include = f"{{{EDMX}}}Include"
        ET.SubElement(reference, include, Namespace=name)
        if version:
            ET.SubElement(reference, include, Namespace=f"{name}.{version}")
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
