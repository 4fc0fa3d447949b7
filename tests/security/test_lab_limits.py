"""Labs of members and requests of their users that would stop the daemon, or take all it has."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.security.asked import OTHER, OWNER, Asked, a_daemon

from nospoon.clusterfile import check, requests
from nospoon.clusterfile.requests import read_request
from nospoon.control.labs import ended, watch, webhooks
from nospoon.control.labs import known as known_labs
from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.bmcs import RegisteredBmcs, WhileOff
from nospoon.control.labs.racks import BMCS_AT_ONCE, Racks
from nospoon.control.labs.requests import MOST_ANSWERS, judge
from nospoon.control.labs.webhooks import Webhooks
from nospoon.errors import Conflict, ProviderError, SpecError, TooLarge
from nospoon.lab import recipe
from nospoon.lab.compare import like
from nospoon.lab.element import Element
from nospoon.lab.provision import kickstart
from nospoon.lab.work import Asked as AskedRecipe
from nospoon.lab.work import RecipeSet, Run, SetState
from nospoon.model.lab import GIB, Disks, Distro, Lab, LabFlavor, Registered, Webhook
from nospoon.model.machine import PowerCommand
from nospoon.model.principal import Administrators
from nospoon.protocols.agent import agent
from nospoon.runtime.clock import unix
from nospoon.runtime.reach import ANYWHERE
from nospoon.runtime.slices import Slices
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.workers import Workers
from nospoon.store import labs as stored
from nospoon.store.lab_notices import Notice

LAB = """cluster: {cluster}
hosts: {{here: {{simulated: {{}}}}}}
flavors: {{small: {{disks: [10GiB]}}}}
labs: {labs}
nodes: []
"""
ANY = "<recipe><hostRequires/></recipe>"
PATIENCE = 20.0


def text(labs: dict[str, Any], cluster: str = "owned") -> str:
    return LAB.format(cluster=cluster, labs=json.dumps(labs))


def machine(number: int = 1, **more: Any) -> dict[str, Any]:
    bmc = {"address": "10.0.0.1", "port": number, "password": "p"}
    return {"bmc": bmc, "memory": "1GiB", **more}


async def refused(asked: Asked, labs: dict[str, Any], words: str) -> None:
    answer = await asked.up(OWNER, text(labs))
    assert answer.status in {409, 422}, answer.body
    assert words in answer.body.decode(), answer.body


@pytest.mark.parametrize("zeros", ["", "0" * 12])
@pytest.mark.parametrize("digits", ["9" * 15, "9" * 400])
async def test_a_lease_ends_within_the_calendar(tmp_path: Path, zeros: str, digits: str) -> None:
    """It was infinite: no list showed the lab any more, and no daemon started with its record."""
    asks = f'<recipe><hostRequires/><reservesys duration="{zeros}{digits}"/></recipe>'
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, text({"dev": {"users": ["*"]}}))
        answer = await asked.ask(OTHER, "POST", "/v1/requests", {"text": asks, "lab": "dev"})
        assert answer.status == 422, answer.body
        await refused(asked, {"dev": {"lease": f"{digits}d"}}, "expected at most")


async def test_a_daemon_starts_with_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, text({"dev": {"limits": {"machines": 1}}}))
        for _ in range(2):
            answer = await asked.ask(OWNER, "POST", "/v1/requests", {"text": ANY})
            assert answer.status == 201
        cipher = asked.daemon.parts.cipher
        broken = cipher.encrypt('{"id": null}')

        def spoil(connection: Any) -> None:
            waits = stored.recipe_sets.c.id == "2.1"
            connection.execute(stored.recipe_sets.update().where(waits).values(record=broken))

        await asked.daemon.parts.database.call(spoil)
    async with a_daemon(tmp_path) as asked:
        assert list(asked.daemon.control.board.scheduler.sets) == ["1.1"]


@pytest.mark.parametrize(
    "data",
    [
        b'{"job":[' + b"[]," * 200_000 + b"[]]}",
        b'{"job":[' + b"{}," * 200_000 + b"{}]}",
        b"<job " + b" ".join(b'a%x=""' % each for each in range(50_000)) + b"/>",
        b"<job " + b" ".join(b'xmlns:a%x="x"' % each for each in range(50_000)) + b"/>",
        b"<job><!--" + b"\n" * 500_000 + b"--></job>",
    ],
    ids=["lists", "objects", "attributes", "namespaces", "comment"],
)
def test_nothing_is_read_in_one_go_for_long(data: bytes) -> None:
    """Each of 10 MiB kept all other threads waiting for up to 4 s."""
    with pytest.raises(SpecError, match=r"expected (at most 150000 commas|tags and comments of)"):
        read_request(data, file="r")


def test_long_requests_are_read_all_the_same() -> None:
    long = "k" * (200 << 10)
    recipes = f"<recipe><kickstart>{long}</kickstart><hostRequires/></recipe>" * 5
    data = f"<recipeSet>{recipes}</recipeSet>".encode()
    assert len(data) > 8 * requests.PIECE
    assert len(read_request(data, file="r")) == 5


class Bmcs:
    """BMCs that answer when they may. `most`: that were called at a time."""

    def __init__(self) -> None:
        self.under_way, self.most, self.calls = 0, 0, list[str]()
        self.answer = asyncio.Event()
        self.full = asyncio.Event()

    async def _call(self, call: str) -> None:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        if self.under_way >= BMCS_AT_ONCE:
            self.full.set()
        await self.answer.wait()
        self.under_way -= 1
        self.calls.append(call)

    async def start(
        self,
        machine: Registered,
        *,
        owner: int,
        installs: bool,
        while_off: WhileOff | None = None,
    ) -> None:
        del owner, installs, while_off
        await self._call(f"start {machine.name}")

    async def stop(self, machine: Registered, *, owner: int) -> None:
        del owner
        await self._call(f"stop {machine.name}")

    async def uuids(self, machine: Registered, *, owner: int) -> frozenset[UUID]:
        del owner
        await self._call(f"uuids of {machine.name}")
        return frozenset()


class NoConsoles:
    """None is recorded."""

    async def begin(self, found: RecipeSet, number: int, known: KnownLab) -> None: ...
    async def end(self, found: RecipeSet) -> None: ...
    async def purge(self, found: RecipeSet, known: KnownLab) -> None: ...
    def state(self, found: RecipeSet, number: int, known: KnownLab) -> str:
        del found, number, known
        return ""


def racks(bmcs: Bmcs) -> Racks:
    nothing = cast("Any", None)
    return Racks(
        admins=Administrators(), kept=nothing, clusters=nothing, power=nothing, start=nothing,
        operations=nothing, machines=bmcs, consoles=NoConsoles(), database=nothing, cipher=nothing,
        workers=nothing, installers=nothing, logins=nothing,
    )  # fmt: skip


def loaned(name: str, uid: int = OWNER) -> tuple[RecipeSet, KnownLab]:
    lab = Lab("dev", machines=tuple(Registered(f"m{n}", address=f"10.0.0.{n}") for n in range(20)))
    run = Run(AskedRecipe("recipe"), {}, machine=name)
    found = RecipeSet("1.1", 1, uid, "x", (run,), state=SetState.RUNNING, lab="k")
    return found, KnownLab("k", uid, "c", lab)


async def test_few_bmcs_of_an_owner_are_called_at_a_time() -> None:
    """Each call is a process: 300 sets stopped the daemon for 17 s."""
    bmcs = Bmcs()
    rack = racks(bmcs)
    async with Tasks("test") as tasks:
        work = [tasks.start(rack.stop(*loaned(f"m{n}")), name=f"m{n}") for n in range(20)]
        await bmcs.full.wait()
        others = tasks.start(rack.stop(*loaned("m1", OTHER)), name="another owner's")
        while bmcs.under_way <= BMCS_AT_ONCE:  # noqa: ASYNC110  (nothing else shows it)
            await asyncio.sleep(0)
        bmcs.answer.set()
        await asyncio.gather(*work, others)
    assert bmcs.most == BMCS_AT_ONCE + 1
    assert len(bmcs.calls) == 21


async def test_no_command_waits_until_the_machine_is_someone_elses() -> None:
    bmcs = Bmcs()
    rack = racks(bmcs)
    found, known = loaned("m1")
    async with Tasks("test") as tasks:
        cycle = tasks.start(rack.switch(found, 0, known, PowerCommand.CYCLE), name="cycle")
        while not bmcs.under_way:  # noqa: ASYNC110  (nothing else shows that it is called)
            await asyncio.sleep(0)
        with pytest.raises(Conflict, match="under way"):
            await rack.switch(found, 0, known, PowerCommand.ON)
        stop = tasks.start(rack.stop(found, known), name="stop")
        bmcs.answer.set()
        await asyncio.gather(cycle, stop)
    assert bmcs.calls == ["stop m1", "start m1", "stop m1"]


@pytest.mark.parametrize("member", [f"/x HTTP/1.1{chr(13)}{chr(10)}X: y", "/a b", "/" + "x" * 2000])
async def test_a_bmc_names_no_other_request(member: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps({"Members": [{"@odata.id": member}]}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ProviderError, match="no System"):
            await RegisteredBmcs(ANYWHERE).stop(
                Registered("m", "redfish", "127.0.0.1", port, tls=False), owner=1000
            )


def test_an_agent_decodes_no_answer_of_many_values() -> None:
    many = b'{"node":[' + b"[]," * agent.MOST_VALUES + b"[]]}"
    assert agent._object(b'{"node": {}}') == {"node": {}}
    assert agent._object(many) == {}


async def test_labs_of_a_file_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "MOST_TOGETHER", 3)
    monkeypatch.setattr(check, "MOST_MACS", 3)
    macs = [f"02:00:00:00:00:{each:02x}" for each in range(4)]
    few = {"a": machine(1), "b": machine(2)}
    async with a_daemon(tmp_path) as asked:
        long = {"m": machine(attributes={"system/vendor": "x" * 256})}
        await refused(asked, {"dev": {"machines": long}}, "at most 255")
        many = {"m": machine(key_values={"K": ["x"] * 257})}
        await refused(asked, {"dev": {"machines": many}}, "at most 256")
        await refused(asked, {"a": {"machines": few}, "b": {"machines": few}},
                      "expected at most 3 registered machines")  # fmt: skip
        await refused(asked, {"a": {"machines": {"m": machine(macs=macs)}}},
                      "expected at most 3 MAC addresses")  # fmt: skip


async def test_labs_of_a_member_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_labs, "MOST_LABS", 2)
    monkeypatch.setattr(known_labs, "MOST_REGISTERED", 2)
    two: dict[str, Any] = {"a": {}, "b": {}}
    three = {**two, "c": {}}
    machines = {"machines": {"a": machine(1), "b": machine(2), "c": machine(3)}}
    async with a_daemon(tmp_path) as asked:
        for labs, status in ((three, 409), ({"a": machines}, 409), (two, 202), (two, 202)):
            answer = await asked.up(OWNER, text(labs))
            assert answer.status == status, answer.body
        assert (await asked.up(OWNER, text({"c": {}}, "second"))).status == 409
        assert (await asked.up(OTHER, text({"c": {}}, "others"))).status == 202
        assert (await asked.up(0, text(three, "of-root"))).status == 202


def known_of(lab: Lab) -> KnownLab:
    return KnownLab(f"{OWNER}:c/{lab.name}", OWNER, "c", lab)


def test_reasons_are_short_and_few() -> None:
    """They were as long as the file and the request liked, for each machine and recipe."""
    values = {"system/vendor": ("v" * 200,) * 200}
    machines = tuple(Registered(f"m{n}", values=values) for n in range(50))
    long = f'<system><vendor value="{"w" * 4000}"/></system>' * 50
    data = f"<hostRequires>{long}</hostRequires>".encode()
    (judged,) = judge(data, [known_of(Lab("dev", dynamic=False, machines=machines))], file="r")
    ((answer,),) = judged.answers
    assert 0 < len(answer.reasons) <= 20
    assert len(answer.verdict.reasons) <= 20
    assert max(len(each.why) for each in (*answer.reasons, *answer.verdict.reasons)) < 1000


def test_reasons_of_all_answers_are_few() -> None:
    labs = [known_of(Lab(f"l{each}", machines=(Registered("m"),))) for each in range(40)]
    wrong = "<system><vendor value='x'/><model value='y'/></system>" * 20
    recipe = f"<recipe><hostRequires>{wrong}</hostRequires></recipe>"
    found = judge(f"<recipeSet>{recipe * 50}</recipeSet>".encode(), labs, file="r")
    answers = [each for judged in found for of_recipe in judged.answers for each in of_recipe]
    assert len(answers) == 2000
    assert sum(len(each.reasons) for each in answers) <= MOST_ANSWERS
    assert all(each.reasons for each in answers)


def test_recipes_are_compared_with_few_labs() -> None:
    labs = [known_of(Lab(f"l{each}")) for each in range(MOST_ANSWERS // 100 + 1)]
    data = f"<recipeSet>{ANY * 100}</recipeSet>".encode()
    with pytest.raises(TooLarge, match="labs"):
        judge(data, labs, file="r")
    assert judge(data, labs[:-1], file="r")


def test_patterns_cost_what_they_take() -> None:
    pattern = "_%" * 2000
    data = "<hostRequires>" + f"<hostname op='like' value='{pattern}'/>" * 10 + "</hostRequires>"
    machines = tuple(Registered(f"m{n}") for n in range(1000))
    with pytest.raises(TooLarge, match="comparisons"):
        judge(data.encode(), [known_of(Lab("dev", machines=machines))], file="r")


def test_disks_that_are_tried_cost_what_they_take() -> None:
    """8,000 sizes and 500 flavors took 40 s, and more than 4 GB of memory."""
    sizes = "".join(f"<size op='&gt;=' value='{each}' units='GiB'/>" for each in range(50, 150))
    data = f"<hostRequires><disk>{sizes}</disk></hostRequires>".encode()
    flavors = tuple(LabFlavor(f"f{n}", 1, GIB, 20 * GIB) for n in range(1000))
    lab = Lab("dev", flavors=flavors, disks=Disks.FLAVOR, largest_disk=1000 * GIB)
    assert judge(data, [known_of(lab)], file="r")
    with pytest.raises(TooLarge, match="comparisons"):
        judge(data, [known_of(replace(lab, disks=Disks.ASKED))], file="r")


def test_a_distribution_is_compared_once_with_each_architecture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was with each machine and flavor: 50,000 elements and 1,000 machines took a minute."""
    looked = list[str]()

    def look(distro: Element, arch: str) -> bool:
        looked.append(arch)
        return runs(distro, arch)

    runs = recipe._runs
    monkeypatch.setattr(recipe, "_runs", look)
    distro = "<distroRequires><distro_arch value='x'/></distroRequires>"
    data = f"<recipe>{distro}<hostRequires/></recipe>".encode()
    flavors = tuple(LabFlavor(f"f{n}", 1, GIB, 20 * GIB) for n in range(100))
    machines = tuple(Registered(f"m{n}") for n in range(100))
    assert judge(data, [known_of(Lab("dev", flavors=flavors, machines=machines))], file="r")
    assert 0 < len(looked) < 20


