"""Labs, used as their scheduler would: requests get machines, report, and give them back."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from nospoon.errors import HostUnreachable
from nospoon.runtime.clock import monotonic
from nospoon.store.crypt import Cipher
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack, private_rack

REQUIRES = "<hostRequires>{}</hostRequires>"
SMALL = REQUIRES.format("<memory op='&gt;=' value='2000'/>")
HARDWARE = REQUIRES.format("<system><vendor value='Acme'/></system>")
pytestmark = pytest.mark.tools


class _Tree(BaseHTTPRequestHandler):
    """An installation tree whose kernel is a text."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"linux")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (its name there)
        pass


@pytest.fixture(scope="module")
def tree() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Tree) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def _set(recipes: Iterable[str]) -> str:
    inner = "".join(each if "<recipe" in each else f"<recipe>{each}</recipe>" for each in recipes)
    return f"<recipeSet>{inner}</recipeSet>"


class Lab:
    """A lab on the simulator, and what a machine of it does."""

    def __init__(self, rack: Rack, tree: str) -> None:
        self.rack, self.tree, self.name = rack, tree, rack.name()
        self.client = rack.client

    def up(
        self, *, lab: str = "", console: str = "login:", machines: str = "{}", host: str = ""
    ) -> None:
        text = f"""
cluster: {self.name}
hosts:
  here:
    simulated: {{console: "{console}"{host}}}
    overcommit: {{cpus: 1, memory: 1}}
flavors:
  small: {{memory: 2GiB, disks: [20GiB], firmware: bios}}
  large: {{memory: 8GiB, cpus: 4, disks: [40GiB], firmware: bios}}
labs:
  dev:
    lease: 10min
    machines: {machines}
    distros:
      debian:
        kernel: {self.tree}/linux
        initrd: {self.tree}/initrd.gz
        tree: {self.tree}/debian
        kickstart: "tree {{{{tree}}}} for {{{{owner}}}} calls {{{{install_done}}}}"
    {lab}
nodes: []
{self.rack.bmc()}"""
        self.rack.run("up", "--yes", self.rack.file(text, f"{self.name}.yaml"))

    def submit(self, *recipes: str) -> str:
        """The set of a request of one set with these recipes."""
        body = {"text": _set(recipes), "lab": f"{self.name}/dev"}
        return str(self.client.post("/v1/requests", body)[0]["set"])

    def refused(self, *recipes: str) -> str:
        """What the command prints of a request that no machine ever serves."""
        file = self.rack.file(_set(recipes), "request.xml")
        submit = ("request", "submit", file, "--lab", f"{self.name}/dev")
        return self.rack.run(*submit, status=1).stderr

    def release(self, set_id: str) -> None:
        self.client.post(f"/v1/requests/{set_id}/release")

    def cancel(self, set_id: str) -> None:
        self.client.post(f"/v1/requests/{set_id}/cancel")

    def show(self, set_id: str) -> Any:
        try:
            return self.client.get(f"/v1/requests/{set_id}")
        except HostUnreachable:  # a daemon that was killed: the command starts another
            return self.rack.json("request", "show", set_id)

    def until(self, set_id: str, reached: Callable[[Any], bool], seconds: float = 240) -> Any:
        end = monotonic() + seconds
        while not reached(shown := self.show(set_id)):
            assert monotonic() < end, json.dumps(shown, indent=1)
            time.sleep(0.1)
        return shown

    def running(self, set_id: str) -> Any:
        return self.until(set_id, lambda shown: shown["state"] == "running")

    def ended(self, set_id: str) -> Any:
        return self.until(set_id, lambda shown: shown["state"] == "ended")

    def secret(self, set_id: str, recipe: int = 0) -> str:
        """As its kernel's command line has it, which the boot server gives to the machine."""
        node = f"lab-dev-{set_id.replace('.', '-')}/recipe-{recipe}"
        uuid = self.rack.json("node", "show", node)["uuid"]
        _, script = self.get(f"boot/{uuid}/ipxe")
        return script.partition("/lab/")[2].partition("/ks")[0]

    def stored_secret(self, set_id: str, recipe: int = 0) -> str:
        """Of a machine that has it in its user data, which its hypervisor's administrator alone can
        read.
        """
        state = Path(self.rack.environment["NOSPOON_STATE_DIR"])
        with closing(sqlite3.connect(f"file:{state}/nospoon.db?mode=ro", uri=True)) as store:
            found = store.execute("SELECT record FROM recipe_sets WHERE id = ?", (set_id,))
            (record,) = found.fetchone()
        cipher = Cipher.from_file(state / "nospoon.key")
        return str(json.loads(cipher.decrypt(record))["runs"][recipe]["secret"])

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url(path), timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def url(self, path: str) -> str:
        port = int((Path(self.rack.environment["NOSPOON_STATE_DIR"]) / "boot-port").read_text())
        return f"http://127.0.0.1:{port}/{path}"

    def head(self, path: str) -> int:
        """The status of what may be large."""
        with urllib.request.urlopen(self.url(path), timeout=60) as answer:
            return int(answer.status)

    def post(self, path: str, body: bytes) -> int:
        asked = urllib.request.Request(self.url(path), body, method="POST")
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def nothing_left(self) -> None:
        names = {row["cluster"] for row in self.rack.json("node", "list")}
        assert not {name for name in names if name.startswith("lab-")}

    def end(self) -> None:
        for row in self.client.get("/v1/requests"):
            if row["state"] != "ended":
                self.cancel(row["set"])
                self.ended(row["set"])
        self.rack.down()  # and let others have its ports: the rack is that of all tests here


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    with private_rack() as made:
        yield made


