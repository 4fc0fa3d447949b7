"""`nospoon vbmc` prints what virtualbmc 3.3.0 (cliff 4.13) printed for the same BMCs, recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nospoon.cli.addresses import resolved
from nospoon.cli.adoptions import refused
from nospoon.cli.commands.vbmc import command
from nospoon.cli.vbmc_clusters import servable, status_of
from nospoon.cli.vbmc_files import write_config
from nospoon.errors import PlanRefused, UsageError

A = {"username": "admin", "password": "secret", "address": "::", "port": "46230"}
B = {**A, "address": "localhost", "port": "4631"}
TABLE = """\
+-------------+--------+-----------+-------+
| Domain name | Status | Address   |  Port |
+-------------+--------+-----------+-------+
| adp-bios    | down   | ::        | 46230 |
| adp-vi      | down   | localhost |  4631 |
+-------------+--------+-----------+-------+
"""
BY_PORT = "adp-vi down localhost 4631\nadp-bios down :: 46230\n"
SHOWN = """\
+-----------------------+----------------+
| Property              | Value          |
+-----------------------+----------------+
| active                | False          |
| address               | ::             |
| domain_name           | adp-bios       |
| libvirt_sasl_password | ***            |
| libvirt_sasl_username | None           |
| libvirt_uri           | qemu:///system |
| password              | ***            |
| port                  | 46230          |
| status                | down           |
| username              | admin          |
+-----------------------+----------------+
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STATE", "RUNTIME"):
        monkeypatch.setenv(f"NOSPOON_{name}_DIR", str(tmp_path / name))
    monkeypatch.setenv("VIRTUALBMC_CONFIG", str(tmp_path / "virtualbmc.conf"))
    (tmp_path / "virtualbmc.conf").write_text(f"[default]\nconfig_dir = {tmp_path}/domains\n")
    return tmp_path


def add(home: Path, name: str, settings: dict[str, str]) -> None:
    place = home / "domains" / name
    place.mkdir(parents=True)
    lines = [f"{key} = {value}\n" for key, value in {**settings, "active": "False"}.items()]
    (place / "config").write_text("[VirtualBMC]\n" + "".join(lines))


def vbmc(*argv: str, status: int = 0) -> Result:
    done = CliRunner().invoke(command, list(argv))
    assert done.exit_code == status, done.output
    return done


@pytest.mark.parametrize(
    ("argv", "printed"),
    [
        ("", TABLE),
        ("--debug --max-width 80", TABLE),
        ("-f value", "adp-bios down :: 46230\nadp-vi down localhost 4631\n"),
        ("-f value -c Status -c 'Domain name'", "adp-bios down\nadp-vi down\n"),
        ("-f value --sort-column port", BY_PORT),
        ("-f value --sort-column domain_name --sort-descending", BY_PORT),
        ("-f value --sort-column nothing", "adp-bios down :: 46230\nadp-vi down localhost 4631\n"),
        ("-f value -c port -c domain_name", "adp-bios 46230\nadp-vi 4631\n"),
        ("-f json -c Port --noindent", '[{"Port": 46230}, {"Port": 4631}]\n'),
        ("-f json -c Port", '[\n  {\n    "Port": 46230\n  },\n  {\n    "Port": 4631\n  }\n]\n'),
        ("-f yaml -c Port -c Address",
         "- Address: '::'\n  Port: 46230\n- Address: localhost\n  Port: 4631\n"),
        ("-f csv -c Address -c Port", '"Address","Port"\n"::",46230\n"localhost",4631\n'),
        ("-f csv -c Address -c Port --quote all",
         '"Address","Port"\n"::","46230"\n"localhost","4631"\n'),
        ("-f csv -c Port --quote minimal", "Port\n46230\n4631\n"),
    ],
)  # fmt: skip
def test_lists_are_printed_as_virtualbmc_prints_them(home: Path, argv: str, printed: str) -> None:
    add(home, "adp-vi", B)
    add(home, "adp-bios", A)
    words = argv.replace("'Domain name'", "Domain_name").split()
    given = [word.replace("Domain_name", "Domain name") for word in words]
    assert vbmc("list", *given).stdout == printed


@pytest.mark.usefixtures("home")
def test_an_empty_list_is_a_line_and_a_table_where_that_is_asked_for() -> None:
    assert vbmc("-q", "list").stdout == "\n"
    heading = "| Domain name | Status | Address | Port |"
    rule = "+-------------+--------+---------+------+"
    assert vbmc("list", "--print-empty").stdout == f"{rule}\n{heading}\n{rule}\n{rule}\n"
    assert vbmc("list", "-f", "json").stdout == "[]\n"
    assert "no column Nope" in vbmc("list", "-c", "Nope", status=1).stderr


