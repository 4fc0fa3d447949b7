"""README and docs as their readers use them: commands are run, cluster files are loaded."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from nospoon.cli.files import read_cluster
from nospoon.errors import NospoonError
from nospoon.testing.documents import (
    COMMANDS,
    KINDS,
    REASONS,
    Session,
    blocks,
    inline,
    missing,
    nospoon_commands,
    of_this_run,
    problem,
)
from nospoon.testing.rack import Rack, private_rack

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("**/*.md")),
    *sorted((ROOT / "contrib").glob("*/README.md")),
]
BLOCKS = [block for page in PAGES for block in blocks(ROOT, page)]
TUTORIAL = "docs/tutorial/first-rack.md"
DEV = "cluster: dev\nnodes: [{count: 2}]\n"
BEGINNINGS: dict[str, str] = {
    "README.md": "",
    "docs/howto/adopt-machines.md": "",
    "docs/howto/after-a-crash.md": "nospoon up --yes dev.yaml",
    "docs/howto/bmc-tools.md": "nospoon up --yes dev.yaml",
    "docs/howto/export.md": "nospoon up --yes dev.yaml",
    "docs/howto/fault-injection.md": "nospoon up --yes dev.yaml",
    "docs/howto/install.md": "",
    "docs/howto/lab-requests.md": "",
    "docs/howto/labs.md": "",
    "docs/howto/media-and-http-boot.md": "nospoon up --yes dev.yaml; truncate -s 1M debian-12.iso",
    "docs/howto/node-kinds.md": "mkdir root && tar -czf service.tar.zst root && "
    "qemu-img create -f qcow2 debian.qcow2 1M",
    "docs/howto/pdus.md": "",
    "docs/howto/redfish-services.md": "nospoon up --yes dev.yaml",
    "docs/howto/snapshots.md": "nospoon up --yes dev.yaml",
    "docs/howto/troubleshooting.md": "nospoon up --yes dev.yaml",
    "docs/howto/without-root.md": "",
    "docs/reference/rest.md": "nospoon up --yes dev.yaml",
    TUTORIAL: "cp examples/quickstart.yaml . && nospoon up --yes quickstart.yaml",
}
"""Page with commands -> what its reader has done before, on a simulated host. The tutorial begins
after `make demo`, whose cluster has the first ports.
"""


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    for block in BLOCKS:
        reason = block.mark.removeprefix("not run: ")
        assert block.mark in {"", "fragment", "other"} or reason in REASONS, block.place
        assert block.kind not in COMMANDS or block.mark not in {"fragment", "other"}, block.place
        if block.page.startswith("docs/reference/") and block.kind not in {"console", "yaml"}:
            continue  # help texts
        assert block.kind in KINDS or block.mark == "other", f"{block.place}: {block.kind!r}"
        if block.kind != "yaml" and not block.mark:
            assert block.page in BEGINNINGS, f"{block.place} has no beginning"


def test_every_reason_is_one_of_a_page() -> None:
    assert {block.mark.removeprefix("not run: ") for block in BLOCKS} >= set(REASONS)


def test_every_block_of_commands_has_one() -> None:
    assert not [
        block.place for block in BLOCKS if block.kind in COMMANDS and not list(block.commands())
    ]


def test_every_command_of_nospoon_is_taken_by_its_command_line() -> None:
    wrong = []
    for block in BLOCKS:
        for command, _ in block.commands() if block.kind in {"console", "sh"} else ():
            for argv in nospoon_commands(command):
                why = problem(argv)
                wrong += [f"{block.place}: {' '.join(argv)}: {why}"] if why else []
    for page in PAGES:
        for text in inline(page):
            for argv in nospoon_commands(text):
                why = problem(argv)
                named = why and not why.endswith("is missing")  # a command may be only named
                wrong += [f"{page.name}: {text}: {why}"] if named else []
    assert not wrong


def test_the_index_leads_to_every_page_and_no_link_is_dead() -> None:
    links = {
        page: set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())) for page in PAGES
    }
    dead = [
        (page, link)
        for page, found in links.items()
        for link in found
        if not (page.parent / link).exists()
    ]
    assert not dead
    index = ROOT / "docs" / "index.md"
    led = {(index.parent / link).resolve() for link in links[index]}
    pages = {page for page in PAGES if "docs" in page.parts and "adr" not in page.parts}
    assert pages <= led | {index}


def test_links_to_a_part_of_a_page_lead_to_a_heading() -> None:
    dead = [
        f"{page.name}: {link}#{anchor}"
        for page in PAGES
        for link, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)]*)\)", page.read_text())
        if anchor not in _anchors(page.parent / link if link else page)
    ]
    assert not dead


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text())
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_what_the_demo_proposes_is_taken_too() -> None:
    proposed = (ROOT / "scripts" / "demo").read_text().partition("<<'TXT'\n")[2].partition("TXT")[0]
    found = list(nospoon_commands(proposed))
    assert len(found) == 5
    assert not any(map(problem, found))


def test_the_short_option_for_help_is_taken() -> None:
    assert not problem(["node", "power", "-h"])


def test_wrong_commands_are_found() -> None:
    text = "nospoon node power a frob && sudo nospoon up --bogus x; nospoon node boot; x nospoon z"
    found = [problem(argv) for argv in nospoon_commands(text)]
    assert [bool(why) for why in found] == [True, True, True]


CLOUDS = "undercloud", "nospoon-cloud", "nospoon-cloud-admin"
"""That the documents name."""


@pytest.mark.filterwarnings("ignore:Support for InfluxDB")
def test_every_cluster_file_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clouds = tmp_path / "clouds.yaml"
    auth = "{auth_url: https://cloud.example:5000, username: u, password: p}"
    named = ", ".join(f"{name}: {{auth: {auth}}}" for name in CLOUDS)
    clouds.write_text(f"clouds: {{{named}}}\n")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
    wrong = []
    for block in BLOCKS:
        if block.kind != "yaml" or block.mark == "other":
            continue
        text = block.text
        if block.mark == "fragment":
            given = yaml.safe_load(text)
            text = "cluster: dev\n" * ("cluster" not in given) + text
            text += "nodes: [{count: 1}]\n" * ("nodes" not in given)
        path = tmp_path / "cluster.yaml"
        path.write_text(text)
        try:
            read_cluster(str(path))
        except NospoonError as error:
            wrong.append(f"{block.place}: {error}")
    assert not wrong


def test_what_is_shown_is_compared() -> None:
    known: dict[str, str] = {}
    output = "a 1\nNODE  PASSWORD\nn  gEcW7dYJlD5eP1Ex\nat 127.0.0.1:77 now\n"
    assert not missing(
        ("NODE PASSWORD", "…", "n gEcW7dYJlD5eP1Eu", "at 127.0.0.1:6230 …"), output, known
    )
    assert of_this_run("x -p 6230 -P gEcW7dYJlD5eP1Eu", known) == "x -p 77 -P gEcW7dYJlD5eP1Ex"
    assert missing(("at …", "NODE PASSWORD"), output, {}) == "NODE PASSWORD"


def test_a_value_of_this_run_is_not_replaced_again() -> None:
    known = {"127.0.0.1:6230": "127.0.0.1:14501", "14": "13"}
    assert of_this_run("x -H 127.0.0.1 -p 6230 -c 14", known) == "x -H 127.0.0.1 -p 14501 -c 13"
    assert of_this_run("x", {}) == "x"


@pytest.fixture(scope="module")
def simulator() -> Iterator[Rack]:
    with private_rack() as made:
        yield made


@pytest.mark.tools
@pytest.mark.parametrize("page", sorted(BEGINNINGS))
def test_commands_do_what_the_page_says(simulator: Rack, page: str) -> None:
    _follow(simulator, page, "hosts: {here: simulated}\n", BEGINNINGS[page])


@pytest.mark.libvirt
@pytest.mark.boots
def test_the_tutorial_works_with_real_machines() -> None:
    with private_rack() as rack:
        _follow(rack, TUTORIAL, "", "")


def _follow(rack: Rack, page: str, host: str, beginning: str) -> None:
    """As a reader of the page does. Its cluster files get the ports of this test, and a host."""
    place = rack.directory / Path(page).stem
    shutil.copytree(ROOT / "examples", place / "examples")
    more = f"{host}{rack.bmc()}"
    _save(place / "examples" / "quickstart.yaml", "", more)
    _save(place / "dev.yaml", DEV, more)
    for name in ("linux", "initrd.gz"):
        (place / name).write_bytes(b"nothing")
    known: dict[str, str] = {}
    with closing(Session(place, rack.environment)) as session:
        _run(session, beginning, (), known, page)
        for block in (each for each in BLOCKS if each.page == page):
            if block.file:
                other = "redfish_port" in block.text
                _save(place / block.file, block.text, f"{host}{rack.bmc()}" if other else more)
            if block.mark or block.kind not in {"console", "sh"}:
                continue
            for command, shown in block.commands():
                _run(session, command, shown, known, block.place)
    for row in {row["cluster"] for row in rack.json("node", "list")}:
        rack.run("down", "--yes", "--purge", row)
    rack.down()


def _save(path: Path, text: str, more: str) -> None:
    """With these sections; the ports of the test go before those of the file, its hosts do not."""
    text = text or path.read_text()
    given, added = yaml.safe_load(text), yaml.safe_load(more)
    if "hosts" in given and "hosts" in added:
        del added["hosts"]
        more = yaml.safe_dump(added)
    if given.keys() & added.keys():
        text, more = yaml.safe_dump(_merged(given, added)), ""
    path.write_text(text + more)


def _merged(given: Any, added: Any) -> Any:
    if not isinstance(given, dict) or not isinstance(added, dict):
        return added
    both = {key: _merged(given[key], added[key]) for key in given.keys() & added.keys()}
    return {**given, **added, **both}


def _run(
    session: Session, command: str, shown: tuple[str, ...], known: dict[str, str], place: str
) -> None:
    if not command:
        return
    status, output = session.run(of_this_run(command, known))
    assert status == 0, f"{place}: $ {command}\n{output}"
    line = missing(shown, output, known)
    assert not line, f"{place}: $ {command}\nshows no {line!r}, but\n{output}"
