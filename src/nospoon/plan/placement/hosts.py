"""What a node or a network asks of a host that it has or has not."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from nospoon.model.cluster import (
    DHCP,
    Arch,
    Cluster,
    Disk,
    Firmware,
    Host,
    Netboot,
    Network,
    Node,
    Switch,
)
from nospoon.model.declared import Networking
from nospoon.model.host_facts import QCOW2, HostFacts
from nospoon.model.images import KEPT, MOUNTED_ROOT, ROOT_FORMAT, HypervisorType
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.storage import ExistingVolume
from nospoon.model.sizes import size
from nospoon.plan.identity import made_for_a_cluster
from nospoon.plan.placement.cloud_images import against_cloud_image
from nospoon.plan.placement.flavors import lacking
from nospoon.plan.relays import against_relay
from nospoon.plan.trunks import Trunks
from nospoon.plan.words import listed

MAKERS = {
    NodeKind.BAREMETAL: "Give the file a host that is a libvirtd or a cloud.",
    NodeKind.VM: "Give the file a host with `libvirt: qemu:///system`, or a cloud.",
    NodeKind.CONTAINER: "Write `lxc: true` or `docker: true` beside the host's "
    "`libvirt: qemu:///system`, or give the file a cloud.",
}
"""What to write in a file for nodes of a kind."""
ROOTS = {ROOT_FORMAT: "a packed root (tar)", MOUNTED_ROOT: "an ext4 file system"}
BUILT = {ROOT_FORMAT: "lxc", MOUNTED_ROOT: "ext4"}
"""What images of containers are, and how `nospoon image build` makes one."""
NO_ISO = "Glance takes no `iso` there, and Nova is older than Zed (2022.2): it makes no other CDs."
NO_FORMAT = "Glance takes neither `iso` nor `qcow2` there, which boot images are."
LEADS_NOWHERE = (
    "it is made without addresses and leads nowhere, so that the boot image cannot ask the daemon. "
    "Plug one NIC into a network with `nat: true`, or one that exists (`physnet`), that reaches "
    "`boot_address`."
)

NO_RELAY = (
    "the boot image asks the relay of the host, which is on network {0}. Plug one NIC, best the "
    "first, into network {0}."
)


def against_host(node: Node, host: Host) -> Iterator[str]:
    """Why a host makes no such nodes, whatever is there."""
    made = host.declares.node_kinds
    if node.adopted is not None:
        return
    asks = host.declares.has_boot_image and node.kind is NodeKind.BAREMETAL
    if asks and not host.connection.is_asked:
        yield (
            f"{host.where} has no `boot_address`, where nodes ask what to boot. Give it the "
            "address of this machine as guests there reach it, or a `relay` if they reach none."
        )
    if node.kind not in made:
        yield (
            f"{host.where} makes no node of kind {node.kind}, only {' and '.join(sorted(made))}. "
            f"{MAKERS[node.kind]}"
        )


def against_images(node: Node, host: Host, hosts: Iterable[Host]) -> Iterator[str]:
    """Why a host does not run the images of a node, and which of all hosts do."""
    for wanted in node.image_types:
        runs = host.declares.hypervisor_types
        if node.adopted is None and wanted not in runs:
            able = [
                each.name
                for each in hosts
                if wanted in each.declares.hypervisor_types
                and node.kind in each.declares.node_kinds
            ]
            others = listed(able) or "No host of the file"
            only = f"only for {', '.join(sorted(runs))}"
            yield f"{host.where} runs no image for {wanted}, {only}. {others} could."
    takes = host.declares.root_formats
    if node.root_format and node.kind in host.declares.node_kinds and node.root_format not in takes:
        other = min(takes)
        yield (
            f"{host.where} makes containers of {ROOTS[other]}, and the image is "
            f"{ROOTS[node.root_format]}. `nospoon image build --as {BUILT[other]}` makes one."
        )


def against_boot_images(facts: HostFacts) -> str:
    """Why a cloud takes none, "" for one that does."""
    if facts.boot_image_format:
        return ""
    return NO_ISO if QCOW2 in (facts.image_formats or ()) else NO_FORMAT


def against_node(
    node: Node, host: Host, facts: HostFacts, *, is_there: bool = False
) -> Iterator[str]:
    """Why a host cannot have a node, whatever else is on it; an adopted one, it can. `is_there`:
    it has it already, and the boot image of it.
    """
    if node.adopted is not None:
        return
    if node.firmware not in facts.firmwares:
        yield f"no firmware {node.firmware} there. {_choices(facts.firmwares)}"
    if node.arch not in facts.archs:
        yield f"no emulator for {node.arch} there. {_choices(facts.archs)}"
    if node.tpm and not facts.tpm:
        yield "no TPM there. Install swtpm and swtpm-tools, or leave `tpm` out."
    if why := lacking(node, host, facts):
        yield why
    if node.kind is NodeKind.BAREMETAL and not is_there and (why := against_boot_images(facts)):
        yield f"{why} Ask its operator for `iso` in Glance's `disk_formats`."
    yield from against_cloud_image(node, host, facts)
    if not host.declares.has_pools:
        yield from _against_server(node)
        yield from _against_container(node, host, facts)
    elif any(disk.image.startswith(KEPT) for disk in node.disks):
        yield "VMs start from snapshots in clouds alone. Name another `image`."
    if facts.memory and node.memory > facts.memory:
        have = facts.memory >> 20 << 20
        yield f"wants {size(node.memory)} of memory, the host has {size(have)}."
    for disk in node.disks:
        if disk.volume:
            yield from _against_volume(disk, facts.volumes.get(disk.volume))


def _against_server(node: Node) -> Iterator[str]:
    """What a server of a cloud does not have."""
    has_image = node.kind is not NodeKind.BAREMETAL
    if any(disk.image for disk in (node.disks[1:] if has_image else node.disks)):
        other = "further disks of servers" if has_image else "disks of servers"
        yield f"{other} begin blank there. Leave `image` out, and deploy from the network."
    if has_image and any(nic.address not in ("", DHCP) for nic in node.nics):
        yield "the cloud gives addresses there. Leave `address` of NICs out."


def _against_container(node: Node, host: Host, facts: HostFacts) -> Iterator[str]:
    """What Nova's LXC driver does not do, and a cloud that shows that it has none."""
    if node.kind is not NodeKind.CONTAINER:
        return
    if facts.computes is not None and HypervisorType.LXC not in facts.computes:
        yield (
            f"no compute host of the cloud runs containers: {listed(sorted(facts.computes))} "
            "alone. It needs one with `virt_type = lxc`."
        )
    if len(node.disks) > 1:
        yield "Nova gives containers no disks but their root. Leave the others out."
    if host.connection.has_volumes:
        yield (
            "roots of containers are parts of the flavor there. Give them a host without `volumes`."
        )


