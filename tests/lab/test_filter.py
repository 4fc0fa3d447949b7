"""Filters of requests: which flavors they leave, and why not others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nospoon.clusterfile.requests import read_request
from nospoon.errors import SpecError
from nospoon.lab.filter import GIB, MIB, Answer, Offer, Verdict
from nospoon.lab.recipe import verdict
from nospoon.model.host_facts import SizeOffered
from nospoon.model.lab import Disks


def flavor(name: str, memory: int, cpus: int, disk: int) -> SizeOffered:
    return SizeOffered(name, name, cpus, memory * MIB, disk * GIB)


FLAVORS = (
    flavor("large", 8192, 4, 80),
    flavor("tiny", 512, 1, 1),
    flavor("small", 2048, 1, 20),
    flavor("medium", 4096, 2, 40),
)
LAB = Offer("lab.example.com", FLAVORS)
BY_DISK = replace(LAB, disks=Disks.FLAVOR)


def judged(inner: str, offer: Offer = LAB) -> Verdict:
    text = inner if inner.startswith("<hostRequires") else f"<hostRequires>{inner}</hostRequires>"
    (recipe,) = read_request(text.encode(), file="f.xml")
    return verdict(recipe, offer)


def names(inner: str, offer: Offer = LAB) -> list[str]:
    return [each.name for each in judged(inner, offer).flavors]


@pytest.mark.parametrize(
    ("inner", "left"),
    [
        ("", "small medium large"),
        ('<memory op="&gt;=" value="4096"/>', "medium large"),
        ('<memory op="&gt;" value="4096"/>', "large"),
        ('<memory op="&lt;=" value="4096"/>', "small medium"),
        ('<memory op="&lt;" value="4096"/>', "small"),
        ('<memory op="!=" value="4096"/>', "small large"),
        ('<memory op="=" value="4096"/>', "medium"),
        ('<memory op="==" value="4096"/>', "medium"),
        ('<memory value="4096"/>', "medium"),
        ('<system><memory op="&gt;=" value="4096"/></system>', "medium large"),
        ('<cpu_count op="&gt;=" value="2"/>', "medium large"),
        ('<cpu><cores op="&gt;=" value="2"/></cpu>', "medium large"),
        ('<cpu><processors op="&gt;=" value="2"/></cpu>', "medium large"),
        ('<and><memory value="4096"/><cpu_count value="2"/></and>', "medium"),
        ('<or><memory value="4096"/><cpu_count value="4"/></or>', "medium large"),
        ('<or><memory value="4096"/><pool value="p"/></or>', "medium"),
        ('<not><memory value="4096"/></not>', "small large"),
        ('<not><pool value="p"/></not>', "small medium large"),
        ('<not><memory value="4096"/><pool value="p"/></not>', "small medium large"),
        ("<not/>", "small medium large"),
        ("<and/>", "small medium large"),
        ("<system/>", "small medium large"),
        ('<arch value="x86_64"/>', "small medium large"),
        ('<system><arch value="i386"/></system>', "small medium large"),
        ('<arch op="!=" value="s390x"/>', "small medium large"),
        ('<arch op="like" value="x86%"/>', "small medium large"),
        ('<labcontroller value="lab.example.com"/>', "small medium large"),
        ('<hostlabcontroller op="!=" value="other"/>', "small medium large"),
        ('<hypervisor value="KVM"/>', "small medium large"),
        ('<system><hypervisor op="like" value="K_M"/></system>', "small medium large"),
        ('<system_type value="Machine"/>', "small medium large"),
        ('<hostRequires force=""/>', "small medium large"),
    ],
)
def test_flavors_that_a_filter_leaves_come_smallest_first(inner: str, left: str) -> None:
    assert names(inner) == left.split()
    found = judged(inner)
    assert found.answer is Answer.POSSIBLE
    assert found.chosen == found.flavors[0]
    shuffled = replace(LAB, flavors=FLAVORS[::-1])
    assert judged(inner, shuffled).flavors == found.flavors


@pytest.mark.parametrize(
    ("inner", "at", "why"),
    [
        ('<memory op="&gt;=" value="16384"/>', "memory", "they have 2048, 4096, 8192"),
        ('<memory value="4000"/>', "memory", 'Without op it must be equal: write op=">="'),
        ('<cpu_count op="&gt;" value="4"/>', "cpu_count", "no flavor has > 4 CPUs"),
        (
            '<memory value="4096"/><cpu_count value="4"/>',
            "hostRequires",
            "none has all: <memory> medium; <cpu_count> large",
        ),
        ('<not><cpu_count op="&gt;=" value="1"/></not>', "not", "each flavor matches what is not"),
        ('<labcontroller value="x"/>', "labcontroller", "is lab.example.com: expected = 'x'"),
    ],
)
def test_a_filter_that_no_flavor_matches_says_at_which_element(
    inner: str, at: str, why: str
) -> None:
    found = judged(inner)
    assert found.answer is Answer.NO_FLAVOR
    assert found.chosen is None
    (reason,) = found.reasons
    assert reason.at.name == at
    assert why in reason.why


HARDWARE = [
    *(f'<{name} value="x"/>' for name in ("hostname", "group", "pool", "auto_prov", "host")),
    *(f'<{name} op="&gt;=" value="2"/>' for name in ("numa_node_count", "diskcount")),
    '<diskspace op="&gt;=" value="2" units="GB"/>',
    '<device op="=" bus="pci"/>',
    '<key_value key="HVM" op="=" value="1"/>',
    *(
        f'<system><{name} value="x"/></system>'
        for name in (
            "name", "lender", "model", "vendor", "owner", "user", "loaned", "location", "powertype",
            "serial", "status", "added", "last_inventoried",
        )
    ),
    '<system><numanodes op="&gt;" value="1"/></system>',
    '<system><compatible_with_distro arch="x86_64" osmajor="F30"/></system>',
    *(
        f'<cpu><{name} value="2"/></cpu>'
        for name in (
            "family", "model", "sockets", "stepping", "speed", "hyper", "model_name", "vendor",
            "flag",
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("inner", HARDWARE)
def test_any_other_hardware_requirement_precludes_and_is_named(inner: str) -> None:
    found = judged(f"<and>{inner}</and>")
    assert found.answer is Answer.PRECLUDED
    (reason,) = found.reasons
    assert f"<{reason.at.name}>" in reason.why
    assert names(f'<or>{inner}<memory value="2048"/></or>') == ["small"]
    assert judged(f"<or>{inner}</or>").answer is Answer.PRECLUDED


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        ('<hostRequires force="h.example.com"/>', "names one machine"),
        ('<hypervisor value=""/>', "here is KVM: expected = ''"),
        ('<system_type value="Laptop"/>', "here is Machine: expected = 'Laptop'"),
        ('<system><type op="!=" value="Machine"/></system>', "expected != 'Machine'"),
        ('<arch value="ppc64le"/>', "here is x86_64 or i386: expected = 'ppc64le'"),
        ('<arch op="!=" value="x86_64"/>', "here is x86_64 or i386"),
        ("<or/>", "an empty <or> matches nothing"),
    ],
)
def test_what_dynamic_machines_are_not_precludes_them(inner: str, why: str) -> None:
    found = judged(inner)
    assert found.answer is Answer.PRECLUDED
    assert why in found.reasons[0].why


@pytest.mark.parametrize(
    "inner", ['<disk><size op="&gt;=" value="1"/></disk>', "<disk/>", '<diskcount value="1"/>']
)
@pytest.mark.parametrize("form", ["{}", "<not>{}</not>", "<not><or>{}</or></not>"])
def test_recipes_that_ask_for_disks_get_no_dynamic_machine(inner: str, form: str) -> None:
    found = judged(form.format(inner))
    assert found.answer is Answer.PRECLUDED
    assert "disk" in found.reasons[0].at.name


@pytest.mark.parametrize(
    ("inner", "left"),
    [
        ('<disk><size op="&gt;=" value="21474836480"/></disk>', "small medium large"),
        ('<disk><size op="&gt;" value="20" units="GiB"/></disk>', "medium large"),
        ('<disk><size op="&gt;" value="20" units="GB"/></disk>', "small medium large"),
        ('<not><disk><size op="&gt;" value="20" units="GiB"/></disk></not>', "small"),
        ('<not><disk><sector_size value="512"/></disk></not>', "small medium large"),
        ("<disk/>", "small medium large"),
    ],
)
def test_a_lab_may_take_the_size_of_a_disk_as_its_flavors(inner: str, left: str) -> None:
    assert names(inner, BY_DISK) == left.split()


def test_a_reason_names_a_flavor_once_whatever_disks_are_tried() -> None:
    inner = (
        '<memory value="2048"/><cpu_count value="4"/><disk><size value="30" units="GiB"/></disk>'
    )
    (reason,) = judged(inner, replace(LAB, disks=Disks.ASKED)).reasons
    assert "<memory> small; <cpu_count> large; <disk> tiny, small, medium, large" in reason.why


ARM = replace(flavor("arm", 1024, 1, 20), arch="aarch64")
BOTH = replace(LAB, flavors=(*FLAVORS, ARM))


@pytest.mark.parametrize(
    ("inner", "left"),
    [
        ("", "small medium large"),
        ('<arch value="aarch64"/>', "arm"),
        ('<system><arch op="like" value="aarch%"/></system>', "arm"),
        ('<arch value="i386"/>', "small medium large"),
        ('<or><arch value="aarch64"/><memory value="4096"/></or>', "arm medium"),
        ('<not><arch value="aarch64"/></not>', "small medium large"),
    ],
)
def test_flavors_are_of_an_architecture(inner: str, left: str) -> None:
    assert names(inner, BOTH) == left.split()
    assert names("", replace(BOTH, flavors=(ARM,))) == ["arm"], "there is no usual one"
    other = judged('<arch value="s390x"/>', BOTH)
    assert other.answer is Answer.PRECLUDED
    assert "arch of dynamic machines here is x86_64 or i386 or aarch64" in other.reasons[0].why


@pytest.mark.parametrize(
    ("inner", "sizes"),
    [
        ('<disk><size op="&gt;=" value="30" units="GiB"/></disk>', "30 30 40 80"),
        ('<disk><size op="&gt;=" value="50" units="GB"/></disk>', "47 47 47 80"),
        ('<disk><size op="=" value="25" units="GiB"/></disk>', "25 25 25 25"),
        ('<disk><size op="&lt;" value="20" units="GiB"/></disk>', "19 19 19 19"),
        (
            "<disk><size op='&gt;' value='15' units='GiB'/><size op='!=' value='16' units='GiB'/>\
<size op='&lt;=' value='17' units='GiB'/></disk>",
            "17 17 17 17",
        ),
        (
            "<or><disk><size value='25' units='GiB'/></disk><memory value='4096'/></or>",
            "25 25 40 25",
        ),
        ("", "20 40 80"),
    ],
)  # fmt: skip
def test_a_lab_may_make_disks_of_the_size_that_is_asked_for(inner: str, sizes: str) -> None:
    found = judged(inner, replace(LAB, disks=Disks.ASKED)).flavors
    assert [each.disk // GIB for each in found] == list(map(int, sizes.split()))
    every = ["tiny", "small", "medium", "large"]
    assert [each.name for each in found] == every[-len(found) :]


def test_a_disk_that_is_larger_than_a_lab_makes_is_refused_with_how_large_they_are() -> None:
    found = judged(
        '<disk><size op="&gt;=" value="200" units="GiB"/></disk>', replace(LAB, disks=Disks.ASKED)
    )
    assert found.answer is Answer.NO_FLAVOR
    assert "this lab makes disks of up to 100 GiB" in found.reasons[0].why
    other = '<disk><model value="x"/></disk>'
    assert judged(other, replace(LAB, disks=Disks.ASKED)).answer is Answer.PRECLUDED


def test_flavors_with_too_small_a_disk_install_nothing() -> None:
    assert names("", replace(LAB, minimum_disk=0)) == ["tiny", "small", "medium", "large"]
    none = judged("", replace(LAB, minimum_disk=100 * GIB))
    assert none.answer is Answer.NO_FLAVOR
    assert "none of 4 flavors has a disk of 100 GiB" in none.reasons[0].why


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<memory ops='&gt;=' value='4096'/>", "unknown attribute 'ops' of <memory>"),
        ("<memory op='&gt;=' value='4096' xml:lang='en'/>", "unknown attribute 'lang' of <memory>"),
        ("<or value='1'/>", "unknown attribute 'value' of <or>"),
        ("<cpu flag='vmx'/>", "unknown attribute 'flag' of <cpu>"),
        ("<device drivr='e1000'/>", "unknown attribute 'drivr' of <device>"),
        (
            "<disk><model op='like' value='1' units='MB'/></disk>",
            "unknown attribute 'units' of <model>",
        ),
    ],
)
def test_an_attribute_that_is_unknown_is_an_error(text: str, message: str) -> None:
    """Beaker passes over it, and compares as if it was not there."""
    with pytest.raises(SpecError) as caught:
        read_request(f"<hostRequires>{text}</hostRequires>".encode(), file="f")
    assert message in [each.message for each in caught.value.problems]


def test_a_machine_by_its_name_has_no_filter_besides() -> None:
    with pytest.raises(SpecError, match="expected nothing beside force, got <memory>"):
        read_request(b"<hostRequires force='a'><memory value='1'/></hostRequires>", file="f")
