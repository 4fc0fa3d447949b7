"""Record what Beaker itself calls of contrib/beaker: `beaker_calls.jsonl`, which the tests replay.

    git clone https://github.com/beaker-project/beaker
    python2.7 -m pip install --target PACKAGES six==1.17.0 lxml==4.9.1 SQLAlchemy==0.9.10 \\
        netaddr==0.7.20 python-daemon==2.1.2 lockfile==0.12.2 decorator==4.4.2 \\
        itsdangerous==1.1.0 werkzeug==0.16.1 flask==1.0.4 mock==3.0.5 futures==3.4.0 \\
        gevent==1.3.7 greenlet==0.4.17 passlib==1.7.4 jinja2==2.11.3 markdown==3.1.1 \\
        requests==2.27.1
    .venv/bin/python -m tests.contrib.record_beaker beaker/.git PACKAGES python2.7

Beaker's source stays outside this repository (GPL-2). It is run in a directory of its own, beside a
daemon on the simulator; `beaker_calls` says what of it is its own code.
"""

from __future__ import annotations

import getpass
import io
import json
import re
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nospoon.runtime.clock import unix
from nospoon.testing.rack import private_rack

HERE = Path(__file__).parent
ADAPTER = HERE.parents[1] / "contrib/beaker"
RECORDING = HERE / "beaker_calls.jsonl"
CLUSTER = "beaker-record"
NODE, FQDN = f"{CLUSTER}/m1", "system.example.com"
CALLS = (
    "available_flavors", "create_vm", "start_vm", "destroy_vm", "get_console_output",
    "delete_keystone_trust",
)  # fmt: skip
LAB = f"""
cluster: {CLUSTER}
hosts:
  here:
    simulated:
      console: "one \\e[1;31mtwo\\e[0m \\b\\a caf\\xe9\\nKernel panic - not syncing\\n"
flavors:
  m1-small: {{memory: 2GiB, disks: [20GiB], firmware: bios}}
  m1-large: {{memory: 8GiB, cpus: 4, disks: [80GiB], firmware: bios}}
labs:
  beaker:
    operators: [{getpass.getuser()}]
    distros:
      beaker: {{script: "http://beaker.example.com/systems/by-uuid/${{uuid}}/ipxe-script"}}
nodes: [{{flavor: m1-small, name: m1}}]
"""
"""The lab behind Beaker: its console has what terminals take and XML does not."""
SOURCE = ("Server/bkr", "LabController", "Common/bkr", "COPYING")
SETTINGS = """
TFTP_ROOT = "{0}/tftp"
CONSOLE_LOGS = "{0}/consoles"
CACHEPATH = "{0}/cache"
URL_DOMAIN = "lab.example.com"
POWER_ATTEMPTS = 2
SLEEP_TIME = 1
NOSPOON_SYSTEMS = "{0}/systems"
"""
TRACED = """#!{python}
import json, os, subprocess, sys
env = {{key: value for key, value in os.environ.items() if key.startswith("power_")}}
done = subprocess.run(
    [{script!r}, *sys.argv[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
)
row = dict(call="power script", given=sys.argv[1:], environment=env, status=done.returncode)
with open({log!r}, "a") as log:
    log.write(json.dumps(dict(row, output=done.stdout), sort_keys=True) + "\\n")
sys.stdout.write(done.stdout)
sys.exit(done.returncode)
"""
"""In place of the power script, which it runs."""


def main(git: str, packages: str, python: str) -> None:
    with private_rack() as rack:
        rack.run("up", "--yes", rack.file(LAB + rack.bmc(), f"{CLUSTER}.yaml"))
        work = rack.directory / "beaker"
        unpack(git, work)
        (work / "setting.json").write_text(json.dumps(setting(packages)))
        env = {
            **rack.environment,
            "PATH": f"{work}/bin:{rack.environment['PATH']}",
            "NOSPOON_LAB": f"{CLUSTER}/beaker",
            "NOSPOON_SOCKET": f"{rack.environment['NOSPOON_RUNTIME_DIR']}/nospoond.sock",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        argv = [python, "-W", "ignore", str(HERE / "beaker_calls"), str(work)]
        subprocess.run(argv, env=env, cwd=work, check=True)
        RECORDING.write_text("\n".join([header(git), *rows(work / "calls.jsonl")]) + "\n")
        rack.run("down", "--yes", "--purge", CLUSTER)


def unpack(git: str, work: Path) -> None:
    """Beaker's source, and around it what it expects on its machines."""
    archive = subprocess.run(
        ["git", "--git-dir", git, "archive", "HEAD", *SOURCE], check=True, capture_output=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(work / "source", filter="data")
    for each in ("bin", "tftp", "consoles"):
        (work / each).mkdir()
    script(work / "bin/createrepo_c", "#!/bin/sh\nmkdir -p repodata; echo > repodata/repomd.xml\n")
    (work / "systems").write_text(f"{FQDN} {NODE}\n")
    (work / "labcontroller.conf").write_text(SETTINGS.format(work))
    traced = TRACED.format(
        python=sys.executable, script=str(ADAPTER / "nospoon"), log=str(work / "calls.jsonl")
    )
    script(work / "source/LabController/src/bkr/labcontroller/power-scripts/nospoon", traced)


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def setting(packages: str) -> dict[str, Any]:
    """`readme`: what README.md has Beaker's administrator add, by module."""
    added = re.findall(r"```python\n(.*?)```", (ADAPTER / "README.md").read_text(), re.DOTALL)
    modules = ("bkr.server.dynamic_virt", "bkr.labcontroller.provision")
    return {
        "adapter": str(ADAPTER),
        "packages": str(Path(packages).absolute()),
        "readme": dict(zip(modules, added, strict=True)),
        "calls": CALLS,
        "tree": "http://tree.example.com/fedora/",
        "node": NODE,
        "system": FQDN,
        "too_much": '<hostRequires><memory op="&gt;" value="999999"/></hostRequires>',
    }


def header(git: str) -> str:
    described = subprocess.run(
        ["git", "--git-dir", git, "describe", "--tags", "--long"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return json.dumps(
        {"beaker": described.strip(), "date": str(datetime.fromtimestamp(unix(), UTC).date())}
    )


def rows(path: Path) -> list[str]:
    """Of what Beaker asks again until it changes, only the last."""
    kept: list[dict[str, Any]] = []
    for line in path.read_text().replace(str(path.parent), "").splitlines():
        row = json.loads(line)
        if kept and question(row) == question(kept[-1]) and row["call"] == "get_console_output":
            kept.pop()
        kept.append(row)
    return [json.dumps(row, sort_keys=True) for row in kept]


def question(row: dict[str, Any]) -> tuple[Any, Any]:
    return row.get("call"), row.get("given")


if __name__ == "__main__":
    main(*sys.argv[1:])
