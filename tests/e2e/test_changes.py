"""Each field of the cluster file has a rule how its change reaches what is there; here each row of
`nospoon.clusterfile.changes` is proven on libvirt: the plan's sign first, then what libvirt says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from inspect import get_annotations
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from tests.e2e.field_cases import CASES, Case, told
from tests.e2e.standing import Standing, bridges, virsh

from nospoon.clusterfile import changes
from nospoon.clusterfile.changes import Rule, rule_of
from nospoon.clusterfile.cloud import CloudAuthSection, CloudSection
from nospoon.clusterfile.docker import DockerSection
from nospoon.clusterfile.hardware import DiskSection, HardwareSection, NicSection
from nospoon.clusterfile.ironic import (
    ConnectorSection,
    EnrolmentSection,
    IronicSection,
    TargetSection,
    VolumesSection,
)
from nospoon.clusterfile.labs import (
    DistroSection,
    LabBmcSection,
    LabLimitsSection,
    LabMachineSection,
    LabSection,
    LabTimeoutsSection,
    WebhookSection,
)
from nospoon.clusterfile.lxc import LxcSection
from nospoon.clusterfile.models import (
    ClusterFile,
    HostSection,
    NetworkSection,
)
from nospoon.clusterfile.node_groups import (
    AdoptSection,
    FlavorSection,
    NodeGroupSection,
)
from nospoon.clusterfile.nova import NovaFlavorSection, NovaSection
from nospoon.clusterfile.openstack import OpenStackSection, RelaySection
from nospoon.clusterfile.services import HealthSection, ServiceSection
from nospoon.clusterfile.simulated import AgentsSection, SimulatedSection
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack, private_rack

pytestmark = [pytest.mark.libvirt]

SIMULATED = "tests/e2e/test_changes.py::test_how_simulated_machines_behave_changes_at_once"
ENROLLED = "tests/ironic/test_changes.py::test_a_change_of_each_field_reaches_the_node_in_place"
AGENTS = (
    "tests/simulated/test_simulated.py::"
    "test_a_host_that_is_described_differently_has_other_agents_from_then_on"
)
DEPLOYED = (
    "tests/ironic/test_standing.py::"
    "test_what_is_to_be_deployed_is_told_and_what_is_not_any_more_is_taken_back"
)
VOLUMES = "tests/ironic/test_enrolment.py::test_volumes_to_boot_from_reach_ironic_and_change_and_go"
FLAVORS = "tests/nova/test_flavors.py::test_flavors_are_made_changed_in_place_and_removed"
LEFT = (
    "tests/ironic/test_enrolment.py::"
    "test_an_ironic_that_is_away_is_told_and_a_cluster_can_leave_it_its_nodes"
)
ADOPTED = "tests/e2e/test_adopted.py::test_other_adoptions_are_other_nodes"
CHECKSUM = "tests/e2e/test_downloads.py::test_a_changed_checksum_is_a_changed_image"
CLOUDS = "tests/e2e/test_cloud_changes.py::test_changes_of_a_cloud_follow_their_rules"
RELAYS = "tests/e2e/test_cloud_relays.py::test_changes_of_a_relay_follow_their_rules"
KINDS = "tests/e2e/test_kinds.py::test_changes_of_what_cloud_init_gets_follow_their_rules"
CONTAINERS = "tests/e2e/test_containers.py::test_changes_of_the_connection_follow_their_rules"
ENGINE = (
    "tests/docker/test_cluster.py::test_a_container_of_an_engine_runs_systemd_and_follows_its_file"
)
SERVICES = "tests/e2e/test_services.py::test_changes_of_services_follow_their_rules"
DESCRIBED = (
    "tests/e2e/test_services.py::test_changes_of_nodes_that_services_describe_follow_their_rules"
)
OF_SERVICES = (ServiceSection, HealthSection)
LABS = "tests/e2e/test_labs.py::test_a_lab_follows_its_file"
FULL = "tests/e2e/test_labs.py::test_a_set_waits_for_a_host_that_is_full"
OF_LABS = (
    LabSection, LabLimitsSection, LabTimeoutsSection, DistroSection, LabMachineSection,
    LabBmcSection, WebhookSection,
)  # fmt: skip
ELSEWHERE: dict[tuple[type[BaseModel], str], str] = {
    (ClusterFile, "cluster"): "tests/e2e/test_changes.py::test_another_name_is_another_cluster",
    (HostSection, "libvirt"): "tests/e2e/test_places.py::"
    "test_a_host_that_leads_elsewhere_is_refused_while_it_holds_something",
    (HostSection, "ssh"): "tests/fleet/test_hosts.py::"
    "test_a_host_that_leads_to_another_machine_is_refused",
    (HostSection, "docker"): ENGINE,
    (DockerSection, "socket"): ENGINE,
    (HostSection, "lxc"): CONTAINERS,
    (LxcSection, "idmap"): CONTAINERS,
    (LxcSection, "new_privileges"): CONTAINERS,
    (DockerSection, "new_privileges"): ENGINE,
    (HostSection, "address"): "tests/fleet/test_overlays.py::"
    "test_another_address_of_a_host_leads_the_tunnels_there",
    (NetworkSection, "overlay"): "tests/fleet/test_overlays.py::"
    "test_a_tunnel_that_is_gone_is_drift_and_mended_and_down_leaves_none",
    **{(OpenStackSection, name): CLOUDS for name in OpenStackSection.model_fields},
    **{(RelaySection, name): RELAYS for name in RelaySection.model_fields},
    **{(section, name): LABS for section in OF_LABS for name in section.model_fields},
    (NicSection, "pxe"): ENROLLED,
    (NicSection, "address"): KINDS,
    (NetworkSection, "provider"): CLOUDS,
    (NetworkSection, "segment"): CLOUDS,
    (NetworkSection, "segment_id"): CLOUDS,
    (NetworkSection, "router"): CLOUDS,
    (NetworkSection, "dhcp"): CLOUDS,
    (NicSection, "floating_ip"): CLOUDS,
    (NicSection, "floating_address"): CLOUDS,
    **{(HardwareSection, name): KINDS for name in ("image", "user_data", "ssh_keys")},
    (HardwareSection, "rollback"): "tests/e2e/test_kinds.py::"
    "test_an_upgrade_keeps_the_former_root_and_its_image_brings_it_back",
    **{(section, name): SERVICES for section in OF_SERVICES for name in changes.RULES[section]},
    **{
        (ServiceSection, name): DESCRIBED
        for name in ("kind", "count", "networks", "volumes", "combine", "role")
    },
    (FlavorSection, "kind"): KINDS,
    (NodeGroupSection, "kind"): KINDS,
    (DiskSection, "checksum"): CHECKSUM,
    (DiskSection, "mount"): "tests/e2e/test_containers.py::"
    "test_a_volume_outlives_the_roots_of_its_container_and_moves_at_power_off",
    **{(SimulatedSection, name): SIMULATED for name in SimulatedSection.model_fields},
    **{(AdoptSection, name): ADOPTED for name in AdoptSection.model_fields},
    (SimulatedSection, "machines"): ADOPTED,
    (SimulatedSection, "cpus"): FULL,
    (SimulatedSection, "memory"): FULL,
    **{(AgentsSection, name): AGENTS for name in AgentsSection.model_fields},
    **{(EnrolmentSection, name): ENROLLED for name in EnrolmentSection.model_fields},
    **{(EnrolmentSection, name): DEPLOYED for name in ("image", "checksum", "instance_info")},
    **{
        (section, name): VOLUMES
        for section in (VolumesSection, ConnectorSection, TargetSection)
        for name in section.model_fields
    },
    (NovaSection, "wait"): "tests/nova/test_inventory.py::"
    "test_up_waits_until_placement_has_the_nodes_of_each_flavor",
    **{(NovaFlavorSection, name): FLAVORS for name in NovaFlavorSection.model_fields},
    **{
        (section, name): LEFT
        for section in (IronicSection, CloudSection, CloudAuthSection)
        for name in changes.RULES[section]
    },
}
"""Fields that need another place than one host on libvirt, and the test that is there."""
WITHOUT_A_CASE = {Rule.PARTS, Rule.FIXED}


def sections(of: type[BaseModel] = ClusterFile) -> Iterator[type[BaseModel]]:
    """Every section that a file may have."""
    yield of
    for field_of in of.model_fields.values():
        for each in _models(field_of.annotation):
            yield from sections(each)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)


def declared(section: type[BaseModel]) -> Iterator[tuple[type[BaseModel], str]]:
    """Its fields, each with the section that declares it."""
    for name in section.model_fields:
        owners = [each for each in section.__mro__ if name in get_annotations(each)]
        yield owners[0], name


def test_every_field_has_a_rule_and_a_test() -> None:
    fields = {each for section in sections() for each in declared(section)}
    assert {(of, name) for of, rules in changes.RULES.items() for name in rules} == fields
    proven = {(case.section, case.field) for case in CASES} | ELSEWHERE.keys()
    free = {each for each in fields if rule_of(*each) in WITHOUT_A_CASE}
    assert fields - proven - free == set()
    for place in ELSEWHERE.values():
        path, _, name = place.partition("::")
        assert f"def {name}(" in (Path(__file__).parents[2] / path).read_text(), place


@pytest.fixture(scope="module")
def standing() -> Iterator[Standing]:
    """The cluster that all cases change: making it takes time."""
    with private_rack() as rack, bridges() as (one, two, ovs):
        made = Standing(rack, (one, two), ovs)
        made.up()
        yield made
        rack.down()


def judge(rule: Rule, plan: dict[str, Any]) -> None:
    """Whether a plan's steps are what the rule says."""
    steps = plan["steps"]
    ours = [each for each in steps if each["kind"] == "machine" and each["name"] == "n"]
    actions = [each["action"] for each in ours]
    match rule:
        case Rule.LIVE:
            assert steps or plan["remembers"]
            assert set(actions) <= {"change"}
            assert not any(each["at_power_off"] for each in steps)
        case Rule.AT_POWER_OFF:
            assert [(each["action"], each["at_power_off"]) for each in ours] == [("change", True)]
        case Rule.REPLACE:
            assert actions == ["replace"] or sorted(actions) == ["create", "delete"]
        case Rule.NODES:
            assert not ours
            made = {each["action"] for each in steps if each["kind"] == "machine"}
            assert made
            assert made <= {"create", "delete"}
        case _:
            assert not steps
            assert plan["remembers"]
    if rule is not Rule.REPLACE:
        assert "replace" not in {each["action"] for each in steps}