def test_properties_are_those_of_virtualbmc(home: Path) -> None:
    add(home, "adp-bios", A)
    assert vbmc("show", "adp-bios").stdout == SHOWN
    values = vbmc("show", "adp-bios", "-f", "json", "--noindent").stdout
    assert '{"Property": "port", "Value": 46230}' in values
    assert '{"Property": "libvirt_sasl_username", "Value": null}' in values
    assert "secret" not in values
    conf = home / "virtualbmc.conf"
    conf.write_text(conf.read_text() + "show_passwords = true\n")
    assert "password secret\n" in vbmc("show", "adp-bios", "-f", "value").stdout


def test_failures_end_with_1_and_wrong_options_with_2(home: Path) -> None:
    for argv in (["show", "x"], ["stop", "x"], ["start", "x", "y"], ["delete", "x"]):
        assert "no domain x has a BMC" in vbmc(*argv, status=1).stderr
    vbmc("list", "--bar", status=2)
    vbmc("nothing", status=2)
    assert "--sort-column" in vbmc("help", "list").stdout
    assert vbmc("--version").stdout.startswith("vbmc (nospoon)")
    add(home, "VM_1", A)
    assert "would be node vm-1, as VM_1 is" in vbmc("add", "vm-1", status=1).stderr


def test_commands_and_options_may_be_shortened_as_far_as_it_is_clear_which_are_meant(
    home: Path,
) -> None:
    add(home, "adp-bios", A)
    assert vbmc("lis", "--form", "value", "--col=Port").stdout == "46230\n"
    assert "46230" in vbmc("--deb", "sho", "adp-bios").stdout
    assert "no domain x has a BMC" in vbmc("del", "x", status=1).stderr
    vbmc("s", "adp-bios", status=2)
    assert "--sort" in vbmc("list", "--sort", "Port", status=2).stderr, "column, descending or …"
    assert "no domain --form has a BMC" in vbmc("show", "--", "--form", status=1).stderr
    assert "no such command 'nope'" in vbmc("help", "nope", status=1).stderr


def test_a_directory_in_which_nothing_can_be_written_is_listed(home: Path) -> None:
    (home / "virtualbmc.conf").write_text("[default]\nconfig_dir = /proc/nowhere\n")
    assert vbmc("list", "-f", "json").stdout == "[]\n"
    assert "cannot write in /proc/nowhere" in vbmc("start", "x", status=1).stderr


def test_of_a_refused_plan_the_machines_are_known_that_it_was_refused_for() -> None:
    reasons = [
        "nodes: adopt a: no such machine on here.",
        "/root/.vbmc:3:11: nodes: adopt b: b on host here: why.",
    ]
    assert refused(PlanRefused(reasons), ["a", "b", "c"]) == {
        "a": "adopt a: no such machine on here.",
        "b": "adopt b: b on host here: why.",
    }
    with pytest.raises(PlanRefused):
        refused(PlanRefused([*reasons, "no room"]), ["a", "b"])


def test_a_port_in_use_is_the_trouble_of_its_node_alone() -> None:
    taken = "node r17-c: port 6231 at :: is in use. Free it, or choose another `bmc.port`."
    nodes = {"r17-c": "R17_C"}
    error = PlanRefused(["nodes: adopt a: no such machine on here.", taken])
    assert refused(error, ["a", "R17_C"], nodes=nodes) == {
        "a": "adopt a: no such machine on here.",
        "R17_C": taken,
    }
    with pytest.raises(PlanRefused):
        refused(PlanRefused([taken]), ["R17_C"])
    with pytest.raises(PlanRefused):
        refused(PlanRefused([taken.replace("r17-c", "another")]), ["R17_C"], nodes=nodes)