def test_elements_of_distributions_are_counted() -> None:
    arches = "<distro_arch value='x'/>" * 5000
    data = f"<recipe><distroRequires><or>{arches}</or></distroRequires><hostRequires/></recipe>"
    machines = tuple(Registered(f"m{n}", arch=f"a{n}") for n in range(1000))
    with pytest.raises(TooLarge, match="comparisons"):
        judge(data.encode(), [known_of(Lab("dev", machines=machines))], file="r")


@given(st.text("ab%_", max_size=12), st.text("ab", max_size=12))
def test_like_is_that_of_sql(pattern: str, have: str) -> None:
    parts = {"%": ".*", "_": "."}
    expected = re.fullmatch("".join(parts.get(each, each) for each in pattern), have) is not None
    assert like(have, pattern) is expected


def test_a_kickstart_does_not_grow_without_bounds() -> None:
    """`{{tree}}` is a URL of up to 8,000 characters: 256 KiB of it became 256 MiB."""
    distro = Distro("d", tree="http://x/" + "t" * 7900)
    run = Run(AskedRecipe("recipe", distro="d", kickstart="{{tree}}" * (32 << 10)), {})
    found = RecipeSet("1.1", 1, OWNER, "x", (run,))
    made = kickstart(found, 0, Lab("dev", distros=(distro,)), "http://boot")
    assert sum(map(len, made)) < 4 << 20


