"""VMs on libvirt for real: they boot their image, find what cloud-init reads, and are changed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.e2e.standing import virsh

from nospoon.testing.rack import CACHE, Rack, private_rack
from nospoon.testing.seeded import READY, seeded_image

pytestmark = [pytest.mark.libvirt, pytest.mark.boots]

SECRET = "follow-the-white-rabbit"
SCRIPT = "#!/bin/sh\necho said: {word} by $(uname)\n"


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with private_rack() as made:
        image = asyncio.run(seeded_image(CACHE))
        shutil.copy(image, made.directory / "root.img")
        yield made


def written(rack: Rack, name: str, word: str, more: str = "") -> str:
    (rack.directory / "user-data").write_text(SCRIPT.format(word=word))
    text = (
        f"cluster: {name}\n{rack.bmc()}networks: {{lan: {{}}}}\n"
        "nodes: [{name: v, kind: vm, memory: 320MiB, image: root.img, nics: lan,"
        f" user_data: {{file: user-data}}{more}}}]\n"
    )
    return rack.file(text, f"{name}.yaml")


def heard(rack: Rack, name: str, words: str, *, times: int = 1, seconds: float = 240) -> str:
    """The node's console once it has said these words so often. Its log is looked at where it is:
    a command for each look would have as much of the processor as the guest, which boots for long.
    """
    uuid, end = rack.json("node", "show", f"{name}/v")["uuid"], time.monotonic() + seconds
    kept = rack.directory / "state" / "consoles" / f"{uuid}.log"
    while True:
        log = kept.read_text(errors="replace") if kept.exists() else ""
        if log.count(words) >= times:
            return rack.run("node", "console", "--log", f"{name}/v").stdout
        assert time.monotonic() < end, f"no {words!r} among\n{log[-3000:]}"
        time.sleep(0.5)


def domain(rack: Rack, name: str) -> ET.Element:
    uuid = rack.json("node", "show", f"{name}/v")["uuid"]
    return ET.fromstring(virsh("dumpxml", "--inactive", uuid))


def seeds(rack: Rack) -> list[Path]:
    return sorted(rack.directory.rglob("*.seed"))


def steps(rack: Rack, file: str) -> dict[str, Any]:
    plan = rack.json("plan", file)
    (step,) = (each for each in plan["steps"] if each["kind"] == "machine")
    return dict(step)


def expect_the_seed_to_be_no_medium(rack: Rack, name: str) -> None:
    """Of the BMC, and to stay over its ejects."""
    iso = rack.directory / "disc.iso"
    iso.write_bytes(b"\0" * 32768 + b"\1CD001\1\0".ljust(2048, b"\0"))
    rack.run("node", "media", "insert", f"{name}/v", str(iso))
    rack.run("node", "media", "eject", f"{name}/v")
    sources = [
        each.find("source") for each in domain(rack, name).findall("devices/disk[@device='cdrom']")
    ]
    assert sources[0] is None
    assert sources[1] is not None
    assert sources[1].get("file", "").endswith(".seed")


def expect_nothing_secret(rack: Rack, name: str) -> None:
    """In log and store, when the guest has run it."""
    found = [
        path
        for path in rack.directory.rglob("*")
        if path.is_file()
        and path.suffix not in {".seed", ".yaml", ".img"}
        and path.name != "user-data"
        and SECRET.encode() in path.read_bytes()
    ]
    kept = [path for path in found if "console" not in str(path) and "record" not in str(path)]
    assert kept == []
    assert SECRET not in json.dumps(rack.json("node", "show", f"{name}/v"))
    assert SECRET not in os.environ


def test_a_vm_boots_its_image_runs_its_user_data_and_gets_changed_data_at_power_off(
    rack: Rack,
) -> None:
    """Its seed is no medium of its BMC, and what is secret in it is nowhere else."""
    name, bmc = rack.name(), ", bmc: redfish"
    file = written(rack, name, SECRET, bmc)
    shown = rack.run("up", "--yes", file)
    assert SECRET not in shown.stdout + shown.stderr
    log = heard(rack, name, READY)  # nobody switched it on
    assert "guest: label cidata on /dev/sr" in log
    assert f"said: {SECRET} by Linux" in log
    for each in ("meta-data", "network-config", "user-data"):
        assert f"guest: file {each} " in log
    digest = hashlib.sha256(SCRIPT.format(word=SECRET).encode()).hexdigest()
    assert f"guest: file user-data {digest}" in log
    (seed,) = seeds(rack)
    assert stat.S_IMODE(seed.stat().st_mode) == 0o600
    root = domain(rack, name)
    drives = root.findall("devices/disk[@device='cdrom']")
    assert [each.find("source") is not None for each in drives] == [False, True]
    assert "Nothing to do" in rack.run("up", "--yes", file).stderr
    expect_nothing_secret(rack, name)
    expect_the_seed_to_be_no_medium(rack, name)

    file = written(rack, name, "another", bmc)
    step = steps(rack, file)
    assert (step["action"], step["at_power_off"]) == ("change", True)
    assert [(each["field"], each["desired"]) for each in step["changes"]] == [("seed", "…")]
    assert "v has to be powered off for seed (changed)" in rack.run("up", "--yes", file).stderr
    (changed,) = seeds(rack)
    assert changed != seed
    before = heard(rack, name, READY)
    assert "said: another" not in before
    rack.power(f"{name}/v", "cycle")
    log = heard(rack, name, READY, times=2)
    assert "said: another by Linux" in log
    again = rack.run("plan", "--detailed-exitcode", file)
    assert "Nothing to" in again.stdout

    rack.run("down", "--yes", name)
    assert seeds(rack) == []


def test_another_image_is_another_root_and_the_former_one_returns_as_it_was(rack: Rack) -> None:
    name, image = rack.name(), rack.directory / "root.img"
    first = image.read_bytes()
    file = written(rack, name, "one")

    def root() -> Path:
        return Path(domain(rack, name).find("devices/disk/source").get("file"))  # type: ignore[union-attr, arg-type]

    rack.run("up", "--yes", file)
    heard(rack, name, READY)
    before = root()
    mark = before.stat().st_ino
    try:
        image.write_bytes(first + bytes(512))  # of no whole kibibytes, as libvirt makes disks
        rack.run("up", "--yes", file)
        heard(rack, name, READY, times=2)
        assert root() != before
        assert before.stat().st_ino == mark
        image.write_bytes(first)
        rack.run("daemon", "stop")
        assert "returns to the root" in rack.run("up", "--yes", file).stderr
        assert (root(), root().stat().st_ino) == (before, mark)
        heard(rack, name, READY, times=3)
        assert "Nothing to do" in rack.run("up", "--yes", file).stderr
    finally:
        image.write_bytes(first)
    rack.run("down", "--yes", "--purge", name)
    assert not [path for path in (rack.directory / "pool").rglob("*") if path.is_file()]