def _against_volume(disk: Disk, found: ExistingVolume | None) -> Iterator[str]:
    """QEMU is told the format: a guest may write into a raw volume what looks like another."""
    if found is None:
        pool = disk.volume.partition("/")[0]
        yield f"no volume {disk.volume} in an active storage pool. See `virsh vol-list {pool}`."
    elif found.managed:
        yield f"volume {disk.volume} is nospoon's own, of a cluster. Choose one that is yours."
    elif disk.format == "qcow2" != found.format:
        yield f"volume {disk.volume} is {found.format}, no qcow2. Write `format: raw`."
    elif disk.format == "raw" and found.format == "qcow2":
        yield (
            f"volume {disk.volume} is a qcow2 by its first bytes. Write `format: qcow2`, if it is "
            "one of yours; a guest that had it as raw may have made it look so."
        )


def against_networks(
    node: Node, cluster: Cluster, host: Host, facts: HostFacts, trunks: Trunks
) -> Iterator[tuple[str, str]]:
    """(Network, why a host cannot plug a node of it in)."""
    wanted = {nic.network for nic in node.nics}
    if host.declares.has_boot_image and wanted and node.kind is NodeKind.BAREMETAL:
        made = {each.name for each in cluster.networks if not each.existing and not each.nat}
        relay = host.connection.relay
        if relay is not None and relay.network not in wanted:
            yield min(wanted), NO_RELAY.format(relay.network)
        elif wanted <= made and relay is None:
            yield min(wanted), LEADS_NOWHERE
    plugged = trunks.plugged(node, host)
    for network in cluster.networks:
        if network.name in plugged:
            for why in against_network(network, host, facts, trunks.tagged):
                yield network.name, why