def test_of_bmcs_with_one_port_or_node_the_first_is_served_and_the_others_are_errors() -> None:
    first, second = {**A, "domain_name": "VM_1"}, {**A, "domain_name": "other"}
    alike, apart = ({**A, "domain_name": name, "port": "1"} for name in ("vm-1", "vm-2"))
    active, left_out = servable([first, second, alike, apart])
    assert list(active) == ["VM_1", "vm-2"]
    assert {name: str(why) for name, why in left_out.items()} == {
        "other": "port 46230 is that of VM_1's BMC",
        "vm-1": "it would be node vm-1, as VM_1 is",
    }
    at_an_address = {**second, "address": "127.0.0.1"}
    assert list(servable([first, at_an_address])[0]) == ["VM_1", "other"]
    libvirt = {"libvirt_uri": "qemu:///system", "active": "True"}
    served = {("vbmc", "vm-1", "46230")}
    assert status_of({**first, **libvirt}, served) == "running"
    assert status_of({**second, **libvirt}, served) == "error"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--username", "a" * 17, "--username: a BMC takes 1 to 16 bytes without colons"),
        ("--password", "a" * 21, "--password: a BMC takes 1 to 20 bytes"),
    ],
)
def test_an_account_that_no_bmc_takes_is_refused_and_nothing_is_added(
    home: Path, option: str, value: str, message: str
) -> None:
    said = vbmc("add", "vm", option, value, status=1).stderr
    assert message in said
    assert not (home / "domains" / "vm").exists()


def test_names_of_this_machine_are_addresses() -> None:
    assert resolved("::") == "::"
    assert resolved("localhost") in {"127.0.0.1", "::1"}
    with pytest.raises(UsageError, match=r"cannot resolve the address 'no\.such\.invalid'"):
        resolved("no.such.invalid")


@pytest.mark.parametrize(
    "broken",
    [
        b"[VirtualBMC]\nport = abc\n",
        b"[VirtualBMC]\nport = 0\n",
        b"[VirtualBMC]\nport = 65536\n",
        b"[VirtualBMC]\nlibvirt_uri = qemu+ssh://[x\n",
        b"\xff",
    ],
)
def test_one_broken_configuration_keeps_no_other_from_being_listed(
    home: Path, broken: bytes
) -> None:
    add(home, "adp-bios", A)
    (home / "domains" / "broken").mkdir()
    (home / "domains" / "broken" / "config").write_bytes(broken)
    done = vbmc("list", "-f", "value")
    assert done.stdout == "adp-bios down :: 46230\n"
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("Left out: "))
    assert "broken/config" in said
    started = vbmc("start", "broken", "x", status=1).stderr
    assert "broken/config" in started
    assert "no domain x has a BMC" in started
    assert "Left out: " not in started, "it is reported as that of the command"
    vbmc("delete", "broken")
    assert not (home / "domains" / "broken").exists()


def test_a_directory_that_is_a_link_goes_and_not_what_it_leads_to(home: Path) -> None:
    add(home, "../elsewhere", {**A, "port": "broken"})
    (home / "domains").mkdir(exist_ok=True)
    (home / "domains" / "linked").symlink_to(home / "elsewhere")
    vbmc("delete", "linked")
    assert not (home / "domains" / "linked").exists()
    assert (home / "elsewhere" / "config").exists()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", ["x" * 300, "a\nb", "../x"])
def test_a_name_that_no_directory_can_have_is_refused(name: str) -> None:
    assert "is not the name of a domain" in vbmc("show", name, status=1).stderr


def test_what_was_said_before_may_be_anything(home: Path) -> None:
    (home / "domains" / ".nospoon").mkdir(parents=True)
    vbmc("list")


def test_links_in_a_directory_of_others_lead_to_no_file_of_who_calls(home: Path) -> None:
    """Root's `vbmc` wrote to what they led to: that was truncated, or got a password."""
    add(home, "adp-bios", A)
    place, victim, made = home / "domains", home / "victim", home / "made"
    victim.write_text("root:x:0:0\nbin:x:1:1\n")
    (place / ".nospoon").symlink_to(victim)
    vbmc("list")
    assert victim.read_text() == "root:x:0:0\nbin:x:1:1\n"

    (place / "adp-bios" / "config.new").symlink_to(victim)
    write_config(place / "adp-bios" / "config", A)
    assert victim.read_text() == "root:x:0:0\nbin:x:1:1\n"
    assert "secret" in (place / "adp-bios" / "config").read_text()

    (place / ".lock").unlink(missing_ok=True)
    (place / ".lock").symlink_to(made)
    assert "cannot write in" in vbmc("delete", "adp-bios", status=1).stderr
    assert not made.exists()


def test_a_fifo_in_the_place_of_a_file_holds_up_no_command(home: Path) -> None:
    (home / "domains").mkdir()
    os.mkfifo(home / "domains" / ".nospoon")
    vbmc("list")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_link_of_another_user_is_no_directory_of_a_domain(home: Path) -> None:
    (home / "domains").mkdir()
    (home / "etc").mkdir()
    place = home / "domains" / "linked"
    place.symlink_to(home / "etc")
    os.lchown(place, 65534, 65534)
    with pytest.raises(UsageError, match="is a link of another user"):
        write_config(place / "config", A)
    assert not list((home / "etc").iterdir())
