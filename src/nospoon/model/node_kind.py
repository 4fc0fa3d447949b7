"""The kinds of nodes of a cluster."""

from __future__ import annotations

from enum import StrEnum


class NodeKind(StrEnum):
    """What a node is."""

    BAREMETAL = "baremetal"
    """Hardware with a BMC, whose operating system is deployed."""
    VM = "vm"
    """A virtual machine that boots its image, which cloud-init sets up."""
    CONTAINER = "container"
    """A system container: an init of its own on the kernel of its host, set up by cloud-init."""
