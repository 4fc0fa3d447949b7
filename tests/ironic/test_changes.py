"""Each field of the file's `ironic` sections changes what is in Ironic in place, or is refused."""

from __future__ import annotations

from typing import Any

from tests.ironic.test_enrolment import Cluster, cluster  # noqa: F401

from nospoon.clusterfile.ironic import EnrolmentSection
from nospoon.testing.ironic import Api
from nospoon.testing.rack import Rack

URL = "http://192.0.2.1/changed"
CHANGES: dict[str, tuple[Any, str, Any]] = {
    "driver": ("redfish", "driver", "redfish"),
    "state": ("manageable", "provision_state", "manageable"),
    "name": ("{cluster}-other", "name", "other"),
    "interfaces": ({"deploy": "ramdisk"}, "deploy_interface", "ramdisk"),
    "driver_info": ({"redfish_verify_ca": False}, "driver_info/redfish_verify_ca", False),
    "deploy_kernel": (URL, "driver_info/deploy_kernel", URL),
    "deploy_ramdisk": (URL, "driver_info/deploy_ramdisk", URL),
    "deploy_iso": (URL, "driver_info/deploy_iso", URL),
    "rescue_kernel": (URL, "driver_info/rescue_kernel", URL),
    "rescue_ramdisk": (URL, "driver_info/rescue_ramdisk", URL),
    "properties": ({"vendor": "nobody"}, "properties/vendor", "nobody"),
    "capabilities": ({"rack": "7"}, "properties/capabilities", "rack:7"),
    "root_device": ({"name": "/dev/vda"}, "properties/root_device", {"name": "/dev/vda"}),
    "resource_class": ("gold", "resource_class", "gold"),
    "shard": ("left", "shard", "left"),
    "owner": ("me", "owner", "me"),
    "lessee": ("you", "lessee", "you"),
    "description": ("changed", "description", "changed"),
    "extra": ({"why": "changed"}, "extra/why", "changed"),
    "automated_clean": (True, "automated_clean", True),
}
"""Field -> another value, and where Ironic shows what (a part of text is enough)."""
ONE_GROUP = {"conductor_group"}
"""The only conductor here is in no group, and would lose a node that is in one."""
ELSEWHERE = {"image", "checksum", "instance_info", "volumes", "enrolment"}
"""Told by tests of their own."""
ONE = "[{name: n0, nics: [lan, {network: lan, pxe: %s}], ironic: {state: enroll}%s}]"
NODE = ONE % ("false", "")
CHANGED = ONE.replace(", ironic: {state: enroll}", "") % ("true", ", traits: [CUSTOM_GOLD]")


def found(node: dict[str, Any], path: str) -> Any:
    for each in path.split("/"):
        node = node[each]
    return node


def told(seen: Any, value: Any) -> bool:
    return value in seen if isinstance(value, str) else bool(value == seen)


def test_a_change_of_each_field_reaches_the_node_in_place(
    rack: Rack, api: Api, cluster: Cluster  # noqa: F811
) -> None:  # fmt: skip
    assert set(CHANGES) | ONE_GROUP | ELSEWHERE == set(EnrolmentSection.model_fields)
    rack.run("up", "--yes", cluster.write(NODE))
    name = f"{cluster.name}-n0"
    before = api.nodes()[name]
    file = cluster.write(CHANGED, **{key: value for key, (value, _, _) in CHANGES.items()})
    plan = rack.json("plan", file)
    assert {each["action"] for each in plan["steps"]} == {"change"}
    assert not any(each["at_power_off"] for each in plan["steps"])
    rack.run("up", "--yes", file)
    (node,) = [each for each in api.nodes().values() if each["uuid"] == before["uuid"]]
    assert node["traits"] == ["CUSTOM_GOLD"]
    assert [port["pxe_enabled"] for port in api.ports(node["uuid"])] == [True, True]
    seen = {key: (found(node, path), value) for key, (_, path, value) in CHANGES.items()}
    wrong = {key: pair for key, pair in seen.items() if not told(*pair)}
    assert wrong == {}
