"""Cinder in the cloud: API, scheduler and one backend, whose volumes are files of the cloud.

It has an environment of its own, so that a cloud without volumes installs nothing more, and a
database on the cloud's server. It joins by `up` and stays until the cloud goes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from nospoon.dev import environment
from nospoon.dev.cloud.configuration import BROKER, HOST, Passwords, database, inside, login, token
from nospoon.dev.cloud.preparation import write
from nospoon.dev.cloud.programs import Program, gunicorn
from nospoon.dev.cloud.wanted import INSIDE, Api, Wanted
from nospoon.dev.options import Sections, rendered

NAME = "cinder"
LOCK_FILE = Path(__file__).with_name("cinder.txt")
DRIVER_FILE = Path(__file__).with_name("volume_files.py")
DIRECTORIES = ("python", "volumes", "conversion")
BACKEND, SCHEMA = "files", "schema"
CREATE = f"CREATE DATABASE IF NOT EXISTS {NAME}"
APPLICATION = "cinder.wsgi.api:application"
DRIVER = "nospoon_volume_files"
"""The module of the driver, as Cinder imports it."""


def place(made: Path) -> Path:
    """Its environment, beside that of the cloud (`made`)."""
    return environment.place(made.parents[1], NAME, LOCK_FILE)


async def ensure(made: Path) -> None:
    """Have what it runs. `made`: the cloud's environment."""
    await environment.ensure(made.parents[1], NAME, LOCK_FILE)


def are_in(state: Path) -> bool:
    """Whether the cloud has volumes."""
    return (state / NAME).is_dir()


def prepare(wanted: Wanted, passwords: Passwords, *, state: Path, made: Path) -> None:
    """Its directories and files."""
    own, configuration = state / NAME, state / "etc" / NAME
    for each in (configuration, *(own / name for name in DIRECTORIES)):
        each.mkdir(parents=True, exist_ok=True)
    write(configuration / "cinder.conf", rendered(sections(wanted, passwords)))
    write(configuration / "gunicorn.py", gunicorn(wanted, Api.CINDER, APPLICATION))
    for name in ("api-paste.ini", "resource_filters.json"):
        shutil.copy(place(made) / "etc/cinder" / name, configuration)
    found = state / "home/.cinder"  # its API is given no other place to look for its file
    if not found.is_symlink():
        found.symlink_to(f"../etc/{NAME}")
    shutil.copy(DRIVER_FILE, own / "python" / f"{DRIVER}.py")


def sections(wanted: Wanted, passwords: Passwords) -> Sections:
    """cinder.conf."""
    own = INSIDE / NAME
    account = login(wanted, passwords)
    return {
        "DEFAULT": {
            "host": HOST,
            "my_ip": "127.0.0.1",
            "state_path": own,
            "image_conversion_dir": own / "conversion",
            "transport_url": BROKER,
            "auth_strategy": "keystone",
            "api_paste_config": inside(f"{NAME}/api-paste.ini"),
            "resource_query_filters_file": inside(f"{NAME}/resource_filters.json"),
            "rootwrap_config": "/dev/null",  # the cloud's `sudo` drops it
            "enabled_backends": BACKEND,
            "glance_api_servers": wanted.url(Api.GLANCE),
            "report_interval": 5,
        },
        BACKEND: {
            "volume_driver": f"{DRIVER}.FileDriver",
            "volume_backend_name": BACKEND,
            "volumes_dir": own / "volumes",
        },
        "database": {"connection": database(NAME)},
        "keystone_authtoken": token(wanted, passwords),
        "service_user": {**account, "send_service_user_token": "true"},
        "nova": {**account, "interface": "public"},
        "glance": account,
        "oslo_concurrency": {"lock_path": INSIDE / "locks"},
        "coordination": {"backend_url": f"file://{own}/coordination"},
    }


def programs(made: Path) -> tuple[Program, ...]:
    """Its services, the API first."""
    own, config = place(made) / "bin", inside(f"{NAME}/cinder.conf")
    env = variables(made)
    api = {
        **env,
        # it parses the arguments of the program that imports it
        "GUNICORN_CMD_ARGS": f"--config {inside(f'{NAME}/gunicorn.py')}",
    }
    return (
        Program(NAME, (f"{own}/gunicorn",), api),
        *(
            Program(each, (f"{own}/{each}", f"--config-file={config}"), env)
            for each in ("cinder-scheduler", "cinder-volume")
        ),
    )


def variables(made: Path) -> Mapping[str, str]:
    """Of its services."""
    path = f"{INSIDE}/bin:{place(made)}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "PYTHONPATH": str(INSIDE / NAME / "python")}


def migration(state: Path, made: Path) -> list[str]:
    """The command for its tables, none where they are there. See `migrated`."""
    done = state / NAME / SCHEMA
    if done.exists() and done.read_text() == place(made).name:
        return []
    tool = f"{place(made)}/bin/cinder-manage"
    return [tool, f"--config-file={inside(f'{NAME}/cinder.conf')}", "db", "sync"]


def migrated(state: Path, made: Path) -> None:
    """Its tables are those of this environment."""
    (state / NAME / SCHEMA).write_text(place(made).name)
