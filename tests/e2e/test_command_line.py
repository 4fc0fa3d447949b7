"""What scripts rely on: exit codes, columns, the order of rows, and no passwords unasked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from nospoon.testing.rack import Rack, private_rack
from nospoon.testing.terminal import terminal


def simulated(rack: Rack, count: int = 2) -> tuple[str, str]:
    name = rack.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}nodes: [{{count: {count}}}]\n"
    return name, rack.file(text, f"{name}.yaml")


def test_detailed_exit_codes_are_those_of_terraform(shared: Rack) -> None:
    name, file = simulated(shared)
    shared.run("plan", "--detailed-exitcode", file, status=2)
    shared.run("up", "--yes", file)
    shared.run("plan", "--detailed-exitcode", file)
    broken = shared.file(f"cluster: {name}\nnodes: [{{cpus: many}}]\n", "broken.yaml")
    said = shared.run("plan", "--detailed-exitcode", broken, status=1).stderr
    assert "broken.yaml:2:" in said
    shared.run("plan", broken, status=2)


def test_an_unknown_column_is_refused_before_anything_is_done(shared: Rack) -> None:
    name, file = simulated(shared)
    said = shared.run("up", "--yes", file, "-c", "bogus", status=2).stderr
    assert "no column 'bogus'" in said
    assert name not in {row["name"] for row in shared.json("status")}


def test_passwords_are_shown_on_request_only(shared: Rack) -> None:
    name, file = simulated(shared, 1)
    up = shared.run("up", "--yes", file)
    (secret,) = (row["password"] for row in shared.bmcs(name).values())
    again = shared.run("up", "--yes", "-f", "json", file)
    listed = shared.run("bmc", "list", "--cluster", name)
    assert all(secret not in each.stdout + each.stderr for each in (up, again, listed))
    assert f"bmc list --cluster {name} --show-secrets" in up.stderr
    asked = shared.run("bmc", "list", "--cluster", name, "-c", "password", "-f", "value")
    assert asked.stdout.strip() == secret


def test_rows_name_their_cluster_and_stand_in_the_order_of_their_numbers(shared: Rack) -> None:
    name, file = simulated(shared, 11)
    shared.run("up", "--yes", file)
    wanted = [(name, f"node-{n}") for n in range(11)]
    for what in ("bmc", "node"):
        rows = shared.json(what, "list", "--cluster", name)
        assert [(row["cluster"], row["node"]) for row in rows] == wanted


def test_an_unknown_cluster_is_an_error(shared: Rack) -> None:
    for what in ("bmc", "node"):
        assert "no cluster 'nope'" in shared.run(what, "list", "--cluster", "nope", status=2).stderr


def test_apply_shows_the_plan_and_then_where_the_bmcs_are(shared: Rack) -> None:
    name, file = simulated(shared)
    plan = str(shared.directory / "plan.json")
    shown = shared.run("plan", file, "-o", plan).stdout
    applied = shared.run("apply", "--yes", plan)
    assert shown.splitlines()[0] in applied.stderr
    assert "node-1" in applied.stdout
    assert {row["node"] for row in shared.json("node", "list", "--cluster", name)} == {
        "node-0",
        "node-1",
    }


def test_settings_that_a_running_daemon_ignores_are_named_once(shared: Rack) -> None:
    shared.run("daemon", "start")
    assert "ignores" not in shared.run("node", "list").stderr
    more = {"NOSPOON_LOG": "debug", "NOSPOON_DATABASE": "sqlite:////other"}
    other = replace(shared, environment={**shared.environment, **more})
    for command in (("node", "list"), ("daemon", "start")):
        said = other.run(*command).stderr
        assert said.count("ignores NOSPOON_DATABASE, NOSPOON_LOG: stop it") == 1
        assert "////other" not in said


def test_the_summary_of_a_plan_is_shown_once(shared: Rack) -> None:
    """The operation begins with it, for those who watch it without having seen the plan."""
    name, file = simulated(shared)
    plan = str(shared.directory / "once.json")
    shared.run("plan", file, "-o", plan)
    assert shared.run("up", "--yes", file).stderr.count(" to create, ") == 1
    down = shared.run("down", "--yes", name).stderr
    assert down.count(" to delete; ") == 1, "its plan was not shown"
    shared.run("plan", file, "-o", plan)
    assert shared.run("apply", "--yes", plan).stderr.count(" to create, ") == 1


def test_apply_asks_only_on_a_terminal_and_after_it_showed_the_plan(shared: Rack) -> None:
    name, file = simulated(shared)
    plan = str(shared.directory / "asked.json")
    shared.run("plan", file, "-o", plan)
    said = shared.run("apply", plan, status=2).stderr
    assert "2 to create" in said or "machine node-0" in said
    assert "use --yes" in said.lower()
    assert name not in {row["name"] for row in shared.json("status")}


def test_apply_shows_the_daemons_plan_and_reads_the_file_itself(shared: Rack) -> None:
    """Whoever gave the saved plan may have changed what it says."""
    name, file = simulated(shared)
    path = shared.directory / "edited.json"
    shared.run("plan", file, "-o", str(path))
    saved = json.loads(path.read_text())
    saved["text"] = "Nothing to do"
    saved["request"] |= {"text": f"cluster: other-{name}\n", "file": "other.yaml"}
    path.write_text(json.dumps(saved))
    said = shared.run("apply", str(path), status=2).stderr
    assert "Nothing to do" not in said
    assert "machine node-0" in said
    shared.run("apply", "--yes", str(path))
    assert {row["name"] for row in shared.json("status")} & {name, f"other-{name}"} == {name}


def test_a_dash_is_standard_output_and_input(shared: Rack) -> None:
    name, file = simulated(shared)
    saved = shared.run("plan", file, "-o", "-")
    assert "machine node-0" in saved.stderr
    assert json.loads(saved.stdout)["plan"]["cluster"] == name
    refused = shared.run("apply", "-", stdin=saved.stdout, status=2)
    assert "--yes" in refused.stderr
    shared.run("apply", "--yes", "-", stdin=saved.stdout)
    to = ("export", "--to", "ansible", name)
    assert shared.run(*to, "-o", "-").stdout == shared.run(*to).stdout
    assert not (shared.directory / "-").exists()
    assert not Path("-").exists()


@pytest.mark.parametrize(
    ("more", "styled"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_headings_are_bold_only_where_a_terminal_may_show_it(
    shared: Rack, more: dict[str, str], *, styled: bool
) -> None:
    name, file = simulated(shared, 1)
    shared.run("up", "--yes", file)
    environment = {each: v for each, v in shared.environment.items() if each != "NO_COLOR"}
    argv = ["nospoon", "node", "list", "--cluster", name, "-c", "node"]
    with terminal(argv, env={**environment, "TERM": "xterm", **more}) as shown:
        shown.shows(b"\x1b[1mNODE" if styled else b"NODE\r\nnode-0")
        assert shown.ends() == 0


def completed(rack: Rack, *words: str) -> list[str]:
    """What bash is offered for the last word."""
    asked = {
        "_NOSPOON_COMPLETE": "bash_complete",
        "COMP_WORDS": "\n".join(("nospoon", *words)),
        "COMP_CWORD": str(len(words)),
    }
    return replace(rack, environment={**rack.environment, **asked}).run().stdout.split()


def test_a_shell_completes_names_that_a_running_daemon_knows_and_files(rack: Rack) -> None:
    assert completed(rack, "node", "power", "x") == []
    assert completed(rack, "down", "x") == ["file,x"]
    assert not (rack.directory / "state").exists(), "no daemon was started"
    name, file = simulated(rack)
    rack.run("up", "--yes", file)
    assert completed(rack, "down", name[:2]) == [f"plain,{name}"]
    both = [f"plain,{name}/node-0", f"plain,{name}/node-1"]
    assert completed(rack, "node", "power", name[:2]) == both
    assert completed(rack, "node", "console", f"{name}/node-1") == both[1:]
    assert completed(rack, "node", "power", "nope/") == []
    assert completed(rack, "node", "list", "--cluster", name[:2]) == [f"plain,{name}"]
    for command in ("up", "plan", "apply"):
        assert completed(rack, command, "clu") == ["file,clu"]


def test_a_removal_is_not_saved_and_says_so(shared: Rack) -> None:
    name, file = simulated(shared)
    shared.run("up", "--yes", file)
    out = shared.directory / "removal.json"
    said = shared.run("plan", "--down", name, "-o", str(out), status=2).stderr
    assert "--down and --out cannot be combined" in said
    assert not out.exists()


@pytest.mark.parametrize(
    "edited",
    [{"fingerprint": ""}, {"fingerprint": None}, {"targets": "n"}, {"targets": [1]}, {"path": 1}],
)
def test_a_saved_plan_that_was_edited_is_refused(shared: Rack, edited: dict[str, object]) -> None:
    name, file = simulated(shared)
    path = shared.directory / "plan.json"
    shared.run("plan", file, "-o", str(path))
    saved = json.loads(path.read_text())
    path.write_text(json.dumps({**saved, "request": {**saved["request"], **edited}}))
    assert "is not a saved plan" in shared.run("apply", "--yes", str(path), status=2).stderr
    assert name not in {row["name"] for row in shared.json("status")}


def test_a_plan_of_another_version_is_refused_as_such(shared: Rack) -> None:
    name, file = simulated(shared)
    path = shared.directory / "plan.json"
    shared.run("plan", file, "-o", str(path))
    saved = json.loads(path.read_text())
    for version, called in (("0.0.9", "nospoon 0.0.9,"), (None, "nospoon of an earlier version")):
        del saved["nospoon"]
        saved |= {"nospoon": version} if version else {}
        path.write_text(json.dumps(saved))
        said = shared.run("apply", "--yes", str(path), status=2).stderr
        assert f"was saved by {called}" in said
        assert "nospoon plan FILE -o PLAN" in said
    assert name not in {row["name"] for row in shared.json("status")}


@pytest.mark.parametrize("content", [{"request": {}}, {"request": []}, [], "request"])
def test_what_is_not_a_saved_plan_is_refused_with_what_to_do(
    shared: Rack, tmp_path: Path, content: object
) -> None:
    old = tmp_path / "old.json"
    old.write_text(json.dumps(content))
    assert "nospoon plan FILE -o PLAN" in shared.run("apply", "--yes", str(old), status=2).stderr


def test_clusters_with_redfish_alone_share_an_address(shared: Rack) -> None:
    """Their nodes have no UDP port that could be taken twice."""
    first, second = shared.name(), shared.name()
    rest = f"hosts: {{sim: simulated}}\n{shared.bmc()}nodes: [{{count: 2, bmc: [redfish]}}]\n"
    for name in (first, second):
        text = f"cluster: {name}\n{rest}"
        shared.run("up", "--yes", shared.file(text, f"{name}.yaml"))
    ends = {row["redfish"].rpartition("/redfish")[0] for row in shared.json("bmc", "list")}
    assert len(ends) == 1


def test_a_group_that_is_not_there_is_named_by_the_command_and_in_the_log() -> None:
    with private_rack(NOSPOON_GROUP="no-such-group") as rack:
        rack.forks = False
        told = rack.run("daemon", "start").stderr
        assert "NOSPOON_GROUP: this system has no group 'no-such-group': only root" in told
        rack.run("daemon", "stop")
        assert "this system has no group 'no-such-group'" in rack.log()
    with private_rack(NOSPOON_GROUP="nogroup") as rack:
        assert "NOSPOON_GROUP" not in rack.run("daemon", "start").stderr


@pytest.mark.parametrize(
    ("word", "device"), [("pxe", "network"), ("Hdd", "disk"), ("Cd", "cdrom"), ("bios", "setup")]
)
def test_boot_devices_have_the_names_of_other_tools_too(
    shared: Rack, word: str, device: str
) -> None:
    name, file = simulated(shared, 1)
    shared.run("up", "--yes", file)
    said = shared.run("node", "boot", f"{name}/node-0", word).stderr
    assert said.startswith(f"{name}/node-0: {device}")
    assert (
        "'floppy' is not one of"
        in shared.run("node", "boot", f"{name}/node-0", "floppy", status=2).stderr
    )


def test_nothing_is_attached_to_a_node_that_is_not_there(shared: Rack) -> None:
    said = shared.run("node", "console", "nope", status=2).stderr
    assert "no node 'nope'" in said
    assert "Attached" not in said


def test_who_has_no_lab_learns_of_the_check_that_needs_none(shared: Rack) -> None:
    request = shared.file("<hostRequires/>", "request.xml")
    said = shared.run("request", "check", request, status=1).stderr
    assert "there is no lab of yours" in said
    assert "`nospoon request check --flavors FILE` needs none." in said
