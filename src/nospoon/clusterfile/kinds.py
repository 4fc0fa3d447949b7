"""What may be said of a node of each kind, and what not: for the loader and for the schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from pydantic import BaseModel

from nospoon.clusterfile.document import Path
from nospoon.clusterfile.expand import Complaint, Expansion, flavor_of
from nospoon.clusterfile.hardware import DiskSection, HardwareSection
from nospoon.clusterfile.labs import LabSection
from nospoon.clusterfile.sections import Sections
from nospoon.model.cloud_images import IN_CLOUD, cloud_name
from nospoon.model.cluster import Firmware, Node
from nospoon.model.images import KEPT, kept_in
from nospoon.model.lab import Disks
from nospoon.model.node_kind import NodeKind

Reasons = Mapping[str, str]
_DEPLOYED = "what runs on bare metal is for its deployer"
_NO_NETBOOT = "it boots its image, and nothing else"
_NO_IRONIC = "Ironic deploys bare metal alone"
_NO_FIRMWARE = "it runs on the kernel of its host, without firmware"
_NO_DISK = "its root is a directory of its host, not a disk"
_NO_MOUNT = "its guest mounts its disks"
KERNELS = ("/proc", "/sys", "/dev", "/run", "/var/run")
"""What the kernel and the init of a container fill. The last one is a link to `/run`."""
SMALLEST = 1 << 20
"""Bytes of a file system: mkfs.ext4 makes none of less than a tenth of that."""
SEED = PurePosixPath("/var/lib/cloud")
"""What nospoon writes there is of a root: a volume that is kept has what was written first."""
REFUSED: Mapping[NodeKind, Reasons] = {
    NodeKind.BAREMETAL: dict.fromkeys(("image", "user_data", "ssh_keys", "rollback"), _DEPLOYED),
    NodeKind.VM: {
        **dict.fromkeys(("boot", "boot_order"), _NO_NETBOOT),
        **dict.fromkeys(("ironic", "portgroups"), _NO_IRONIC),
    },
    NodeKind.CONTAINER: {
        **dict.fromkeys(("boot", "boot_order"), _NO_NETBOOT),
        **dict.fromkeys(("ironic", "portgroups"), _NO_IRONIC),
        **dict.fromkeys(("arch", "firmware", "tpm"), _NO_FIRMWARE),
    },
}
"""Keys that nodes of a kind do not have, and why."""
OF_NICS: Mapping[NodeKind, Reasons] = {
    NodeKind.BAREMETAL: {"address": _DEPLOYED},
    NodeKind.VM: dict.fromkeys(("pxe", "portgroup"), _NO_IRONIC),
    NodeKind.CONTAINER: {
        **dict.fromkeys(("pxe", "portgroup"), _NO_IRONIC),
        "model": "its NICs are one end of a pair of the host's kernel",
    },
}
OF_DISKS: Mapping[NodeKind, Reasons] = {
    NodeKind.BAREMETAL: {"mount": _NO_MOUNT},
    NodeKind.VM: {"mount": _NO_MOUNT},
    NodeKind.CONTAINER: dict.fromkeys(
        ("bus", "cache", "discard", "format", "rotational", "serial", "volume"), _NO_DISK
    ),
}
HINTS = {
    "image": "Write `disks: [{image: …}]`, or `kind: vm`",
    "mount": "Write `fs_setup` and `mounts` of cloud-init in its `user_data`, or `kind: container`",
}
"""What to write instead of a key."""


def kinds(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    """Keys that do not suit the kind of the nodes, and roots that are missing; each once."""
    found: dict[Complaint, None] = {}
    for name, flavor in sections.flavors.items():
        if flavor.kind is not None:
            found |= dict.fromkeys(_unsuitable(("flavors", name), flavor, flavor.kind))
    for index, group in sections.groups.items():
        flavor_name, kind = flavor_of(sections, group)
        layers: list[tuple[Path, HardwareSection]] = [(("nodes", index), group)]
        layers += [
            (("nodes", index, "overrides", name), each) for name, each in group.overrides.items()
        ]
        if flavor_name in sections.flavors:
            layers.append((("flavors", flavor_name), sections.flavors[flavor_name]))
        for path, layer in layers:
            found |= dict.fromkeys(_unsuitable(path, layer, kind))
    yield from found
    yield from _without_root(expansion)
    yield from _roots_of_others(expansion)
    for name, lab in sections.labs.items():
        for number, flavor_name in enumerate(lab.flavors):
            known = sections.flavors.get(flavor_name)
            if known is not None and known.kind not in (None, NodeKind.BAREMETAL):
                message = f"machines of labs are bare metal, and flavor {flavor_name!r} is none"
                yield Complaint(("labs", name, "flavors", number), message, "Name another flavor")
        yield from _boot_images(name, lab, sections)
        yield from _asked_disks(name, lab, sections)


def _boot_images(name: str, lab: LabSection, sections: Sections) -> Iterator[Complaint]:
    """Distributions whose boot image a flavor's firmware does not boot."""
    of_lab = ((each, sections.flavors.get(each)) for each in lab.flavors or sections.flavors)
    wrong = [
        (flavor, given.firmware)
        for flavor, given in of_lab
        if given is not None
        and given.kind in (None, NodeKind.BAREMETAL)
        and given.firmware not in (None, Firmware.UEFI)
    ]
    for distro, said in lab.distros.items():
        if said.boot_image != "distro" or not lab.dynamic:
            continue
        path = ("labs", name, "distros", distro, "boot_image")
        if wrong:
            message = f"flavor {wrong[0][0]!r} of this lab has firmware {wrong[0][1]}"
            hint = "Boot images need `firmware: uefi`. Name other flavors, or drop `boot_image`"
            yield Complaint(path, message, hint)


