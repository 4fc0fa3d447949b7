"""What ipmitool and FreeIPMI make of the log, sensors, inventory, users, watchdog, LAN and DCMI."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nospoon.bmc.faults import Fault, Kind
from nospoon.bmc.messages import AcLost, AcReturned
from nospoon.model.machine import MachineChange, PowerCommand, PowerPolicy, PowerState
from nospoon.runtime import process
from nospoon.services.bmcs.served import Served
from nospoon.testing.bench import Bench, bench

pytestmark = pytest.mark.tools


class Clients:
    """Both clients with one BMC; each call is a session. `home`: for FreeIPMI's caches."""

    def __init__(self, b: Bench, home: Path) -> None:
        self.b, self.home = b, home
        self.user, self.password = "admin", b.first.password

    @property
    def served(self) -> Served:
        served = self.b.service.status(self.b.first.bmc.uuid)
        assert served is not None
        return served

    async def tool(self, *argv: str, says: str = "", fails: bool = False) -> str:
        """ipmitool's output, which contains `says`."""
        bmc = self.b.first.bmc
        login = ["-H", bmc.address, "-p", str(bmc.ipmi_port), "-U", self.user, "-P", self.password]
        command = ["ipmitool", "-I", "lanplus", "-N", "2", "-R", "2", *login, *argv]
        done = await process.run(command, check=False, timeout=60)
        told = done.stdout + done.stderr
        assert (done.status != 0) == fails, told
        assert says in told
        return told

    async def free(self, program: str, *argv: str, says: str = "") -> str:
        """A FreeIPMI program's output, which contains `says`."""
        bmc = self.b.first.bmc
        login = ["-h", f"{bmc.address}:{bmc.ipmi_port}", "-u", self.user, "-p", self.password]
        command = [program, *login, "-D", "LAN_2_0", *argv]
        done = await process.run(command, check=False, timeout=60)
        assert done.status == 0, done.stdout + done.stderr
        assert says in done.stdout, done.stdout
        return done.stdout

    async def checked_out(self, *argv: str) -> str:
        """What bmc-config reads. It ends with 1 for what it does not know, such as suite 17."""
        bmc = self.b.first.bmc
        login = ["-h", f"{bmc.address}:{bmc.ipmi_port}", "-u", self.user, "-p", self.password]
        command = ["bmc-config", "--checkout", *login, "-D", "LAN_2_0", *argv]
        return (await process.run(command, check=False, timeout=60)).stdout

    async def free_sdr(self, program: str, *argv: str, says: str = "") -> str:
        """One that keeps a cache of sensor data records."""
        cache = f"--sdr-cache-directory={self.home}"
        return await self.free(program, cache, "--quiet-cache", *argv, says=says)


async def until(so: Callable[[], bool]) -> None:
    """Wait for what the loop will do; no event tells it."""
    async with asyncio.timeout(60):
        while not so():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def power_on(b: Bench) -> None:
    b.machines.report(b.first.bmc.uuid, MachineChange.STARTED, PowerState.ON)


