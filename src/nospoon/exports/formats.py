"""Every format that `nospoon export --to` knows; the command line and the documents read this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from nospoon.exports import (
    ansible,
    bifrost,
    bmh,
    instackenv,
    ironic,
    kayobe,
    prometheus_sd,
    ssh_config,
)
from nospoon.exports.inventory import Inventory, Made
from nospoon.model.node_kind import NodeKind


class Syntax(StrEnum):
    """How a value is written."""

    JSON = "JSON"
    YAML = "YAML"
    """One document."""
    YAML_STREAM = "YAML documents"
    """A list, a document each."""
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Format:
    """A format: what it is, who reads it, and whether passwords and addresses of BMCs are in it.
    `kinds`: of nodes that its reader has a use for.
    """

    about: str
    reader: str
    syntax: Syntax
    make: Callable[[Inventory], Made]
    secrets: bool = True
    bmcs: bool = True
    kinds: frozenset[NodeKind] = frozenset({NodeKind.BAREMETAL})


FORMATS: Mapping[str, Format] = {
    "ironic": Format(
        "nodes, ports and portgroups", "`baremetal create nodes.json`", Syntax.JSON, ironic.make
    ),
    "instackenv": Format(
        "TripleO's nodes", "`openstack overcloud node import`", Syntax.JSON, instackenv.make
    ),
    "bifrost": Format(
        "Bifrost's machines",
        "`bifrost-cli enroll`, kolla-ansible's `bifrost/servers.yml`",
        Syntax.JSON,
        bifrost.make,
    ),
    "kayobe": Format(
        "hosts of the group baremetal-compute",
        "`kayobe baremetal compute register`",
        Syntax.YAML,
        kayobe.make,
    ),
    "bmh": Format(
        "BareMetalHosts and Secrets of Metal3",
        "`kubectl apply -f`",
        Syntax.YAML_STREAM,
        bmh.make,
    ),
    "ansible": Format(
        "inventory of the nodes",
        "`ansible-playbook -i`",
        Syntax.YAML,
        ansible.make,
        kinds=frozenset(NodeKind),
    ),
    "ssh-config": Format(
        "a block for each node",
        "`ssh -F`, `Include`",
        Syntax.TEXT,
        ssh_config.make,
        secrets=False,
        bmcs=False,
        kinds=frozenset(NodeKind),
    ),
    "prometheus-sd": Format(
        "targets: BMCs, PDUs, nodes",
        "Prometheus, `file_sd_configs` and `http_sd_configs`",
        Syntax.JSON,
        prometheus_sd.make,
        secrets=False,
        kinds=frozenset(NodeKind),
    ),
}