def against_floating_ips(node: Node, cluster: Cluster, host: Host) -> Iterator[str]:
    """Why no floating IP can lead to a NIC of a node there."""
    made = {each.name for each in cluster.networks if not each.existing and not each.nat}
    for network in dict.fromkeys(nic.network for nic in node.nics if nic.floating_ip):
        if not host.declares.has_ports:
            yield f"network {network}: floating IPs are of clouds. Leave `floating_ip` out."
        elif network in made:
            yield (
                f"network {network}: nospoon makes it, so that its NICs have no address to which a "
                "floating IP could lead. Write `nat: true` there, or take a network of the cloud "
                "(`physnet`) that has a router."
            )


def against_filters(node: Node, cluster: Cluster, facts: HostFacts | None) -> Iterator[str]:
    """Why a place that plugs into another's bridges cannot: what it does by itself."""
    wanted = {nic.network for nic in node.nics}
    for network in cluster.networks:
        if network.name in wanted and network.anti_spoofing and not (facts and facts.anti_spoofing):
            yield (
                f"network {network.name}: containers are not filtered there: "
                "`virsh nwfilter-dumpxml clean-traffic` fails on that host. Start libvirtd there, "
                "install libvirt-clients and libvirt-daemon-config-nwfilter, leave `anti_spoofing` "
                "out, or give containers a network of their own."
            )
        if network.name in wanted:
            yield from (f"network {network.name}: {why}" for why in _against_virtual(network))


def against_network(
    network: Network, host: Host, facts: HostFacts, tagged: Container[int] = ()
) -> Iterator[str]:
    """Why a host cannot have a network. `tagged`: VLANs that reach NICs tagged."""
    if network.vlan is not None and not network.provider:
        yield from _against_vlan(network, host, tagged)
    if host.declares.has_ports:
        yield from _against_ports(network, host, facts)
        return
    if network.provider:
        yield f"host {host.name} is not a cloud. Write `physnet` in place of `provider` there."
    if network.segment is not None and not network.provider:
        yield f"host {host.name} is not a cloud. Leave `segment` out."
    if network.router:
        yield f"host {host.name} is not a cloud. Leave `router` out."
    if host.declares.networking is Networking.EXISTING:
        yield from _against_existing(network, host, facts)
        return
    if not host.declares.makes_networks:
        yield from _against_user_mode(network, host)
    elif network.anti_spoofing and not facts.anti_spoofing:
        yield (
            f"host {host.name} has no network filter clean-traffic, by which `anti_spoofing` "
            "works. Install libvirt-daemon-config-nwfilter there and restart libvirtd (see "
            "`virsh nwfilter-list`), or leave `anti_spoofing` out."
        )
    elif host.declares.is_real:
        yield from _against_virtual(network)
    if network.existing:
        yield from _against_bridge(network, host, facts)


def _against_vlan(network: Network, host: Host, tagged: Container[int]) -> Iterator[str]:
    """Why a network is no VLAN there."""
    if host.declares.has_ports and network.vlan not in tagged:
        yield (
            f"host {host.name} is a cloud: name the physical network of the VLAN as `provider`, "
            "have a NIC's `trunk` carry it, or leave `vlan` out."
        )
    elif not host.declares.has_ports and network.switch is not Switch.OVS:
        yield (
            f"host {host.name} is not a cloud: a VLAN needs a bridge of Open vSwitch there. Write "
            "`physnet` or `bridge`, and `switch: ovs`, or leave `vlan` out."
        )


def _against_virtual(network: Network) -> Iterator[str]:
    """Why nodes of a network with a filter cannot send from its virtual IPs."""
    known = network.netboot is Netboot.BUILTIN and not network.existing
    if network.anti_spoofing and network.virtual_ips and not known:
        yield (
            "with `anti_spoofing`, `virtual_ips` need `netboot: builtin`. "
            "The filter lets virtual IPs through beside an address that nospoon gives, not beside "
            "the first one that a guest uses."
        )


def _against_ports(network: Network, host: Host, facts: HostFacts) -> Iterator[str]:
    """Why a cloud cannot have a network, or plug into an existing one."""
    yield from against_relay(network, host, facts)
    if network.nat:
        yield from _against_router(network, host, facts)
    if network.provider and facts.networks and not facts.provider_networks:
        yield (
            f"host {host.name}: its project may not see physical networks, so it may make no VLAN "
            f"in {network.provider}. Have its administrator make the network, and name it in "
            "`physnets`."
        )
    elif network.segment is not None and facts.networks and not facts.provider_networks:
        yield (
            f"host {host.name}: its project may not see of what networks are made, so it may not "
            f"choose {network.segment}. Leave `segment` out, or have its administrator make it."
        )
    if network.existing:
        yield from _against_named(network, host, facts)


