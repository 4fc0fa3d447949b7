"""`nospoon dev ironic`: a real Ironic that is started, found again, started anew and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from nospoon.dev import environment, ironic
from nospoon.dev.configuration import Auth, Wanted, clouds, ironic_conf
from nospoon.dev.ironic import Ironic
from nospoon.errors import Conflict, ProviderError, UsageError
from nospoon.runtime import owned
from nospoon.runtime.owned import Process
from nospoon.testing.ironic import until
from nospoon.testing.own_network import own_network
from nospoon.testing.rack import CACHE, Rack


@pytest.fixture
def rack(own_directory: Path) -> Iterator[Rack]:
    made = Rack.at(own_directory)
    yield made
    made.run("dev", "ironic", "down")


def _status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_an_ironic_outlives_its_command_and_is_found_again(rack: Rack, free_port: int) -> None:
    up = ("dev", "ironic", "up", "--port", str(free_port))
    first = rack.json(*up)
    assert rack.json(*up)["pid"] == first["pid"]
    assert _status_of(f"{first['endpoint']}/v1/nodes") == 200
    with_password = rack.json(*up, "--auth", "http_basic")
    assert _status_of(f"{first['endpoint']}/v1/nodes") == 401
    cloud = yaml.safe_load(Path(with_password["clouds"]).read_text())["clouds"]["nospoon-dev"]
    assert cloud["auth"]["password"] not in rack.run("dev", "ironic", "status").stdout
    assert Path(with_password["clouds"]).stat().st_mode & 0o077 == 0
    assert rack.json("dev", "ironic", "status")["answers"] is True
    there = ironic.running(rack.directory / "state" / "dev" / "ironic")
    assert there is not None
    os.killpg(there.files.pid, signal.SIGKILL)
    until(lambda: not owned.is_alive(there.files))
    assert "serves its files" in rack.run("dev", "ironic", "status", status=1).stderr
    rack.run("dev", "ironic", "down")
    assert "no Ironic runs" in rack.run("dev", "ironic", "status", status=1).stderr
    assert list((rack.directory / "state" / "dev").iterdir()) == []
    with socket.create_server(("127.0.0.1", free_port)):
        pass
    assert "nothing to remove" in rack.run("dev", "ironic", "down").stderr


async def test_one_that_was_killed_is_started_again_with_its_nodes(
    running_ironic: Ironic, cache: Path
) -> None:
    found = ironic.running(running_ironic.state)  # other tests start it anew
    assert found is not None
    os.killpg(found.process.pid, signal.SIGKILL)
    while owned.is_alive(found.process):
        pass
    assert ironic.running(running_ironic.state) is None
    again = await ironic.up(running_ironic.wanted, state=running_ironic.state, cache=cache)
    assert again.process != found.process
    assert await ironic.answers(again)


async def test_one_that_got_sigterm_is_started_again_though_it_still_runs(
    running_ironic: Ironic, cache: Path
) -> None:
    """It takes seconds to end, and answers some requests meanwhile."""
    found = ironic.running(running_ironic.state)
    assert found is not None
    os.kill(found.process.pid, signal.SIGTERM)
    caught = f" {found.process.pid} INFO cotyledon._service_manager [-] Caught SIGTERM"
    until(lambda: caught in found.log_file.read_text())
    again = await ironic.up(running_ironic.wanted, state=running_ironic.state, cache=cache)
    assert again.process != found.process
    assert await ironic.answers(again)


async def test_a_port_that_somebody_has_is_told_before_anything_is_started(
    own_directory: Path, cache: Path, free_port: int
) -> None:
    refused = pytest.raises(Conflict, match=f"port {free_port}.*--port")
    with socket.create_server(("127.0.0.1", free_port)), refused:
        await ironic.up(Wanted(port=free_port), state=own_directory, cache=cache)


async def test_one_that_is_refused_leaves_what_runs(
    running_ironic: Ironic, cache: Path, free_port: int
) -> None:
    refused = pytest.raises(Conflict, match=f"port {free_port}.*--port")
    other = replace(running_ironic.wanted, port=free_port)
    with socket.create_server(("127.0.0.1", free_port)), refused:
        await ironic.up(other, state=running_ironic.state, cache=cache)
    elsewhere = replace(running_ironic.wanted, address="203.0.113.7")
    with pytest.raises(Conflict, match=r"203\.0\.113\.7.*--address"):
        await ironic.up(elsewhere, state=running_ironic.state, cache=cache)
    there = ("127.0.0.3", running_ironic.wanted.port)
    moved = replace(running_ironic.wanted, address=there[0])
    with socket.create_server(there), pytest.raises(Conflict, match=r"127\.0\.0\.3 port"):
        await ironic.up(moved, state=running_ironic.state, cache=cache)
    found = ironic.running(running_ironic.state)
    assert found is not None
    assert await ironic.answers(found)


async def test_what_serves_files_is_not_started_again_where_somebody_else_is_meanwhile(
    running_ironic: Ironic, cache: Path
) -> None:
    found = ironic.running(running_ironic.state)
    assert found is not None
    os.killpg(found.files.pid, signal.SIGKILL)
    until(lambda: not owned.is_alive(found.files))
    with socket.create_server(("127.0.0.1", found.wanted.files)), pytest.raises(Conflict):
        await ironic.up(found.wanted, state=found.state, cache=cache)
    assert await ironic.answers(found)
    assert (await ironic.up(found.wanted, state=found.state, cache=cache)).whole


async def test_packages_that_cannot_be_had_are_told_with_what_is_needed(tmp_path: Path) -> None:
    lock = tmp_path / "broken.txt"
    lock.write_text(f"file://{tmp_path}/nothing-1.0-py3-none-any.whl --hash=sha256:{'0' * 64}\n")
    for _ in range(2):  # what a failed run leaves is no environment
        with pytest.raises(ProviderError, match=r"packages of broken are not available.*index"):
            await environment.ensure(tmp_path, "broken", lock)
    environment.remove(tmp_path, "broken")
    assert list((tmp_path / "environments").iterdir()) == []


def test_without_a_network_the_index_is_named_and_no_librarys_words(rack: Rack) -> None:
    """uv is tried first, then pip; what they have in their caches would do."""
    empty = {"NOSPOON_CACHE_DIR": "cache", "UV_CACHE_DIR": "uv", "PIP_CACHE_DIR": "pip"}
    elsewhere = {name: str(rack.directory / place) for name, place in empty.items()}
    elsewhere |= {"PIP_RETRIES": "1", "UV_HTTP_RETRIES": "0"}
    with own_network():
        done = subprocess.run(
            ["nospoon", "dev", "ironic", "up"],
            env=rack.environment | elsewhere, text=True, capture_output=True, check=False,
        )  # fmt: skip
    assert "packages of ironic are not available: the package index cannot be reached" in (
        done.stderr
    )
    assert "Retry(" not in done.stderr
    assert '"event"' not in done.stderr


async def test_environments_of_others_and_those_that_somebody_runs_from_stay(
    tmp_path: Path,
) -> None:
    mine, busy = f"made-{'0' * 16}", f"made-{'1' * 16}"
    there = tmp_path / "environments"
    for name in (mine, busy, f"made-otherwise-{'2' * 16}"):
        (there / name / "bin").mkdir(parents=True)
        (there / f"{name}.lock").touch()
    (there / busy / "bin" / "sleep").symlink_to("/bin/sleep")
    user = await asyncio.create_subprocess_exec(str(there / busy / "bin" / "sleep"), "60")
    try:
        with pytest.raises(Conflict, match=rf"runs from {busy} \(process {user.pid}\)"):
            environment.remove(tmp_path, "made")
    finally:
        user.kill()
        await user.wait()
    assert not (there / mine).exists()
    assert (there / busy).exists()
    environment.remove(tmp_path, "made")
    left = sorted(each.name for each in there.iterdir())
    assert left == [f"made-otherwise-{'2' * 16}", f"made-otherwise-{'2' * 16}.lock"]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Wanted(options=("nonsense",)), "SECTION.OPTION=VALUE, got 'nonsense'"),
        (Wanted(port=5, files_port=5), "cannot both be on port 5"),
        (Wanted(port=65535), "no port 65536 for its files"),
        (Wanted("localhost"), "expected an IP address to listen on, got 'localhost'"),
        (Wanted(advertised="here"), "expected an IP address that nodes use, got 'here'"),
        (Wanted("0.0.0.0"), "nodes cannot use 0.0.0.0"),
    ],
)
async def test_settings_that_make_no_sense_are_refused_before_anything_is_started(
    own_directory: Path, cache: Path, wanted: Wanted, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        await ironic.up(wanted, state=own_directory, cache=cache)
    assert ironic.running(own_directory) is None


async def test_of_an_ironic_that_does_not_come_up_nothing_runs_on(
    own_directory: Path, cache: Path, free_port: int
) -> None:
    wanted = Wanted(port=free_port, options=("DEFAULT.rpc_transport=nobody",))
    with pytest.raises(ProviderError):
        await ironic.up(wanted, state=own_directory, cache=cache)
    assert ironic.running(own_directory) is None
    with socket.create_server(("127.0.0.1", wanted.files)):
        pass
    await ironic.down(state=own_directory, cache=cache, purge=False)


def test_ctrl_c_while_it_starts_leaves_nothing_that_runs(rack: Rack, free_port: int) -> None:
    up = ["env", "--default-signal=INT", "nospoon", "dev", "ironic", "up", "--port", str(free_port)]
    up += ["--set", "DEFAULT.rpc_transport=nobody"]
    state = rack.directory / "state" / "dev" / "ironic"
    with subprocess.Popen(up, env=rack.environment, stderr=subprocess.PIPE, text=True) as starting:
        until((state / "ironic.json").exists)
        starting.send_signal(signal.SIGINT)
        _, told = starting.communicate(timeout=240)
    assert starting.returncode == 130
    assert "Aborted." in told
    assert "Traceback" not in told
    assert ironic.running(state) is None
    with socket.create_server(("127.0.0.1", free_port + 1)):
        pass


def test_a_key_of_a_bmcs_password_is_derived_once_and_is_the_same(running_ironic: Ironic) -> None:
    """Another for another password or address."""
    python = environment.place(CACHE, ironic.NAME, ironic.LOCK_FILE) / "bin" / "python"
    program = f"""
