"""SecureBoot over HTTP: switched from the next start on, refused where there are no keys."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from nospoon.errors import HostUnreachable
from nospoon.model.cluster import Firmware
from nospoon.model.machine import MachineChange, PowerCommand, PowerState
from nospoon.model.secure_boot import KeyDatabase, Signature
from nospoon.providers.libvirt.key_databases import key_databases
from nospoon.providers.libvirt.varstore import LARGEST
from nospoon.runtime import process
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import Answer, client, system_of


def place(b: Bench) -> str:
    return f"{system_of(b.first)}/SecureBoot"


async def put(b: Bench, value: Any) -> Answer:
    return await client(b.first).ask("PATCH", place(b), {"SecureBootEnable": value})


async def state(b: Bench) -> tuple[bool, str]:
    """What it will be, and what it is."""
    body = (await client(b.first).get(place(b))).json
    return body["SecureBootEnable"], body["SecureBootCurrentBoot"]


async def test_secure_boot_is_switched_by_the_next_start() -> None:
    async with bench(1, firmware=Firmware.UEFI_SECURE) as b:
        uuid = b.first.bmc.uuid
        await b.service.power(uuid, PowerCommand.ON)
        assert await state(b) == (True, "Enabled")
        assert (await put(b, False)).status == 200  # noqa: FBT003  (the value of a property)
        assert await state(b) == (False, "Enabled")
        b.machines.report(uuid, MachineChange.RESET, PowerState.ON)
        assert await state(b) == (False, "Enabled"), "the guest rebooted by itself"
        await b.service.power(uuid, PowerCommand.RESET)
        assert await state(b) == (False, "Disabled")
        (_, _, before), (_, reset, plan) = b.machines.told
        assert (before.secure_boot, plan.secure_boot) == (None, False)
        assert reset is PowerCommand.CYCLE, "a reset would not start it anew"
        assert not b.store.saved[-1][1].secure_boot.current


async def test_secure_boot_that_is_on_again_is_told_once() -> None:
    async with bench(1, firmware=Firmware.UEFI_SECURE) as b:
        for enabled in (False, True):
            await put(b, enabled)
            await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
            await b.service.power(b.first.bmc.uuid, PowerCommand.OFF)
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        told = [plan.secure_boot for _, command, plan in b.machines.told
                if command is PowerCommand.ON]  # fmt: skip
        assert told == [False, True, None]


async def test_firmware_without_keys_refuses_secure_boot() -> None:
    async with bench(1, firmware=Firmware.UEFI) as b:
        answer = await put(b, True)  # noqa: FBT003  (the value of a property)
        assert (answer.status, answer.message) == (400, "PropertyValueConflict")
        assert (await put(b, False)).status == 200  # noqa: FBT003  (the value of a property)
        assert await state(b) == (False, "Disabled")
        assert b.store.saved == []


async def test_bios_machines_have_no_secure_boot() -> None:
    async with bench(1) as b:
        assert (await client(b.first).get(place(b))).status == 404
        assert (await put(b, True)).status == 404  # noqa: FBT003  (the value of a property)


@pytest.mark.parametrize(
    ("firmware", "body", "status"),
    [
        (Firmware.UEFI_SECURE, {"ResetKeysType": "ResetAllKeysToDefault"}, 204),
        (Firmware.UEFI_SECURE, {"ResetKeysType": "DeleteAllKeys"}, 400),
        (Firmware.UEFI_SECURE, {}, 400),
        (Firmware.UEFI, {"ResetKeysType": "ResetAllKeysToDefault"}, 501),
    ],
)
async def test_keys_are_reset_where_there_are_keys_and_never_deleted(
    firmware: Firmware, body: dict[str, str], status: int
) -> None:
    async with bench(1, firmware=firmware) as b:
        path = f"{place(b)}/Actions/SecureBoot.ResetKeys"
        assert (await client(b.first).ask("POST", path, body)).status == status


async def test_keys_are_reset_by_the_next_start_and_by_no_other() -> None:
    async with bench(1, firmware=Firmware.UEFI_SECURE) as b:
        path = f"{place(b)}/Actions/SecureBoot.ResetKeys"
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        await client(b.first).ask("POST", path, {"ResetKeysType": "ResetAllKeysToDefault"})
        await b.service.power(b.first.bmc.uuid, PowerCommand.RESET)
        await b.service.power(b.first.bmc.uuid, PowerCommand.RESET)
        told = [(command, plan.reset_keys) for _, command, plan in b.machines.told]
    assert told == [
        (PowerCommand.ON, False),
        (PowerCommand.CYCLE, True),
        (PowerCommand.RESET, False),
    ]


def trusted() -> tuple[KeyDatabase, ...]:
    flash = Path("/usr/share/OVMF/OVMF_VARS_4M.ms.fd").read_bytes()
    return key_databases(flash[:LARGEST])


async def test_databases_show_what_the_firmware_trusts() -> None:
    async with bench(1, firmware=Firmware.UEFI_SECURE) as b:
        b.machines.keys = trusted()
        all_ = f"{place(b)}/SecureBootDatabases"
        listed = (await client(b.first).get(all_)).json["Members"]
        assert [each["@odata.id"] for each in listed] == [
            f"{all_}/{name}" for name in ("PK", "KEK", "db", "dbx")
        ]
        certificates = (await client(b.first).get(f"{all_}/db/Certificates")).json["Members"]
        subjects = set()
        for each in certificates:
            shown = (await client(b.first).get(each["@odata.id"])).json
            assert shown["CertificateString"].startswith("-----BEGIN CERTIFICATE-----")
            assert UUID(shown["UefiSignatureOwner"])
            subjects.add(shown["Subject"]["CommonName"])
        assert "Microsoft Corporation UEFI CA 2011" in subjects
        assert (await client(b.first).get(f"{all_}/db/Signatures")).json["Members"] == []
        (found,) = (await client(b.first).get(f"{all_}/dbx/Signatures")).json["Members"]
        signature = (await client(b.first).get(found["@odata.id"])).json
        assert signature["SignatureType"] == "EFI_CERT_SHA256_GUID"
        assert len(bytes.fromhex(signature["SignatureString"])) == 32


async def test_databases_that_nobody_can_read_are_not_invented() -> None:
    async with bench(1, firmware=Firmware.UEFI) as b:
        all_ = f"{place(b)}/SecureBootDatabases"
        assert (await client(b.first).get(all_)).json["Members"] == []
        for path in (f"{all_}/PK", f"{all_}/PK/Certificates", f"{all_}/PK/Signatures/1"):
            assert (await client(b.first).get(path)).status == 404
        b.machines.error = HostUnreachable("host here does not answer")
        answer = await client(b.first).get(all_)
        assert (answer.status, "does not answer" in answer.data.decode()) == (503, True)


async def test_what_only_says_that_it_is_a_certificate_is_shown_as_a_signature() -> None:
    async with bench(1, firmware=Firmware.UEFI_SECURE) as b:
        odd = Signature("EFI_CERT_X509_GUID", UUID(int=1), b"no DER")
        b.machines.keys = (KeyDatabase("db", (odd,)),)
        path = f"{place(b)}/SecureBootDatabases/db"
        assert (await client(b.first).get(f"{path}/Certificates")).json["Members"] == []
        assert (await client(b.first).get(f"{path}/Certificates/1")).status == 404
        assert (await client(b.first).get(f"{path}/Signatures/1")).status == 200


SUSHY = """
import json, sys
import sushy
url, user, password = sys.argv[1:]
[system] = sushy.Sushy(url, username=user, password=password).get_system_collection().get_members()
secure = system.secure_boot
told = [[secure.enabled, secure.current_boot.value, secure.mode.value]]
secure.set_enabled(False)
system.reset_system(sushy.ResetType.ON)
secure.refresh(force=True)
told.append([secure.enabled, secure.current_boot.value, secure.mode.value])
secure.set_enabled(True)
system.reset_system(sushy.ResetType.FORCE_RESTART)
secure.refresh(force=True)
told.append([secure.enabled, secure.current_boot.value, secure.mode.value])
secure.reset_keys(sushy.SecureBootResetKeysType.RESET_ALL_KEYS_TO_DEFAULT)
print(json.dumps(told))
"""


@pytest.mark.tools
async def test_sushy_switches_secure_boot(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(SUSHY)
    async with bench(1, firmware=Firmware.UEFI_SECURE) as b:
        bmc = b.first.bmc
        url = f"http://{bmc.address}:{bmc.redfish_port}"
        argv = [sys.executable, str(script), url, bmc.username, b.first.password]
        told = json.loads((await process.run(argv)).stdout)
    assert told == [
        [True, "Enabled", "UserMode"],
        [False, "Disabled", "UserMode"],
        [True, "Enabled", "UserMode"],
    ]
