"""Relays: small servers of a cloud by which guests there reach this daemon (docs/adr/0030).

A relay is made of an image of a distribution: its user data is a script that has its ssh server let
this daemon in. The daemon opens the tunnel, so that the relay has nothing but keys of its own.

https://docs.openstack.org/api-ref/compute/#create-server
"""

from __future__ import annotations

import asyncio
import contextlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, ip_address
from pathlib import Path
from uuid import UUID

import msgspec
import structlog

from nospoon.errors import Conflict, Gone, ProviderError, Transient
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.relays import RELAY, Relay
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.answers import MAX_TOLD, text_of
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around, NeutronPort
from nospoon.providers.openstack.floating_ips import FloatingIpDriver
from nospoon.providers.openstack.roster import GONE, LONGEST_NAME, LONGEST_TIME, RELAYS
from nospoon.providers.openstack.shown import Ref, ServerShown
from nospoon.providers.openstack.tags import Tagged, in_pieces, of_properties, properties, whole
from nospoon.providers.tunnels import (
    BMCS_PORT,
    NETBOOT_PORT,
    READY,
    Find,
    RelayId,
    RelayPlace,
    Tunnels,
)
from nospoon.providers.understood import understood
from nospoon.runtime import clock
from nospoon.runtime.paced import paced

log = structlog.get_logger()
SCRIPT = Path(__file__).with_name("relay_setup.sh")
BMCS, HELPER = (Path(__file__).with_name(f"relay_bmcs.{each}") for each in ("sh", "py"))
NETBOOT, SERVER = (Path(__file__).with_name(f"relay_netboot.{each}") for each in ("sh", "py"))
SHAPE = "relay"
_RELAY_IN = msgspec.json.Decoder(Relay)
BUILD, BOOT, REMOVE = 1200, 1800, 240
"""Pauses within which Nova builds a server, its guest answers, and Nova removes it."""
ACTIVE, OFF, FAILED, BUILDING = "ACTIVE", "SHUTOFF", "ERROR", "BUILD"
IsHome = Callable[[UUID], bool]
"""Whether a cluster has nodes on this host."""


@dataclass(frozen=True, slots=True)
class _Server:
    """What is kept of a relay's server."""

    id: str
    tagged: Tagged
    shape: Relay
    status: str
    task: str
    fault: str

    @property
    def why_not(self) -> str:
        """Why it cannot answer."""
        if self.status == ACTIVE or self.task:
            return ""
        return f"its server is {self.status}{f': {self.fault}' if self.fault else ''}"


