"""Desired, observed and drift, as rows for people and programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from nospoon.clusterfile.recovered import FILE as RECOVERED
from nospoon.control.planning.prepared import Prepared, claimed
from nospoon.model.cluster import Adopted
from nospoon.model.host_facts import Adoptable
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.networks import FloatingIp
from nospoon.model.rest.clusters import PortgroupStatus
from nospoon.model.rest.nodes import NodeDetails, NodePort
from nospoon.plan import identity
from nospoon.plan.diff.adoption import changed_by_owners
from nospoon.plan.diff.diff import waiting
from nospoon.plan.order.kinds import KINDS, whose
from nospoon.plan.order.steps import Action, Step
from nospoon.plan.words import unreachable


def node_states(prepared: Prepared) -> dict[str, tuple[str, str]]:
    """Node -> (state, drift): present, missing, drifted, `waiting` for its next power-off to be as
    the file says, `unknown` while its host is away; nodes that should go are `extra`.
    """
    by_node, said = _steps_by_node(prepared), _who_says(prepared)
    late = {each.key.name: waiting(each) for each in prepared.seen.observed if each.waits}
    owners = changed_by_owners(claimed(prepared.seen.rows), prepared.desired)
    states, there = {}, _on_hosts(prepared)
    for node in prepared.seen.cluster.nodes:
        steps = by_node.pop(node.name, [])
        states[node.name] = (_state(steps), "; ".join(_drift(step, said) for step in steps))
        if node.adopted is not None and states[node.name][0] == "missing":
            states[node.name] = ("missing", _lost(node.adopted, there))
        elif node.name in owners and all(step.key.kind is Kind.BMC for step in steps):
            changes = (f"{c.field}: {c.observed} -> {c.desired}" for c in owners[node.name])
            states[node.name] = ("drifted", f"its owner changed {', '.join(changes)}")
        elif not steps and node.name in late:
            states[node.name] = ("waiting", late[node.name])
        if node.name in prepared.stranded:
            states[node.name] = ("unknown", "")
    for name, steps in by_node.items():
        if name:
            states[name] = ("extra", "; ".join(_drift(step, said) for step in steps))
    return states


def _on_hosts(prepared: Prepared) -> Mapping[UUID, Adoptable]:
    """The machines that are there, tagged or not, by UUID."""
    return {
        each.machine.uuid: each
        for facts in prepared.seen.surveyed.facts.values()
        for each in facts.machines or ()
    }


def _lost(machine: Adopted, there: Mapping[UUID, Adoptable]) -> str:
    found = there.get(machine.uuid)
    if found is not None and found.hindrance:
        return f"its owner removed {machine.name}: {found.hindrance.rstrip('.')}"
    if found is not None:
        return f"its owner defined {machine.name} again, without nospoon's tag"
    return f"its owner removed {machine.name}"


def other_drift(prepared: Prepared) -> list[str]:
    """What differs and belongs to no node: networks, pools, images, network boot; hosts away; why
    machines cannot be adopted.
    """
    away = [unreachable(name, why) for name, why in sorted(prepared.seen.away.items())]
    said = _who_says(prepared)
    away += prepared.seen.skipped
    return away + [_drift(step, said) for step in _steps_by_node(prepared).get("", [])]


def _who_says(prepared: Prepared) -> str:
    """Where it is said how things should be: after a recovery it is a guess, until an `up`."""
    earlier = prepared.seen.earlier
    return "recovered as" if earlier is not None and earlier.file == RECOVERED else "file says"


def _steps_by_node(prepared: Prepared) -> dict[str, list[Step]]:
    result: dict[str, list[Step]] = defaultdict(list)
    for step in prepared.plan.steps:
        result[step.node].append(step)
    return result


def _state(steps: Sequence[Step]) -> str:
    if any(s.action is Action.CREATE and s.key.kind is Kind.MACHINE for s in steps):
        return "missing"
    return "drifted" if steps else "present"


def _drift(step: Step, said: str) -> str:
    match step.action:
        case Action.CREATE:
            return f"{step.key.kind} {step.key.name} is missing"
        case Action.DELETE:
            return f"{step.key.kind} {step.key.name} is not in the file"
        case _ if step.changes:
            return ", ".join(f"{c.field}: {c.observed}, {said} {c.desired}" for c in step.changes)
        case _ if step.moves_from:
            return f"{step.key.kind} {step.key.name} is on {step.moves_from}"
        case _:
            return f"{step.key.kind} {step.key.name}: {step.why}"


def faults(prepared: Prepared) -> dict[str, str]:
    """Node -> why its machine, or what is in Ironic for it, does not work, though there."""
    found: dict[str, list[str]] = defaultdict(list)
    for each in prepared.seen.observed:
        if KINDS[each.key.kind].of_node and each.fault:
            found[each.key.name].append(each.fault)
    return {name: "; ".join(faults) for name, faults in found.items()}


def ports(machine: Machine, host: str) -> list[NodePort]:
    """A machine's NICs as Ironic's ports: `address`, and `local_link_connection` (none where it has
    a user-mode network, which is no switch). The same while the machine is off.
    """
    return [
        NodePort(
            nic.mac,
            {
                "switch_id": identity.switch_id(host, nic.network),
                "port_id": nic.port,
                "switch_info": nic.network,
            }
            if nic.port
            else {},
        )
        for nic in machine.nics
    ]


def portgroups(prepared: Prepared) -> dict[str, list[PortgroupStatus]]:
    """Node -> its portgroups, as Ironic's API names their fields; `ports` are their NICs' MACs."""
    machines = {
        key.name: resource.shape
        for key, resource in prepared.desired.items()
        if isinstance(resource.shape, Machine)
    }
    return {
        node.name: [
            PortgroupStatus(
                name=each.name,
                address=each.address or None,
                mode=each.mode,
                properties=dict(each.properties),
                standalone_ports_supported=each.standalone_ports,
                ports=[
                    made.mac
                    for nic, made in zip(node.nics, machines[node.name].nics, strict=True)
                    if nic.portgroup == each.name
                ],
            )
            for each in node.portgroups
        ]
        for node in prepared.seen.cluster.nodes
        if node.name in machines
    }


def floating_ips(prepared: Prepared) -> dict[str, list[str]]:
    """Node -> addresses of external networks that lead to it, as they were found."""
    found: dict[str, list[str]] = defaultdict(list)
    for each in prepared.seen.observed:
        if isinstance(each.shape, FloatingIp) and each.shape.mac:
            found[whose(each.key)].append(each.shape.address)
    return found


def details(
    about: Mapping[str, str], machine: Machine, host: str, commands: Iterable[PowerCommand]
) -> NodeDetails:
    """`about`: a node's summary; its machine's shape, on the host of this name. `commands`: its
    power commands under way.
    """
    return NodeDetails(
        **about,
        kind=str(machine.kind),
        cpus=machine.cpus,
        memory=f"{machine.memory >> 20} MiB",
        arch=str(machine.arch),
        firmware=str(machine.firmware) if machine.has_firmware else "",
        tpm=machine.tpm,
        disks=[
            f"{disk.volume} ({disk.bus}, {disk.serial})"
            if machine.has_firmware
            else f"{disk.volume} ({disk.file_system})"
            for disk in machine.disks
        ],
        nics=[f"{nic.mac} on {nic.network or 'user-mode network'}" for nic in machine.nics],
        ports=ports(machine, host),
        boot_order=[str(device) for device in machine.boot_order],
        serial_number=machine.serial_number,
        power_commands=[str(each) for each in commands],
    )


NOWHERE = {"ipmi": "", "redfish": "", "pdu": ""}


def endpoints(bmc: Bmc) -> dict[str, str]:
    """Where a BMC answers: `ipmi` as host:port, `redfish` as its System's URL; and its outlet."""
    outlet = bmc.outlet
    pdu = f"{outlet.address}:{outlet.port} outlet {outlet.number}" if outlet is not None else ""
    return {"ipmi": bmc.ipmi, "redfish": redfish_of(bmc), "pdu": pdu}


def redfish_of(bmc: Bmc) -> str:
    """The URL of a BMC's System, "" for one that does not speak Redfish."""
    scheme = "https" if bmc.tls else "http"
    return f"{scheme}://{bmc.redfish}/redfish/v1/Systems/{bmc.uuid}" if bmc.redfish else ""
