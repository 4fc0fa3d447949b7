"""Types of segments, of which networks of a cloud are made."""

from __future__ import annotations

from enum import StrEnum


class SegmentType(StrEnum):
    """What a network of a cloud is made of (`provider:network_type` of Neutron)."""

    FLAT = "flat"
    VLAN = "vlan"
    VXLAN = "vxlan"
    GENEVE = "geneve"
    GRE = "gre"