@understood
class RelayDriver:
    """`tunnels`: to relays. `is_home`: of others nothing that the cloud says counts."""

    kind = Kind.RELAY

    def __init__(
        self, around: Around, floating_ips: FloatingIpDriver, tunnels: Tunnels, is_home: IsHome
    ) -> None:
        self._around, self._floating_ips = around, floating_ips
        self._tunnels, self._is_home = tunnels, is_home
        self._kept: dict[RelayId, Find] = {}

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        servers = await self._servers(cluster)
        plugged = {each.device: each.mac for each in await self._ports()} if servers else {}
        found = []
        for each in servers:
            fault = each.why_not
            if not fault and plugged.get(each.id) != each.shape.mac:
                fault = "its server is not on its network"
            fault = fault or self._tunnels.fault(self._id(each.tagged.tag))
            found.append(self._around.observed(self.kind, each.shape, each.tagged, fault=fault))
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """It lets this daemon in when this returns."""
        shape = _relay(resource)
        there = await self._own(tag)
        if there is not None and there.status == FAILED:
            await self._remove(there)
            there = None
        plug = await self._port(resource, shape.mac, tag)
        made = there.id if there is not None else await self._build(resource, plug, tag)
        try:
            await self._built(made)
        except Transient:
            raise  # it goes on being built, and the next try finds it
        except ProviderError:
            if there is None:
                await self._forget(made)
            raise
        await self._plug(made, plug)
        self._keep(shape, tag)
        await self._tunnels.opened(self._id(tag), BOOT * self._around.pause)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """It is started, plugged in, or built again where Nova could not."""
        there = await self._own(observed.tag)
        if there is None:
            raise Gone(f"{observed.key} no longer exists", hint="Plan again.")
        if there.status == OFF and not there.task:
            await self._act(there.id, {"os-start": None})
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        id_ = self._id(observed.tag)
        self._kept.pop(id_, None)
        await self._tunnels.end(id_)
        there = await self._own(observed.tag)
        if there is not None:
            await self._remove(there)

    async def resume(self) -> None:
        """Keep tunnels to the relays that are there, after a restart of the daemon, and where
        another connection ended them.
        """
        async for each in paced(await self._servers(None)):
            tag = each.tagged.tag
            is_kept = self._id(tag) in self._kept and self._tunnels.is_kept(self._id(tag))
            if is_kept or not self._is_home(tag.cluster):
                continue
            try:
                self._keep(each.shape, tag)
            except ProviderError as error:  # others may be of other clusters
                log.warning("no tunnel to a relay is kept", relay=each.id, why=str(error))

    async def close(self) -> None:
        """End the tunnels that no other connection keeps by now."""
        while self._kept:
            await self._tunnels.end(*self._kept.popitem())

    def _id(self, tag: OwnerTag) -> RelayId:
        return RelayId(tag.cluster, self._around.host.name)

    def _keep(self, shape: Relay, tag: OwnerTag) -> None:
        async def find() -> RelayPlace:
            address = await self._reached_at(tag) or shape.address
            place = RelayPlace.parse(address, shape.ssh, shape.address, shape.listens)
            if not self._around.api.reach.admits(address, shape.ssh):
                raise ProviderError(f"its address {address} may not be connected to")
            return replace(place, bmcs=bool(shape.bmcs), netboot=shape.netboot)

        self._tunnels.keep(self._id(tag), find)
        self._kept[self._id(tag)] = find

    async def _reached_at(self, tag: OwnerTag) -> str:
        """Its floating IP, "" for none."""
        for each in await self._floating_ips.observe(tag.cluster):
            if each.key.name == RELAY:
                return str(getattr(each.shape, "address", ""))
        return ""

    async def _build(self, resource: Resource, plug: NeutronPort, tag: OwnerTag) -> str:
        shape, keys = _relay(resource), self._tunnels.keys(self._id(tag))
        image = await self._image(shape.image)
        script = SCRIPT.read_text().format(
            host_key=keys.host.strip(),
            client_key=keys.client,
            port=shape.ssh,
            permitted=" ".join(_permitted(shape)),
            ready=READY,
            bmcs=_bmcs(shape),
            netboot=_netboot(shape),
        )
        tagged = properties(Tagged(tag, resource.key.name))
        server = {
            "name": f"{tag.name}-{resource.key.name}",
            "imageRef": image,
            "flavorRef": await self._flavor(shape.flavor),
            "networks": [{"port": plug.id}],
            "config_drive": True,
            "user_data": b64encode(script.encode()).decode(),
            "metadata": {RELAYS: "yes", **tagged, **in_pieces(SHAPE, _written(shape))},
            **({"key_name": shape.key_pair} if shape.key_pair else {}),
            **({"availability_zone": shape.zone} if shape.zone else {}),
        }
        call = self._around.api.call
        return await call(Service.NOVA, "POST", "/servers", {"server": server}, read=_id)

    async def _built(self, id_: str) -> None:
        """Once Nova has built it. Raises `ProviderError` with Nova's words where it has not."""
        end = clock.monotonic() + BUILD * self._around.pause
        while clock.monotonic() < end:
            path = f"/servers/{id_}"
            server = await self._around.api.call(Service.NOVA, "GET", path, read=_read_one)
            if server is None:
                raise Gone(f"server {id_} went while it was built")
            if server.status == FAILED:
                raise ProviderError(f"Nova could not build server {id_}: {server.fault}")
            if server.status != BUILDING:
                return
            await asyncio.sleep(self._around.pause)
        raise ProviderError(f"server {id_} is not built after {BUILD * self._around.pause:.0f} s")

    async def _plug(self, id_: str, plug: NeutronPort) -> None:
        now = await self._port_with(plug.mac)
        if now is not None and now.device != id_:
            body = {"interfaceAttachment": {"port_id": plug.id}}
            path = f"/servers/{id_}/os-interface"
            await self._around.api.call(Service.NOVA, "POST", path, body)

    async def _image(self, name: str) -> str:
        """The id of an image by name or id. Raises `ProviderError`."""
        api = self._around.api
        with contextlib.suppress(ValueError):
            by_id = await api.get(Service.GLANCE, f"/images/{UUID(name)}", read=_ref)
            if by_id is not None:
                return by_id
        query = {"name": name}
        found = [e async for e in api.listed(Service.GLANCE, "/images", query, read=_ref)]
        if len(found) == 1:
            return found[0]
        several = "several images of that name: name one by its id" if found else "none"
        raise ProviderError(
            f"image {name} in cloud {self._around.api.name}: there is {several}",
            hint="See `openstack image list`, and the host's `relay` in the file.",
        )

    async def _flavor(self, name: str) -> str:
        def called(record: Mapping[str, object]) -> str | None:
            id_ = text_of(record["id"])[:LONGEST_NAME]
            return id_ if name in (record["name"], id_) else None

        async for id_ in self._around.api.listed(Service.NOVA, "/flavors", read=called):
            return id_
        raise ProviderError(
            f"cloud {self._around.api.name} has no flavor {name} any more", hint="Plan again."
        )

    async def _port(self, resource: Resource, mac: str, tag: OwnerTag) -> NeutronPort:
        found = await self._port_with(mac)
        if found is None or not self._around.is_own(found.tagged, tag.cluster):
            raise Gone(f"{resource.key} has no port with MAC {mac}", hint="Run `nospoon up` again.")
        return found

    async def _port_with(self, mac: str) -> NeutronPort | None:
        return next(iter(await self._ports(mac_address=mac)), None)

    async def _ports(self, **query: str) -> list[NeutronPort]:
        return [each async for each in self._around.ports(**query)]

    async def _act(self, id_: str, action: Mapping[str, object]) -> None:
        try:
            await self._around.api.call(Service.NOVA, "POST", f"/servers/{id_}/action", action)
        except Conflict as error:  # it was started meanwhile
            log.info("a relay is not acted on", server=id_, why=str(error))

    async def _remove(self, server: _Server) -> None:
        await self._forget(server.id)
        end = clock.monotonic() + REMOVE * self._around.pause
        path = f"/servers/{server.id}"
        while await self._around.api.get(Service.NOVA, path, read=_read_one) is not None:
            if clock.monotonic() > end:
                raise ProviderError(
                    f"server {server.id} is still there after {REMOVE * self._around.pause:.0f} s"
                )
            await asyncio.sleep(self._around.pause)

    async def _forget(self, id_: str) -> None:
        try:
            await self._around.api.call(Service.NOVA, "DELETE", f"/servers/{id_}")
        except Gone:
            return

    async def _own(self, tag: OwnerTag) -> _Server | None:
        return next(iter(await self._servers(tag.cluster)), None)

    async def _servers(self, cluster: UUID | None) -> list[_Server]:
        listed = self._around.api.listed(Service.NOVA, "/servers/detail", read=_read)
        return [each async for each in listed if self._around.is_own(each.tagged, cluster)]


