"""Shapes of server groups: machines that a cloud has on one compute host, or on several."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class GroupPolicy(StrEnum):
    """As Nova calls them (https://docs.openstack.org/api-ref/compute/#server-groups-os-server-groups);
    what is soft gives way where no compute host is left.
    """

    TOGETHER = "affinity"
    APART = "anti-affinity"
    SOFT_TOGETHER = "soft-affinity"
    SOFT_APART = "soft-anti-affinity"

    @property
    def is_apart(self) -> bool:
        return self in {GroupPolicy.APART, GroupPolicy.SOFT_APART}


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """`most`: of its machines that one compute host may have, where they are kept apart; 0: one."""

    policy: GroupPolicy
    most: int = 0
