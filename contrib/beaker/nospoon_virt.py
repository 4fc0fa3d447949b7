"""Beaker's dynamic machines by nospoon: the five calls of `bkr.server.dynamic_virt.VirtManager`.

Only Python's standard library is used, and only what Python 2.7 reads as well, on which Beaker's
server runs. Beaker keeps the UUIDs of its machines and calls with them, from several processes:
leases are found by them. See README.md beside this file for what to put into Beaker.
"""

import codecs
import json
import os
import re
import socket
import time
import uuid

try:
    from http.client import HTTPConnection
except ImportError:  # Python 2.7
    from httplib import HTTPConnection  # type: ignore[import-not-found, no-redef]

MYPY = False  # Python 2.7 has no typing
if MYPY:
    from typing import Any  # noqa: F401  (in comments)

SOCKET = os.environ.get("NOSPOON_SOCKET", "/run/nospoon/nospoond.sock")
LAB = os.environ.get("NOSPOON_LAB", "")
PATIENCE = 600
PAUSE = 1.0
UNSENDABLE = re.compile(
    b"[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\ufffe\\uffff]"
    b"|[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]".decode(
        "unicode_escape"
    )
)
"""What XML 1.0 has no place for (2.2 Characters): Beaker hands consoles on by XML-RPC."""
BAD_REQUEST = 400
"""The first HTTP status of an error."""


class Refused(RuntimeError):
    """What nospoon does not do, and why."""


class Flavor(object):
    """As novaclient shows a flavor: `ram` in MiB, `disk` in GiB."""

    def __init__(self, lab, name, ram, vcpus, disk):
        # type: (str, str, int, int, int) -> None
        self.lab, self.id, self.name = lab, name, name
        self.ram, self.vcpus, self.disk = ram, vcpus, disk


class Machine(object):
    """A machine. `lease`: as `nospoon request` names it; `instance_id`: its UUID, for Beaker."""

    def __init__(self, lease, instance_id):
        # type: (str, uuid.UUID) -> None
        self.lease, self.instance_id = lease, instance_id


class VirtManager(object):
    """For the owner of a job, whose name nospoon's fair queue and quotas use. Where `vm` is asked
    for: a machine, whatever Beaker keeps of it with its `instance_id`, or that UUID alone.
    """

    _leases = {}  # type: dict[uuid.UUID, str]
    """By UUID, of machines that this process has had to do with."""

    def __init__(self, user, socket_path=SOCKET, lab=LAB):
        # type: (object, str, str) -> None
        self.owner = getattr(user, "user_name", str(user))
        self._socket, self._lab = socket_path, lab

    def available_flavors(self):
        # type: () -> list[Flavor]
        """Of the lab, which has to be named: any user of nospoon may offer one to this account."""
        if not self._lab:
            raise Refused("NOSPOON_LAB names no lab: expected CLUSTER/NAME")
        return [
            Flavor(self._lab, each["name"], each["memory_mib"], each["cpus"], each["disk_gib"])
            for each in self._call("GET", "/v1/labs/%s/show" % self._lab)["flavors"]
        ]

    def create_vm(self, name, flavor):
        # type: (str, Flavor) -> object
        """A machine of a flavor, which asks for its script from now on. `name` is one of a recipe:
        a second call for it gets the same machine. One that does not come in time is given up.
        """
        body = {
            "text": json.dumps({"recipe": {"hostRequires": {}}}),
            "flavor": flavor.name,
            "file": name,
            "lab": flavor.lab,
            "owner": self.owner,
            "key": name,
        }
        (row,) = self._call("POST", "/v1/requests", body)
        try:
            self._wait(row["set"], {"running"})
        except Refused:
            self._call("POST", "/v1/requests/%s/cancel" % row["set"], {})
            raise
        lease = "%s.0" % row["set"]
        machine = Machine(lease, uuid.UUID(self._call("GET", "/v1/leases/%s" % lease)["uuid"]))
        self._leases[machine.instance_id] = lease
        return machine

    def start_vm(self, vm):
        # type: (object) -> None
        """From its beginning: what it had asked for before Beaker knew its script is forgotten."""
        self._call("POST", "/v1/leases/%s/power" % self._lease(vm), {"command": "cycle"})

    def destroy_vm(self, vm):
        # type: (object) -> None
        """Nothing is left of it afterwards; one that is gone already is no error, if it was this
        process that knew its lease: else it may be there, and not be shown to this account.
        """
        set_id = self._lease(vm).rpartition(".")[0]
        self._call("POST", "/v1/requests/%s/cancel" % set_id, {})
        self._wait(set_id, {"ended"})

    def get_console_output(self, vm, length=None):
        # type: (object, int | None) -> str
        """The console's last lines, all of them without `length`; also after `destroy_vm`. Beaker
        goes on where it was: what is half a character yet comes with the next call, whole.
        """
        data = self._call("GET", "/v1/leases/%s/console" % self._lease(vm), raw=True)
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(data)
        lines = UNSENDABLE.sub("", text).splitlines(True)
        return "".join(lines if length is None else lines[-int(length) :])

    def delete_keystone_trust(self):
        # type: () -> None
        """Of this manager's user, which nospoon needs none of: Beaker forgets it."""

    def _lease(self, vm):
        # type: (object) -> str
        """Of a machine, by its UUID where that is all that is known."""
        if isinstance(vm, Machine):
            return vm.lease
        wanted = uuid.UUID(str(getattr(vm, "instance_id", vm)))
        if wanted not in self._leases:
            for row in self._call("GET", "/v1/leases?everyone=true"):
                shown = self._call("GET", "/v1/leases/%s" % row["lease"])["uuid"]
                if shown:
                    self._leases[uuid.UUID(shown)] = row["lease"]
        if wanted not in self._leases:
            raise Refused("no lease that this account may see has machine %s" % wanted)
        return self._leases[wanted]

    def _wait(self, set_id, states):
        # type: (str, set[str]) -> object
        now = getattr(time, "monotonic", time.time)
        end = now() + PATIENCE
        while True:
            try:
                row = self._call("GET", "/v1/requests/%s" % set_id)
            except (socket.error, OSError) as error:  # the daemon starts again, and goes on
                row = {"state": "not known", "reason": str(error)}
            if row["state"] in states:
                return row
            if row["state"] == "ended":
                raise Refused("recipe set %s: %s: %s" % (set_id, row["result"], row["reason"]))
            if now() > end:
                so_far = (set_id, row["state"], row["reason"])
                raise Refused("recipe set %s is still %s: %s" % so_far)
            time.sleep(PAUSE)

    def _call(self, method, path, body=None, raw=False):
        # type: (str, str, object, bool) -> Any
        connection = _Connection(self._socket)
        content = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status >= BAD_REQUEST:
            error = json.loads(data.decode())["error"]
            raise Refused(" ".join(filter(None, (error["message"], error.get("hint", "")))))
        return data if raw else json.loads(data.decode())


class _Connection(HTTPConnection):
    def __init__(self, path):
        # type: (str) -> None
        HTTPConnection.__init__(self, "nospoond", timeout=60)
        self._path = path

    def connect(self):
        # type: () -> None
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
