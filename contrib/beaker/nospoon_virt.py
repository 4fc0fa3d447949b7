"""Beaker's dynamic machines by nospoon: the five calls of `bkr.server.dynamic_virt.VirtManager`.

Only Python's standard library is used, so that it can be imported into Beaker's server. In
`bkr/server/dynamic_virt.py`, put `from nospoon_virt import VirtManager` below the class of that
name, and give `VirtResource` what `Machine` has. See README.md beside this file.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
import uuid
from typing import Any

SOCKET = os.environ.get("NOSPOON_SOCKET", "/run/nospoon/nospoond.sock")
LAB = os.environ.get("NOSPOON_LAB", "")
PATIENCE = 600
PAUSE = 1.0


class Refused(RuntimeError):
    """What nospoon does not do, and why."""


class Flavor:
    """As novaclient shows a flavor: `ram` in MiB, `disk` in GiB."""

    def __init__(self, lab: str, name: str, ram: int, vcpus: int, disk: int) -> None:
        self.lab, self.id, self.name = lab, name, name
        self.ram, self.vcpus, self.disk = ram, vcpus, disk


class Machine:
    """What Beaker keeps of a machine. `lease`: as `nospoon request` names it."""

    def __init__(self, lease: str, instance_id: uuid.UUID) -> None:
        self.lease, self.instance_id = lease, instance_id


class VirtManager:
    """For the owner of a job, whose name nospoon's fair queue and quotas use."""

    def __init__(self, user: Any, socket_path: str = SOCKET, lab: str = LAB) -> None:
        self.owner = getattr(user, "user_name", str(user))
        self._socket, self._lab = socket_path, lab

    def available_flavors(self) -> list[Flavor]:
        """Of the lab, which has to be named: any user of nospoon may offer one to this account."""
        if not self._lab:
            raise Refused("NOSPOON_LAB names no lab: expected CLUSTER/NAME")
        return [
            Flavor(self._lab, each["name"], each["memory_mib"], each["cpus"], each["disk_gib"])
            for each in self._call("GET", f"/v1/labs/{self._lab}/show")["flavors"]
        ]

    def create_vm(self, name: str, flavor: Flavor) -> Machine:
        """A machine of a flavor, which asks for its script from now on. `name` is one of a recipe:
        a second call for it gets the same machine. One that does not come in time is given up.
        """
        exactly = {
            "hypervisor": {"op": "=", "value": "KVM"},  # no registered machine of that size
            "memory": {"op": "=", "value": flavor.ram},
            "cpu": {"processors": {"op": "=", "value": flavor.vcpus}},
        }
        body = {
            "text": json.dumps({"recipe": {"hostRequires": exactly}}),
            "file": name,
            "lab": flavor.lab,
            "owner": self.owner,
            "key": name,
        }
        (row,) = self._call("POST", "/v1/requests", body)
        try:
            self._wait(row["set"], {"running"})
        except Refused:
            self._call("POST", f"/v1/requests/{row['set']}/cancel", {})
            raise
        lease = f"{row['set']}.0"
        return Machine(lease, uuid.UUID(self._call("GET", f"/v1/leases/{lease}")["uuid"]))

    def start_vm(self, machine: Machine) -> None:
        """From its beginning: what it had asked for before Beaker knew its script is forgotten."""
        self._call("POST", f"/v1/leases/{machine.lease}/power", {"command": "cycle"})

    def destroy_vm(self, machine: Machine) -> None:
        """Nothing is left of it afterwards; one that is gone already is no error."""
        set_id = machine.lease.rpartition(".")[0]
        self._call("POST", f"/v1/requests/{set_id}/cancel", {})
        self._wait(set_id, {"ended"})

    def get_console_output(self, machine: Machine, length: int | None = None) -> str:
        """The console's last lines, all of them without `length`; also after `destroy_vm`."""
        text = self._call("GET", f"/v1/leases/{machine.lease}/console", raw=True)
        lines = text.decode("utf-8", "replace").splitlines(keepends=True)
        return "".join(lines if length is None else lines[-length:])

    def _wait(self, set_id: str, states: set[str]) -> Any:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                row = self._call("GET", f"/v1/requests/{set_id}")
            except OSError as error:  # the daemon starts again, and goes on with it
                row = {"state": "not known", "reason": str(error)}
            if row["state"] in states:
                return row
            if row["state"] == "ended":
                raise Refused(f"recipe set {set_id}: {row['result']}: {row['reason']}")
            if time.monotonic() > end:
                raise Refused(f"recipe set {set_id} is still {row['state']}: {row['reason']}")
            time.sleep(PAUSE)

    def _call(self, method: str, path: str, body: Any = None, *, raw: bool = False) -> Any:
        connection = _Connection(self._socket)
        content = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status >= http.client.BAD_REQUEST:
            error = json.loads(data)["error"]
            raise Refused(" ".join(filter(None, (error["message"], error.get("hint", "")))))
        return data if raw else json.loads(data)


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("nospoond", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
