"""What a flavor gives: in a real Placement, put there by a real nova-compute; and told of by canned
answers of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest

from nospoon.errors import Gone, ProviderError
from nospoon.model.nova import NovaInventory
from nospoon.model.resources.keys import NOVA, Key, Kind
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.answers import words_of
from nospoon.providers.nova.api import Read
from nospoon.providers.nova.inventory import InventoryDriver
from nospoon.testing.ironic import until
from nospoon.testing.openstack import Cloud
from nospoon.testing.rack import Rack

CLASS, TRAIT = "CUSTOM_GOLD_1", "CUSTOM_GOLD"


def cluster_file(rack: Rack, name: str, *, bmc: str, wait: str) -> str:
    told = {"resource_class": "gold-1", "traits": {TRAIT: "required"}}
    nova = {"wait": wait, "flavors": {f"{name}-gold": told}}
    return rack.file(
        f"cluster: {name}\nhosts: {{sim: simulated}}\n{bmc}"
        "ironic: {cloud: test, name: '{cluster}-{node}', resource_class: gold-1}\n"
        f"nova: {json.dumps(nova)}\n"
        f"nodes: [{{count: 2, traits: [{TRAIT}], bmc: [ipmi]}}]\n",
        f"{name}.yaml",
    )


def providers(cloud: Cloud, query: str = "") -> set[str]:
    told = cloud.placement("GET", f"/resource_providers?{query}")["resource_providers"]
    return {each["uuid"] for each in told}


@pytest.mark.timeout(240, func_only=True)
def test_up_waits_until_placement_has_the_nodes_of_each_flavor(
    rack: Rack, cloud: Cloud, compute: Callable[[], AbstractContextManager[None]]
) -> None:
    name, bmc = rack.name(), rack.bmc()
    impatient = cluster_file(rack, name, bmc=bmc, wait="1s")
    refused = rack.run("up", "--yes", impatient, status=3).stderr
    assert f"Placement has not what flavor {name}-gold gives, after 1 s" in refused
    assert "node-0 is not there; node-1 is not there" in refused
    assert "nova-compute" in refused
    file = cluster_file(rack, name, bmc=bmc, wait="3min")
    nodes = {bmc["uuid"] for bmc in rack.bmcs(name).values()}
    assert not nodes & providers(cloud)
    with compute():
        plan = rack.run("plan", file).stdout
        assert f"+ nova-inventory {name}-gold on Nova  2 nodes in Placement, as {CLASS}" in plan
        assert "1 to create, 0 to change" in plan
        rack.run("up", "--yes", file)
        assert nodes <= providers(cloud, f"resources={CLASS}:1&required={TRAIT}")
        for node in nodes:
            stock = cloud.placement("GET", f"/resource_providers/{node}/inventories")["inventories"]
            assert (stock[CLASS]["total"], stock[CLASS]["reserved"]) == (1, 0)
        assert "Nothing to do" in rack.run("up", "--yes", file).stderr
        rack.run("down", "--yes", name)
        until(lambda: not nodes & providers(cloud))


class Canned:
    """A Placement with these providers: inventory and traits of each."""

    def __init__(self, there: Mapping[UUID, tuple[dict[str, Any], set[str]]]) -> None:
        self.there = there

    async def call(self, method: str, path: str, *, read: Read | None = None) -> Any:
        answer = self.answer(method, path)
        return answer if read is None else read(answer)

    def answer(self, method: str, path: str) -> Any:
        assert method == "GET"
        place = urlsplit(path)
        match place.path.split("/")[1:]:
            case ["resource_classes", name]:
                if not any(name in stock for stock, _ in self.there.values()):
                    raise Gone(name)
                return {}
            case ["traits"]:
                known = set[str]().union(*(traits for _, traits in self.there.values()))
                asked = parse_qs(place.query)["name"][0].removeprefix("in:").split(",")
                return {"traits": sorted(known & set(asked))}
            case ["resource_providers"]:
                return {"resource_providers": self.free(parse_qs(place.query))}
            case ["resource_providers", uuid, part]:
                if UUID(uuid) not in self.there:
                    raise Gone(uuid)
                stock, traits = self.there[UUID(uuid)]
                told = {"inventories": stock, "traits": sorted(traits)}
                return {part: told[part]}
        raise AssertionError(path)

    def free(self, query: dict[str, list[str]]) -> list[dict[str, str]]:
        """Those with capacity that no instance has: `used` of the inventory."""
        name = query["resources"][0].removesuffix(":1")
        wanted = query.get("required", [""])[0].split(",")
        return [
            {"uuid": str(uuid)}
            for uuid, (stock, traits) in self.there.items()
            if name in stock
            and stock[name]["total"] - stock[name]["reserved"] - stock[name].get("used", 0) > 0
            and all((each.lstrip("!") in traits) is not each.startswith("!") for each in wanted)
        ]


A, B = UUID(int=1), UUID(int=2)
HAS = {CLASS: {"total": 1, "reserved": 0}}
GOOD = (HAS, {TRAIT, "COMPUTE_NODE"})


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (GOOD, ""),
        (({CLASS: {"total": 1, "reserved": 0, "used": 1}}, {TRAIT}), ""),
        (None, "b is not there"),
        (({"VCPU": {}, "DISK_GB": {}}, {TRAIT}), f"b has no {CLASS}, but DISK_GB, VCPU"),
        (({}, {TRAIT}), f"b has no {CLASS}, but nothing"),
        (({CLASS: {"total": 1, "reserved": 1}}, {TRAIT}), "b is reserved"),
        ((HAS, set()), f"b lacks the trait {TRAIT}"),
        ((HAS, {TRAIT, "CUSTOM_SLOW"}), "b has the trait CUSTOM_SLOW"),
    ],
)
async def test_what_a_node_lacks_in_placement_is_told(second: Any, said: str) -> None:
    shape = NovaInventory(
        CLASS, ((TRAIT, "required"), ("CUSTOM_SLOW", "forbidden")), (("a", A), ("b", B))
    )
    resource = Resource(Key(Kind.NOVA_INVENTORY, NOVA, "gold"), shape)
    there: dict[UUID, Any] = {A: GOOD, UUID(int=3): ({}, {"CUSTOM_SLOW"})}
    api = Canned({**there, B: second} if second else there)
    driver = InventoryDriver(api, [resource], {"gold": 0}, deployment="d")
    seen = await driver.observe(UUID(int=9))
    assert [each.key for each in seen] == ([] if said else [resource.key])
    if not said:
        await driver.create(resource, OwnerTag("d", UUID(int=9)))
        return
    with pytest.raises(ProviderError) as caught:
        await driver.create(resource, OwnerTag("d", UUID(int=9)))
    assert said in str(caught.value)
    assert "; " not in str(caught.value).partition("gives")[2].partition(". ")[0]


async def test_a_placement_that_knows_neither_class_nor_trait_has_nothing() -> None:
    resource = Resource(
        Key(Kind.NOVA_INVENTORY, NOVA, "gold"),
        NovaInventory(CLASS, ((TRAIT, "required"),), (("a", A),)),
    )
    driver = InventoryDriver(Canned({}), [resource], {"gold": 0}, deployment="d")
    assert not await driver.observe(UUID(int=9))
    assert not await driver.observe(None)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"badRequest": {"message": "no such flavor", "code": 400}}, "no such flavor"),
        ({"errors": [{"status": 400, "detail": "no such trait", "title": "x"}]}, "no such trait"),
        ({"itemNotFound": "gone"}, "gone"),
        (["x"], "x"),
    ],
)
def test_a_refusal_is_told_in_the_services_words(body: Any, said: str) -> None:
    assert words_of(json.dumps(body)) == said


def test_a_refusal_that_is_no_json_is_told_as_it_is() -> None:
    assert words_of("<html>") == "<html>"
