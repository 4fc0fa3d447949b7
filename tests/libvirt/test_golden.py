"""What a rack becomes, word for word: its plan, the plan of a change of it, and libvirt's XML.

To accept a difference, remove the file in `golden` that differs and run this once: it writes what
there is now, and fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import UUID
from xml.etree import ElementTree as ET

import pytest

from nospoon.clusterfile.load import load
from nospoon.control.planning.comparing import OWN_RULES
from nospoon.model.cluster import Arch, Cluster, Firmware
from nospoon.model.host_facts import HostFacts
from nospoon.model.resources.keys import Key
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff.diff import diff
from nospoon.plan.identity import pool_name
from nospoon.plan.order.steps import Plan
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.plan.text import plan_text
from nospoon.providers.libvirt.capabilities import RULES
from nospoon.providers.libvirt.domain_xml import Stage, render_domain
from nospoon.providers.libvirt.network_xml import render_network
from nospoon.providers.libvirt.owner import Owner

GOLDEN = Path(__file__).parent / "golden"
ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
TAG = OwnerTag("golden", ID, generation=1, token="t", name="rack", uid=1000)
HOSTS = ("here", "mine", "sim")
FACTS = HostFacts(frozenset(Firmware), frozenset(Arch), tpm=True)


def desired(
    cluster: Cluster,
    before: Allocations = Allocations(),  # noqa: B008  (frozen)
) -> tuple[Allocations, dict[Key, Resource]]:
    allocations, reasons = allocate(cluster, before, Occupied())
    assert not reasons
    around = Surroundings({host: f"/pools/{host}" for host in HOSTS}, {}, {})
    return allocations, resolve(cluster, ID, allocations, around)


def plan(wanted: Mapping[Key, Resource], there: Iterable[Observed] = ()) -> Plan:
    rules = {host: {**RULES, **OWN_RULES} for host in HOSTS}
    return diff(cluster="rack", cluster_id=ID, desired=wanted, observed=there, rules=rules)


def read(name: str) -> Cluster:
    return load((GOLDEN / name).read_text(), file=name)


def domain(machine: Machine, name: str) -> str:
    """Of a machine that libvirt has."""
    stage = Stage("/pool", f"/records/{name}.log", boot_iso="/pool/boot.iso")
    owner = Owner(TAG, name, pool_name(ID, "rack"), machine.boot_order, kind=machine.kind)
    return render_domain(machine, owner, stage)


def texts() -> dict[str, str]:
    """File name -> what it has to say."""
    allocations, first = desired(read("rack.yaml"))
    _, then = desired(read("changed.yaml"), allocations)
    there = [Observed(key, each.shape, TAG) for key, each in first.items()]
    found = {
        "rack.plan.txt": plan_text(plan(first)) + "\n",
        "changed.plan.txt": plan_text(plan(then, there)) + "\n",
    }
    for key, each in first.items():
        file = f"{key.kind}-{key.name}-{key.place}.xml"
        if isinstance(each.shape, Machine) and key.place != "sim":
            found[file] = domain(each.shape, key.name)
        elif isinstance(each.shape, Link) and key.place == "here":
            found[file] = render_network(each.shape, Owner(TAG, key.name))
    return found


TEXTS = texts()


def test_no_file_is_left_of_what_is_no_more() -> None:
    kept = {each.name for each in GOLDEN.iterdir()} - {"rack.yaml", "changed.yaml"}
    assert kept == TEXTS.keys()


@pytest.mark.parametrize("file", TEXTS)
def test_it_is_word_for_word_what_it_was(file: str) -> None:
    kept, text = GOLDEN / file, TEXTS[file]
    if file.endswith(".xml"):
        root = ET.fromstring(text)
        ET.indent(root)
        text = ET.tostring(root, encoding="unicode") + "\n"
    if not kept.exists():
        kept.write_text(text)
        pytest.fail(f"{kept} is written now: look at it, and keep it")
    assert text == kept.read_text()
