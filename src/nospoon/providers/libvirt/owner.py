"""The owner tag inside libvirt XML: one element in a namespace of ours, under `<metadata>`.

Domains and networks carry it. Volumes and pools have no metadata in libvirt: a pool is ours when
its UUID is the one that `pool_uuid` derives, which no one has by accident, and which libvirt writes
together with the pool; a volume is ours when it lies in such a pool. Whose a pool is stands in its
source's vendor and product, which mean nothing for a directory and which libvirt keeps; pools that
earlier versions made have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid5
from xml.etree import ElementTree as ET

from nospoon.model.boot import BootDevice
from nospoon.model.names import is_name
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.identity import bridge_name, node_uuid
from nospoon.providers.libvirt.elements import attribute_of, element, text_of

NAMESPACE = "https://nospoon.dev/owner/1"
BOOT, CDROM = "https://nospoon.dev/boot/1", "https://nospoon.dev/cdrom/1"
VARIABLES = "https://nospoon.dev/variables/1"
"""Namespaces of what else is ours in the metadata of a domain: `boots`, `adopted_drives`,
`adopted_variables`.
"""
OWNER = f"{{{NAMESPACE}}}owner"
VENDOR = "nospoon "
SHARED_IMAGES = UUID("8b0bd3f2-5b1f-4c6e-9d2b-1f6f0c8a7e35")
"""Stands for a cluster where a deployment's images lie, which belong to no single one."""
ET.register_namespace("nospoon", NAMESPACE)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a thing is: `name` is its resource's name, `pool` that of a machine's disks.

    `boot_order` says what XML cannot: the place of classes of which the machine has no device.
    `adopted`: someone else made it, and nospoon has tagged it. `kind`: of a machine's node.
    """

    tag: OwnerTag
    name: str
    pool: str = ""
    boot_order: tuple[BootDevice, ...] = ()
    adopted: bool = False
    kind: NodeKind = NodeKind.BAREMETAL


def pool_uuid(deployment: str, cluster: UUID, pool: str) -> UUID:
    """The UUID of a pool that this deployment made for this cluster."""
    return uuid5(cluster, f"{deployment}/{pool}")


def pool_source(tag: OwnerTag) -> ET.Element:
    """The `<source>` of a pool: says whose it is, to who does not know the cluster's id."""
    uid = "-" if tag.uid is None else str(tag.uid)
    words = (str(tag.cluster), str(tag.generation), uid, tag.name)
    return element(
        "source",
        element("vendor", name=f"{VENDOR}{tag.deployment}"),
        element("product", name=" ".join(words)),
    )


def pool_owner(root: ET.Element) -> OwnerTag | None:
    """The owner that a pool's source names, where its UUID proves it; None for all other pools."""
    vendor = attribute_of(root, "source/vendor", "name")
    if not vendor.startswith(VENDOR):
        return None
    deployment = vendor.removeprefix(VENDOR)
    try:
        id_, generation, uid, *name = attribute_of(root, "source/product", "name").split(" ")
        cluster = UUID(id_)
        whose = None if uid == "-" else int(uid)
        tag = OwnerTag(deployment, cluster, int(generation), "", " ".join(name), whose)
    except ValueError:
        return None
    pool = text_of(root, "name")
    is_proven = text_of(root, "uuid") == str(pool_uuid(deployment, cluster, pool))
    return tag if is_proven and tag.is_plausible(pool) else None


def owner_element(owner: Owner, name: str = OWNER) -> ET.Element:
    """`name`: of the element, without a namespace where libvirt itself adds it."""
    return ET.Element(
        name,
        {
            "deployment": owner.tag.deployment,
            "cluster": str(owner.tag.cluster),
            "generation": str(owner.tag.generation),
            "token": owner.tag.token,
            "name": owner.name,
            "pool": owner.pool,
            "boot-order": " ".join(owner.boot_order),
            **({"adopted": "yes"} if owner.adopted else {}),
            **({"kind": owner.kind} if owner.kind is not NodeKind.BAREMETAL else {}),
            **_cluster_attributes(owner.tag),
        },
    )


def _cluster_attributes(tag: OwnerTag) -> dict[str, str]:
    """What says to a human, and to `recover`, whose cluster it is."""
    uid = {} if tag.uid is None else {"uid": str(tag.uid)}
    note = {"note": tag.note} if tag.note else {}
    return {"cluster-name": tag.name, **uid, **note}


def owner_in(root: ET.Element) -> Owner | None:
    """The owner of a domain or network; None when it has no tag, one that is no tag of ours, or one
    that came along with a copy (`_is_copy`).
    """
    element = root.find(f"./metadata/{OWNER}")
    if element is None:
        return None
    try:
        tag = OwnerTag(
            deployment=element.attrib["deployment"],
            cluster=UUID(element.attrib["cluster"]),
            generation=int(element.get("generation", "0")),
            token=element.get("token", ""),
            name=element.get("cluster-name", ""),
            uid=int(element.attrib["uid"]) if "uid" in element.attrib else None,
            note=element.get("note", ""),
        )
        order = tuple(BootDevice(each) for each in element.get("boot-order", "").split())
        adopted = element.get("adopted") == "yes"
        if adopted and not is_name(element.attrib["name"]):
            return None  # its owner wrote that
        kind = NodeKind(element.get("kind", NodeKind.BAREMETAL))
        if not tag.is_plausible(element.attrib["name"]):
            return None
        owner = Owner(tag, element.attrib["name"], element.get("pool", ""), order, adopted, kind)
        return None if _is_copy(root, owner) else owner
    except (KeyError, ValueError):
        return None


def _is_copy(root: ET.Element, owner: Owner) -> bool:
    """Whether another program made it of one of ours, as virt-clone(1) does: it copies tags, but
    libvirt has no two of one name, nor of one UUID. One that was only renamed stays ours. A machine
    that others made has a name of their choice.
    """
    name, uuid = text_of(root, "name"), text_of(root, "uuid")
    if root.tag == "network":
        return name not in (
            attribute_of(root, "bridge", "name"), bridge_name(owner.tag.cluster, owner.name),
        )  # fmt: skip
    if owner.adopted or not name:
        return False
    own = domain_name(owner.pool, owner.name), str(node_uuid(owner.tag.cluster, owner.name))
    return name != own[0] and uuid != own[1]


def domain_name(pool: str, node: str) -> str:
    """Name of the domain: that of the cluster's pool without our prefix, and the node's."""
    return f"{pool.removeprefix('nospoon-')}-{node}"
