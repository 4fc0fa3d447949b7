"""Ports of Open vSwitch: read from its database and set there by ovs-vsctl(8).

ovs-vswitchd.conf.db(5), tables Bridge, Port and Interface.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nospoon.errors import MissingTool, ProviderError
from nospoon.model.resources.machines import MachineNic
from nospoon.providers.printed import value_in
from nospoon.runtime.runner import Runner

VSCTL = ("ovs-vsctl", "--timeout=5")
PORTS = ("--columns=_uuid,name,tag,trunks,vlan_mode", "list", "Port")
BRIDGES = ("--columns=name,ports", "list", "Bridge")
NATIVE = "native-untagged"
"""The one mode that tag and VLANs do not stand for by themselves."""
UNTAGGED = 0
"""Among the VLANs of a trunk: frames without a tag."""


@dataclass(frozen=True, slots=True)
class Plugged:
    """Where a port is, and what passes. `tag`: the VLAN of frames without a tag; `trunks`: VLANs of
    those that keep theirs, none for all; `mode`: what `vlan_mode` stands for.
    """

    bridge: str
    tag: int | None
    trunks: frozenset[int]
    mode: str


def settings(place: Plugged) -> list[str]:
    """Columns of its port that are not empty, as ovs-vsctl takes them."""
    columns = {
        "tag": "" if place.tag is None else str(place.tag),
        "trunks": ",".join(map(str, sorted(place.trunks))),
        "vlan_mode": place.mode if place.mode == NATIVE else "",
    }
    return [f"{column}={value}" for column, value in columns.items() if value]


def wanted(nic: MachineNic) -> Plugged:
    """As every connection plugs a NIC in."""
    if not nic.trunk:
        mode = "access" if nic.vlan is not None else "trunk"
        return Plugged(nic.network, nic.vlan, frozenset(), mode)
    if nic.vlan is None:
        return Plugged(nic.network, None, frozenset({UNTAGGED, *nic.trunk}), "trunk")
    return Plugged(nic.network, nic.vlan, frozenset({nic.vlan, *nic.trunk}), NATIVE)


@dataclass(frozen=True, slots=True)
class Switch:
    """What Open vSwitch has: its bridges, without those that stand for a VLAN of another, and every
    port by its name.
    """

    bridges: frozenset[str] = frozenset()
    ports: Mapping[str, Plugged] = field(default_factory=dict)


NONE = Switch()


async def look(runner: Runner) -> Switch:
    """What there is; nothing where Open vSwitch does not answer."""
    try:
        done = await runner.run(
            [*VSCTL, "--format=json", "--", *PORTS, "--", *BRIDGES], check=False
        )
    except MissingTool:
        return NONE
    if done.status:
        return NONE
    tables = [await value_in(done, line) for line in done.stdout.split("\n", 2)[:2]]
    try:
        return _switch(*map(_rows, tables))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ProviderError("`ovs-vsctl` printed what is not expected of it") from error


def _switch(listed: list[list[list[Any]]], bridges: list[list[list[Any]]]) -> Switch:
    home = {uuid: str(name) for (name,), its in bridges for uuid in its}
    ports = {
        str(name): Plugged(
            home[uuid],
            tag[0] if tag else None,
            _passing(trunks, tag, mode),
            mode[0] if mode else "access" if tag else "trunk",
        )
        for (uuid,), (name,), tag, trunks, mode in listed
        if uuid in home
    }
    return Switch(frozenset(str(name) for (name,), _ in bridges), ports)


def _passing(trunks: list[int], tag: list[int], mode: list[str]) -> frozenset[int]:
    """A port with a native VLAN passes that whether `trunks` has it or not, as what libvirt plugs
    in has, and what liblxc does has not.
    """
    return frozenset([*trunks, *tag] if trunks and mode == [NATIVE] else trunks)


def _rows(table: Mapping[str, Any]) -> list[list[list[Any]]]:
    """Each column of each row as a list: a set is tagged as one, as a UUID is (RFC 7047, 5.1)."""
    return [[_several(value) for value in row] for row in table["data"]]


def _several(value: Any) -> list[Any]:
    match value:
        case ["set", several]:
            return [each for one in several for each in _several(one)]
        case ["uuid", uuid]:
            return [uuid]
        case _:
            return [value]


async def unplug(runner: Runner, ports: Sequence[str]) -> None:
    """Take ports out of whatever bridge they are in."""
    argv = [each for port in ports for each in ("--", "--if-exists", "del-port", port)]
    await runner.run([*VSCTL, *argv])


async def plug(
    runner: Runner, port: str, place: Plugged, now: Plugged | None, ids: Mapping[str, str]
) -> None:
    """Put a port where it is wanted, in one transaction. `now`: where it is; `ids`: what libvirt
    notes of its interface (`external_ids`).
    """
    argv = [*VSCTL]
    if now is None or now.bridge != place.bridge:
        argv += ["--", "--if-exists", "del-port", port, "--", "add-port", place.bridge, port]
        noted = [f"external_ids:{name}={json.dumps(value)}" for name, value in ids.items()]
        argv += ["--", "set", "Interface", port, *noted] if noted else []
    argv += ["--", "clear", "Port", port, "tag", "trunks", "vlan_mode"]
    columns = settings(place)
    argv += ["--", "set", "Port", port, *columns] if columns else []
    await runner.run(argv)