@pytest.fixture
def lab(rack: Rack, tree: str) -> Iterator[Lab]:
    made = Lab(rack, tree)
    yield made
    made.end()


def test_a_set_is_installed_leased_extended_and_given_back(lab: Lab) -> None:
    lab.up()
    own = "<recipe><kickstart>mine {{owner}}</kickstart><hostRequires>{}</hostRequires></recipe>"
    large = own.replace("{}", "<cpu><processors op='&gt;' value='1'/></cpu>")
    set_id = lab.submit(SMALL, large)
    shown = lab.running(set_id)
    assert [each["flavor"] for each in shown["leases"]] == ["small", "large"]
    assert [each["stage"] for each in shown["leases"]] == ["booting", "booting"]
    secret = lab.secret(set_id)
    status, text = lab.get(f"lab/{secret}/ks")
    assert status == 200
    assert f"tree {lab.tree}/debian for " in text
    assert f"/lab/{secret}/install_done" in text
    assert lab.get(f"lab/{lab.secret(set_id, 1)}/ks")[1].startswith("mine ")
    assert lab.get(f"lab/{secret}/install_start") == (200, "ok\n")
    assert lab.show(set_id)["leases"][0]["stage"] == "installing"
    assert lab.get(f"lab/{secret}/install_done")[0] == 200
    assert lab.get(f"lab/{secret}/install_fail?why=replayed")[0] == 200
    assert lab.show(set_id)["leases"][0]["stage"] == "ready"
    lab.rack.run("request", "extend", f"{set_id}.0", "2h")
    lab.rack.run("request", "power", f"{set_id}.0", "off")
    node = f"lab-dev-{set_id.replace('.', '-')}/recipe-0"
    until(lambda: lab.rack.json("node", "show", node)["power"] == "off")
    log = lab.rack.run("request", "console", f"{set_id}.0").stdout
    assert "login:" in log
    lab.rack.run("request", "release", f"{set_id}.0")
    assert lab.show(set_id)["state"] == "running", "the other lease is not over"
    lab.rack.run("request", "release", set_id)
    ended = lab.ended(set_id)
    assert ended["result"] == "completed"
    events = [(each["recipe"], each["event"]) for each in ended["history"]]
    assert events[:3] == [(None, "queued"), (None, "starting"), (None, "started")]
    assert {(0, "installing"), (0, "ready"), (0, "extended")} <= set(events)
    lab.nothing_left()
    assert lab.get(f"lab/{secret}/ks")[0] == 404, "its secret is of no recipe any more"
    assert lab.rack.run("request", "console", f"{set_id}.0").stdout == log, "the log is kept"


def test_an_installation_that_fails_ends_its_set(lab: Lab) -> None:
    lab.up()
    set_id = lab.submit(SMALL)
    lab.running(set_id)
    assert lab.get(f"lab/{lab.secret(set_id)}/install_fail?why=no%20disk%1b[2J")[0] == 200
    ended = lab.ended(set_id)
    assert ended["result"] == "failed"
    assert ended["leases"][0]["why"] == "the installer reports a failure: no disk[2J"
    assert lab.rack.run("request", "watch", set_id, status=1).stdout.endswith("failed\n")


