"""Drivers of what is in an Ironic and in the Nova of its cloud, put together and fenced."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from nospoon.control.fleet.discovery import DiscoveryDriver
from nospoon.control.fleet.enrolment import Sought
from nospoon.control.fleet.fleet import Fleet
from nospoon.control.fleet.hosts import Hosts
from nospoon.daemon.fenced import Require, fenced
from nospoon.model.ironic import IronicPlace
from nospoon.model.resources.keys import Kind
from nospoon.providers.base import Driver
from nospoon.providers.cloud_calls import Clouds
from nospoon.providers.ironic.connection import Ironics
from nospoon.providers.nova.api import PLACEMENT
from nospoon.providers.nova.api import Api as NovaApi
from nospoon.providers.nova.drivers import FlavorDriver
from nospoon.providers.nova.inventory import InventoryDriver
from nospoon.services.bmcs.service import BmcService


class Enrolling:
    """Every Ironic in use, and the Novas and Placements beside them."""

    def __init__(
        self,
        ironics: Ironics,
        clouds: Clouds,
        *,
        deployment: str,
        fleet: Fleet,
        hosts: Hosts,
        bmcs: BmcService,
        require: Require,
    ) -> None:
        self._ironics, self._clouds = ironics, clouds
        self._deployment, self._require = deployment, require
        self._fleet, self._hosts, self._bmcs = fleet, hosts, bmcs

    def drivers(
        self,
        place: IronicPlace,
        user: int,
        force: bool,  # noqa: FBT001
        sought: Sought,
    ) -> Mapping[Kind, Driver]:
        """As `nospoon.control.fleet.enrolment.IronicDrivers` says."""
        drivers: dict[Kind, Driver] = dict(self._ironics.drivers(place, user, force=force))
        drivers[Kind.IRONIC_DISCOVERY] = DiscoveryDriver(
            sought.nodes,
            partial(self._ironics.addresses, place, user),
            deployment=self._deployment,
            fleet=self._fleet,
            hosts=self._hosts,
            bmcs=self._bmcs,
        )
        if place.nova:
            nova = self._clouds.service(user, ("nova", place), partial(NovaApi, place))
            flavors = FlavorDriver(nova, self._deployment, force=force)
            drivers[Kind.NOVA_FLAVOR] = flavors
            make = partial(NovaApi, place, service=PLACEMENT)
            placement = self._clouds.service(user, ("placement", place), make)
            drivers[Kind.NOVA_INVENTORY] = InventoryDriver(
                placement,
                sought.inventories,
                sought.patience,
                deployment=self._deployment,
            )
        return {kind: fenced(each, self._require) for kind, each in drivers.items()}
