"""Foreign IPMI clients against the service: ipmitool, FreeIPMI, pyghmi."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from nospoon.errors import ProviderError
from nospoon.model.boot import BootDevice, BootMode, BootOverride, OverrideEnabled
from nospoon.model.machine import MachineChange, PowerCommand, PowerState
from nospoon.runtime import process
from nospoon.runtime.process import Finished
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.testing.bench import ORDER, bench
from nospoon.testing.due import forward

pytestmark = pytest.mark.tools


async def ipmitool(config: BmcConfig, *argv: str, check: bool = True, **how: str) -> Finished:
    options = ["-I", "lanplus", "-H", config.bmc.address, "-p", str(config.bmc.ipmi_port)]
    options += ["-U", how.get("user", "admin"), "-P", how.get("password", config.password)]
    if "cipher" in how:
        options += ["-C", how["cipher"]]
    if "privilege" in how:
        options += ["-L", how["privilege"]]
    options += ["-v", "-N", "1", "-R", "1"] if not check else []
    return await process.run(["ipmitool", *options, *argv], check=check, timeout=60)


@pytest.mark.parametrize("cipher", ["3", "17"])
async def test_ipmitool_powers_a_machine_with_both_suites(cipher: str) -> None:
    async with bench(1) as b:
        asked = [
            ("status", "Chassis Power is off"),
            ("on", "Chassis Power Control: Up/On"),
            ("status", "Chassis Power is on"),
            ("cycle", "Chassis Power Control: Cycle"),
            ("reset", "Chassis Power Control: Reset"),
            ("diag", "Chassis Power Control: Diag"),
            ("soft", "Chassis Power Control: Soft"),
            ("status", "Chassis Power is off"),
            ("on", "Up/On"),
            ("off", "Chassis Power Control: Down/Off"),
        ]
        for command, said in asked:
            done = await ipmitool(b.first, "chassis", "power", command, cipher=cipher)
            assert said in done.stdout
        assert [command for _, command, _ in b.machines.told] == [
            PowerCommand.ON, PowerCommand.CYCLE, PowerCommand.RESET, PowerCommand.DIAG,
            PowerCommand.SOFT, PowerCommand.ON, PowerCommand.OFF,
        ]  # fmt: skip


async def test_ipmitool_chooses_a_suite_by_itself() -> None:
    async with bench(1) as b:
        assert "Chassis Power is off" in (await ipmitool(b.first, "power", "status")).stdout
        told = (await ipmitool(b.first, "channel", "getciphers", "ipmi")).stdout
        assert [line.split()[0] for line in told.splitlines()[1:]] == ["3", "17"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"password": "wrong"}, "RAKP 2 HMAC is invalid"),
        ({"user": "nobody"}, "unauthorized name"),
        ({"cipher": "0"}, "no matching cipher suite"),
        ({"cipher": "1"}, "no matching cipher suite"),
        ({"cipher": "8"}, "no matching cipher suite"),
    ],
    ids=["password", "user", "cipher 0", "cipher 1", "cipher 8"],
)
async def test_a_wrong_login_is_refused_with_its_reason(how: dict[str, str], said: str) -> None:
    async with bench(1) as b:
        done = await ipmitool(b.first, "power", "status", check=False, **how)
        assert done.status != 0
        assert said in done.stderr
        assert b.machines.told == []


async def test_a_user_may_look_and_not_touch() -> None:
    async with bench(1) as b:
        assert "off" in (await ipmitool(b.first, "power", "status", privilege="USER")).stdout
        done = await ipmitool(b.first, "power", "on", privilege="USER", check=False)
        assert "Insufficient privilege level" in done.stderr
        assert b.machines.told == []


async def test_identity_and_session_are_told() -> None:
    async with bench(1) as b:
        guid = (await ipmitool(b.first, "mc", "guid")).stdout
        assert str(b.first.bmc.uuid) in guid
        info = (await ipmitool(b.first, "mc", "info")).stdout
        assert "IPMI Version              : 2.0" in info
        session = (await ipmitool(b.first, "session", "info", "active")).stdout
        assert "privilege level               : ADMINISTRATOR" in session
        assert "console ip                    : 127.0.0.1" in session


@pytest.mark.parametrize(
    ("device", "options", "override"),
    [
        ("pxe", "", BootOverride(BootDevice.NETWORK, OverrideEnabled.ONCE)),
        ("disk", "", BootOverride(BootDevice.DISK, OverrideEnabled.ONCE)),
        ("cdrom", "", BootOverride(BootDevice.CDROM, OverrideEnabled.ONCE)),
        ("bios", "", BootOverride(BootDevice.SETUP, OverrideEnabled.ONCE)),
        (
            "pxe",
            "options=persistent,efiboot",
            BootOverride(BootDevice.NETWORK, OverrideEnabled.CONTINUOUS, BootMode.UEFI),
        ),
        ("none", "", BootOverride()),
    ],
)
async def test_bootdev_sets_the_override(device: str, options: str, override: BootOverride) -> None:
    async with bench(1) as b:
        words = [options] if options else []
        await ipmitool(b.first, "chassis", "bootdev", device, *words)
        served = b.service.status(b.first.bmc.uuid)
        assert served is not None
        assert served.override == override
        assert b.store.saved[-1][1].override == override


def bytes_of(text: str) -> list[str]:
    return [f"0x{byte}" for byte in text.split()]


async def test_ironic_writes_its_raw_boot_options() -> None:
    async with bench(
        1,
    ) as b:
        served = b.service.status(b.first.bmc.uuid)
        assert served is not None
        await ipmitool(b.first, "raw", "0x00", "0x08", "0x03", "0x08")
        await ipmitool(b.first, "raw", *bytes_of("00 08 05 a0 04 00 00 00"))
        assert served.override == BootOverride(
            BootDevice.NETWORK, OverrideEnabled.ONCE, BootMode.UEFI
        )
        assert served.aggregate.deadline is None
        await ipmitool(b.first, "raw", *bytes_of("00 08 05 e0 08 00 00 00"))
        told = (await ipmitool(b.first, "chassis", "bootparam", "get", "5")).stdout
        assert "Options apply to all future boots" in told
        assert "Force Boot from default Hard-Drive" in told
        assert "EFI" in told


async def test_once_goes_with_the_power_command_and_is_used_up_by_its_boot() -> None:
    async with bench(1) as b:
        await ipmitool(b.first, "chassis", "bootdev", "pxe")
        await ipmitool(b.first, "chassis", "power", "on")
        ((_, command, plan),) = b.machines.told
        assert command is PowerCommand.ON
        assert plan.now == (BootDevice.NETWORK, BootDevice.DISK)
        assert plan.after == ORDER
        served = b.service.status(b.first.bmc.uuid)
        assert served is not None
        assert not served.override.active


async def test_a_slow_machine_is_answered_at_once_and_its_failure_shows() -> None:
    async with bench(1) as b:
        b.machines.delay, b.machines.error = 3600, ProviderError("the pool is full")
        answered = await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        assert answered == "accepted"

        def fault() -> str:
            served = b.service.status(b.first.bmc.uuid)
            assert served is not None
            return served.power_fault

        assert fault() == ""
        forward(3600)
        async with asyncio.timeout(20):
            while not fault():  # noqa: ASYNC110  (nobody tells)
                await asyncio.sleep(0.01)
        assert fault() == "the pool is full"
        status = (await ipmitool(b.first, "chassis", "status")).stdout
        assert "Main Power Fault     : true" in status


async def test_a_failure_that_is_known_in_time_is_no_success() -> None:
    async with bench(1) as b:
        b.machines.error = ProviderError("no")
        done = await ipmitool(b.first, "power", "on", check=False)
        assert done.status != 0
        assert "Unspecified error" in done.stderr


async def test_a_machine_that_is_away_is_told_as_such() -> None:
    async with bench(1) as b:
        uuid = b.first.bmc.uuid
        b.machines.report(uuid, MachineChange.UNREACHABLE, PowerState.UNKNOWN, "host is away")
        done = await ipmitool(b.first, "power", "on", check=False)
        assert done.status != 0
        assert b.machines.told == []


async def test_reset_of_a_machine_that_is_off_is_the_wrong_state() -> None:
    async with bench(1) as b:
        done = await ipmitool(b.first, "power", "reset", check=False)
        assert "Command not supported in present state" in done.stderr


async def test_freeipmi_talks_to_it() -> None:
    async with bench(1) as b:
        host = f"{b.first.bmc.address}:{b.first.bmc.ipmi_port}"
        common = ["-h", host, "-D", "LAN_2_0", "-u", "admin", "-p", b.first.password]
        info = await process.run(["bmc-info", *common], check=False)
        assert str(b.first.bmc.uuid) in info.stdout, info.stdout + info.stderr
        await process.run(["ipmipower", *common, "--on"])
        state = await process.run(["ipmipower", *common, "--stat"])
        assert state.stdout.strip().endswith(": on")
        chassis = await process.run(["ipmi-chassis", *common, "--get-chassis-status"])
        assert "System Power                        : on" in chassis.stdout
        seventeen = await process.run(["ipmipower", *common, "-I", "17", "--off"])
        assert "ok" in seventeen.stdout


PYGHMI = """
import json, sys
from pyghmi.ipmi import command
host, port, user, password = sys.argv[1:]
c = command.Command(bmc=host, userid=user, password=password, port=int(port), keepalive=False)
out = {"before": c.get_power()}
c.set_bootdev("network", persist=True, uefiboot=True)
out["boot"] = c.get_bootdev()
out["on"] = c.set_power("on", wait=True)
out["after"] = c.get_power()
print(json.dumps(out))
"""


async def test_pyghmi_talks_to_it(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(PYGHMI)
    async with bench(1) as b:
        bmc = b.first.bmc
        done = await process.run(
            [
                sys.executable,
                str(script),
                bmc.address,
                str(bmc.ipmi_port),
                "admin",
                b.first.password,
            ]
        )
        told = json.loads(done.stdout)
        assert told["before"]["powerstate"] == "off"
        assert told["after"]["powerstate"] == "on"
        assert told["boot"]["bootdev"] == "network"
        assert told["boot"]["persistent"]


async def test_each_bmc_has_its_own_account() -> None:
    async with bench(2) as b:
        other = b.configs[1].password
        done = await ipmitool(b.first, "power", "status", check=False, password=other)
        assert done.status != 0
