"""Why nodes are left as they are."""

from __future__ import annotations

from nospoon.errors import Conflict
from nospoon.providers.answers import text_of
from nospoon.providers.ironic.drivers import left_in_maintenance
from nospoon.providers.ironic.records import Record

MENDABLE = frozenset({"clean failure", "rescue abort failure", "power failure"})
"""Faults for which Ironic itself puts a node in maintenance; who tries again takes it out."""


def in_use(name: str, why: str, hint: str) -> Conflict:
    return Conflict(f"node {name} is in use in Ironic: {why}", hint=hint)


def refuse_protected(record: Record, name: str) -> None:
    """Ironic refuses to undeploy, rebuild or delete it, in maintenance too."""
    if record.get("protected"):
        why = f": {text_of(record['protected_reason'])}" if record.get("protected_reason") else ""
        raise Conflict(
            f"node {name} is protected in Ironic{why}. It is left unchanged",
            hint="`openstack baremetal node unset --protected "
            f"{text_of(record['uuid'])}` ends that.",
        )


def refuse_rescued(record: Record, name: str) -> None:
    if record["provision_state"] != "active":
        raise Conflict(
            f"node {name} is {text_of(record['provision_state'])}: it cannot be deployed again now",
            hint="Bring it back to `active` first.",
        )


def refuse_maintained(record: Record, name: str) -> None:
    """In someone's maintenance; one that Ironic or we put it in is ended when it is deployed."""
    if not record.get("maintenance") or left_in_maintenance(record):
        return
    if record.get("fault") not in MENDABLE:
        why = text_of(record.get("maintenance_reason") or "without a reason")
        raise Conflict(
            f"node {name} is in maintenance: {why}. It could not be deployed again",
            hint="End the maintenance first.",
        )
