"""ssh keys of VMs in a cloud: key pairs of Nova, which belong to the user of the login."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from starlette.responses import JSONResponse
from tests.openstack_hosts.test_routers import only
from tests.openstack_hosts.test_snapshots import make, shape_of, vm

from nospoon.clusterfile.load import load
from nospoon.clusterfile.recovered import cluster_file
from nospoon.errors import Gone, NotOurs, OutOfSpace, ProviderError
from nospoon.model.cluster import Arch, Cluster, Firmware
from nospoon.model.host_facts import HostFacts, QuotaName
from nospoon.model.resources.key_pairs import KeyPair
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.relays import Relay, relay_of
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.seed import Seed
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.identity import node_uuid
from nospoon.plan.key_pairs import against_key_pairs, given, name_of, pair_of, pairs_on
from nospoon.plan.order.order import dependents
from nospoon.plan.quotas import TAKEN, taken_on
from nospoon.plan.words import describe
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.tags import Tagged, named, of_name
from nospoon.testing.cloud_connection import connected
from nospoon.testing.fake_cloud import FakeCloud, Rule

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")


def key_of(type_: str, content: bytes = b"content") -> str:
    name = type_.encode()
    blob = len(name).to_bytes(4) + name + len(content).to_bytes(4) + content
    return f"{type_} {b64encode(blob).decode()}"


RSA, OTHER = key_of("ssh-rsa"), key_of("ssh-ed25519")
HARDWARE = key_of("sk-ssh-ed25519@openssh.com")
PAIR = KeyPair(RSA)
NAME = name_of(PAIR)
ID = UUID(int=7)
TAG = OwnerTag("kit", ID, name="one", uid=0)
RESOURCE = Resource(Key(Kind.KEY_PAIR, "cloud", NAME), PAIR)
KEYS = Seed("i", "v", (f"{RSA} me@here", OTHER, HARDWARE), "", "{}")
OWN = replace(KEYS, user_data="#!/bin/sh\n")
FILE = """
cluster: dev
hosts:
  cloud:
    openstack: {{cloud: {{name: c, auth: {{auth_url: "http://k/v3", username: u, password: p}}}},
      boot_address: 192.0.2.9{more}}}
