"""Which machine a MAC address is of."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from nospoon.control.labs.known import KnownLabs
from nospoon.errors import Conflict
from nospoon.lab.scheduler import Scheduler
from nospoon.model.lab import Inventory, Lab, Registered

MAC = "52:54:00:00:00:01"
THIEF, OWNER = 1001, 1002


def test_an_inventory_takes_no_mac_that_another_cluster_has_by_now() -> None:
    """What a machine reports of itself is believed as long as no other has it: an inventory that
    waits behind another address of its BMC is checked again when it counts again.
    """
    scheduler, thiefs, owners = Scheduler(), uuid4(), uuid4()
    labs = KnownLabs(scheduler, lambda: None)
    machine = Registered("m", address="192.0.2.1")
    found = Inventory(1, machine.bmc, "x86_64", 512, 4, macs=(MAC,))
    labs.put(thiefs, THIEF, "thief", [Lab("dev", machines=(machine,))])
    (key,) = labs.known
    scheduler.leave(key, "m", found)
    labs.inventoried(key, "m")
    assert labs.registered(MAC) == (labs.known[key], "m")

    elsewhere = Registered("m", address="192.0.2.2")
    labs.put(thiefs, THIEF, "thief", [Lab("dev", machines=(elsewhere,))])
    registered = [Lab("dev", machines=(Registered("victim", macs=(MAC,)),))]
    labs.require_own_macs(owners, registered)
    labs.put(owners, OWNER, "own", registered)
    labs.put(thiefs, THIEF, "thief", [Lab("dev", machines=(machine,))])
    labs.put(owners, OWNER, "own", registered)  # as with each change of the file

    labs.require_own_macs(owners, registered)
    has = labs.registered(MAC)
    assert has is not None
    assert (has[0].owner, has[1]) == (OWNER, "victim")
    assert labs.known[key].machines["m"].macs == ()
    assert labs.known[key].machines["m"].cpus == 4, "the rest of the inventory counts"


def test_a_bmc_is_in_the_labs_of_one_cluster_of_its_owner() -> None:
    labs, first, second = KnownLabs(Scheduler(), lambda: None), uuid4(), uuid4()
    blade = Registered("blade-1", address="192.0.2.1", port=443, system="1")
    labs.put(first, OWNER, "own", [Lab("dev", machines=(blade,))])
    labs.require_own_bmcs(OWNER, first, [Lab("dev", machines=(blade,))])
    labs.require_own_bmcs(OWNER, second, [Lab("dev", machines=(replace(blade, system="2"),))])
    labs.require_own_bmcs(THIEF, second, [Lab("dev", machines=(blade,))])
    again = [Lab("more", machines=(replace(blade, name="other"),))]
    with pytest.raises(Conflict, match="lab dev of cluster own has the machine with this BMC"):
        labs.require_own_bmcs(OWNER, second, again)
    labs.put(first, OWNER, "own", [Lab("dev")])
    labs.require_own_bmcs(OWNER, second, again)
    labs.put(second, OWNER, "two", again)
    labs.drop(second)
    labs.require_own_bmcs(OWNER, first, again)


def test_an_inventory_changes_its_machine_alone() -> None:
    """A lab may have 20,000 machines: all of them merged again is most of a second of the loop."""
    scheduler, calls = Scheduler(), list[str]()
    labs = KnownLabs(scheduler, lambda: calls.append("changed"))
    others = ("52:54:00:00:00:02", "52:54:00:00:00:03")
    machines = [Registered(f"m{n}", address=f"192.0.2.{n}") for n in (1, 2)]
    labs.put(uuid4(), OWNER, "own", [Lab("dev", machines=tuple(machines))])
    (key,) = labs.known
    first, second = labs.known[key].lab.machines
    for mac in (MAC, *others):
        scheduler.leave(key, "m2", Inventory(1, second.bmc, "x86_64", 512, 4, macs=(mac,)))
        labs.inventoried(key, "m2")
        assert labs.known[key].lab.machines[0] is first
        assert labs.known[key].machines["m2"].macs == (mac,)
        assert labs.registered(mac) == (labs.known[key], "m2")
    assert labs.registered(MAC) is None
    assert scheduler.labs[key] is labs.known[key].lab
    labs.inventoried(key, "of another file")
    assert len(calls) == 1 + 3


def test_clusters_without_labs_change_none() -> None:
    """The machines of each recipe set are one: for each set, logins of all labs were read again,
    and sets of labs that are gone were looked for among all that wait.
    """
    changes, sets, file = list[bool](), uuid4(), uuid4()
    labs = KnownLabs(Scheduler(), lambda: changes.append(True))
    labs.put(sets, OWNER, "lab-dev-1.1", [])
    assert changes == []
    labs.put(file, OWNER, "own", [Lab("dev")])
    assert len(changes) == 1
    labs.put(file, OWNER, "own", [])
    assert len(changes) == 2, "its last one is gone"