async def test_roles_are_short(tmp_path: Path) -> None:
    """Of sets that ended they are kept for a month."""
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, text({"dev": {}}))
        role = f'<recipe role="{"r" * 65}"><hostRequires/></recipe>'
        answer = await asked.ask(OWNER, "POST", "/v1/requests", {"text": role})
        assert answer.status == 422, answer.body


async def test_few_sets_of_a_user_that_ended_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended, "MOST_ENDED", 2)
    monkeypatch.setattr(ended, "TIDY_AFTER", 4)
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, text({"dev": {"users": ["*"], "limits": {"machines": 1}}}))
        asks = {"text": ANY, "lab": "dev"}
        (await asked.ask(OTHER, "POST", "/v1/requests", asks))
        for number in range(2, 6):
            await asked.ask(OWNER, "POST", "/v1/requests", asks)
            answer = await asked.ask(OWNER, "POST", f"/v1/requests/{number}.1/cancel")
            assert answer.status == 200, answer.body
        async with asyncio.timeout(PATIENCE):
            while True:
                rows = (await asked.ask(OWNER, "GET", "/v1/requests")).json
                if [each["set"] for each in rows] == ["4.1", "5.1"]:
                    break
                await asyncio.sleep(0.01)
        assert len((await asked.ask(OTHER, "GET", "/v1/requests")).json) == 1


