"""Real Keystone, Placement, Nova API and Ironic, as a cloud of one's own for tests.

SQLite, and no message queue: flavors are in the API's own database. Ironic asks for no token.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nospoon.dev import environment, ironic
from nospoon.dev.cloud.cloud import LOCK_FILE, NAME
from nospoon.dev.configuration import Wanted
from nospoon.runtime import owned
from nospoon.runtime.owned import Process
from nospoon.testing.bench import free_port
from nospoon.testing.trees import remove_tree

REGION, PASSWORD, START_SECONDS = "RegionOne", "secret", 150
VERSIONS = "compute 2.61, placement 1.22"
"""https://specs.openstack.org/openstack/api-sig/guidelines/microversion_specification.html"""
WSGI = {
    "keystone": "keystone.wsgi.api:application",
    "placement": "placement.wsgi.api:application",
    "nova": "nova.wsgi.osapi_compute:application",
}


@dataclass
class Cloud:
    """Where its services answer, and what clients are given."""

    state: Path
    ports: dict[str, int]
    processes: list[Process] = field(default_factory=list)

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self.ports[service]}"

    @property
    def auth(self) -> dict[str, str]:
        return {
            "auth_url": f"{self.url('keystone')}/v3", "username": "admin", "password": PASSWORD,
            "project_name": "admin", "user_domain_id": "default", "project_domain_id": "default",
        }  # fmt: skip

    @property
    def told(self) -> dict[str, object]:
        return {"auth_type": "password", "auth": self.auth, "region_name": REGION}

    @property
    def clouds_file(self) -> Path:
        return self.state / "clouds.yaml"

    def call(self, method: str, url: str, body: object = None) -> Any:
        """As its admin. What it answers, decoded; None for nothing."""
        headers = {"X-Auth-Token": self._token(), "OpenStack-API-Version": VERSIONS}
        return _call(method, url, body, headers)[0]

    def nova(self, method: str, path: str, body: object = None) -> Any:
        return self.call(method, f"{self.url('nova')}/v2.1{path}", body)

    def placement(self, method: str, path: str) -> Any:
        return self.call(method, f"{self.url('placement')}{path}")

    def flavors(self) -> dict[str, Any]:
        """Nova's, by name."""
        listed = self.nova("GET", "/flavors/detail?is_public=None")["flavors"]
        return {each["name"]: each for each in listed}

    def _token(self) -> str:
        """https://docs.openstack.org/api-ref/identity/v3/#password-authentication-with-scoped-authorization"""
        who = {"name": "admin", "domain": {"id": "default"}}
        password = {"user": {**who, "password": PASSWORD}}
        auth = {
            "identity": {"methods": ["password"], "password": password},
            "scope": {"project": who},
        }
        url = f"{self.url('keystone')}/v3/auth/tokens"
        return str(_call("POST", url, {"auth": auth}, {})[1]["X-Subject-Token"])


def _call(method: str, url: str, body: object, headers: dict[str, str]) -> tuple[Any, Any]:
    data = json.dumps(body).encode() if body is not None else None
    told = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(url, data, told, method=method)
    with urllib.request.urlopen(request, timeout=120) as answer:
        text = answer.read()
    return (json.loads(text) if text else None), answer.headers


def up(state: Path, *, cache: Path) -> Cloud:
    """A cloud with all that it has in `state`, from the environment that `nospoon dev cloud` has in
    the cache. See `down`.
    """
    made = Cloud(state, {name: free_port(socket.SOCK_STREAM) for name in (*WSGI, "baremetal")})
    bin_ = asyncio.run(environment.ensure(cache, NAME, LOCK_FILE)) / "bin"
    try:
        _prepare(made, bin_)
        for name, application in WSGI.items():
            made.processes.append(_serve(made, bin_, name, application))
        wanted = Wanted(port=made.ports["baremetal"], files_port=free_port(socket.SOCK_STREAM))
        asyncio.run(ironic.up(wanted, state=state / "ironic", cache=cache))
        for name in WSGI:
            _until_answers(made.url(name))
        _catalogue(made)
    except BaseException:
        for log in sorted(state.glob("*.log")):
            print(f"== {log.name}\n{log.read_text()[-4000:]}")  # noqa: T201  (for its reader)
        down(made, cache=cache)
        raise
    return made


def down(made: Cloud, *, cache: Path) -> None:
    """End it; nothing of it is left."""
    asyncio.run(ironic.down(state=made.state / "ironic", cache=cache, purge=False))
    for each in made.processes:
        asyncio.run(owned.stop(each, patience=10, with_session=True))
    remove_tree(made.state)


