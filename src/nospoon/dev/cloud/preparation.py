"""Files of a cloud before its start: configuration, keys, passwords, and what services import."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import secrets
import shutil
from dataclasses import asdict
from pathlib import Path

import yaml

from nospoon.dev.cloud import configuration, programs
from nospoon.dev.cloud.configuration import Passwords
from nospoon.dev.cloud.wanted import Wanted
from nospoon.errors import MissingTool

DIRECTORIES = (
    "log", "tmp", "home", "bin", "python", "locks", "rabbitmq", "neutron", "nova/instances",
    "glance/images", "glance/stage", "glance/tasks", "etc/rabbitmq", "etc/keystone/fernet",
    "etc/keystone/credential", "etc/libvirt",
)  # fmt: skip
_SUDO = """#!/bin/sh
# Services run as root already. After the name of a rootwrap comes its configuration.
case "$1" in *-rootwrap) shift 2 ;; esac
exec "$@"
"""
QEMU_CONFIGURATION = (
    'user = "root"\ngroup = "root"\nsecurity_driver = "none"\ncgroup_controllers = []\n'
)
"""QEMU reads what root wrote below the state directory, and leaves no control groups behind."""


def prepare(wanted: Wanted, *, state: Path, made: Path) -> None:
    """Write them. `made`: the Python environment."""
    for name in DIRECTORIES:
        (state / name).mkdir(parents=True, exist_ok=True)
    told = passwords(state)
    files = configuration.files(wanted, told)
    files |= {
        f"{api}/gunicorn.py": programs.gunicorn(wanted, api, application)
        for api, application in programs.WSGI.items()
    }
    files |= {"neutron/dnsmasq.conf": "user=root\ngroup=root\n"}  # who reads the state directory
    files |= {"rabbitmq/plugins": "[].\n", "libvirt/qemu.conf": QEMU_CONFIGURATION}
    files |= {"rabbitmq/rabbitmq.conf": "listeners.tcp.1 = 127.0.0.1:5672\n"}
    for path, text in files.items():
        target = state / "etc" / path
        target.parent.mkdir(exist_ok=True)
        write(target, text)
    for source, path in configuration.COPIED.items():
        shutil.copy(made / "etc" / source, state / "etc" / path)
    write(state / "clouds.yaml", yaml.safe_dump(configuration.clouds(wanted, told)))
    write(state / "bin/sudo", _SUDO)
    (state / "bin/sudo").chmod(0o700)
    _keys(state / "etc/keystone/fernet")
    _keys(state / "etc/keystone/credential")
    _link_libvirt(state / "python")


def passwords(state: Path) -> Passwords:
    """Chosen once."""
    kept = state / "passwords.json"
    if not kept.exists():
        chosen = Passwords(*(secrets.token_hex(16) for _ in range(3)))
        write(kept, json.dumps(asdict(chosen)))
    return Passwords(**json.loads(kept.read_text()))


def _keys(directory: Path) -> None:
    """The next key and the present one, as keystone-manage makes them in a second or two.

    https://docs.openstack.org/keystone/latest/admin/fernet-token-faq.html
    """
    directory.chmod(0o700)
    for name in ("0", "1"):
        if not (directory / name).exists():
            write(directory / name, base64.urlsafe_b64encode(os.urandom(32)).decode())


def _link_libvirt(directory: Path) -> None:
    """Nova takes the binding of libvirt that nospoon has: PyPI has it as source alone."""
    found = importlib.util.find_spec("libvirt")
    if found is None or found.origin is None:
        raise MissingTool(
            "Nova needs the Python binding of libvirt",
            hint="Install nospoon with its extra: pip install 'nospoon[libvirt]'.",
        )
    for each in Path(found.origin).parent.glob("libvirt*"):
        target = directory / each.name
        if each.is_file() and not target.exists():
            target.symlink_to(each)


def write(path: Path, text: str) -> None:
    """Only its owner reads it: it may have a password in it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text)
