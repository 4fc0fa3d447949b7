"""Writes that say nothing change nothing, and the node's own account least of all."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import create_engine, insert

from nospoon.bmc import ipmi
from nospoon.bmc import users as table
from nospoon.bmc.aggregate import Bmc
from nospoon.bmc.messages import SettingsRequested
from nospoon.bmc.runtime import Runtime, Settings
from nospoon.bmc.users import ADMINISTRATOR, OWNER, User
from nospoon.model.boot import BootMethod
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.resources.machines import Machine
from nospoon.model.volumes import AddedVolume
from nospoon.plan.addresses.allocate import Allocations
from nospoon.protocols.ipmi.crypto import SUITES
from nospoon.protocols.ipmi.session import Asked, Identity, Privilege, Session
from nospoon.runtime.udp import Peer
from nospoon.services.bmcs.accounts import Accounts
from nospoon.services.bmcs.redfish.app import RESOURCES, find
from nospoon.services.bmcs.rmcp import identity
from nospoon.store import nodes as node_rows
from nospoon.store import tables
from nospoon.store.clusters import ClusterRow
from nospoon.store.encoded import as_json
from nospoon.store.migrations.run import upgrade
from nospoon.store.nodes import NodeRow
from nospoon.testing.bench import ORDER, Bench, bench, config, endpoint, with_disk
from nospoon.testing.redfish_app import Login, Redfish, state

ACCOUNTS = "/redfish/v1/AccountService/Accounts"
BOB = Login("bob", "hunter2222")
STORED = User(OWNER, "admin", "…", ADMINISTRATOR, enabled=True, messaging=True)
"""What `PATCH {}` of the node's own account left behind."""


async def furnish(b: Bench) -> Redfish:
    """Everything that can be changed is there: an account, a subscription, a disk."""
    await b.service.put(with_disk(b.first))
    admin = Redfish.of(b)
    made = await admin.ask(
        "POST", ACCOUNTS,
        {"UserName": BOB.username, "Password": BOB.password, "RoleId": "Operator"},
    )  # fmt: skip
    assert made.status == 201
    place = {"Destination": "https://127.0.0.1:1/", "Protocol": "Redfish", "Context": "x"}
    answer = await admin.ask("POST", "/redfish/v1/EventService/Subscriptions", place)
    assert answer.status == 201
    return admin