networks: {{lan: {{nat: true}}}}
nodes: [{{kind: vm, name: v, image: disk.raw, memory: 64MiB, nics: [lan]{keys}}}]
"""


async def open_seed(digest: str) -> Seed:
    return {KEYS.digest: KEYS, OWN.digest: OWN}[digest]


@pytest.fixture
async def connection(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[OpenStackConnection]:
    async with connected(cloud, tmp_path, open_seed=open_seed) as made:
        yield made


def read(keys: str = "", more: str = "") -> Cluster:
    return load(FILE.format(keys=keys, more=more), file="x")


def refused(cluster: Cluster, pairs: frozenset[str] | None = None) -> list[str]:
    facts = HostFacts(frozenset(Firmware), frozenset(Arch), tpm=False, key_pairs=pairs)
    placed = Allocations(hosts={"v": "cloud"})
    return [*against_key_pairs(cluster, placed, {"cloud": facts})]


async def test_a_key_pair_says_by_its_name_whose_it_is_and_goes(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.KEY_PAIR]
    theirs = {"name": "me", "public_key": f"{RSA} me@here", "type": "ssh"}
    cloud.key_pairs["me"] = dict(theirs)
    for _ in range(2):
        await driver.create(RESOURCE, TAG)
    assert len(cloud.key_pairs) == 2
    seen = await only(connection, Kind.KEY_PAIR)
    assert (seen.key, seen.shape, seen.tag) == (RESOURCE.key, PAIR, TAG)
    assert describe(PAIR) == f"ssh-rsa …{RSA[-8:]}"
    assert not await driver.observe(UUID(int=8)), "it is of another cluster"
    for _ in range(2):
        await driver.delete(seen)
    assert cloud.key_pairs == {"me": theirs}


def test_a_name_has_no_more_letters_than_nova_takes() -> None:
    tag = OwnerTag("5d0f2f0e-0000-4000-8000-000000000001", ID, (1 << 31) - 1, name="c" * 63)
    written = named(Tagged(replace(tag, uid=(1 << 32) - 1), NAME), "0" * 8)
    assert len(written) <= 255
    assert of_name(written) == (Tagged(replace(tag, uid=(1 << 32) - 1), NAME), "0" * 8)
    assert of_name(named(Tagged(tag, NAME), "ab")) == (Tagged(tag, NAME), "ab")
    others = ("me", "nospoon_1_x", written.replace("nospoon", "nospoons"),
              "nospoon_1_kit_zz_00_0__c_k", f"nospoon_1_kit_{ID.hex}_00_many__c_k")  # fmt: skip
    assert [of_name(each) for each in others] == [None] * len(others)


async def test_a_key_pair_of_another_project_of_the_user_is_not_seen(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    elsewhere = named(Tagged(TAG, NAME), "0" * 8)
    cloud.key_pairs[elsewhere] = {"name": elsewhere, "public_key": RSA}
    driver = connection.drivers[Kind.KEY_PAIR]
    assert not await driver.observe(None)
    await driver.create(RESOURCE, TAG)
    await driver.delete(await only(connection, Kind.KEY_PAIR))
    assert list(cloud.key_pairs) == [elsewhere]


async def test_an_answer_that_was_lost_makes_no_second_one_and_a_strangers_is_left(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.KEY_PAIR]
    await driver.create(RESOURCE, TAG)
    hidden: list[JSONResponse | None] = [JSONResponse({"keypairs": []}), None]
    cloud.rules.append(Rule("GET .*/os-keypairs", hidden.pop, times=2))
    hidden.reverse()
    await driver.create(RESOURCE, TAG)
    assert len(cloud.key_pairs) == 1
    cloud.rules.clear()
    cloud.rules.append(Rule("GET .*/os-keypairs", lambda: JSONResponse({"keypairs": []}), times=2))
    with pytest.raises(NotOurs, match="has another key pair"):
        await driver.create(RESOURCE, TAG)


async def test_a_server_gets_its_pair_and_further_keys_by_user_data(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    keyed = replace(vm(), shape=replace(shape_of(vm()), key_pair=NAME, seed=KEYS.digest))
    with pytest.raises(Gone, match=f"has no key pair {NAME}"):
        await make(connection, keyed)
    await connection.drivers[Kind.KEY_PAIR].create(RESOURCE, TAG)
    await make(connection, keyed)
    (asked,) = cloud.requested
    assert asked["key_name"] in cloud.key_pairs
    config = b64decode(asked["user_data"]).decode()
    first, _, rest = config.partition("\n")
    assert first == "#cloud-config"
    assert json.loads(rest) == {"ssh_authorized_keys": [OTHER, HARDWARE]}
    assert (await only(connection, Kind.MACHINE)).shape == keyed.shape
    assert describe(keyed.shape).endswith(f", key pair {NAME}")


async def test_a_key_pair_of_others_is_used_and_stays(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    keyed = replace(vm(), shape=replace(shape_of(vm()), key_pair="/me", seed=OWN.digest))
    with pytest.raises(ProviderError, match="Invalid key_name"):
        await make(connection, keyed)
    cloud.key_pairs["me"] = {"name": "me", "public_key": RSA}
    await make(connection, keyed)
    (asked,) = cloud.requested
    assert asked["key_name"] == "me"
    assert b64decode(asked["user_data"]).decode() == OWN.user_data
    assert describe(keyed.shape).endswith(", key pair me")
    assert not await connection.drivers[Kind.KEY_PAIR].observe(None)


def test_the_first_key_that_nova_takes_is_the_pair() -> None:
    assert pair_of([f"{HARDWARE} h", "ssh-rsa AAAA", f"{OTHER} o", RSA]) == KeyPair(OTHER)
    assert pair_of([HARDWARE, "ssh-dss !", "ssh-rsa é"]) is None
    cluster = read(f", ssh_keys: ['{RSA} a', '{OTHER}']")
    (node,), (host,) = cluster.nodes, cluster.hosts
    found = given(node, host)
    assert (found.pair, found.made, found.beside) == (NAME, PAIR, (OTHER,))
    assert pairs_on(host, [node, node]) == {NAME: PAIR}
    assert describe(KeyPair(RSA)) == describe(PAIR)
    (named_host,) = read(more=", key_pair: me").hosts
    found = given(node, named_host)
    assert (found.pair, found.made, found.beside) == ("/me", None, (f"{RSA} a", OTHER))


def test_what_user_data_of_the_file_leaves_no_way_for_is_refused() -> None:
    own = ", user_data: '#!/bin/sh'"
    assert not refused(read(f", ssh_keys: '{RSA}'{own}"))
    assert not refused(read(f", ssh_keys: ['{RSA}', '{OTHER}']"))
    (why,) = refused(read(f", ssh_keys: ['{RSA}', '{OTHER}']{own}"))
    assert why == (
        "node v on host cloud: a server has one key pair there, one, which leaves 1 of its "
        "`ssh_keys`, and its user data is its own. Write them into `user_data`."
    )
    (why,) = refused(read(f", ssh_keys: '{RSA}'{own}", ", key_pair: me"))
    assert "one key pair there, `key_pair` me, which leaves 1" in why
    (why,) = refused(read(more=", key_pair: me"), frozenset({"you"}))
    assert why.startswith("host cloud: the user of its login has no key pair 'me'.")
    assert not refused(read(more=", key_pair: me"), frozenset({"me"}))


async def test_a_machine_needs_its_pair_and_a_recovered_file_names_that_of_others(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    machine = replace(vm(), shape=replace(shape_of(vm()), key_pair=NAME))
    seen = [Observed(each.key, each.shape, TAG) for each in (machine, RESOURCE)]
    assert dependents(seen)[RESOURCE.key] == [machine.key]
    cloud.key_pairs["me"] = {"name": "me", "public_key": RSA}
    assert (await connection.survey("", ())).key_pairs is None, "the file names none"
    cluster = read(more=", key_pair: me")
    connection.configure(replace(cluster.hosts[0], name="cloud"))
    assert (await connection.survey("", ())).key_pairs == frozenset({"me"})
    text = cluster_file("dev", ID, cluster.hosts, [], lambda _: {"auth": {"auth_url": "http://k"}})
    assert "key_pair: me" in text


async def test_key_pairs_are_compared_with_the_quota_of_the_user(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await connection.drivers[Kind.KEY_PAIR].create(RESOURCE, TAG)
    cloud.key_pairs["me"] = {"name": "me", "public_key": RSA}
    cloud.limits = {"maxTotalKeypairs": 2}
    facts = await connection.survey("", ())
    share = facts.quota.shares[QuotaName.KEY_PAIRS]
    assert (share.used_beside(ID), share.used_beside(UUID(int=8))) == (1, 2)
    cluster = read(f", ssh_keys: '{RSA}'")
    taken = taken_on(cluster, cluster.hosts[0], cluster.nodes, facts)
    assert TAKEN[QuotaName.KEY_PAIRS].taken(taken) == 1
    other = KeyPair(OTHER)
    further = Resource(Key(Kind.KEY_PAIR, "cloud", name_of(other)), other)
    with pytest.raises(OutOfSpace, match="too many key pairs"):
        await connection.drivers[Kind.KEY_PAIR].create(further, TAG)


def test_a_shape_of_an_earlier_version_has_no_pair() -> None:
    assert isinstance(vm().shape, Machine)
    assert shape_of(vm()).key_pair == ""
    assert shape_of(vm()).uuid == node_uuid(ID, "v")
    relay = Relay("i", "f", "02:00:00:00:00:01", "192.0.2.9", 8069)
    assert (relay.key_pair, relay_of("cloud").name) == ("", "relay")