def test_a_panic_on_the_console_shortens_the_lease_once(lab: Lab) -> None:
    lab.up(console="Kernel panic - not syncing: VFS", lab="timeouts: {panic: 5min}")
    set_id = lab.submit(SMALL)
    shown = lab.until(set_id, lambda found: bool(found["leases"][0]["panic"]))
    assert shown["leases"][0]["panic"].startswith("Kernel panic")
    assert shown["leases"][0]["expires"] < shown["leases"][0]["since"][:11] + "99"
    assert [each["event"] for each in shown["history"]].count("panic") == 1
    ignored = lab.submit(f"<recipe><watchdog panic='ignore'/>{SMALL}</recipe>")
    lab.until(ignored, lambda found: bool(found["leases"][0]["panic"]))
    ended = lab.submit(f"<recipe><watchdog panic='end'/>{SMALL}</recipe>")
    assert lab.ended(ended)["leases"][0]["stage"] == "expired"
    assert lab.show(ignored)["state"] == "running"


def test_machines_that_do_not_report_are_given_up(lab: Lab) -> None:
    lab.up(lab="timeouts: {boot: 1s}")
    ended = lab.ended(lab.submit(SMALL))
    assert ended["result"] == "expired"
    assert "the watchdog ended it: booting for" in ended["leases"][0]["why"]
    lab.nothing_left()


def test_limits_hold_and_those_who_wait_see_why(lab: Lab) -> None:
    lab.up(lab="limits: {machines: 1}")
    first, second = lab.submit(SMALL), lab.submit(SMALL)
    lab.running(first)
    why = "lab dev has given away 1 of 1 machines"
    waiting = lab.until(second, lambda shown: shown["reason"] == why)
    assert (waiting["state"], waiting["position"]) == ("queued", 1)
    refused = lab.refused(SMALL, SMALL)
    assert "has too few machines for all of its recipes at once" in refused
    lab.up(lab="limits: {machines: 2}")  # it holds at once
    lab.running(second)


@pytest.mark.parametrize(
    ("full", "larger", "short"),
    [("cpus: 1", "cpus: 2", "CPUs"), ("memory: 2GiB", "memory: 4GiB", "memory")],
)
def test_a_set_waits_for_a_host_that_is_full(lab: Lab, full: str, larger: str, short: str) -> None:
    lab.up(host=f", {full}")
    never = lab.ended(lab.submit(REQUIRES.format("<memory op='&gt;' value='4000'/>")))
    assert (never["result"], never["attempts"]) == ("failed", 1), "no lease that ends helps"
    first = lab.submit(SMALL)
    lab.running(first)
    second, third = lab.submit(SMALL), lab.submit(SMALL)
    waiting = lab.until(second, lambda shown: shown["state"] == "queued" and shown["attempts"])
    assert "lab dev has no capacity now: node recipe-0 fits on no host" in waiting["reason"]
    assert f"not enough {short} left" in waiting["reason"]
    assert waiting["position"] == 1
    lab.until(third, lambda shown: shown["position"] == 2)  # it may have been tried beside it
    lab.up(host=f", {larger}")  # the lab is tried at once
    lab.running(second)
    lab.release(first)
    lab.running(third)


def test_what_no_machine_is_refused_with_the_place_of_every_reason(lab: Lab) -> None:
    lab.up()
    said = lab.refused(SMALL, HARDWARE)
    assert "request.xml:1: recipeSet: no lab has a machine for each of its recipes" in said
    assert "hostRequires/system/vendor: lab" in said
    assert "dynamic machines cannot be chosen by <vendor>" in said
    file = lab.rack.file(f"<recipeSet><recipe>{HARDWARE}</recipe></recipeSet>", "request.xml")
    check = ("request", "check", file, "--lab", f"{lab.name}/dev", "-f", "json")
    checked = lab.rack.run(*check, status=1).stdout
    assert [(row["answer"], row["starts"]) for row in json.loads(checked)] == [("precluded", False)]


def test_a_request_in_json_and_a_key_that_is_used_again(lab: Lab) -> None:
    lab.up()
    request = {
        "recipe": {"hostRequires": {"memory": {"op": ">=", "value": 4000}}, "role": "server"}
    }
    file = lab.rack.file(json.dumps(request), "request.json")
    submit = ("request", "submit", file, "--lab", f"{lab.name}/dev", "--key", "k1")
    (first,) = lab.rack.json(*submit)
    (again,) = lab.rack.json(*submit)
    assert again["set"] == first["set"]
    assert lab.running(first["set"])["leases"][0]["flavor"] == "large"


