"""Many who change one BMC at the same time: what was acknowledged to any of them is so."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from nospoon.bmc.messages import SettingsRequested
from nospoon.bmc.runtime import OutletSettings, Runtime
from nospoon.bmc.users import User
from nospoon.model.boot import BootDevice, BootMode, BootOverride, OverrideEnabled
from nospoon.model.machine import PowerPolicy
from nospoon.services.bmcs.redfish.resources.chassis import patch_chassis
from nospoon.services.bmcs.redfish.resources.managers import patch_manager
from nospoon.services.bmcs.redfish.resources.systems import patch_system
from nospoon.services.bmcs.served import Served
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import client, system_of

from .test_accounts import ACCOUNTS, BOB

BOOT = {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}
EVERYTHING = {
    "Boot": {**BOOT, "HttpBootUri": "http://192.0.2.1/boot.efi"},
    "AssetTag": "T-1",
    "PowerRestorePolicy": "AlwaysOff",
    "LocationIndicatorActive": True,
}
ANOTHER = User(3, "eve", "hunter2222", 4, enabled=True, messaging=True)


def served(b: Bench) -> Served:
    found = b.service.status(b.first.bmc.uuid)
    assert found is not None
    return found


async def saved(b: Bench, count: int) -> None:
    """Until so many states were stored."""
    async with asyncio.timeout(20):
        while len(b.store.saved) < count:  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0)


async def _change(b: Bench, **fields: Any) -> None:
    settings = replace(served(b).aggregate.runtime.settings, **fields)
    await b.service.ask(served(b), lambda ticket: SettingsRequested(settings, ticket))


@pytest.mark.parametrize("late", range(5))
async def test_what_others_change_while_a_system_is_patched_stays(late: int) -> None:
    """However many of the patch's writes are done when they do."""

    async def another() -> None:
        await saved(b, late)
        await _change(b, users=(ANOTHER,), kg="00ff", outlet=OutletSettings(reboot=9))

    async with bench(1) as b:
        await asyncio.gather(patch_system(b.service.redfish, served(b), EVERYTHING), another())
        after = served(b).aggregate.runtime
        assert after == served(b).saved
        settings = after.settings
        assert (settings.asset_tag, settings.policy) == ("T-1", PowerPolicy.ALWAYS_OFF)
        assert (settings.users, settings.kg, settings.outlet.reboot) == ((ANOTHER,), "00ff", 9)
        assert after.identify
        assert after.http_boot_uri == EVERYTHING["Boot"]["HttpBootUri"]  # type: ignore[index]
        assert after.override.target is BootDevice.NETWORK


async def test_an_override_that_others_set_while_the_uri_is_stored_is_not_undone() -> None:
    """What a body leaves out is as it is when the body is carried out, not as it once was."""
    usb = BootOverride(BootDevice.CDROM, OverrideEnabled.CONTINUOUS, BootMode.LEGACY)
    body = {"Boot": {"HttpBootUri": "http://192.0.2.1/", "BootSourceOverrideEnabled": "Disabled"}}

    async def another() -> None:
        await saved(b, 1)
        await b.service.set_override(b.first.bmc.uuid, usb)

    async with bench(1) as b:
        await asyncio.gather(patch_system(b.service.redfish, served(b), body), another())
        assert served(b).saved.override == usb


async def test_a_chassis_and_a_manager_lose_nobodys_change_either() -> None:
    async with bench(1) as b:
        await asyncio.gather(
            patch_chassis(b.service.redfish, served(b), {"AssetTag": "T-2"}),
            patch_manager(b.service.redfish, served(b), {"DateTime": "2030-01-01T12:00:00Z"}, {}),
            _change(b, users=(ANOTHER,)),
            patch_system(b.service.redfish, served(b), {"PowerRestorePolicy": "LastState"}),
        )
        settings = served(b).saved.settings
        assert (settings.asset_tag, settings.policy) == ("T-2", PowerPolicy.PREVIOUS)
        assert settings.users == (ANOTHER,)
        assert settings.clock_offset > 0


async def test_accounts_that_were_made_beside_patches_are_there() -> None:
    async with bench(1) as b:
        line = client(b.first)
        for number in range(4):
            body = {"UserName": f"user{number}", **{k: BOB[k] for k in ("Password", "RoleId")}}
            patched, made = await asyncio.gather(
                line.ask("PATCH", system_of(b.first), {**EVERYTHING, "AssetTag": f"T-{number}"}),
                line.ask("POST", ACCOUNTS, body),
            )
            assert (patched.status, made.status) == (200, 201)
            names = [each.name for each in served(b).saved.settings.users]
            assert names == [f"user{each}" for each in range(number + 1)]


async def test_what_cannot_be_stored_is_told_and_not_so() -> None:
    async with bench(1) as b:
        before = served(b).saved

        b.store.full = True
        refused = await client(b.first).ask("PATCH", system_of(b.first), EVERYTHING)
        assert refused.status == 500
        assert served(b).aggregate.runtime == served(b).saved == before == Runtime()
