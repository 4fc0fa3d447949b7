"""Recipes of jobs: what precludes a dynamic machine besides their filters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nospoon.clusterfile.requests import read_asked, read_request
from nospoon.errors import SpecError
from nospoon.lab.filter import Answer, Offer
from nospoon.lab.recipe import verdict
from nospoon.model.host_facts import SizeOffered

LAB = Offer("lab", (SizeOffered("m", "m", 1, 1 << 30, 20 << 30),))
JOB = """
<job xmlns:x="urn:x">
  <x:note><x:y/></x:note>
  <whiteboard>free text</whiteboard>
  <recipeSet priority="High">
    <recipe><hostRequires/><task name="/a"><params><param name="P"/></params></task></recipe>
    <recipe><kickstart>lang en</kickstart><hostRequires/></recipe>
  </recipeSet>
  <recipeSet><recipe><hostRequires/></recipe></recipeSet>
</job>
"""


def answer(recipe: str) -> tuple[Answer, list[str]]:
    (found,) = read_request(f"<recipe>{recipe}</recipe>".encode(), file="f")
    judged = verdict(found, LAB)
    return judged.answer, [each.why for each in judged.reasons]


def test_recipes_of_a_job_know_their_sets() -> None:
    found = read_request(JOB.encode(), file="f")
    assert [(each.at.path, each.set_path) for each in found] == [
        ("job/recipeSet[1]/recipe[1]", "job/recipeSet[1]"),
        ("job/recipeSet[1]/recipe[2]", "job/recipeSet[1]"),
        ("job/recipeSet[2]/recipe", "job/recipeSet[2]"),
    ]
    assert {verdict(each, LAB).answer for each in found} == {Answer.POSSIBLE}


def test_guest_recipes_need_a_physical_machine() -> None:
    found, why = answer("<guestrecipe/><hostRequires><pool value='p'/></hostRequires>")
    assert found is Answer.PRECLUDED
    assert len(why) == 2
    assert "guest recipes need a physical machine" in why[0]


def test_a_distribution_of_an_architecture_gets_a_flavor_of_it() -> None:
    arm = SizeOffered("a", "a", 1, 1 << 29, 20 << 30, arch="aarch64")
    both = replace(LAB, flavors=(*LAB.flavors, arm))
    for arch, name in (("aarch64", "a"), ("x86_64", "m")):
        distro = f"<distroRequires><distro_arch value='{arch}'/></distroRequires>"
        (found,) = read_request(f"<recipe>{distro}<hostRequires/></recipe>".encode(), file="f")
        assert [each.name for each in verdict(found, both).flavors] == [name]


@pytest.mark.parametrize(
    ("distro", "runs"),
    [
        ('<distro_arch op="=" value="x86_64"/>', True),
        ('<distro_arch value="i386"/>', True),
        ('<distro_arch value="aarch64"/>', False),
        ('<distro_arch op="!=" value="x86_64"/>', True),  # i386 is left
        ('<distro_arch op="like" value="x86%"/>', True),
        ('<and><distro_family value="F"/><distro_arch value="s390x"/></and>', False),
        ('<or><distro_arch value="s390x"/><distro_arch value="x86_64"/></or>', True),
        ('<or><distro_arch value="s390x"/><distro_arch value="ppc64"/></or>', False),
        ('<not><distro_arch value="s390x"/></not>', True),
        ('<not><distro_arch value="i386"/></not>', True),  # x86_64 is left
        ('<not><distro_arch op="like" value="%"/></not>', False),
        ('<not><distro_family value="F"/></not>', True),
        ("", True),
    ],
)
def test_a_distribution_must_be_for_an_architecture_of_the_lab(distro: str, *, runs: bool) -> None:
    found, why = answer(f"<distroRequires>{distro}</distroRequires><hostRequires/>")
    assert found is (Answer.POSSIBLE if runs else Answer.PRECLUDED)
    assert runs or "run x86_64 and i386" in why[0]


@pytest.mark.parametrize(
    ("recipe", "noted"),
    [
        (
            "<recipe ks_meta='method=nfs' role='a' whiteboard='b'>{}</recipe>",
            "recipe: not read: ks_meta of <recipe>",
        ),
        (
            "<recipe>{}<ks_appends><a/></ks_appends></recipe>",
            "recipe/ks_appends: not read: write what <ks_appends> asks for into the kickstart",
        ),
        ("<recipe>{}<repos/><packages/></recipe>", ""),
        ("<recipe ks_meta='' kernel_options_post=''>{}</recipe>", ""),
        (
            "<recipe>{}<watchdog panik='ignore'/></recipe>",
            "recipe/watchdog: not read: panik of <watchdog>",
        ),
        ("<recipe>{}<reservesys duration='9' when='always'/></recipe>", ""),
        ("<recipe>{}<task name='/a' role='b'/></recipe>", ""),
        (
            "<recipe>{}<distroRequires><and><nme value='x'/><arc/></and></distroRequires></recipe>",
            "recipe/distroRequires: not compared with the lab's distributions: <nme>, <arc>",
        ),
    ],
)
def test_what_is_passed_over_of_a_recipe_is_named(recipe: str, noted: str) -> None:
    (found,) = read_asked(recipe.format("<hostRequires/>").encode(), file="f")
    assert found.asked[0].notes == (noted,) * bool(noted)


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        ("<kickstart>a</kickstart><kickstart>b</kickstart>", "expected one <kickstart>, got 2"),
        ("<watchdog/><watchdog panic='ignore'/>", "expected one <watchdog>, got 2"),
        (
            "<distroRequires><distro_name op='~' value='a'/></distroRequires>",
            "op: expected one of = != like, got '~'",
        ),
        (
            "<distroRequires><not><distro_arch/></not></distroRequires>",
            "expected a value of <distro_arch>",
        ),
        ("<distroRequires><x:a xmlns:x='urn:x'/></distroRequires>", "unknown element <a> of urn:x"),
    ],
)
def test_what_a_recipe_has_twice_or_cannot_mean_is_an_error(inner: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_asked(f"<recipe><hostRequires/>{inner}</recipe>".encode(), file="f")
    assert [each.message for each in caught.value.problems] == [message]


def test_a_panic_that_does_what_it_does_without_a_word_is_beakers_none() -> None:
    text = b"<recipe><hostRequires/><watchdog panic='None'/></recipe>"
    (found,) = read_asked(text, file="f")
    assert not found.asked[0].panic_ignored
    assert not found.asked[0].ends_on_panic