def written(kind: str, body: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """Body and headers of a PATCH that asks for no change."""
    tag = body.get("@odata.etag", "*")
    match kind:
        case "empty":
            return {}, {}
        case "only the ETag in a header":
            return {}, {"if_match": tag}
        case "only the ETag in the body":
            return {"@odata.etag": tag}, {"if_match": tag}
    return body, {"if_match": tag}


@pytest.mark.parametrize(
    "kind", ["empty", "only the ETag in a header", "only the ETag in the body", "its own GET body"]
)
async def test_a_write_that_says_nothing_changes_nothing(kind: str) -> None:
    async with bench(2, firmware=Firmware.UEFI_SECURE) as b:
        admin = await furnish(b)
        seen = set()
        before = await admin.resources()
        for path in before:
            resource = find(path)
            assert resource is not None
            if "PATCH" not in resource[0].methods:
                continue
            seen.add(resource[0].path)
            was, body = state(b), (await admin.ask("GET", path)).json
            asked, headers = written(kind, body)
            answer = await admin.ask("PATCH", path, asked, **headers)
            assert answer.status == 200 or answer.message == "PropertyNotWritable", path
            assert state(b) == was, path
            assert (await admin.ask("GET", path)).json == body
            for each in (admin, Redfish.of(b, BOB)):
                assert (await each.ask("GET", "/redfish/v1/Systems")).status == 200
        assert seen == {each.path for each in RESOURCES if "PATCH" in each.methods}


async def test_an_empty_patch_leaves_the_nodes_own_password_unchanged() -> None:
    async with bench(1) as b:
        admin = Redfish.of(b)
        answer = await admin.ask("PATCH", f"{ACCOUNTS}/{OWNER}", {})
        assert (answer.status, answer.json["Password"]) == (200, None)
        assert (await admin.ask("GET", ACCOUNTS)).status == 200
        placeholder = Redfish.of(b, Login("admin", "…"))
        assert (await placeholder.ask("GET", ACCOUNTS)).status == 401
        assert b.store.saved == []


def test_the_table_of_users_refuses_the_nodes_own_account() -> None:
    with pytest.raises(ValueError, match="the cluster file"):
        table.with_user((), STORED)


def test_a_stored_row_of_the_nodes_own_account_is_ignored() -> None:
    """Also where a row came another way: it neither replaces the password nor adds one."""
    accounts, bmc = Accounts(), config(0, redfish_port=1)
    accounts.put(bmc, [STORED])
    assert accounts.find(endpoint(bmc), "admin", bmc.password) is not None
    assert accounts.find(endpoint(bmc), "admin", "…") is None
    assert identity(bmc, Runtime(settings=Settings(users=(STORED,)))).others == ()


def test_a_migration_deletes_stored_rows_of_the_nodes_own_account(tmp_path: Any) -> None:
    bob = User(3, "bob", "sealed", ADMINISTRATOR, enabled=True)
    volume = AddedVolume("0a0b0c0d", 1 << 30)
    cluster = ClusterRow(uuid4(), "dev", 1, 1, "c.yaml", "cluster: dev", {}, Allocations(), 0.0)
    engine = create_engine(f"sqlite:///{tmp_path}/store.db", json_serializer=as_json)
    rows = {}
    with engine.begin() as connection:
        upgrade(connection, "0009")
        columns = ("id", "name", "owner", "generation", "file", "text", "created")
        values = {each: getattr(cluster, each) for each in columns} | {"id": str(cluster.id)}
        others: dict[str, object] = {"uploads": {}, "allocations": {}}
        connection.execute(insert(tables.clusters).values(**values, **others))
        for name, users in {"hit": (STORED, bob), "other": (bob,), "none": ()}.items():
            machine = Machine(
                uuid=uuid4(), cpus=1, memory=1 << 30, arch=Arch.X86_64, firmware=Firmware.BIOS,
                tpm=False, disks=(), nics=(), boot_order=(), boot=BootMethod.NATIVE,
            )  # fmt: skip
            runtime = Runtime(settings=Settings(users=users), volumes=(volume,))
            row = NodeRow(cluster.id, name, Host("here"), machine, "", "admin", b"s")
            node_rows.put_nodes(connection, [row])
            node_rows.save_runtimes(connection, [(machine.uuid, runtime)])
            rows[name] = machine.uuid
        upgrade(connection)
        kept = {name: node_rows.node(connection, uuid) for name, uuid in rows.items()}
    engine.dispose()
    found = {name: row.runtime for name, row in kept.items() if row is not None}
    assert {name: each.settings.users for name, each in found.items()} == {
        "hit": (bob,), "other": (bob,), "none": (),
    }  # fmt: skip
    assert all(each.volumes == (volume,) for each in found.values())


@given(st.sampled_from([0x43, 0x45, 0x47, 0x4C]), st.binary(max_size=24))
@example(0x47, bytes([OWNER, 2]) + b"x" * 16)
@example(0x45, bytes([OWNER]) + b"eve".ljust(16, b"\0"))
@example(0x45, bytes([OWNER]) + bytes(16))
def test_ipmi_adds_no_row_of_the_nodes_own_account(command: int, data: bytes) -> None:
    """Whatever its commands on users (§22.26 to §22.30, §24.6) say of number 2."""
    own = Identity(b"admin", b"s3cret", bytes(16))
    session = Session(
        id=1, asked=Asked(1, Privilege.ADMINISTRATOR, 7, SUITES[-1]), suite=SUITES[-1],
        identity=own, source=Peer("127.0.0.1", 1, "127.0.0.1"), now=0.0,
    )  # fmt: skip
    session.privilege = Privilege.ADMINISTRATOR
    bmc = Bmc(order=ORDER, script=False)
    context = ipmi.Context(bmc, own, session, 1.0, {1: session}, sol=0)
    result = ipmi.answer(context, 0x06, command, data)
    if isinstance(result, ipmi.Ask):
        assert isinstance(result.event, SettingsRequested)
        assert all(each.id != OWNER for each in result.event.settings.users)
