"""What cloud-init sets up for the services of a node: a script in its vendor data.

It runs once an instance (https://docs.cloud-init.io/en/latest/explanation/vendordata.html). It
writes files from which systemd takes the units' environment, runs the role of each service once on
a root, and restarts the units, which may have begun before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from nospoon.model.service import ROLE_UNIT, Service


def roles_of(services: Sequence[Service]) -> str:
    """Digest of the roles of a node's services, "" where they have none."""
    roles = [(each.name, each.role) for each in services if each.role]
    return hashlib.sha256(repr(roles).encode()).hexdigest() if roles else ""


def vendor_data(services: Sequence[Service]) -> str:
    """The script, for services in the order in which their roles run. A unit of several services,
    such as one web server, has the environments of all.
    """
    lines = ["#!/bin/sh", "# The environment of services, from the cluster file.", "umask 077"]
    files: dict[str, list[str]] = {}
    for each in services:
        if not each.environment:
            continue
        file, unit = f"/etc/nospoon/{each.name}.env", f"/etc/systemd/system/{each.unit}.service.d"
        lines += [f"mkdir -p /etc/nospoon '{unit}'", f"cat >'{file}' <<'END-OF-ENVIRONMENT'"]
        lines += [f'{name}="{_quoted(value)}"' for name, value in each.environment]
        lines += ["END-OF-ENVIRONMENT", f"cat >'{unit}/nospoon.conf' <<'END-OF-UNIT'"]
        files.setdefault(each.unit, []).append(f"EnvironmentFile={file}")
        lines += ["[Service]", *files[each.unit], "END-OF-UNIT"]
    roles = [each for each in services if each.role]
    for each in roles:
        lines += _role_files(each)
    lines.append("systemctl daemon-reload")
    if not roles:
        units = dict.fromkeys(f"'{each.unit}.service'" for each in services)
        return "\n".join([*lines, f"systemctl restart {' '.join(units)}", ""])
    for each in services:
        lines += _run(each) if each.role else []
        lines.append(f"systemctl restart '{each.unit}.service' || failed=1")
    return "\n".join([*lines, "exit ${failed:-0}", ""])


def _role_files(service: Service) -> Iterator[str]:
    """The script, and the unit that runs it, so that the journal has what it writes by a name."""
    end, file = f"END-OF-ROLE-{service.role_digest}", f"/etc/nospoon/{service.name}.role"
    yield "mkdir -p /etc/nospoon /etc/systemd/system"
    yield f"cat >'{file}' <<'{end}'"
    yield service.role.removesuffix("\n")
    yield end
    yield f"chmod 700 '{file}'"
    yield f"cat >'/etc/systemd/system/{ROLE_UNIT.format(service.name)}.service' <<'END-OF-UNIT'"
    yield from ("[Unit]", f"Description=Role of service {service.name}", "[Service]")
    yield from ("Type=oneshot", "User=root", f"EnvironmentFile=-/etc/nospoon/{service.name}.env")
    yield from (f"ExecStart={file}", "END-OF-UNIT")


def _run(service: Service) -> Iterator[str]:
    """Runs its role where this root has not. What comes after one that fails does not run."""
    done = f"'/etc/nospoon/{service.name}.{service.role_digest}.done'"
    unit, line = f"{ROLE_UNIT.format(service.name)}.service", service.role_line
    yield f"if ! [ -e {done} ]; then"
    yield f"  (echo; echo '{line}begins') >/dev/console"
    yield f"  systemctl start '{unit}'; ended=$?"
    yield f"  status=$(systemctl show --property=ExecMainStatus --value '{unit}')"
    yield f'  (echo; echo "{line}exit status $status") >/dev/console'
    yield f'  [ "$ended" = 0 ] || {{ echo "{line}exit status $status" >&2; exit 1; }}'
    yield f"  >{done}"
    yield "fi"


def _quoted(value: str) -> str:
    """Within double quotes of such a file (systemd.exec(5), EnvironmentFile=)."""
    for special in '\\"$`':
        value = value.replace(special, f"\\{special}")
    return value