def _asked_disks(name: str, lab: LabSection, sections: Sections) -> Iterator[Complaint]:
    """Disks of any size on hosts whose disks are parts of a flavor."""
    named = [lab.host.partition(":")[0]] if lab.host else list(sections.hosts)
    clouds = ((each, h.openstack) for each in named if (h := sections.hosts.get(each)) is not None)
    for host, cloud in clouds:
        if lab.dynamic and lab.disks is Disks.ASKED and cloud is not None and not cloud.volumes:
            message = f"host {host!r} is a cloud, where disks are as large as the flavor's"
            hint = "Write `volumes: true` there, or `disks: flavor`"
            yield Complaint(("labs", name, "disks"), message, hint)


def _unsuitable(path: Path, layer: HardwareSection, kind: NodeKind) -> Iterator[Complaint]:
    yield from _refused(path, layer, REFUSED[kind], kind)
    for name, parts, reasons in (
        ("nics", layer.nics, OF_NICS[kind]),
        ("disks", layer.disks, OF_DISKS[kind]),
    ):
        for number, part in enumerate(parts or ()):
            yield from _refused((*path, name, number), part, reasons, kind)
    if layer.image is not None and layer.disks is not None:
        message = "expected image or disks, got both"
        yield Complaint((*path, "image"), message, "Write `disks: [{image: …, size: …}, …]`")
    if kind is NodeKind.CONTAINER:
        yield from _volumes(path, layer.disks or ())


def _volumes(path: Path, disks: Sequence[DiskSection]) -> Iterator[Complaint]:
    """The first disk of a container is its root, each other one a volume at a place of its own."""
    places: dict[PurePosixPath, int] = {}
    for number, disk in enumerate(disks):
        at, place = (*path, "disks", number), PurePosixPath(disk.mount)
        if disk.size is not None and disk.size < SMALLEST:
            message = f"expected at least 1MiB, got {disk.size} bytes"
            yield Complaint((*at, "size"), message, "A smaller file system is none")
        if number == 0 and disk.mount:
            yield Complaint((*at, "mount"), "the first disk of a container is its root", "Drop it")
        if number == 0:
            continue
        if not disk.mount:
            message = "each disk of a container after its root needs a `mount`"
            yield Complaint(at, message, "Write `{size: …, mount: /var/lib/…}`")
            continue
        if disk.image:
            message = "a volume of a container begins with what the image has at its `mount`"
            yield Complaint((*at, "image"), message, "Drop `image`, and give it a `size`")
        if any(place == PurePosixPath(each) or PurePosixPath(each) in place.parents
               for each in KERNELS):  # fmt: skip
            message = f"{disk.mount} is filled by the kernel and the init of a container"
            yield Complaint((*at, "mount"), message, "Name a directory of its root")
        if place == SEED or place in SEED.parents or SEED in place.parents:
            message = f"{disk.mount} has what cloud-init is given, which is written to each root"
            yield Complaint((*at, "mount"), message, f"Name a directory beside {SEED}")
        for other, which in places.items():
            if place == other or place in other.parents or other in place.parents:
                message = f"{disk.mount} and {other} (disk {which}) are in one another"
                yield Complaint((*at, "mount"), message, "Name directories apart from each other")
        places[place] = number