async def test_few_webhooks_of_an_owner_are_called_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhooks, "MOST_OF_OWNER", 20)
    connected, most, answer, full = 0, 0, asyncio.Event(), asyncio.Event()
    got, over = list[bytes](), set[str]()

    async def forget(ids: Sequence[str]) -> None:
        over.update(ids)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected, most
        head = await reader.readuntil(b"\r\n\r\n")
        connected += 1
        most = max(most, connected)
        if connected == webhooks.AT_ONCE:
            full.set()
        await answer.wait()
        connected -= 1
        got.append(head)
        writer.write(b"HTTP/1.1 204 x\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Tasks("test") as tasks:
        hooks = Webhooks(tasks, ANYWHERE, forget, pauses=())
        for number in range(30):
            hook = Webhook(f"http://127.0.0.1:{port}/{number}", "s" * 16)
            hooks.send((hook,), Notice(f"{number}", f"{OWNER}:c/l{number}", 0, "{}"))
        async with asyncio.timeout(PATIENCE):
            await full.wait()
            answer.set()
            while hooks._lines or len(over) < 30:  # noqa: ASYNC110  (nothing else shows it)
                await asyncio.sleep(0.005)
    assert (most, len(got)) == (webhooks.AT_ONCE, 20)
    assert not hooks._waiting


async def test_consoles_of_one_owner_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """All were looked at before any was looked at again: a guest that writes as fast as it is read
    kept panics of other users' machines from being seen.
    """
    monkeypatch.setattr(watch, "LOOK", 0)
    machines, read, often = {OWNER: UUID(int=1), OTHER: UUID(int=2)}, list[UUID](), asyncio.Event()

    class Consoles:
        async def stamp(self, *_: Any, **__: Any) -> int:
            return len(read)

        async def pieces(self, machine: UUID, **_: Any) -> AsyncIterator[tuple[int, bytes]]:
            read.append(machine)
            if read.count(machines[OTHER]) == 3:
                often.set()
            if machine == machines[OWNER]:
                await asyncio.Event().wait()
            yield 0, b"line\n"

    sets, known = {}, {}
    for uid in (OWNER, OTHER):
        run = Run(AskedRecipe("recipe"), {}, node="recipe-0")
        sets[f"{uid}.1"] = RecipeSet(
            f"{uid}.1", uid, uid, "x", (run,), state=SetState.RUNNING, lab=str(uid)
        )
        known[str(uid)] = KnownLab(str(uid), uid, "c", Lab("dev"))
    board = SimpleNamespace(
        scheduler=SimpleNamespace(sets=sets), known=known, slices=Slices(),
        labs=SimpleNamespace(known_of=lambda found: known[found.lab]),
        out=lambda key: [each for each in sets.values() if each.lab == key],
    )  # fmt: skip
    workers = Workers("test", 2)
    watching = watch.Watch(
        cast("Any", board), cast("Any", Consoles()), lambda uid, _: machines[uid],
        cast("Any", None), workers, unix,
    )  # fmt: skip
    async with Tasks("test") as tasks:
        tasks.start(watching.keep(), name="watch")
        async with asyncio.timeout(PATIENCE):
            await often.wait()
    workers.close()
    assert read.count(machines[OWNER]) == 1


async def test_what_labs_keep_of_mac_addresses_follows_their_files(tmp_path: Path) -> None:
    """Each `up` looked at the MAC addresses of all labs for each lab: 2.5 s for 480,000."""
    mac = "02:00:00:00:00:01"
    async with a_daemon(tmp_path) as asked:
        board = asked.daemon.control.board
        await asked.up(OWNER, text({"dev": {"machines": {"m": machine(macs=[mac])}}}))
        assert board.labs.registered(mac) is not None
        await asked.up(OWNER, text({"dev": {"machines": {"m": machine()}}}))
        assert board.labs.registered(mac) is None
        assert not board.labs._of_mac
