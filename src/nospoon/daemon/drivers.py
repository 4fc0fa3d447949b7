"""The drivers of a host: its connection's, and those of services that the daemon runs itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nospoon.control.fleet.hosts import Hosts
from nospoon.daemon.fenced import Require, fenced
from nospoon.daemon.remote import Remote
from nospoon.model.cluster import Host
from nospoon.model.resources.keys import Kind
from nospoon.providers.base import Driver
from nospoon.services.bmcs.driver import BmcDriver
from nospoon.services.netboot.driver import NetbootDriver
from nospoon.services.netboot.relayed import RelayNetbootDriver


@dataclass(frozen=True, slots=True)
class HostDrivers:
    """`remote`: what serves network boot on hosts over ssh, `relays`: in clouds. `require`:
    raises where the daemon has lost its leadership.
    """

    hosts: Hosts
    bmcs: BmcDriver
    netboot: NetbootDriver
    relays: RelayNetbootDriver
    remote: Callable[[Host], Remote]
    require: Require
    _fences: dict[Driver, Driver] = field(default_factory=dict)

    def of(self, host: Host) -> Mapping[Kind, Driver]:
        """The connection's drivers, and those of services that the daemon runs itself."""
        drivers = dict(self.hosts.use(host).connection.drivers)
        drivers[Kind.BMC] = self._fenced(self.bmcs)
        if host.declares.has_bridges:
            drivers[Kind.NETBOOT] = self._fenced(self._netboot_of(host))
        elif host.declares.has_ports:
            drivers[Kind.NETBOOT] = self._fenced(self.relays)
        return drivers

    def _fenced(self, driver: Driver) -> Driver:
        """The same each time, for one driver serves several hosts."""
        if driver not in self._fences:
            self._fences[driver] = fenced(driver, self.require)
        return self._fences[driver]

    def _netboot_of(self, host: Host) -> Driver:
        if not host.ssh:
            return self.netboot
        return self.remote(host).netboot
