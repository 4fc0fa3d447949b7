"""A request that fits several labs is installed by what the lab has that gives it machines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.requests import judge
from nospoon.lab.provision import distro_of
from nospoon.lab.scheduler import Scheduler
from nospoon.lab.work import RecipeSet, Run
from nospoon.model.lab import Distro, Lab, LabFlavor, Limits, Registered

SMALL = LabFlavor("small", 1, 1 << 30, 20 << 30)
OLD = Distro("fedora-40", "http://old/k", "http://old/i")
NEW = Distro("fedora-41", "http://new/k", "http://new/i")
JOB = b"""<recipeSet><recipe><hostRequires/>
<distroRequires><distro_name op="like" value="fedora-%"/></distroRequires></recipe></recipeSet>"""


def known(name: str, *distros: Distro) -> KnownLab:
    lab = Lab(name, flavors=(SMALL,), distros=distros, limits=Limits(machines=1))
    return KnownLab(name, 0, "c", lab)


def submitted(labs: list[KnownLab], scheduler: Scheduler, number: int) -> Run:
    """The recipe of a request that may go to each of these labs, where it starts."""
    (judged,) = judge(JOB, labs, file="job.xml")
    found = RecipeSet(str(number), number, 0, "ada", judged.runs, labs=judged.labs)
    scheduler.submit(found, number)
    found = scheduler.sets[found.id]
    lab = next(each.lab for each in labs if each.key == found.lab)
    distro = distro_of(lab, found.runs[0])
    assert (distro.name if distro is not None else "") == found.runs[0].asked.distro
    return found.runs[0]


def scheduler_of(labs: list[KnownLab]) -> Scheduler:
    made = Scheduler()
    for each in labs:
        made.put_lab(each.key, each.lab)
    return made


@pytest.mark.parametrize(
    ("first", "second"), [((OLD,), (NEW,)), ((OLD,), (replace(OLD, kernel="http://x/k"),))]
)
def test_each_lab_installs_what_it_has(
    first: tuple[Distro, ...], second: tuple[Distro, ...]
) -> None:
    labs = [known("a", *first), known("b", *second)]
    scheduler = scheduler_of(labs)
    names = [submitted(labs, scheduler, number).asked.distro for number in (1, 2)]
    assert names == [first[0].name, second[0].name]


def test_a_registered_machine_runs_distributions_of_its_own_architecture() -> None:
    machines = (Registered("arm", arch="aarch64"), Registered("pc"))
    lab = Lab("a", dynamic=False, distros=(OLD,), machines=machines)
    arch = b"<distro_arch value='aarch64'/></distroRequires>"
    text = JOB.replace(b"</distroRequires>", arch)
    (judged,) = judge(text, [KnownLab("a", 0, "c", lab)], file="job.xml")
    assert judged.runs[0].options["a"].machines == ("arm",)


def test_a_lab_that_installs_nothing_starts_machines_which_are_ready() -> None:
    labs = [known("a", OLD), known("b")]
    scheduler = scheduler_of(labs)
    text = JOB.replace(b"<distroRequires>", b"<!--").replace(b"</distroRequires>", b"-->")
    (judged,) = judge(text, labs, file="job.xml")
    for number in (1, 2):
        found = RecipeSet(str(number), number, 0, "ada", judged.runs, labs=judged.labs)
        scheduler.submit(found, 0)
        scheduler.started(found.id, 1)
    stages = [str(scheduler.sets[str(number)].runs[0].stage) for number in (1, 2)]
    assert stages == ["booting", "ready"]


@pytest.mark.parametrize(
    ("requires", "machines"),
    [
        ("", ("pc",)),
        ("<memory op='&gt;' value='1'/>", ("pc",)),
        ("<arch value='aarch64'/>", ("arm",)),
        ("<not><arch value='i386'/></not>", ("arm",)),
        ("<hostname value='arm'/>", ("arm",)),
    ],
)
def test_who_asks_for_no_architecture_gets_the_usual_one_where_it_is(
    requires: str, machines: tuple[str, ...]
) -> None:
    """As of flavors: nothing else says what the lab's distribution runs on."""
    registered = (Registered("arm", arch="aarch64", memory=9), Registered("pc", memory=9))
    lab = KnownLab("a", 0, "c", Lab("a", dynamic=False, machines=registered))
    request = f"<hostRequires>{requires}</hostRequires>".encode()
    (judged,) = judge(request, [lab], file="job.xml")
    assert judged.runs[0].options["a"].machines == machines


def test_who_asks_for_no_architecture_gets_no_other_where_a_flavor_has_the_usual_one() -> None:
    lab = Lab("a", flavors=(SMALL,), machines=(Registered("arm", arch="aarch64"),))
    (judged,) = judge(b"<hostRequires/>", [KnownLab("a", 0, "c", lab)], file="job.xml")
    options = judged.runs[0].options["a"]
    assert ([size.flavor for size in options.sizes], options.machines) == (["small"], ())


def test_a_flavor_without_a_nic_gets_no_installer() -> None:
    """It would wait for `timeouts.boot`, as nothing is loaded there; an image is there at once."""
    bare = LabFlavor("bare", 1, 1 << 30, 15 << 30, wired=False)
    image = Distro("fedora-cloud", image="store:f")
    for distro, flavors in ((OLD, ["small"]), (image, ["bare", "small"])):
        lab = KnownLab("a", 0, "c", Lab("a", flavors=(bare, SMALL), distros=(distro,)))
        (judged,) = judge(b"<recipe><hostRequires/></recipe>", [lab], file="f")
        assert [size.flavor for size in judged.runs[0].options["a"].sizes] == flavors
    (judged,) = judge(
        JOB, [KnownLab("a", 0, "c", Lab("a", flavors=(bare,), distros=(OLD,)))], file="f"
    )
    why = "distribution fedora-40 comes over the network, and bare have no NIC"
    assert why in [each.why for each in judged.answers[0][0].reasons]
