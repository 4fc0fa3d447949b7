"""Tenks's hypervisors: the hosts of its inventory in the group `libvirt`, and their variables.

Its words: ansible/group_vars/hypervisors and ansible/group_vars/libvirt of Tenks. How Ansible gets
to a host: docs.ansible.com, "How to build your inventory". libvirt's URIs: libvirt.org/uri.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from nospoon.clusterfile.document import Value
from nospoon.importers.ansible_inventory import (
    Inventory,
    Variables,
    members,
    variables_of,
)
from nospoon.importers.source import templates

GROUP = "libvirt"
_LOCAL = frozenset({"local", "ansible.builtin.local"})
_SSH = frozenset({
    "ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh",
    "ansible.builtin.paramiko_ssh",
})  # fmt: skip
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_ADDRESS = ("ansible_host", "ansible_ssh_host")
_USER = ("ansible_user", "ansible_ssh_user")
_PORT = ("ansible_port", "ansible_ssh_port")
"""What Ansible calls them, and called them."""
CARRIED = frozenset({*_ADDRESS, *_USER, *_PORT, "ansible_connection"})
"""Variables that say where a host is."""
_MEANINGLESS = frozenset({
    "allocations_file_path", "ansible_python_interpreter", "bmc_emulators", "bridge_prefix",
    "default_interfaces", "libvirt_require_vt", "log_directory", "python_upper_constraints_url",
    "state_file_path", "system_requirements", "veth_bridge_ovs_suffix",
    "veth_bridge_source_suffix", "veth_node_ovs_suffix", "veth_node_source_suffix", "veth_prefix",
    "virtualenv_path",
})  # fmt: skip
"""Of Ansible's and Tenks's own working: nothing here corresponds to them, and nothing is lost."""
_WHO_RUNS_IT = ("{{ ansible_user_id }}", "{{ ansible_facts.user_id }}")
_DEFAULTS: Mapping[str, tuple[object, ...]] = {
    "libvirt_pool_name": ("tenks",),
    "libvirt_pool_path": ("/var/lib/libvirt/tenks_pool/",),
    "libvirt_pool_type": ("dir",),
    "libvirt_pool_mode": (755, "755"),
    "libvirt_pool_owner": _WHO_RUNS_IT,
    "libvirt_pool_group": _WHO_RUNS_IT,
    "default_ironic_driver": ("ipmi",),
    "default_boot_mode": ("uefi",),
}
"""What Tenks itself says on each host."""
_USUAL = "qemu:///system"

Hypervisors = Mapping[str, Variables]
"""By name, the variables."""


def hypervisors(inventory: Inventory) -> Hypervisors:
    """Those in the group and in groups below it."""
    return {name: variables_of(inventory, name) for name in members(inventory, GROUP)}


def without_templates(found: Hypervisors) -> Hypervisors:
    """Without variables that Ansible fills in."""
    return {
        name: {key: value for key, value in each.items() if not any(templates(value, key))}
        for name, each in found.items()
    }


def is_here(name: str, variables: Mapping[str, object]) -> bool:
    """Whether Ansible would not go anywhere, or to this machine by its name."""
    moved = _said(variables, _ADDRESS) or _said(variables, _PORT)
    return variables.get("ansible_connection") in _LOCAL or (name in _HERE and not moved)


def place(name: str, variables: Mapping[str, object]) -> tuple[str, str]:
    """Where a host is: as ssh(1) takes it, and as it stands in a URI; both "" for here."""
    if is_here(name, variables):
        return "", ""
    user, port = _said(variables, _USER) or "root", _said(variables, _PORT)
    address = _said(variables, _ADDRESS) or name
    authority = f"{user}@[{address}]" if ":" in address else f"{user}@{address}"
    if not port:
        return f"{user}@{address}", authority
    return f"ssh://{authority}:{port}", f"{authority}:{port}"


def _said(variables: Mapping[str, object], names: tuple[str, ...]) -> str:
    return next((str(variables[name]) for name in names if variables.get(name)), "")


def connection(authority: str, uri: str) -> str:
    """The URI from here of the libvirtd that Tenks reaches there by `uri`. "" for a URI that leads
    nowhere from here, or to a socket of its own, which nospoon's URIs do not name.
    """
    there = uri.replace("qemu+unix:", "qemu:", 1) or _USUAL
    parts = urlsplit(there)
    if parts.query:
        return ""
    if not authority or (parts.netloc and parts.hostname not in _HERE):
        return there
    if parts.netloc or parts.scheme != "qemu":
        return ""
    return f"qemu+ssh://{authority}{parts.path}"


def lost(found: Hypervisors, known: frozenset[str]) -> Iterator[str]:
    """Each variable that has no place, and the hosts that have it. `known`: those that do."""
    for name in sorted({name for each in found.values() for name in each}):
        hosts = [host for host, each in found.items() if _is_lost(name, each.get(name), known)]
        filled_in = name in known | CARRIED and any(
            any(templates(found[host][name], name)) for host in hosts
        )
        why = ": a template, which Ansible fills in" if filled_in else ""
        if hosts:
            yield f"{name} of {', '.join(hosts)}{why}"


def _is_lost(name: str, value: Value, known: frozenset[str]) -> bool:
    """A template is lost, too, but for Tenks's own that makes an URI of the socket's path."""
    if value in (None, "", {}, [], *_DEFAULTS.get(name, ())) or name in _MEANINGLESS:
        return False
    if any(templates(value, name)):
        return name != "libvirt_local_uri" or "libvirt_custom_socket_path" not in str(value)
    if name == "ansible_connection":
        return value not in _LOCAL | _SSH
    return name not in known | CARRIED