WRONG = {
    "<!DOCTYPE x [<!ENTITY a 'b'>]><hostRequires/>": "expected no document type",
    "<hostRequires><memroy value='1'/></hostRequires>": "unknown element <memroy>",
    "<hostRequires>": "not XML",
    '{"recipe": {}, "job": {}}': "expected an object with one of",
    '{"recipe": {"hostRequires": {"memory": "500MB"}}}': "expected a whole number of MiB",
    "<recipeSet priority='Top'><recipe><hostRequires/></recipe></recipeSet>": "priority",
    "[" * 100_000: "not XML",
}


def test_wrong_requests_are_refused(lab: Lab) -> None:
    lab.up()
    for text, why in WRONG.items():
        file = lab.rack.file(text, "wrong.xml")
        said = lab.rack.run("request", "submit", file, status=2).stderr
        assert said.startswith(f"{file}:1:")
        assert why in said


def test_a_lab_with_sets_stays_until_they_have_ended(lab: Lab) -> None:
    lab.up()
    set_id = lab.submit(SMALL)
    said = lab.rack.run("down", "--yes", lab.name, status=5).stderr
    assert f"lab dev has 1 recipe set that did not end: {set_id}" in said
    lab.rack.run("lab", "drain", "dev")
    second = lab.submit(SMALL)
    assert lab.show(second)["reason"] == "lab dev is drained"
    lab.rack.run("lab", "drain", "dev", "--undo")
    lab.running(second)


def test_a_lab_follows_its_file(lab: Lab) -> None:
    """What is leased stays as it is; what comes next is as the file has it."""
    lab.up(machines="{m1: {bmc: {address: 192.0.2.1, password: one}, memory: 4GiB}}")
    first = lab.submit(SMALL)
    lab.running(first)
    lab.up(
        machines="{m2: {bmc: {address: 192.0.2.2, password: two}, memory: 8GiB, cpus: 2}}",
        lab="flavors: [large]\n    disks: flavor\n    prefer: registered\n    failures: 7\n"
        "    limits: {machines: 5, cpus: 9, memory: 20GiB, per_owner: 3}\n"
        "    users: ['*']\n    operators: [bin]\n    timeouts: {boot: 2h}\n    panic: ['bo*om']",
    )
    shown = lab.rack.json("lab", "show", "dev")
    assert [each["name"] for each in shown["flavors"]] == ["large"]
    assert (shown["disks"], shown["prefer"]) == ("flavor", "registered")
    assert shown["limits"] == {"machines": 5, "cpus": 9, "memory_mib": 20480, "per_owner": 3}
    assert shown["free"] == {"machines": 4, "cpus": 8, "memory_mib": 20480 - 2048}
    assert (shown["users"], shown["operators"]) == (["*"], ["bin"])
    assert [(each["machine"], each["bmc"]) for each in shown["machines"]] == [
        ("m2", "ipmi 192.0.2.2:623")
    ]
    assert lab.show(first)["state"] == "running"
    second = lab.submit(REQUIRES.format("<disk><size op='&gt;' value='30' units='GiB'/></disk>"))
    lease = lab.running(second)["leases"][0]
    assert lease["flavor"] == "large"
    assert lease["expires"] > lab.show(first)["leases"][0]["expires"], "its time to boot is longer"
    lab.rack.run("plan", f"{lab.rack.directory}/{lab.name}.yaml")
    text = Path(f"{lab.rack.directory}/{lab.name}.yaml").read_text()
    plan = lab.rack.run("plan", lab.rack.file(text.replace("failures: 7", "failures: 8"))).stdout
    assert "~ failures of lab dev: 7 -> 8" in plan


def test_a_set_ends_whose_owner_gave_its_name_to_another_cluster(lab: Lab) -> None:
    lab.up()
    set_id = lab.submit(SMALL)
    lab.running(set_id)
    name = f"lab-dev-{set_id.replace('.', '-')}"
    lab.rack.run("down", "--yes", name)
    text = f"cluster: {name}\nhosts: {{here: simulated}}\nnodes: [{{}}]\n{lab.rack.bmc()}"
    lab.rack.run("up", "--yes", lab.rack.file(text, "other.yaml"))
    lab.release(set_id)
    assert lab.ended(set_id)["result"] == "completed"
    assert [each["node"] for each in lab.rack.json("node", "list")] == ["node-0"], "it stays"
    lab.rack.run("down", "--yes", "--purge", name)


def test_leases_are_listed_while_there_are_machines(lab: Lab) -> None:
    lab.up()
    set_id = lab.submit(SMALL, SMALL)
    lab.running(set_id)
    found = lab.client.get("/v1/leases")
    assert [each["lease"] for each in found] == [f"{set_id}.0", f"{set_id}.1"]
    assert {each["stage"] for each in found} == {"booting"}
    lab.client.post(f"/v1/leases/{set_id}.0/release")
    assert [each["stage"] for each in lab.client.get("/v1/leases")] == ["released", "booting"]
    lab.release(set_id)
    lab.ended(set_id)
    assert lab.client.get("/v1/leases") == []