PARAMETERS = [pytest.param(each, id=f"{each.section.__name__}-{each.field}") for each in CASES]


@pytest.mark.parametrize("case", PARAMETERS)
def test_a_change_of_each_field_is_what_its_rule_says(standing: Standing, case: Case) -> None:
    with case.around(standing):
        tried(standing, case)


def tried(standing: Standing, case: Case) -> None:
    rack, becomes = (
        standing.rack,
        standing.filled(case.becomes) if isinstance(case.becomes, str) else case.becomes,
    )
    standing.up(case.before)
    file = standing.file(case.before, case.after)
    if case.expected is Rule.REFUSED:
        assert becomes in rack.run("plan", file, status=1).stderr
        return
    running = standing.run()
    judge(case.expected, rack.json("plan", file))
    if case.look is None and case.xml is None:
        return  # nothing is made of it
    assert case.seen(standing) != becomes
    said = standing.up(case.before, case.after)
    assert case.seen(standing) == becomes
    late = case.expected is Rule.AT_POWER_OFF
    assert late is ("n has to be powered off for" in said)
    assert not late or case.seen(standing, live=True) != becomes
    if case.expected is not Rule.REPLACE:
        assert virsh("domid", standing.domain) == running, "it runs on"


def test_a_case_without_a_look_makes_nothing() -> None:
    blind = {case.expected for case in CASES if case.look is None and case.xml is None}
    assert blind == {Rule.NEW_NODES, Rule.REMEMBERED, Rule.REFUSED}


