"""BMCs of nodes, and the sockets of PDUs that power them."""

from __future__ import annotations

from uuid import UUID

from nospoon.model.cluster import BmcProtocol, Node
from nospoon.model.resources.bmcs import Bmc, Outlet
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Resource
from nospoon.plan import identity
from nospoon.plan.addresses.allocate import Endpoint
from nospoon.plan.resolution.context import Context

SILENT = Endpoint(address="", ipmi_port=0, redfish_port=0)
"""Where the BMC of a node answers that speaks no protocol: it serves the API only."""


class Bmcs:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._pool = str(context.cluster.addressing.pool or "")

    def of(self, node: Node, uuid: UUID, machine: Key, sizes: tuple[int, ...]) -> Resource:
        """`sizes`: of the node's disks, in bytes."""
        context, addressing = self._context, self._context.cluster.addressing
        endpoint = context.allocations.endpoints.get(node.name, SILENT)
        redfish = BmcProtocol.REDFISH in node.bmc
        shape = Bmc(
            uuid=uuid,
            protocols=node.bmc,
            address=endpoint.address,
            ipmi_port=endpoint.ipmi_port,
            redfish_port=endpoint.redfish_port if redfish else 0,
            tls=addressing.tls,
            certificate=context.around.certificate if redfish else "",
            username=node.credentials.username,
            credentials_key=context.around.credentials_keys.get(node.name, ""),
            pool=self._pool,
            outlet=self._outlet(node),
            disk_sizes=sizes,
            restore=node.restore,
            redfish_login=addressing.redfish_login or not redfish,
        )
        return Resource(Key(Kind.BMC, machine.place, node.name), shape, (machine,), node.name)

    def _outlet(self, node: Node) -> Outlet | None:
        context = self._context
        socket = context.allocations.outlets.get(node.name)
        if socket is None:
            return None
        return Outlet(
            pdu=identity.pdu_uuid(context.id, socket.pdu),
            name=f"{context.cluster.name}-pdu-{socket.pdu}",
            address=socket.address,
            port=socket.port,
            number=socket.number,
            v2c=context.cluster.addressing.pdu.v2c,
        )