def _refused(
    path: Path, section: BaseModel, reasons: Reasons, kind: NodeKind
) -> Iterator[Complaint]:
    for key in sorted(reasons.keys() & section.model_fields_set):
        if getattr(section, key) is not None:
            message = f"a node of kind {kind} has no {key}: {reasons[key]}"
            yield Complaint((*path, key), message, HINTS.get(key, f"Drop `{key}`"))


def _without_root(expansion: Expansion) -> Iterator[Complaint]:
    """VMs and containers without an image; a group's once."""
    seen: set[int] = set()
    for node, group in zip(expansion.nodes, expansion.groups, strict=True):
        if node.kind is NodeKind.BAREMETAL or group in seen:
            continue
        if not node.disks or not node.disks[0].image:
            seen.add(group)
            message = f"expected an image for {node.name!r}, which is of kind {node.kind}"
            yield Complaint(("nodes", group), message, "Write `image: PATH` or `image: URL`")


def _roots_of_others(expansion: Expansion) -> Iterator[Complaint]:
    """Disks that start from a snapshot, or from an image of a cloud; a group's once."""
    seen: set[int] = set()
    for node, group in zip(expansion.nodes, expansion.groups, strict=True):
        for index, disk in enumerate(node.disks if group not in seen else ()):
            is_kept = disk.image.startswith(KEPT)
            if not is_kept and not disk.image.startswith(IN_CLOUD):
                continue
            seen.add(group)
            against = _against_kept if is_kept else _against_cloud
            if message := against(node, index, disk.image):
                yield Complaint(("nodes", group), message)
            elif not disk.size:
                least = "that which was kept" if is_kept else "that of its image"
                message = f"the root of {node.name!r} needs a size, at least {least}"
                hint = "Write `disks: [{image: …, size: 10GiB}]`"
                yield Complaint(("nodes", group), message, hint)


def _against_kept(node: Node, index: int, image: str) -> str:
    """What is wrong with a disk that starts from a snapshot."""
    if index or node.kind is not NodeKind.VM:
        return f"disk {index} of {node.name!r}: only roots of VMs start from a snapshot"
    if kept_in(image) is None:
        return f"expected snapshot:CLUSTER/NAME, got {image[:80]!r}"
    return ""


def _against_cloud(node: Node, index: int, image: str) -> str:
    """What is wrong with one that starts from an image of a cloud."""
    if index or node.kind is NodeKind.BAREMETAL:
        which = "only roots of VMs and containers start from an image of a cloud"
        return f"disk {index} of {node.name!r}: {which}"
    return "" if cloud_name(image) else f"expected glance:NAME or glance:ID, got {image!r}"


def schema_of(kind: NodeKind) -> dict[str, object]:
    """JSON Schema of what a section has that says `kind`."""
    parts = {
        name: {"items": {"properties": _or_null(reasons)}}
        for name, reasons in (("nics", OF_NICS[kind]), ("disks", OF_DISKS[kind]))
        if reasons
    }
    return {
        "if": {"properties": {"kind": {"const": str(kind)}}, "required": ["kind"]},
        "then": {"properties": {**_or_null(REFUSED[kind]), **parts}},
    }


def _or_null(names: Iterable[str]) -> dict[str, object]:
    """Keys may stand there with nothing."""
    return {name: {"type": "null"} for name in names}