def test_another_name_is_another_cluster(standing: Standing) -> None:
    standing.up()
    running = standing.run()
    other = standing.rack.name()
    plan = standing.rack.json("plan", standing.file({"cluster": other}))
    assert {each["action"] for each in plan["steps"]} == {"create"}
    assert plan["cluster"] == other
    assert virsh("domid", standing.domain) == running


def test_what_somebody_edited_shows_in_status_and_up_mends_it(standing: Standing) -> None:
    standing.up()
    running, file = standing.run(), standing.file()
    virsh("autostart", standing.domain)
    virsh("domif-setlink", standing.domain, standing.port, "down")
    assert told("state")(standing) == "drifted"
    (step,) = standing.rack.json("plan", file)["steps"]
    assert {each["field"] for each in step["changes"]} == {"autostart", "unlinked"}
    assert not step["at_power_off"]
    standing.rack.run("up", "--yes", file)
    assert told("state")(standing) == "present"
    assert virsh("domif-getlink", standing.domain, standing.port).endswith(" up")
    assert "disable" in virsh("dominfo", standing.domain).partition("Autostart:")[2].split("\n")[0]
    assert virsh("domid", standing.domain) == running, "it runs on"


def power(rack: Rack, command: str) -> str:
    """The machine's power right after a command, which may fail, and be answered before its end."""
    with contextlib.suppress(AssertionError):
        rack.run("node", "power", rack.names[-1] + "/n", command)
    return rack.run("node", "power", rack.names[-1] + "/n", "status").stdout.strip()