async def test_the_log_is_read_added_to_and_cleared(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        power_on(b)
        told = await clients.tool("sel", "elist")
        assert re.search(r"1 \| .* ACPI Power \| S0/G0: working \| Asserted", told)
        assert re.search(r"2 \| .* System Boot \| Initiated by power up", told)
        await clients.free_sdr("ipmi-sel", says="Initiated by power up")
        await clients.tool("event", "1")
        await clients.tool("sel", "list", says="Temperature #0x30 | Upper Critical going high")
        await clients.tool("sel", "delete", "3")
        added = "0x0a 0x44 0 0 2 0 0 0 0 0x41 0 4 1 0x30 1 0x59 0xff 0xff"
        await clients.tool("raw", *added.split(), says="04 00")
        await clients.tool("sel", "list", says="Temperature #0x30 | Upper Critical going high")
        assert len(b.store.records) == 3
        await clients.tool("sel", "delete", "1", "2")
        await clients.tool("sel", "info", says="Entries          : 1")
        await clients.free_sdr("ipmi-sel", "--clear")
        await clients.tool("sel", "list", says="SEL has no entries")
        assert b.store.records == []


async def test_the_logs_clock_is_set(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        await clients.tool("sel", "time", "set", "01/02/31 03:04:05")
        await clients.tool("sel", "time", "get", says="01/02/31")
        power_on(b)
        await clients.tool("sel", "list", says="01/02/31")


async def test_sensors_follow_the_machine(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        off = await clients.tool("sdr", "elist", "all")
        assert re.search(r"Fan 1 .*\| ns .*\| No Reading", off)
        assert re.search(r"ACPI Power .*S5/G2: soft-off", off)
        power_on(b)
        on = await clients.tool("sdr", "elist", "all")
        assert re.search(r"Fan 1 .*\| ok .*5\d+ RPM", on)
        assert re.search(r"Power Draw .*\| ok .* [6-9]\d Watts", on)
        listed = await clients.free_sdr("ipmi-sensors", "--output-sensor-state")
        assert re.search(r"CPU Temp .*Nominal .*\| C ", listed)
        await clients.tool("sensor", "get", "CPU Temp", says="Upper Critical        : 95.000")


async def test_a_sensor_fault_crosses_its_threshold(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        power_on(b)
        b.service.set_fault(b.first.bmc.uuid, Fault(Kind.SENSOR, sensor=2, value=97.0))
        told = await clients.tool("sdr", "get", "CPU Temp")
        assert "Upper Critical" in told
        assert "97" in told
        listed = await clients.free_sdr("ipmi-sensors", "--output-sensor-state")
        assert re.search(r"CPU Temp .*Critical .*97\.00", listed)


async def test_the_inventory_names_the_node(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        serial = b.first.machine.serial_number
        await clients.tool("fru", "print", says=f"Product Serial        : {serial}")
        told = await clients.free_sdr("ipmi-fru")
        assert f"FRU Product Serial Number: {serial}" in told
        assert "hecksum" not in told
        assert str(b.first.bmc.uuid) in told


async def test_a_user_that_was_added_logs_in_with_its_privilege(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        await clients.tool("user", "set", "name", "3", "bob")
        await clients.tool("user", "set", "password", "3", "hunter22")
        await clients.tool("channel", "setaccess", "1", "3", "ipmi=on", "link=on", "privilege=2")
        bob = Clients(b, tmp_path)
        bob.user, bob.password = "bob", "hunter22"
        await bob.tool("-L", "USER", "power", "status", fails=True)
        await clients.tool("user", "enable", "3")
        await clients.tool("user", "list", "1", says="3   bob ")
        await bob.tool("-L", "USER", "power", "status", says="Chassis Power is off")
        await bob.tool("-L", "USER", "power", "on", says="Insufficient privilege", fails=True)
        await bob.tool("-L", "ADMINISTRATOR", "power", "status", fails=True)
        await clients.tool("user", "test", "3", "16", "hunter22", says="Success")
        await clients.tool("user", "test", "3", "16", "hunter2", says="incorrect", fails=True)
        await clients.tool("user", "test", "3", "20", "hunter22", says="wrong", fails=True)
        await clients.tool("user", "set", "name", "3", "")
        await bob.tool("-L", "USER", "power", "status", fails=True)
        assert b.store.saved[-1][1].settings.users == ()


async def test_the_nodes_own_account_belongs_to_the_cluster_file(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        await clients.tool("user", "set", "password", "2", "other", fails=True)
        await clients.tool("user", "set", "name", "2", "root", fails=True)
        await clients.tool("user", "list", "1", says="2   admin ")


async def test_the_watchdog_resets_a_machine(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        power_on(b)
        await clients.tool("mc", "watchdog", "reset", fails=True)
        await clients.tool("raw", *["0x06", "0x24", "0x04", "0x01", "0", "0", "0x05", "0"])
        await clients.tool("mc", "watchdog", "get", says="Hard Reset (0x01)")
        await clients.tool("mc", "watchdog", "reset")
        await until(lambda: bool(b.machines.told))
        assert [command for _, command, _ in b.machines.told] == [PowerCommand.RESET]
        await clients.tool("sel", "list", says="Watchdog2 #0x0a | Hard reset")
        await clients.tool("chassis", "restart_cause", says="watchdog expired")


async def test_the_address_is_the_plans(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        await clients.tool("lan", "print", "1", says="IP Address              : 127.0.0.1")
        told = await clients.tool("raw", *["0x0c", "1", "1", "3", "1", "2", "3", "4"], fails=True)
        assert "rsp=0x82" in told
        told = await clients.tool("raw", *["0x0c", "1", "1", "0xc0", "1"], fails=True)
        assert "rsp=0x80" in told


async def test_dcmi_tells_power_and_keeps_names(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        power_on(b)
        told = await clients.tool("dcmi", "power", "reading")
        found = re.search(r"Instantaneous power reading: +(\d+) Watts", told)
        assert found is not None
        assert 60 < int(found[1]) < 120
        await clients.tool("dcmi", "set_asset_tag", "RACK-7")
        await clients.free("ipmi-dcmi", "--get-asset-tag", says="RACK-7")
        await clients.tool("fru", "print", says="Product Asset Tag     : RACK-7")
        long = "abcdefghijklmnoéXYZ0123456789"
        for write, read in (
            ("set_asset_tag", "asset_tag"),
            ("set_mc_id_string", "get_mc_id_string"),
        ):
            await clients.tool("dcmi", write, long)
            await clients.tool("dcmi", read, says=long)
        await clients.tool("dcmi", "set_mc_id_string", "bmc-of-n0")
        await clients.tool("dcmi", "get_mc_id_string", says="bmc-of-n0")
        can = await clients.free("ipmi-dcmi", "--get-dcmi-capability-info", says="Available")
        assert re.search(r"Asset Tag +: Available", can)
        assert re.search(r"Record Level SEL Flush upon Rollover +: Available", can)
        can = await clients.tool("dcmi", "discover")
        assert re.search(r"Identification Attributes: *\n +Asset tag\n", can)


async def test_the_restore_policy_is_set_and_obeyed_when_ac_returns(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        await clients.tool("chassis", "policy", "previous")
        assert clients.served.aggregate.runtime.settings.policy is PowerPolicy.PREVIOUS
        await clients.tool("power", "on")
        assert await answers(clients)
        b.service.feed(clients.served, AcLost())
        assert not await answers(clients)
        await until(lambda: not clients.served.aggregate.is_on)
        b.service.feed(clients.served, AcReturned())
        await until(lambda: clients.served.aggregate.is_on)
        await clients.tool("chassis", "status", says="Power Restore Policy : previous")
        await clients.tool("chassis", "restart_cause", says="previous")
        await clients.tool("sel", "list", says="AC lost | Asserted")


async def answers(clients: Clients) -> bool:
    """Whether the BMC answers a presence ping."""
    bmc = clients.b.first.bmc
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.settimeout(0)
        line.connect((bmc.address, bmc.ipmi_port))
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(line, bytes.fromhex("0600ff06000011be80420000"))
        try:
            async with asyncio.timeout(0.3):
                return bool(await loop.sock_recv(line, 100))
        except TimeoutError:
            return False


async def test_a_reset_of_the_controller_ends_sessions_and_keeps_settings(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        await clients.tool("chassis", "policy", "always-off")
        await clients.tool("mc", "reset", "cold")
        assert clients.served.endpoint.sessions == {}
        await clients.tool("chassis", "status", says="Power Restore Policy : always-off")


async def test_the_files_key_is_needed_until_a_client_sets_another(tmp_path: Path) -> None:
    async with bench(1) as b:
        config = replace(b.first, k_g="11223344".ljust(40, "0"))
        await b.service.put(config)
        clients = Clients(b, tmp_path)
        await clients.tool("power", "status", fails=True)
        await clients.tool("-y", config.k_g, "power", "status", says="Chassis Power is off")
        key = "ff" * 20
        digits = [f"0x{key[place : place + 2]}" for place in range(0, 40, 2)]
        await clients.tool("-y", config.k_g, "raw", *["6", "0x56", "1", "1", "1"], *digits)
        await clients.tool("-y", key, "power", "status", says="Chassis Power is off")


async def test_system_info_is_kept(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        name = "Debian GNU/Linux 13 (trixie)"
        await clients.tool("mc", "setsysinfo", "os_name", name)
        await clients.tool("mc", "getsysinfo", "os_name", says=name)
        await clients.free(
            "bmc-info", "--get-system-info", says="System Name                   : n0"
        )


async def test_a_key_of_the_bmc_is_set_and_then_needed(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        key = "0123456789abcdef0123456789abcdef01234567"
        bytes_of_key = [f"0x{key[at : at + 2]}" for at in range(0, 40, 2)]
        await clients.tool("raw", "0x06", "0x56", "0x01", "0x01", "0x01", *bytes_of_key)
        assert b.store.saved[-1][1].settings.kg == key
        await clients.tool("power", "status", fails=True)
        await clients.tool("-y", key, "power", "status", says="Chassis Power is off")
        await clients.tool("-y", key, "raw", *["6", "0x56", "1", "1", "1"], *["0"] * 20)
        await clients.tool("power", "status", says="Chassis Power is off")


async def test_freeipmi_checks_out_the_whole_configuration(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        users = await clients.free("ipmi-config", "--checkout", "--section=User2")
        assert re.search(r"Username +admin", users)
        assert re.search(r"Lan_Privilege_Limit +Administrator", users)
        lan = await clients.free("ipmi-config", "--checkout", "--section=Lan_Conf")
        assert re.search(r"IP_Address +127\.0\.0\.1", lan)
        sol = await clients.free("ipmi-config", "--checkout", "--section=SOL_Conf")
        assert re.search(r"Enable_SOL +Yes", sol)
        chassis = await clients.free("ipmi-config", "--checkout", "--category=chassis")
        assert re.search(r"Power_Restore_Policy +Restore_State_AC_Apply", chassis)
        sensors = await clients.free_sdr("ipmi-config", "--checkout", "--category=sensors")
        assert "Section 2_CPU_Temp" in sensors
        dcmi = await clients.free("ipmi-config", "--checkout", "--category=dcmi")
        assert re.search(r"Management_Controller_Identifier_String +n0", dcmi)
        info = await clients.free("bmc-info")
        assert "Channel Number       : 1" in info


async def test_freeipmi_configures_a_policy_and_a_user(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        policy = "Chassis_Power_Conf:Power_Restore_Policy=Off_State_AC_Apply"
        await clients.free("ipmi-config", "--commit", "--category=chassis", "-e", policy)
        settings = clients.served.aggregate.runtime.settings
        assert settings.policy is PowerPolicy.ALWAYS_OFF
        pairs = ["Username=eve", "Password=open-sesame", "Lan_Privilege_Limit=User"]
        pairs += ["Lan_Enable_IPMI_Msgs=Yes", "Enable_User=Yes"]
        argv = [part for pair in pairs for part in ("-e", f"User4:{pair}")]
        await clients.free("ipmi-config", "--commit", *argv)
        eve = Clients(b, tmp_path)
        eve.user, eve.password = "eve", "open-sesame"
        await eve.tool("-L", "USER", "power", "status", says="Chassis Power is off")


SOL_SETTINGS = {
    "Enable_SOL": "Yes",
    "SOL_Privilege_Level": "Administrator",
    "Force_SOL_Payload_Authentication": "Yes",
    "Force_SOL_Payload_Encryption": "Yes",
    "Character_Accumulate_Interval": "12",
    "Character_Send_Threshold": "96",
    "SOL_Retry_Count": "3",
    "SOL_Retry_Interval": "20",
    "Non_Volatile_Bit_Rate": "19200",
    "Volatile_Bit_Rate": "38400",
}


async def test_freeipmi_sets_all_of_serial_over_lan_and_reads_it_back(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        pairs = [f"SOL_Conf:{key}={value}" for key, value in SOL_SETTINGS.items()]
        argv = [part for pair in pairs for part in ("-e", pair)]
        await clients.free("ipmi-config", "--commit", *argv)
        told = await clients.free("ipmi-config", "--checkout", "--section=SOL_Conf")
        for key, value in SOL_SETTINGS.items():
            assert re.search(rf"\t{key} +{value}\n", told), told
        kept = b.store.saved[-1][1].settings.sol
        assert (kept.retries, kept.retry_interval) == (3, 20)


async def test_ipmitool_sets_serial_over_lan_and_is_refused_what_is_not_so(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        for key, value in [
            ("privilege-level", "user"),
            ("character-accumulate-level", "3"),
            ("character-send-threshold", "9"),
            ("retry-count", "2"),
            ("retry-interval", "30"),
            ("volatile-bit-rate", "57.6"),
            ("non-volatile-bit-rate", "9.6"),
            ("force-encryption", "true"),
        ]:
            await clients.tool("sol", "set", key, value, "1")
        await clients.tool("sol", "set", "force-encryption", "false", "1", fails=True)
        told = await clients.tool("sol", "info", "1")
        for line in [
            r"Privilege Level +: USER",
            r"Retry Count +: 2",
            r"Retry Interval \(ms\) +: 300",
            r"Volatile Bit Rate \(kbps\) +: 57\.6",
            r"Character Send Threshold +: 9",
            r"Force Encryption +: true",
        ]:
            assert re.search(line, told), told


async def test_both_tools_read_the_privileges_of_cipher_suites(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        await clients.tool("lan", "print", "1", says="Cipher Suite Priv Max   : aa")
        told = await clients.checked_out("-S", "Rmcpplus_Conf_Privilege")
        assert re.search(r"Maximum_Privilege_Cipher_Suite_Id_3 +Administrator", told)


async def test_bmc_config_commits_what_it_checked_out(tmp_path: Path) -> None:
    async with bench(1) as b:
        clients = Clients(b, tmp_path)
        file = tmp_path / "bmc.conf"
        file.write_text(await clients.checked_out())
        assert "Section SOL_Conf" in file.read_text()
        before = clients.served.aggregate.runtime.settings
        await clients.free("bmc-config", "--commit", "-n", str(file))
        await clients.free("bmc-config", "--diff", "-n", str(file))
        after = clients.served.aggregate.runtime.settings
        assert replace(after, users=()) == replace(before, users=())
        assert not any(user.name for user in after.users)