@contextmanager
def compute(made: Cloud, *, cache: Path, script: Path) -> Iterator[None]:
    """nova-compute with Ironic's driver: `script` is what starts it."""
    bin_ = environment.place(cache, NAME, LOCK_FILE) / "bin"
    own = {"compute_driver": "ironic.IronicDriver", "host": "test", "update_resources_interval": 2}
    login = {**made.auth, "auth_type": "password", "region_name": REGION}
    more = made.state / "compute.conf"
    _write(more, {"DEFAULT": own, "ironic": login})
    files = [f"--config-file={made.state}/nova/nova.conf", f"--config-file={more}"]
    argv = [str(bin_ / "python"), str(script), *files]
    running = owned.begin(argv, output=made.state / "nova-compute.log", env=os.environ)
    try:
        yield
    except BaseException:
        print((made.state / "nova-compute.log").read_text()[-8000:])  # noqa: T201  (for its reader)
        raise
    finally:
        asyncio.run(owned.stop(running, patience=10, with_session=True))


def _prepare(made: Cloud, bin_: Path) -> None:
    """Configuration and databases."""
    state = made.state
    for part in ("keystone/fernet", "keystone/credential", "placement", "nova"):
        (state / part).mkdir(parents=True, mode=0o700)
    login = {**made.auth, "auth_type": "password", "region_name": REGION}
    token = {**login, "www_authenticate_uri": made.url("keystone")}
    _write(state / "keystone/keystone.conf", {
        "database": {"connection": f"sqlite:///{state}/keystone/db"},
        "fernet_tokens": {"key_repository": state / "keystone/fernet"},
        "credential": {"key_repository": state / "keystone/credential"},
    })  # fmt: skip
    _write(state / "placement/placement.conf", {
        "placement_database": {"connection": f"sqlite:///{state}/placement/db"},
        "keystone_authtoken": token,
    })  # fmt: skip
    _write(state / "nova/nova.conf", {
        "DEFAULT": {"state_path": state / "nova", "transport_url": "fake://"},
        "api_database": {"connection": f"sqlite:///{state}/nova/api"},
        "database": {"connection": f"sqlite:///{state}/nova/cell0"},
        "keystone_authtoken": token,
        "placement": login,
    })  # fmt: skip
    shutil.copy(bin_.parent / "etc/nova/api-paste.ini", state / "nova")
    made.clouds_file.write_text(yaml.safe_dump({"clouds": {"test": made.told}}))
    made.clouds_file.chmod(0o600)
    user = ["--keystone-user", "root", "--keystone-group", "root"]
    keystone, nova = ("keystone-manage", "keystone"), ("nova-manage", "nova")
    url = f"{made.url('keystone')}/v3"
    for (tool, service), *arguments in (
        (keystone, "db_sync"),
        (keystone, "fernet_setup", *user),
        (keystone, "credential_setup", *user),
        (keystone, "bootstrap", "--bootstrap-password", PASSWORD, "--bootstrap-region-id", REGION,
         "--bootstrap-public-url", url, "--bootstrap-internal-url", url),
        (("placement-manage", "placement"), "db", "sync"),
        (nova, "api_db", "sync"),
        (nova, "cell_v2", "map_cell0", "--database_connection", f"sqlite:///{state}/nova/cell0"),
        (nova, "db", "sync"),
    ):  # fmt: skip
        config = f"--config-file={state}/{service}/{service}.conf"
        argv = [str(bin_ / tool), config, *map(str, arguments)]
        subprocess.run(argv, check=True, capture_output=True)


def _write(path: Path, sections: Mapping[str, Mapping[str, object]]) -> None:
    lines = [
        line
        for name, options in sections.items()
        for line in (f"[{name}]", *(f"{key} = {value}" for key, value in options.items()))
    ]
    path.write_text("\n".join(lines) + "\n")


def _serve(made: Cloud, bin_: Path, name: str, application: str) -> Process:
    """Told by a file alone: Keystone and Nova parse the arguments of whoever imports them."""
    directory = made.state / f"run-{name}"
    directory.mkdir()
    options = {"wsgi_app": application, "bind": f"127.0.0.1:{made.ports[name]}", "threads": 4}
    text = "\n".join(f"{key} = {value!r}" for key, value in {**options, "timeout": 180}.items())
    (directory / "gunicorn.conf.py").write_text(text)
    env = {
        **os.environ,
        f"OS_{name.upper()}_CONFIG_DIR": str(made.state / name),
        "OS_KEYSTONE_CONFIG_FILES": "keystone.conf",
        "GUNICORN_CMD_ARGS": f"--config {directory}/gunicorn.conf.py",
    }
    argv = [str(bin_ / "python"), str(bin_ / "gunicorn")]
    return owned.begin(argv, output=made.state / f"{name}.log", env=env)


def _until_answers(url: str) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=30):
                return
        except urllib.error.HTTPError as error:
            if error.code < 500:  # 300: the versions that there are
                return
            raise
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.3)


def _catalogue(made: Cloud) -> None:
    urls = {
        "compute": f"{made.url('nova')}/v2.1",
        "placement": made.url("placement"),
        "baremetal": made.url("baremetal"),
    }
    base = f"{made.url('keystone')}/v3"
    for kind, url in urls.items():
        service = made.call("POST", f"{base}/services", {"service": {"type": kind, "name": kind}})
        endpoint = {
            "service_id": service["service"]["id"], "interface": "public", "url": url,
            "region_id": REGION,
        }  # fmt: skip
        made.call("POST", f"{base}/endpoints", {"endpoint": endpoint})