def said(rack: Rack) -> bool:
    """Whether the machine says at its boot what it shall."""

    def record() -> str:
        return rack.run("node", "console", rack.names[-1] + "/n", "--log").stdout

    before = record()
    power(rack, "cycle")
    return record().count("the Oracle") > before.count("the Oracle")


BEHAVIOUR: dict[str, tuple[str, Callable[[Rack], object], object, object]] = {
    "power_on": ("20s", lambda rack: power(rack, "on"), "on", "off"),
    "power_off": ("20s", lambda rack: power(rack, "off"), "off", "on"),
    "shut_down": ("20s", lambda rack: power(rack, "soft"), "off", "on"),
    "power_failures": ("1", lambda rack: power(rack, "off"), "off", "on"),
    "console": ("the Oracle", said, False, True),
    "boot": ("20s", said, True, False),
}
"""Field of `simulated` -> another value, what is done, and what comes of it before and after."""


@pytest.mark.parametrize("field", BEHAVIOUR)
def test_how_simulated_machines_behave_changes_at_once(shared: Rack, field: str) -> None:
    value, does, before, after = BEHAVIOUR[field]
    name, bmc = shared.name(), shared.bmc()

    def file(simulated: str) -> str:
        nodes = f"hosts: {{{name}: {{simulated: {simulated}}}}}\nnodes: [{{name: n}}]\n"
        return shared.file(f"cluster: {name}\n{bmc}{nodes}", f"{name}.yaml")

    usual = "console: the Oracle" if field == "boot" else ""
    shared.run("up", "--yes", file(f"{{{usual}}}"))
    first = "off" if field == "power_on" else "on"
    until(lambda: power(shared, first) == first)
    until(lambda: does(shared) == before)
    until(lambda: power(shared, first) == first)
    changed = file(f"{{{', '.join(filter(None, (usual, f'{field}: {value}')))}}}")
    judge(Rule.LIVE, shared.json("plan", changed))
    shared.run("up", "--yes", changed)
    until(lambda: does(shared) == after)
