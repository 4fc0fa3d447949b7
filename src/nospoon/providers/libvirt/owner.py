"""The owner tag inside libvirt XML: one element in a namespace of ours, under `<metadata>`.

Domains and networks carry it. Volumes and pools have no metadata in libvirt: a pool is ours when
its UUID is the one that `pool_uuid` derives, which nobody has by accident, and which libvirt writes
together with the pool; a volume is ours when it lies in such a pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid5
from xml.etree import ElementTree as ET

from nospoon.model.boot import BootDevice
from nospoon.model.resources import OwnerTag

NAMESPACE = "https://nospoon.dev/owner/1"
OWNER = f"{{{NAMESPACE}}}owner"
ET.register_namespace("nospoon", NAMESPACE)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a thing is: `name` is its resource's name, `pool` that of a machine's disks.

    `boot_order` says what XML cannot: the place of classes of which the machine has no device.
    """

    tag: OwnerTag
    name: str
    pool: str = ""
    boot_order: tuple[BootDevice, ...] = ()


def pool_uuid(deployment: str, cluster: UUID, pool: str) -> UUID:
    """The UUID of a pool that this deployment made for this cluster."""
    return uuid5(cluster, f"{deployment}/{pool}")


def owner_element(owner: Owner) -> ET.Element:
    return ET.Element(
        OWNER,
        {
            "deployment": owner.tag.deployment,
            "cluster": str(owner.tag.cluster),
            "generation": str(owner.tag.generation),
            "token": owner.tag.token,
            "name": owner.name,
            "pool": owner.pool,
            "boot-order": " ".join(owner.boot_order),
        },
    )


def owner_in(root: ET.Element) -> Owner | None:
    """The owner of a domain or network; None when it has no tag, or one that is no tag of ours."""
    element = root.find(f"./metadata/{OWNER}")
    if element is None:
        return None
    try:
        tag = OwnerTag(
            deployment=element.attrib["deployment"],
            cluster=UUID(element.attrib["cluster"]),
            generation=int(element.get("generation", "0")),
            token=element.get("token", ""),
        )
        order = tuple(BootDevice(each) for each in element.get("boot-order", "").split())
        return Owner(tag, element.attrib["name"], element.get("pool", ""), order)
    except (KeyError, ValueError):
        return None