def test_people_see_where_there_is_no_limit(lab: Lab) -> None:
    lab.up(lab="limits: {machines: 1}")
    lab.running(lab.submit(SMALL))
    shown = lab.rack.run("lab", "show", "dev").stdout
    limits, free = (row for row in shown.splitlines() if row.startswith(("limits", "free")))
    assert limits.split(maxsplit=1)[1].startswith("machines 1, cpus no limit, memory_mib no limit")
    assert free.split(maxsplit=1)[1].startswith("machines 0, cpus no limit, memory_mib no limit")
    assert "cpus no limit" in lab.rack.run("lab", "check", "dev").stdout


def test_a_set_whose_distribution_left_the_file_fails_at_once_and_says_so(lab: Lab) -> None:
    lab.up()
    lab.rack.run("lab", "drain", "dev")
    set_id = lab.submit(SMALL)
    text = Path(f"{lab.rack.directory}/{lab.name}.yaml").read_text()
    other = lab.rack.file(text.replace("debian:", "bookworm:", 1), f"{lab.name}.yaml")
    lab.rack.run("up", "--yes", other)
    lab.rack.run("lab", "drain", "dev", "--undo")
    ended = lab.ended(set_id)
    assert (ended["result"], ended["attempts"]) == ("failed", 1)
    assert ended["reason"] == "lab dev has no distribution debian any more"


