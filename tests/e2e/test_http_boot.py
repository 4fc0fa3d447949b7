"""Boot by HTTP as a client of Redfish asks for it, on a whole daemon and a real machine."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import pytest

from nospoon.model.cluster import Arch
from nospoon.probe.build import build, command_line
from nospoon.testing import disks
from nospoon.testing.rack import CACHE, Rack
from nospoon.testing.redfish import System
from nospoon.testing.serial import Serial

pytestmark = [pytest.mark.libvirt, pytest.mark.boots]

NODE = "nodes: [{name: n, firmware: uefi, memory: 512MiB, disks: [16MiB]}]"
HELLO = b"nospoon-probe: hello"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and writes no log."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        """Not a word."""


@contextmanager
def serving(directory: Path, address: str) -> Iterator[str]:
    """A web server of somebody else on the node's network; its URL."""
    handler = partial(Quiet, directory=str(directory))
    with ThreadingHTTPServer((address, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{address}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def probe_program(place: Path) -> Path:
    """One EFI program that is the whole probe: GRUB with its kernel and ramdisk in it."""
    probe = asyncio.run(build(CACHE, arch=Arch.X86_64))
    config, program = place / "probe.cfg", place / "probe.efi"
    words = command_line(probe.arch, after="poweroff")
    config.write_text(f"linux (memdisk)/linux {words}\ninitrd (memdisk)/initrd\nboot\n")
    modules = "--modules=normal linux configfile"
    grub = ["grub-mkstandalone", "-O", "x86_64-efi", "-o", str(program), modules]
    bare = ["--fonts=", "--locales=", "--themes=", modules.replace("--", "--install-")]
    files = [f"boot/grub/grub.cfg={config}", f"linux={probe.kernel}", f"initrd={probe.initrd}"]
    disks.run(*grub, *bare, *files)
    return program


def address_of(bridge: str) -> str:
    argv = ["ip", "-j", "-4", "addr", "show", "dev", bridge]
    shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return str(json.loads(shown)[0]["addr_info"][0]["local"])


def test_a_uefi_machine_boots_the_probe_from_the_uri_that_redfish_names(
    rack: Rack, tmp_path: Path
) -> None:
    name = rack.name()
    networks = "networks: {lan: {netboot: builtin, host_ports: all}}"
    file = rack.file(f"cluster: {name}\nid: {uuid4()}\n{networks}\n{rack.bmc()}{NODE}\n")
    found = re.search(r"bridge (\S+)", rack.run("plan", file).stdout)
    assert found is not None
    rack.run("up", "--yes", file)
    bmc = rack.bmcs(name)["n"]
    node = System(bmc)
    serial = Serial(rack.directory / "state" / "consoles" / f"{bmc['uuid']}.log")
    program = probe_program(tmp_path)
    with serving(tmp_path, address_of(found[1].rstrip(","))) as url:
        boot = {
            "HttpBootUri": f"{url}/{program.name}",
            "BootSourceOverrideTarget": "UefiHttp",
            "BootSourceOverrideEnabled": "Once",
        }
        node.ask("PATCH", "", {"Boot": boot})
        node.ask("POST", "/Actions/ComputerSystem.Reset", {"ResetType": "On"})
        assert serial.hears(b"nospoon: boot http")
        assert serial.hears(HELLO)
    told = node.ask("GET", "")["Boot"]
    assert told["BootSourceOverrideEnabled"] == "Disabled", "once is once"
    assert told["HttpBootUri"] == boot["HttpBootUri"]
