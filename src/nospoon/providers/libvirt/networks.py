"""Links: isolated bridges as libvirt networks, named as their bridges.

libvirt knows no way to change address or MTU of a running network, so a change makes the bridge
again and puts the ports of running guests back on it: they lose the link for a moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

import libvirt

from nospoon.errors import NotOurs
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.libvirt import reserved_frames
from nospoon.providers.libvirt.bindings import Connect, VirNetwork
from nospoon.providers.libvirt.elements import attribute_of, parsed, text_of
from nospoon.providers.libvirt.faults import (
    NO_INTERFACE,
    NO_NETWORK,
    OPERATION_INVALID,
)
from nospoon.providers.libvirt.host_guard import HostGuard
from nospoon.providers.libvirt.hypervisor import Hypervisor, ignoring
from nospoon.providers.libvirt.network_xml import parse_network, render_network
from nospoon.providers.libvirt.owner import Owner, owner_in
from nospoon.providers.libvirt.plugs import Plugs, described, leave_out, taps_of
from nospoon.providers.libvirt.tunnels import MOST_LEARNED, Tunnels
from nospoon.providers.printed import rows_of
from nospoon.runtime.runner import Runner

ONE_SUBNET = 'echo 1 >"/proc/sys/net/ipv4/conf/$1/arp_filter"'
"""Shell: the host answers ARP to addresses of a bridge's own network alone (ip-sysctl.rst). It
notes who asks, in a table of 1,024 addresses for all its networks, its way out included: a guest
that asks from as many made-up addresses in 5 s would keep all others out of it.
"""


class NetworkDriver:
    """Defines, starts and removes isolated networks. `runner` runs commands on the host."""

    kind = Kind.NETWORK

    def __init__(self, hypervisor: Hypervisor, deployment: str, *, runner: Runner) -> None:
        self._hypervisor, self._deployment = hypervisor, deployment
        self._runner = runner
        self._tunnels = Tunnels(runner, f"nospoon {deployment}")
        self._guard = HostGuard(runner, f"nospoon {deployment}")
        self._plugs = Plugs(hypervisor, runner, deployment)

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        found = await self._hypervisor.ask(
            lambda connect: self._list(connect, cluster), "list networks"
        )
        standing = await self._with_guard(await self._with_taps(await self._with_bridge(found)))
        return [await self._with_tunnel(each) for each in standing]

    async def _with_bridge(self, found: Sequence[Observed]) -> Sequence[Observed]:
        """Networks that are started, says libvirt, and whose bridge is gone are at fault."""
        gone = await self._gone(_bridge_of(each) for each in found if not each.fault)
        return [
            replace(each, fault=f"its bridge {_bridge_of(each)} is gone")
            if not each.fault and _bridge_of(each) in gone
            else each
            for each in found
        ]

    async def _gone(self, bridges: Iterable[str]) -> frozenset[str]:
        """Which of these bridges are no more. What ip(8) does not see is asked of libvirt, for the
        daemon may be in another network namespace than libvirtd (in a container, say).
        """
        if not (wanted := frozenset(bridges)):
            return wanted
        done = await self._runner.run(["ip", "-json", "link", "show", "type", "bridge"])
        seen = {each["ifname"] for each in await rows_of(done) if each}
        if not (unseen := wanted - seen):
            return unseen
        return await self._hypervisor.ask(
            lambda connect: frozenset(name for name in unseen if _lacks(connect, name)),
            "look for bridges",
        )

    async def _with_taps(self, found: Sequence[Observed]) -> Sequence[Observed]:
        """Networks of which running machines have lost the link are at fault. Machines are asked
        only when there are taps in no bridge at all.
        """
        loose = await self._plugs.loose() if found else frozenset()
        if not loose:
            return found
        wanted = await self._hypervisor.ask(taps_of, "look for the taps of running machines")
        lost = {bridge: sorted(loose & set(wanted[bridge])) for bridge in wanted}
        return [
            replace(each, fault=f"{', '.join(names)} of running machines is not plugged in")
            if (names := lost.get(_bridge_of(each))) and not each.fault
            else each
            for each in found
        ]

    async def _with_guard(self, found: Sequence[Observed]) -> Sequence[Observed]:
        """Networks whose guests reach more of the host than they should are at fault."""
        links = [each.shape for each in found if isinstance(each.shape, Link) and not each.fault]
        lacking = await self._guard.lacking(links)
        bare = await reserved_frames.open_bridges(self._runner, (each.name for each in links))
        faults = dict.fromkeys(bare, "its bridge passes frames of guests to the host by their taps")
        faults |= dict.fromkeys(
            lacking, "the rules that keep its guests from the host are not there"
        )
        return [replace(e, fault=e.fault or faults.get(_bridge_of(e), "")) for e in found]

    async def _with_tunnel(self, observed: Observed) -> Observed:
        link = observed.shape
        assert isinstance(link, Link)
        if link.tunnel is None or observed.fault:
            return observed
        return replace(observed, fault=await self._tunnels.fault(link.name, link.tunnel))

    def _list(self, connect: Connect, cluster: UUID | None) -> list[Observed]:
        found = []
        for root, active in described(connect):
            owner = owner_in(root)
            if owner is None or not self._is_ours(owner, cluster):
                continue
            try:
                link = parse_network(root)
            except ValueError as error:  # others wrote that
                leave_out(text_of(root, "name"), str(error))
                continue
            key = Key(Kind.NETWORK, self._hypervisor.host, owner.name)
            fault = "" if active else "the network is not started"
            found.append(Observed(key, link, owner.tag, fault=fault))
        return found

    def _is_ours(self, owner: Owner, cluster: UUID | None) -> bool:
        return owner.tag.deployment == self._deployment and cluster in (None, owner.tag.cluster)

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        assert isinstance(resource.shape, Link)
        link, name = resource.shape, resource.key.name
        doing = f"make network {name} with bridge {link.name}"
        exists = await self._hypervisor.ask(
            lambda connect: self._refuse_strangers(connect, link, tag), doing
        )
        if not exists:
            await self._refuse_bridge(link, name)
        await self._guard.make(link)  # before a guest can be there
        ports = await self._ports(link.name)
        if exists and await self._drop_remnant(link.name):
            await self._refuse_bridge(link, name)
        stands = exists and not await self._gone([link.name])
        runs_on = stands and await self._hypervisor.ask(
            lambda each: self._runs_as(each, link), doing
        )
        if not runs_on:
            await self._plugs.shut(ports)
        try:
            await self._hypervisor.work(
                lambda connect: self._make(connect, link, Owner(tag, name), stands=stands), doing
            )
        except BaseException:
            if not runs_on and not await self._gone([link.name]):
                await self._plug_in(ports, link)
            raise
        await self._bound(link.name)
        await self._plug_in(ports, link)
        if link.tunnel is not None:
            await self._tunnels.make(link.name, link.mtu, link.tunnel)

    async def _plug_in(self, ports: Iterable[str], link: Link) -> None:
        for port in ports:
            await self._plugs.plug_in(port, link.name, mtu=link.mtu)

    async def _bound(self, bridge: str) -> None:
        """A guest may send from as many MAC addresses as it likes, and the host's memory has an
        entry for each of them for five minutes: gigabytes. Linux before 6.7 and iproute2 before 6.8
        know no limit; there only `anti_spoofing` helps.
        """
        limit = ("fdb_max_learned", str(MOST_LEARNED))
        argv = ["ip", "link", "set", "dev", bridge, "type", "bridge", *limit]
        await self._runner.run(argv, check=False)
        await self._runner.run(["sh", "-c", ONE_SUBNET, "sh", bridge], check=False)
        await reserved_frames.keep_off_ports(self._runner, bridge)

    def _refuse_strangers(self, connect: Connect, link: Link, tag: OwnerTag) -> bool:
        """Whether our network is there; raises `NotOurs` for one that has its name or bridge."""
        exists = False
        for root, _ in described(connect):
            name = text_of(root, "name")
            if link.name not in {name, attribute_of(root, "bridge", "name")}:
                continue
            owner = owner_in(root)
            if owner is None or not self._is_ours(owner, tag.cluster):
                raise NotOurs(
                    f"host {self._hypervisor.host}: the libvirt network {name} has the "
                    f"name or the bridge {link.name}, and nospoon did not make it",
                    hint=f"See `virsh net-dumpxml {name}`; remove it, "
                    "or rename the network in the file.",
                )
            exists = True
        return exists

    async def _refuse_bridge(self, link: Link, name: str) -> None:
        done = await self._runner.run(["ip", "link", "show", "dev", link.name], check=False)
        if done.status == 0:
            raise NotOurs(
                f"host {self._hypervisor.host}: network {name} needs a bridge {link.name}, but a "
                "device of that name exists and nospoon did not make it",
                hint=f"See `ip link show {link.name}`; remove it, or say `bridge: {link.name}` "
                "in the file to plug into it as it is.",
            )

    async def _drop_remnant(self, bridge: str) -> bool:
        """Remove the bridge of our network that is not running: a libvirtd that was killed while it
        started or stopped the network left it, and the next one can neither use nor remove it. Ours
        has the MAC address that the network had when it was defined. Whether the network is idle.
        """
        address = await self._hypervisor.ask(
            lambda connect: self._idle_address(connect, bridge), f"look at network {bridge}"
        )
        for link in await self._links("type", "bridge") if address else []:
            if link["ifname"] == bridge and link.get("address") == address:
                await self._runner.run(["ip", "link", "delete", "dev", bridge, "type", "bridge"])
        return address is not None

    def _idle_address(self, connect: Connect, bridge: str) -> str | None:
        """The MAC address of the bridge of our network while it is not running; "" without one."""
        network = self._find(connect, bridge)
        if network is None or network.isActive():
            return None
        root = parsed(network.XMLDesc(libvirt.VIR_NETWORK_XML_INACTIVE))
        owner = owner_in(root)
        if owner is None or owner.tag.deployment != self._deployment:
            return None
        return attribute_of(root, "mac", "address")

    def _make(self, connect: Connect, link: Link, owner: Owner, *, stands: bool) -> None:
        """`stands`: its bridge is there."""
        network = self._find(connect, link.name)
        same = network is not None and (
            parse_network(parsed(network.XMLDesc(libvirt.VIR_NETWORK_XML_INACTIVE))) == link
        )
        if network is not None and network.isActive():
            if stands and _live_matches(network, link):
                if not same:  # what it is on the outside only: rules, which need no other bridge
                    told = render_network(link, owner, uuid=network.UUIDString())
                    connect.networkDefineXML(told)
                return
            network.destroy()
        network = self._defined(connect, network, render_network(link, owner))
        try:
            network.create()
        except libvirt.libvirtError:
            network.undefine()
            raise

    def _runs_as(self, connect: Connect, link: Link) -> bool:
        """Whether it runs, and needs no other bridge."""
        network = self._find(connect, link.name)
        if network is None or not network.isActive():
            return False
        return _live_matches(network, link)

    def _defined(self, connect: Connect, existing: VirNetwork | None, xml: str) -> VirNetwork:
        if existing is not None:
            existing.undefine()
        return connect.networkDefineXML(xml)

    async def _ports(self, bridge: str) -> list[str]:
        """What is on the bridge now, and what running machines have there, whether it is or not:
        who made the bridge again may have ended before he plugged them in again.
        """
        there = [each["ifname"] for each in await self._links("master", bridge)]
        taps = await self._hypervisor.ask(taps_of, f"look for the taps on {bridge}")
        return list(dict.fromkeys([*there, *taps.get(bridge, ())]))

    async def _links(self, *which: str) -> list[dict[str, object]]:
        done = await self._runner.run(["ip", "-json", "link", "show", *which], check=False)
        links = await rows_of(done) if done.status == 0 else []
        return [link for link in links if "ifname" in link]

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        before, after = observed.shape, desired.shape
        assert isinstance(before, Link)
        assert isinstance(after, Link)
        if before.name != after.name:
            await self.delete(observed)
        elif before.tunnel is not None and after.tunnel is None:
            await self._tunnels.remove(before.name)
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        assert isinstance(observed.shape, Link)
        bridge = _bridge_of(observed)
        await self._guard.remove(bridge)
        await reserved_frames.forget(self._runner, bridge)
        if observed.shape.tunnel is not None:
            await self._tunnels.remove(bridge)
        await self._drop_remnant(bridge)
        await self._hypervisor.work(
            lambda connect: self._remove(connect, bridge, observed.tag),
            f"remove network {observed.key.name}",
        )

    def _remove(self, connect: Connect, bridge: str, tag: OwnerTag) -> None:
        network = self._find(connect, bridge)
        if network is None:
            return
        owner = owner_in(parsed(network.XMLDesc(libvirt.VIR_NETWORK_XML_INACTIVE)))
        if owner is None or not self._is_ours(owner, tag.cluster):
            raise NotOurs(
                f"host {self._hypervisor.host}: network {bridge} has no nospoon tag: "
                "it is left unchanged"
            )
        with ignoring(OPERATION_INVALID, NO_NETWORK):  # it is not running
            network.destroy()
        with ignoring(NO_NETWORK):
            network.undefine()

    def _find(self, connect: Connect, name: str) -> VirNetwork | None:
        try:
            return connect.networkLookupByName(name)
        except libvirt.libvirtError as error:
            if error.get_error_code() == NO_NETWORK:
                return None
            raise


def _lacks(connect: Connect, interface: str) -> bool:
    """Whether libvirt says that its host has no such interface: one that has no driver for them,
    or cannot reach it, does not tell.
    """
    try:
        connect.interfaceLookupByName(interface)
    except libvirt.libvirtError as error:
        return bool(error.get_error_code() == NO_INTERFACE)
    return False


def _bridge_of(observed: Observed) -> str:
    assert isinstance(observed.shape, Link)
    return observed.shape.name.removesuffix(" (edited)")


def _live_matches(network: VirNetwork, link: Link) -> bool:
    """What runs may be older than what is defined. Rules are no part of what runs."""
    live = parse_network(parsed(network.XMLDesc(0)))
    return replace(live, host_ports=None) == replace(link, host_ports=None)
