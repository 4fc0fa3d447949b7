"""What a request has that is passed over: its scheduler reads of it, before and afterwards."""

from __future__ import annotations

from pathlib import Path

import msgspec
from tests.security.asked import OWNER, a_daemon

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.requests import checked, judge
from nospoon.lab.effects import Happened
from nospoon.lab.scheduler import Scheduler
from nospoon.lab.work import RecipeSet
from nospoon.model.lab import Distro, Lab, LabFlavor

DISTRO = Distro("fedora", "http://new/k", "http://new/i")
FLAVORS = (LabFlavor("small", 1, 1 << 30, 20 << 30),)
LABS = [KnownLab(name, 0, "c", Lab(name, flavors=FLAVORS, distros=(DISTRO,))) for name in "ab"]
JOB = b"<recipe><hostRequires/><repos><repo name='a' url='b'/></repos></recipe>"
WHY = "not read: write what <repos> asks for into the kickstart"


def test_a_dry_run_names_it_once_for_all_labs() -> None:
    rows = [msgspec.to_builtins(each) for each in checked(judge(JOB, LABS, file="f"))]
    noted = [[(note["path"], note["line"], note["why"]) for note in row["notes"]] for row in rows]
    assert noted == [[("recipe/repos", 1, WHY)], []]
    assert [row["starts"] for row in rows] == [True, True]


def test_a_set_that_waits_has_it_in_its_history() -> None:
    (judged,) = judge(JOB, LABS, file="f")
    scheduler = Scheduler()
    for each in LABS:
        scheduler.put_lab(each.key, each.lab)
    found = RecipeSet("1.1", 1, 0, "ada", judged.runs, labs=judged.labs)
    assert Happened("1.1", 0, "note", f"recipe/repos: {WHY}") in scheduler.submit(found, 0)


async def test_a_flavor_that_gets_no_installer_is_listed(tmp_path: Path) -> None:
    text = """
cluster: c
hosts: {s: simulated}
flavors: {wired: {disks: [20GiB]}, bare: {disks: [20GiB], nics: []}}
labs: {l: {distros: {d: {kernel: "http://192.0.2.1/k", initrd: "http://192.0.2.1/i"}}}}
nodes: []
"""
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, text)).status < 300
        refused = (await asked.ask(OWNER, "GET", "/v1/labs/l/refusals")).json
    whys = {each["flavor"]: each["why"] for each in refused}
    assert whys.get("bare") == "it has no NIC, by which the lab's distributions come"


def test_a_distribution_of_its_own_is_not_replaced_by_the_labs() -> None:
    own = b"<distro><tree url='http://x/'/></distro><hostRequires/>"
    (judged,) = judge(JOB.replace(b"<hostRequires/>", own), LABS, file="f")
    assert judged.labs == ()
    (why,) = judged.answers[0][0].reasons
    assert why.why.startswith("it brings a distribution of its own (<distro>)")
