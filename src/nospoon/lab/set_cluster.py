"""The cluster whose nodes are a set's dynamic machines: a value, made of that of its lab's file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from nospoon.lab.provision import (
    NO_USER_DATA,
    arguments,
    boot_image_of,
    cluster_name,
    cmdline,
    distro_of,
    user_data,
)
from nospoon.lab.work import RecipeSet, Run
from nospoon.model.boot import BootDevice
from nospoon.model.cluster import (
    MOST_USER_DATA,
    USUAL_NETWORK,
    Arch,
    BootProfile,
    CloudInit,
    Cluster,
    Disk,
    Firmware,
    Network,
    Nic,
    Node,
)
from nospoon.model.lab import Distro, Lab
from nospoon.model.node_kind import NodeKind

USUAL_DISK = Disk(size=10 << 30)
MOST_WORDS = 2048
"""Characters of a kernel's command line (COMMAND_LINE_SIZE): it does not see the rest."""


def cluster_of(found: RecipeSet, lab: Lab, base: Cluster) -> Cluster:
    """`base`: what the lab's file describes. Call it where `violations` finds nothing."""
    templates = {each.flavor: each for each in base.templates}
    nodes, profiles = list[Node](), list[BootProfile]()
    for number, run in enumerate(found.runs):
        if run.size is None:
            continue
        node = replace(
            _with_disk(templates[run.size.flavor], run.size.disk),
            name=run.node,
            host=lab.host,
            labels=(("nospoon/recipe", f"{found.id}.{number}"),),
        )
        distro = distro_of(lab, run)
        if distro is not None and distro.makes_vms:
            node = _from_image(node, distro, _given(found, number, lab, distro))
        elif distro is not None:
            node = replace(node, boot=run.node)
            profiles.append(_profile(distro, run, str(node.arch)))
        nodes.append(node)
    return Cluster(
        name=cluster_name(lab.name, found.id),
        hosts=base.hosts,
        networks=tuple(map(_network, base.networks)) or (USUAL_NETWORK,),
        profiles=tuple(profiles),
        nodes=tuple(nodes),
        addressing=base.addressing,
        flavors=base.flavors,
    )


def violations(found: RecipeSet, lab: Lab, base: Cluster) -> Iterator[str]:
    """Why a set has no such cluster: a flavor that is gone, or of which none or one can be made, or
    a text that has become too long.
    """
    templates = {each.flavor: each for each in base.templates}
    unfit = {each.name: each.unfit for each in lab.flavors}
    macs = Counter[str]()
    for number, run in enumerate(found.runs):
        if run.size is None:
            continue
        flavor = run.size.flavor
        if flavor not in templates:
            yield f"lab {lab.name} has no flavor {flavor} any more"
            continue
        if unfit.get(flavor):
            yield f"no machine of flavor {flavor} can be made: {unfit[flavor]}"
        template, distro = templates[flavor], distro_of(lab, run)
        signed = template.arch is Arch.AARCH64 or template.firmware is Firmware.UEFI_SECURE
        if signed and distro is not None and distro.script:
            yield f"flavor {flavor} boots by signed GRUB, which runs no script ({distro.name})"
        if distro is not None:
            yield from _too_long(found, number, lab, distro, arch=str(template.arch))
        macs.update(nic.mac for nic in template.nics if nic.mac)
    for mac, count in macs.items():
        if count > 1:
            yield f"{count} machines of the set would have the MAC address {mac} of their flavor"


def _too_long(
    found: RecipeSet, number: int, lab: Lab, distro: Distro, *, arch: str
) -> Iterator[str]:
    """What a file may not have as long. A tree's URL may be filled in 256 times."""
    if distro.image:
        given = len(_given(found, number, lab, distro))
        if given > MOST_USER_DATA:
            most = f"at most {MOST_USER_DATA} characters of user data are taken"
            yield f"{most}, and recipe {number} has {given} of distribution {distro.name}"
    elif not distro.script:
        given = len(cmdline(distro, found.runs[number], arch=arch))
        if given > MOST_WORDS:
            most = f"Linux takes at most {MOST_WORDS} characters of a command line"
            yield f"{most}, and recipe {number} has {given} of distribution {distro.name}"


def _with_disk(node: Node, size: int) -> Node:
    """`size` of its first disk, 0 for its own."""
    first, *others = node.disks or (USUAL_DISK,)
    return replace(node, disks=(replace(first, size=size), *others)) if size else node


def _network(given: Network) -> Network:
    """One that nospoon makes is made for each set: each chooses a free range."""
    return given if given.existing else replace(given, cidr=None, cidr6=None, virtual_ips=())


def _profile(distro: Distro, run: Run, arch: str) -> BootProfile:
    if distro.script:
        return BootProfile(run.node, "", script=distro.script)
    words = cmdline(distro, run, arch=arch)
    return BootProfile(run.node, distro.kernel, (distro.initrd,), words)


def _given(found: RecipeSet, number: int, lab: Lab, distro: Distro) -> str:
    """The user data of a machine that starts from an image."""
    if distro.image:
        return user_data(found, number, lab) or NO_USER_DATA
    return arguments(cmdline(distro, found.runs[number]))


def _from_image(node: Node, distro: Distro, given: str) -> Node:
    """A VM of the same size, whose first disk is made of an image. What is for a deployer of bare
    metal is not among what it has.
    """
    first, *others = node.disks or (USUAL_DISK,)
    root = Disk(
        size=first.size or USUAL_DISK.size,
        image=distro.image or boot_image_of(distro),
        checksum=distro.checksum,
        bus=first.bus,
        serial=first.serial,
        rotational=first.rotational,
        cache=first.cache,
        discard=first.discard,
    )
    return Node(
        name=node.name,
        flavor=node.name,
        host=node.host,
        kind=NodeKind.VM,
        cpus=node.cpus,
        memory=node.memory,
        arch=node.arch,
        firmware=node.firmware,
        tpm=node.tpm,
        restore=node.restore,
        disks=(root, *others),
        nics=tuple(map(_nic_of_vm, node.nics)),
        boot_order=(BootDevice.DISK,),
        bmc=(),
        labels=node.labels,
        cloud_init=CloudInit(given),
    )


def _nic_of_vm(nic: Nic) -> Nic:
    """Without what Ironic alone knows."""
    return replace(nic, pxe=None, portgroup="")