def _against_user_mode(network: Network, host: Host) -> Iterator[str]:
    """Why a host without networks cannot have one."""
    unprivileged = f"host {host.name} is unprivileged (qemu:///session) and"
    if network.existing:
        yield f"{unprivileged} may not plug into bridges. Use qemu:///system."
    elif network.cidr is not None or network.cidr6 is not None:
        yield (
            f"{unprivileged} has user-mode networking only. Leave `cidr` out, or use "
            "qemu:///system."
        )
    if network.anti_spoofing:
        yield f"{unprivileged} may not filter what guests send. Use qemu:///system."


def _against_existing(network: Network, host: Host, facts: HostFacts) -> Iterator[str]:
    """Why a host that makes no networks cannot plug into one."""
    if network.existing:
        yield from _against_named(network, host, facts)
    else:
        yield (
            f"host {host.name} makes no networks. Name one that is there, as `physnet` of the "
            "network and in `physnets` of the host."
        )


def _against_named(network: Network, host: Host, facts: HostFacts) -> Iterator[str]:
    """Why an existing network is none of those that a place has names for."""
    name = dict(host.physnets).get(network.physnet, "") if network.physnet else network.bridge
    if facts.networks is None:
        return
    if not name:
        yield f"host {host.name} maps no network to physical network {network.physnet}."
    elif name not in facts.networks:
        yield (
            f"host {host.name} has no network {name} that its project sees. See `openstack network "
            "list`, or leave `bridge` and `physnet` out to have an isolated network made."
        )


def _against_router(network: Network, host: Host, facts: HostFacts) -> Iterator[str]:
    """Why no router can lead out of a network there."""
    if network.cidr6 is not None:
        yield f"host {host.name} is a cloud, where `nat` is of IPv4. Leave the IPv6 `cidr` out."
    wanted, external = host.connection.external, facts.external_networks
    if facts.networks is None or (not wanted and len(external) == 1):
        return
    has = listed(sorted(name for name, _ in external)) or "none"
    if not wanted and external:
        yield (
            f"host {host.name} has several external networks: {has}. Name the one to which `nat` "
            "leads as `external_network` of the host."
        )
    elif not wanted:
        yield f"host {host.name} has no external network to which `nat` could lead. Leave it out."
    elif not any(wanted in each for each in external):
        yield (
            f"host {host.name}: its project does not see `external_network` {wanted}. "
            f"External networks that it sees: {has}."
        )


def _against_bridge(network: Network, host: Host, facts: HostFacts) -> Iterator[str]:
    """Why a host cannot plug into someone else's bridge."""
    bridge = dict(host.physnets).get(network.physnet, "") if network.physnet else network.bridge
    if made_for_a_cluster(bridge) or made_for_a_cluster(facts.bridge(bridge)):
        yield (
            f"host {host.name}: {bridge} is, or is plugged into, a bridge that nospoon makes for "
            "one cluster, and for no other. Name a bridge that you made."
        )
    elif facts.links is None:
        return
    elif not bridge:
        yield f"host {host.name} maps no bridge to physical network {network.physnet}."
    elif bridge not in facts.links:
        yield (
            f"host {host.name} has no bridge {bridge}. Make it there, or leave `bridge` and "
            "`physnet` out to have an isolated network made."
        )
    elif network.switch is Switch.OVS and bridge not in facts.ovs_bridges:
        yield (
            f"host {host.name}: {bridge} is not an Open vSwitch bridge. See `ovs-vsctl list-br`, "
            "install openvswitch-switch there, or leave `switch: ovs` out."
        )
    elif network.switch is not Switch.OVS and bridge in facts.ovs_bridges:
        yield f"host {host.name}: {bridge} is a bridge of Open vSwitch. Write `switch: ovs`."
    elif network.switch is not Switch.OVS and facts.bridge(bridge) not in facts.bridges:
        yield (
            f"host {host.name}: {bridge} is an interface in no bridge. "
            "`nospoon host setup` makes one for it."
        )


def _choices(values: frozenset[Firmware] | frozenset[Arch]) -> str:
    return f"It has {', '.join(sorted(values)) or 'none'}; see `nospoon doctor`."
