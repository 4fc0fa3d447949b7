"""Filters of NICs of containers: libvirt's, as virtual machines of the same network have them.

liblxc's links are unknown to libvirt, which makes a filter for any link by a binding of its own
(formatnwfilter.html; `virsh nwfilter-binding-create`). liblxc runs `CREATE` when it has plugged a
link in and before the container runs anything; where that fails the container does not start.
The description of each binding is a file in the container's directory, named by its link, from
before it is made until it is removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from xml.etree import ElementTree as ET

from nospoon.model.resources.machines import Machine, MachineNic
from nospoon.model.resources.resource import Observed
from nospoon.providers.printed import lines_of
from nospoon.runtime.runner import Runner

CLEAN_TRAFFIC = "clean-traffic"
"""libvirt's filter: MAC, IPv4 and ARP of a NIC are its own, and nothing else passes."""
PATIENCE = 45
"""Seconds: libvirt makes one filter at a time, in 3 to 6 of them, and on a busy host in many more.
"""
VIRSH = f"timeout {PATIENCE} virsh -q -c qemu:///system"
AVAILABLE = f"{VIRSH} nwfilter-dumpxml {CLEAN_TRAFFIC} >/dev/null 2>&1"
"""Shell: whether libvirt on the host has the filter."""
LIST = f"{VIRSH} nwfilter-binding-list"
"""Shell: a link and its filter a line."""
CREATE = f"/bin/sh -c '{VIRSH} nwfilter-binding-create \"$0\" >&2'"
DELETE = f"/bin/sh -c '{VIRSH} nwfilter-binding-delete \"$0\" >&2 || :'"
"""Shell: what liblxc runs with a file and with a link; the words that it adds have no effect."""
PLUG = f"""
{VIRSH} nwfilter-binding-create "$0" >&2 || {{
  status=$?
  [ $status != 124 ] || echo "libvirt has made no filter of it within {PATIENCE} s" >&2
  exit $status
}}
"""
UNPLUG = f'{VIRSH} nwfilter-binding-delete "$0" >/dev/null 2>&1 || :'
"""Shell: the same of another runtime, with the file and the link as their names."""
REMOVE = f"""
directory=$1
for each in "$directory"/filter-*.xml; do
  [ -e "$each" ] || continue
  port=${{each##*/filter-}} port=${{port%.xml}}
  {VIRSH} nwfilter-binding-delete "$port" >/dev/null 2>&1 || {{
    left=$({LIST}) || exit 1
    case " $(echo $left) " in
      *" $port {CLEAN_TRAFFIC} "*) echo "the filter of $port is not removed" >&2; exit 1 ;;
    esac
  }}
  rm -f "$each"
done
"""
"""Shell, of a container's directory: bindings that are left of it. libvirt keeps those of links
that are gone.
"""


def filtered(machine: Machine) -> list[MachineNic]:
    """NICs that have a filter."""
    return [nic for nic in machine.nics if nic.network and nic.port and nic.sends_from is not None]


def path_of(directory: str, nic: MachineNic) -> str:
    """The file that describes a NIC's binding."""
    return f"{directory}/filter-{nic.port}.xml"


def settings(directory: str, nic: MachineNic) -> Iterator[tuple[str, str]]:
    """Of a NIC in lxc.container.conf(5)."""
    yield "script.up", f"{CREATE} {path_of(directory, nic)}"
    yield "script.down", f"{DELETE} {nic.port}"


def render(machine: Machine, name: str, nic: MachineNic) -> bytes:
    """A binding, as `virsh nwfilter-binding-create` takes it. `name`: of the node."""
    binding = ET.Element("filterbinding")
    owner = ET.SubElement(binding, "owner")
    ET.SubElement(owner, "name").text = name
    ET.SubElement(owner, "uuid").text = str(machine.uuid)
    ET.SubElement(binding, "portdev", name=nic.port)
    ET.SubElement(binding, "mac", address=nic.mac)
    chosen = ET.SubElement(binding, "filterref", filter=CLEAN_TRAFFIC)
    for each in nic.senders:
        ET.SubElement(chosen, "parameter", name="IP", value=each)
    return ET.tostring(binding)


async def seen(runner: Runner, machines: Sequence[Observed]) -> Sequence[Observed]:
    """The same machines; NICs of running ones without their filter send whatever they like."""
    if not any(_running(each) for each in machines):
        return machines
    done = await runner.run(["sh", "-ec", LIST])
    rows = (line.split() for line in lines_of(done))
    there = {row[0]: row[1] for row in rows if len(row) == 2}
    return [_as_filtered(each, there) for each in machines]


def _running(observed: Observed) -> list[MachineNic]:
    """Those with which it was started, of one that runs."""
    has = observed.live or observed.shape
    return filtered(has) if observed.running and isinstance(has, Machine) else []


def _as_filtered(observed: Observed, there: Mapping[str, str]) -> Observed:
    lost = {nic.port for nic in _running(observed) if there.get(nic.port) != CLEAN_TRAFFIC}
    has = observed.live or observed.shape
    if not lost or not isinstance(has, Machine):
        return observed
    nics = tuple(
        replace(nic, sends_from=None, virtual_ips=()) if nic.port in lost else nic
        for nic in has.nics
    )
    return replace(observed, live=replace(has, nics=nics))