def test_a_set_whose_bmc_is_dead_gets_another_machine_soon_and_the_machine_is_broken(
    lab: Lab,
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        bmc = f"{{address: 127.0.0.1, port: {silent.getsockname()[1]}, password: secret}}"
        lab.up(
            lab="prefer: registered\n    failures: 1\n",
            machines=f"{{m1: {{bmc: {bmc}, memory: 4GiB, cpus: 2}}}}",
        )
        set_id = lab.submit(SMALL)
        shown = lab.running(set_id)
    assert shown["attempts"] == 2
    (lease,) = shown["leases"]
    assert (lease["machine"], lease["flavor"]) == ("", "small")
    failed = [each for each in shown["history"] if each["event"] == "not started"]
    assert [each["message"].partition(": Error")[0] for each in failed] == [
        "BMC of m1: chassis power off"
    ]
    (machine,) = lab.rack.json("lab", "machines", f"{lab.name}/dev")
    assert (machine["state"], machine["failures"]) == ("broken", 1)
    assert "1 failures in a row" in machine["broken"]
    lab.cancel(set_id)
    lab.ended(set_id)


def test_a_check_plans_a_machine_of_each_flavor(rack: Rack) -> None:
    name, bmc = rack.name(), rack.bmc()

    def findings(*, drained: bool, cpus: int = 0) -> dict[str, str]:
        text = f"""
cluster: {name}
hosts: {{here: {{simulated: true, drained: {str(drained).lower()}}}}}
flavors: {{small: {{disks: [20GiB]}}, large: {{disks: [40GiB], cpus: 4}}}}
labs:
  dev:
    limits: {{cpus: {cpus}}}
    distros: {{tiny: {{script: "http://127.0.0.1:1/"}}}}
nodes: []
{bmc}"""
        rack.run("up", "--yes", rack.file(text))
        checked = ("lab", "check", f"{name}/dev", "-f", "json")
        rows = json.loads(rack.run(*checked, status=1 if drained or cpus else 0).stdout)
        return {row["what"]: row["why"] for row in rows if row["state"] == "refused"}

    refused = findings(drained=True)
    assert set(refused) == {"flavor small", "flavor large"}
    assert all(
        "host 'here' is drained" in why or "it is drained" in why for why in refused.values()
    )
    set_id = rack.json(
        "request", "submit", rack.file("<hostRequires/>", "request.xml"), "--lab", f"{name}/dev",
    )[0]["set"]  # fmt: skip

    def shown(state: str) -> Any:
        until(lambda: rack.client.get(f"/v1/requests/{set_id}")["state"] == state)
        return rack.client.get(f"/v1/requests/{set_id}")

    def waits() -> bool:
        found = rack.client.get(f"/v1/requests/{set_id}")
        return found["position"] == 1 and "it is drained" in found["reason"]

    until(waits)
    assert not findings(drained=False)
    assert shown("running")["reason"] == "", "it starts as soon as its host takes machines"
    rack.run("request", "cancel", set_id)
    shown("ended")
    beyond = "a machine of it would take more than the lab's limits"
    assert findings(drained=False, cpus=2) == {"flavor large": beyond}
    assert not rack.json("node", "list"), "nothing was made"
    rack.run("down", "--yes", "--purge", name)


def test_a_lab_without_dynamic_machines_is_without_their_flavors_and_says_what_is_missing(
    rack: Rack,
) -> None:
    name = rack.name()
    machine = "{m1: {bmc: {address: 192.0.2.1, password: one}}}"
    text = f"""
cluster: {name}
hosts: {{here: simulated}}
flavors: {{small: {{disks: [20GiB]}}}}
labs:
  empty: {{dynamic: false}}
  metal: {{dynamic: false, machines: {machine}}}
nodes: []
{rack.bmc()}"""
    rack.run("up", "--yes", rack.file(text))
    missing = {"distros": "missing", "limits": "ok", "dynamic": "without"}
    for lab, more in (("empty", {"machines": "missing"}), ("metal", {})):
        done = rack.run("lab", "check", f"{name}/{lab}", "-f", "json", status=1)
        rows = {row["what"]: row["state"] for row in json.loads(done.stdout)}
        assert rows == missing | more
        assert rack.json("lab", "show", f"{name}/{lab}")["flavors"] == []
    rack.run("down", "--yes", "--purge", name)


def test_machines_start_from_an_image_each_on_a_network_of_its_own(rack: Rack) -> None:
    name = rack.name()
    (rack.directory / "disk.raw").write_bytes(bytes(1 << 20))
    text = f"""
cluster: {name}
hosts: {{here: simulated}}
networks: {{provision: {{netboot: builtin, cidr: 172.31.7.0/24}}}}
flavors: {{small: {{disks: [{{size: 20GiB, image: disk.raw}}]}}}}
labs: {{dev: {{}}}}
nodes: []
{rack.bmc()}"""
    rack.run("up", "--yes", rack.file(text))
    request = rack.file(REQUIRES.format(""), "any.xml")
    sets = [rack.json("request", "submit", request)[0]["set"] for _ in range(2)]
    for each in sets:
        end = monotonic() + 240
        while (shown := rack.client.get(f"/v1/requests/{each}"))["leases"][0]["stage"] != "ready":
            assert monotonic() < end, shown
            time.sleep(0.1)
    for each in sets:
        rack.run("request", "cancel", each)
        rack.run("request", "watch", each, status=1)
    rack.run("down", "--yes", "--purge", name)


@pytest.mark.parametrize("end", ["installed", "failed"])
def test_a_machine_of_a_cloud_image_is_ready_when_its_user_data_reports(lab: Lab, end: str) -> None:
    (lab.rack.directory / "cloud.raw").write_bytes(bytes(1 << 20))
    (lab.rack.directory / "user-data").write_text("#!/bin/sh\nwget -O - {{install_done}}\n")
    metal = "{m1: {bmc: {address: 192.0.2.1, password: one}, memory: 4GiB, attributes: {pool: a}}}"
    lab.up(machines=metal)
    file = Path(f"{lab.rack.directory}/{lab.name}.yaml")
    image = "      cloud: {image: cloud.raw, user_data: {file: user-data}}\n"
    text = file.read_text().replace("    distros:\n", f"    distros:\n{image}")
    lab.rack.run("up", "--yes", lab.rack.file(text, file.name))
    wants = "<distroRequires><distro_name value='{}'/></distroRequires>"
    cloud = wants.format("cloud")
    said = lab.refused(cloud + REQUIRES.format("<pool value='a'/>"))
    assert "registered machines are installed, and distribution cloud is an image" in said
    said = lab.refused(f"<recipe kernel_options='quiet'>{cloud}{SMALL}</recipe>")
    assert "distribution cloud is an image, which takes no kernel_options" in said
    own = f"<recipe><kickstart>lang en_US</kickstart>{cloud + SMALL}</recipe>"
    assert "begin it with a line `#cloud-config`" in lab.refused(own)
    set_id = lab.submit(cloud + SMALL, wants.format("debian") + SMALL)
    shown = lab.running(set_id)
    assert [each["stage"] for each in shown["leases"]] == ["booting", "booting"]
    node = f"lab-dev-{set_id.replace('.', '-')}/recipe-0"
    assert lab.rack.json("node", "show", node)["kind"] == "vm"
    until(lambda: lab.rack.json("node", "show", node)["power"] == "on")
    secret = lab.stored_secret(set_id)
    if end == "failed":
        assert lab.get(f"lab/{secret}/install_fail?why=no%20network")[0] == 200
        shown = lab.until(set_id, lambda found: found["leases"][0]["stage"] == "failed")
        assert shown["leases"][0]["why"] == "the installer reports a failure: no network"
    else:
        assert lab.get(f"lab/{secret}/install_done") == (200, "ok\n")
        assert lab.show(set_id)["leases"][0]["stage"] == "ready"
        lab.rack.run("request", "power", f"{set_id}.0", "cycle")
    lab.release(set_id)
    lab.ended(set_id)
    lab.nothing_left()


@contextmanager
def hardware(rack: Rack, protocol: str) -> Iterator[tuple[str, str]]:
    """A node of another cluster, known by its BMC alone: (CLUSTER/NODE, the BMC for a lab)."""
    name = rack.name()
    nodes = f"hosts: {{metal: simulated}}\nnodes: [{{bmc: [{protocol}]}}]"
    text = f"cluster: {name}\n{nodes}\n{rack.bmc()}"
    rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
    (bmc,) = rack.bmcs(name).values()
    place = bmc[protocol].removeprefix("http://").partition("/")[0]
    address, _, port = place.partition(":")
    where = f"protocol: {protocol}, address: {address}, port: {port}, tls: false"
    yield f"{name}/node-0", f"{{{where}, password: {bmc['password']}}}"
    rack.run("down", "--yes", "--purge", name)


@pytest.mark.parametrize("protocol", ["ipmi", "redfish"])
def test_a_set_combines_dynamic_and_registered_machines(lab: Lab, protocol: str) -> None:
    with hardware(lab.rack, protocol) as (node, bmc):
        attributes = "attributes: {system/vendor: Acme}, macs: ['52:54:00:00:00:01']"
        lab.up(machines=f"{{m1: {{bmc: {bmc}, memory: 4GiB, cpus: 2, {attributes}}}}}")
        assert lab.get("lab/mac/52-54-00-00-00-01/ipxe")[1].startswith("#!ipxe")
        assert lab.get("lab/mac/52-54-00-00-00-02/ipxe")[0] == 404
        set_id = lab.submit(SMALL, HARDWARE)
        shown = lab.running(set_id)
        assert [each["machine"] for each in shown["leases"]] == ["", "m1"]
        until(lambda: lab.rack.json("node", "show", node)["power"] == "on")
        script = lab.get("lab/mac/52-54-00-00-00-01/ipxe")[1]
        assert f"kernel --name kernel {lab.tree}/linux" in script
        refused = lab.rack.run("request", "power", f"{set_id}.1", "soft", status=2).stderr
        assert "which knows no soft" in refused
        waiting = lab.submit(HARDWARE)
        assert lab.show(waiting)["state"] == "queued"
        (machine,) = lab.rack.json("lab", "machines", "dev")
        assert (machine["state"], machine["set"]) == ("loaned", set_id)
        lab.release(set_id)
        lab.ended(set_id)
        lab.running(waiting)
        lab.cancel(waiting)
        lab.ended(waiting)
        assert lab.rack.json("node", "show", node)["power"] == "off"
        lab.rack.run("lab", "reserve", "dev", "m1")
        kept = lab.submit(HARDWARE)
        assert lab.show(kept)["state"] == "queued"
        lab.rack.run("lab", "reserve", "dev", "m1", "--return")
        lab.running(kept)
        lab.cancel(kept)
        lab.ended(kept)


WANTED = (
    "<and><memory op='&gt;=' value='7000'/><cpu><processors value='6'/></cpu>"
    "<disk><size op='&gt;' value='90' units='GiB'/></disk><system><vendor value='Acme'/></system>"
    "<key_value key='MACADDRESS' op='==' value='52:54:00:00:00:07'/></and>"
)


@pytest.mark.parametrize("protocol", ["ipmi", "redfish"])
def test_what_the_probe_finds_on_a_registered_machine_is_matched(lab: Lab, protocol: str) -> None:
    with hardware(lab.rack, protocol) as (node, bmc):
        lab.up(machines=f"{{m1: {{bmc: {bmc}}}}}")
        assert "hostRequires" in lab.refused(REQUIRES.format(WANTED))
        assert lab.get("lab/mac/52-54-00-00-00-07/ipxe")[0] == 404
        uuid = lab.rack.json("node", "show", node)["uuid"]
        command = ["nospoon", "lab", "inventory", "dev", "m1", "--timeout", "300", "-f", "json"]
        with subprocess.Popen(
            command, env=lab.rack.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        ) as taking:  # fmt: skip

            def answers(path: str) -> str:
                end = monotonic() + 240
                while (answer := lab.get(path))[0] != 200:
                    assert monotonic() < end, taking.poll()
                    assert taking.poll() is None, taking.communicate()
                    time.sleep(0.1)
                return answer[1]

            script = answers("lab/mac/52-54-00-00-00-07/ipxe")
            assert "/lab/inventory/${uuid}/ipxe" in script
            other = "00000000-0000-0000-0000-000000000001"
            assert lab.get(f"lab/inventory/{other}/ipxe")[0] == 404
            script = answers(f"lab/inventory/{uuid}/ipxe")
            secret = script.partition("/lab/")[2].partition("/")[0]
            assert lab.head(f"lab/{secret}/probe-kernel") == lab.head(f"lab/{secret}/probe-initrd")
            (machine,) = lab.rack.json("lab", "machines", "dev")
            assert machine["state"] == "probed"
            again = lab.rack.run("lab", "inventory", "dev", "m1", status=5).stderr
            assert "the inventory of machine m1 is being taken" in again
            until(lambda: lab.rack.json("node", "show", node)["power"] == "on")
            assert lab.post(f"lab/{secret}/inventory", found(other)) == 404
            assert lab.post(f"lab/{secret}/inventory", b"{}") == 404
            assert lab.post(f"lab/{secret}/inventory", found(uuid)) == 200
            assert lab.post(f"lab/{secret}/inventory", found(uuid)) == 404
            said, errors = taking.communicate(timeout=240)
            assert taking.returncode == 0, errors
        shown = json.loads(said)
        assert (shown["cpus"], shown["memory_mib"], shown["disks_gib"]) == (6, 8192, [100])
        until(lambda: lab.rack.json("node", "show", node)["power"] == "off")
        lab.rack.crash()
        (machine,) = lab.rack.json("lab", "machines", "dev")
        assert machine["inventory"] == shown["inventory"]
        set_id = lab.submit(REQUIRES.format(WANTED))
        assert lab.running(set_id)["leases"][0]["machine"] == "m1"
        assert "linux" in lab.get("lab/mac/52-54-00-00-00-07/ipxe")[1], "its installer"
        refused = lab.rack.run("lab", "inventory", "dev", "m1", status=5).stderr
        assert f"recipe set {set_id} has machine m1" in refused
        lab.cancel(set_id)
        lab.ended(set_id)
        lab.up(machines=f"{{m1: {{bmc: {bmc}, memory: 1GiB}}}}")
        (machine,) = lab.rack.json("lab", "machines", "dev")
        assert (machine["memory_mib"], machine["cpus"]) == (1024, 6), "what the file says counts"
        lab.up(machines="{m1: {bmc: {address: 192.0.2.1, password: x}}}")
        (machine,) = lab.rack.json("lab", "machines", "dev")
        assert (machine["memory_mib"], machine["inventory"]) == (0, None), "another BMC's machine"


def found(uuid: str) -> bytes:
    """What a probe reports."""
    return json.dumps(
        {
            "version": 1, "uuid": uuid, "serial": "s", "product": "Anvil", "manufacturer": "Acme",
            "arch": "x86_64", "firmware": "bios", "secure_boot": False, "tpm": False, "cpus": 6,
            "memory": 8 << 30, "memory_mapped": 8 << 30, "memory_usable": 7 << 30, "kernel": "6.1",
            "uptime": 9.5, "cmdline": "",
            "disks": [{"name": "sda", "size": 100 << 30, "serial": "", "bus": "sata"}],
            "nics": [
                {"name": "eth0", "mac": "52:54:00:00:00:07", "driver": "e1000e", "link": True}
            ],
        }
    ).encode()  # fmt: skip


@pytest.mark.parametrize("after", ["queued", "starting", "running", "ending"])
def test_a_daemon_that_is_killed_goes_on_where_it_was(lab: Lab, after: str) -> None:
    lab.up(lab="limits: {machines: 1}")
    first = lab.submit(SMALL) if after == "queued" else ""
    set_id = lab.submit(SMALL)
    if after in ("running", "ending"):
        lab.running(set_id)
    if after == "ending":
        lab.release(set_id)
    lab.rack.crash()
    if after == "queued":
        lab.running(first)
        lab.cancel(first)
    if after != "ending":
        lab.running(set_id)
        lab.release(set_id)
    assert lab.ended(set_id)["result"] == "completed"
    lab.nothing_left()