import hashlib
derive = hashlib.pbkdf2_hmac
import importlib.util as util
spec = util.spec_from_file_location("ironic_service", {ironic.SERVICE!r})
spec.loader.exec_module(util.module_from_spec(spec))
from ironic.drivers.modules.redfish.utils import SessionCache
keys = [("a", "p"), ("a", "p"), ("a", "q"), ("b", "p"), ("a", None)]
made = [SessionCache({{"address": a, "password": p}})._session_key[-1] for a, p in keys]
real = [derive("sha512", (p or "").encode(), (a * 4).encode(), 600000).hex() for a, p in keys]
assert made == real and len(set(made)) == 4, (made, real)
assert hashlib.pbkdf2_hmac.cache_info().hits == 1
"""
    assert running_ironic.endpoint, "its environment is there"
    subprocess.run([python, "-P", "-c", program], check=True)


def test_an_address_of_ipv6_is_written_as_urls_need_it() -> None:
    wanted = Wanted("fd00::1", 6385)
    assert "public_endpoint = http://[fd00::1]:6385" in ironic_conf(wanted, state=Path("/s"))
    everywhere = clouds(Wanted("0.0.0.0", 1, Auth.HTTP_BASIC), "secret")["clouds"]["nospoon-dev"]
    assert everywhere["auth"]["endpoint"] == "http://127.0.0.1:1"
    assert everywhere["auth"]["password"] == "secret"
    behind_nat = clouds(Wanted("10.0.0.1", 1, advertised="192.0.2.7"), "")["clouds"]["nospoon-dev"]
    assert behind_nat["baremetal_endpoint_override"] == "http://10.0.0.1:1"


def test_a_dollar_in_a_setting_is_no_reference_to_another() -> None:
    text = ironic_conf(Wanted(database="mysql://u:p$w@h/d"), state=Path("/s"))
    assert "connection = mysql://u:p$$w@h/d" in text


def test_kernels_of_agents_do_not_check_the_timer_of_a_vm_on_a_busy_host() -> None:
    text = ironic_conf(Wanted(), state=Path("/s"))
    given = [line for line in text.splitlines() if line.startswith("kernel_append_params")]
    assert len(given) == 2, "by network and by virtual media"
    assert all("no_timer_check" in line.split() for line in given)


async def test_a_process_of_another_start_time_is_no_process_of_ours() -> None:
    stranger = await asyncio.create_subprocess_exec("sleep", "60")
    which = Process(stranger.pid, started=1)
    assert not owned.is_alive(which)
    await owned.stop(which, patience=1, with_session=True)
    assert stranger.returncode is None
    stranger.kill()
    await stranger.wait()


async def test_what_does_not_heed_sigterm_is_killed_with_its_session(tmp_path: Path) -> None:
    said = tmp_path / "said"
    stubborn = "trap '' TERM; sleep 60 & echo $!; wait; wait"
    which = owned.begin(["/bin/sh", "-c", stubborn], output=said, env={"PATH": os.defpath})
    while not said.read_text().endswith("\n"):
        pass
    child = int(said.read_text())
    await owned.stop(which, patience=0.2, with_session=True)
    assert not owned.is_alive(which)
    while owned.start_time(child) is not None:
        pass