def _place(shape: Relay) -> str:
    host = f"[{shape.address}]" if ":" in shape.address else shape.address
    return f"{host}:{shape.listens}"


def _permitted(shape: Relay) -> Iterator[str]:
    """Where the daemon may listen there."""
    yield _place(shape)
    for wanted, number in ((shape.bmcs, BMCS_PORT), (shape.netboot, NETBOOT_PORT)):
        if wanted:
            yield f"127.0.0.1:{number}"


def _netboot(shape: Relay) -> str:
    """The part of its script that has it serve DHCP and TFTP."""
    if not shape.netboot:
        return ""
    return NETBOOT.read_text().format(
        address=ip_address(shape.address), tunnel=NETBOOT_PORT, helper=SERVER.read_text()
    )


def _bmcs(shape: Relay) -> str:
    """The part of its script that has BMCs answer there."""
    if not shape.bmcs:
        return ""
    return BMCS.read_text().format(
        pool=IPv4Network(shape.bmcs),
        redfish=shape.redfish,
        tunnel=BMCS_PORT,
        helper=HELPER.read_text(),
    )


def _written(shape: Relay) -> str:
    return msgspec.json.encode(shape).decode()


def _read_one(answer: Mapping[str, ServerShown]) -> _Server | None:
    return _read(answer["server"])


def _read(record: ServerShown) -> _Server | None:
    """None for a server that is not a relay, or one that is gone."""
    metadata, status = record.get("metadata", {}), text_of(record["status"])
    if status in GONE or RELAYS not in metadata:
        return None
    tagged = of_properties(metadata)
    if tagged is None or tagged.name != RELAY:
        return None
    try:
        shape = _RELAY_IN.decode(whole(SHAPE, metadata))
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None  # others wrote that
    fault = text_of(record.get("fault", {}).get("message", "")) if status == FAILED else ""
    return _Server(
        id=text_of(record["id"])[:LONGEST_NAME],
        tagged=tagged,
        shape=shape,
        status=status[:LONGEST_TIME],
        task=text_of(record.get("OS-EXT-STS:task_state") or "")[:LONGEST_TIME],
        fault=fault[:MAX_TOLD],
    )


def _ref(record: Ref) -> str:
    return text_of(record["id"])[:LONGEST_NAME]


def _id(answer: Mapping[str, Ref]) -> str:
    return _ref(answer["server"])


def _relay(resource: Resource) -> Relay:
    assert isinstance(resource.shape, Relay), "relay keys have relay shapes"
    return resource.shape
