"""Whole files: defaults, expansion, and every kind of refusal, worded."""

from __future__ import annotations

from pathlib import Path

import pytest

from nospoon.clusterfile.load import load
from nospoon.errors import SpecError
from nospoon.model.agent import Agents
from nospoon.model.boot import BootDevice
from nospoon.model.cluster import Cluster, Firmware, Netboot, Portgroup
from nospoon.model.connections import ConnectionKind, Simulated, Simulation

GOLDEN = Path(__file__).parent / "golden"


def read(text: str) -> Cluster:
    return load(text, file="cluster.yaml")


def problems(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


def test_a_name_and_a_count_are_a_whole_file() -> None:
    cluster = read("cluster: dev\nnodes: [{count: 2}]\n")
    assert [node.name for node in cluster.nodes] == ["node-0", "node-1"]
    assert [network.name for network in cluster.networks] == ["provision"]
    assert cluster.networks[0].netboot is Netboot.BUILTIN
    assert cluster.hosts[0].where == "qemu:///system"
    node = cluster.nodes[0]
    assert (node.cpus, node.memory, node.firmware) == (1, 1 << 30, Firmware.UEFI)
    assert node.boot_order == (BootDevice.DISK, BootDevice.NETWORK)
    assert [disk.size for disk in node.disks] == [10 << 30]
    assert [nic.network for nic in node.nics] == ["provision"]


def test_a_node_takes_values_from_override_then_group_then_flavor() -> None:
    cluster = read(
        """
cluster: dev
flavors: {small: {cpus: 1, memory: 1GiB, firmware: bios}}
nodes:
  - {flavor: small, count: 2, cpus: 2, overrides: {node-1: {memory: 4GiB}}}
"""
    )
    first, second = cluster.nodes
    assert (first.cpus, first.memory, first.firmware) == (2, 1 << 30, Firmware.BIOS)
    assert (second.cpus, second.memory, second.firmware) == (2, 4 << 30, Firmware.BIOS)


def test_the_only_flavor_need_not_be_named() -> None:
    cluster = read("cluster: dev\nflavors: {big: {cpus: 8}}\nnodes: [{count: 1}]\n")
    assert cluster.nodes[0].cpus == 8


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("{name: 'ctl-{n}', count: 2}", ["ctl-0", "ctl-1"]),
        ("{name: 'ctl-{n}', count: 2, start: 1}", ["ctl-1", "ctl-2"]),
        ("{name: 'ctl-{n:03}', count: 2}", ["ctl-000", "ctl-001"]),
        ("{name: 'ctl-{n:03d}', count: 2}", ["ctl-000", "ctl-001"]),
        ("{name: lone}", ["lone"]),
        ("{count: 0}", []),
    ],
)
def test_names_follow_their_pattern(pattern: str, names: list[str]) -> None:
    assert [node.name for node in read(f"cluster: a\nnodes: [{pattern}]\n").nodes] == names


def test_groups_without_names_count_on() -> None:
    cluster = read("cluster: dev\nnodes: [{count: 2}, {count: 1}]\n")
    assert [node.name for node in cluster.nodes] == ["node-0", "node-1", "node-2"]


def test_short_forms_are_understood() -> None:
    cluster = read(
        """
cluster: dev
hosts: {sim: simulated, here: {}}
networks: {a: {}, b: {}}
nodes: [{disks: [40GiB, {size: 10GiB, bus: sata}], nics: [a, b], bmc: [ipmi], host: sim}]
"""
    )
    assert cluster.hosts[0].connection.kind is ConnectionKind.SIMULATED
    assert [disk.bus for disk in cluster.nodes[0].disks] == ["virtio", "sata"]
    assert [nic.network for nic in cluster.nodes[0].nics] == ["a", "b"]


@pytest.mark.parametrize(("line", "usual"), [("", "writeback"), ("throwaway: true\n", "unsafe")])
def test_disks_of_a_throwaway_cluster_need_not_survive_unless_they_say_so(
    line: str, usual: str
) -> None:
    disks = "disks: [1GiB, {size: 1GiB, cache: none}]"
    cluster = read(f"cluster: dev\n{line}nodes: [{{{disks}}}]\n")
    assert [disk.cache for disk in cluster.nodes[0].disks] == [usual, "none"]


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.yaml")), ids=lambda path: path.stem)
def test_refusals_are_worded_as_the_golden_file_says(path: Path) -> None:
    expected = path.with_suffix(".txt").read_text().splitlines()
    assert problems(path.read_text()) == expected


def test_all_problems_come_at_once_in_order_of_the_file() -> None:
    found = problems("cluster: Dev\nnodes: [{count: two}]\nnodse: 1\n")
    assert [line.split(":")[1] for line in found] == ["1", "2", "3"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "3", "cluster: x", "nodes: []", "cluster: x\nnodes: 3", "nodes: [1]", "a: b: c"],
)
def test_files_that_are_no_cluster_are_refused(text: str) -> None:
    assert problems(text)


@pytest.mark.parametrize("count", ["nodes: [{count: 10000}]", None], ids=["count", "written out"])
def test_ten_thousand_nodes_load(count: str | None) -> None:
    text = count or "nodes:\n" + "".join(
        f"  - {{name: n{i}, nics: [{{network: provision, mac: "
        f"'02:00:00:00:{i >> 8:02x}:{i & 255:02x}'}}]}}\n"
        for i in range(10_000)
    )
    assert len(read(f"cluster: dev\n{text}\n").nodes) == 10_000


def test_files_that_cannot_be_read_are_told_with_everything_else() -> None:
    text = """cluster: dev
flavors: {f: {disks: [{image: a.img}, {image: b.img}], cpus: many}}
boot: {p: {kernel: vmlinuz, initrd: [one, two]}}
nodes: [{disks: [{image: a.img}, {image: "https://x/y.img"}]}]
"""
    missing = {"b.img", "two"}
    with pytest.raises(SpecError) as caught:
        load(text, file="c", local_file=lambda name: "gone" if name in missing else "")
    assert [str(problem) for problem in caught.value.problems] == [
        "c:2:47: flavors.f.disks[1].image: cannot read 'b.img': gone",
        "c:2:62: flavors.f.cpus: expected a whole number, got 'many'",
        "c:3:43: boot.p.initrd[1]: cannot read 'two': gone",
    ]


def test_a_profile_is_a_kernel_or_a_script_and_signed_grub_runs_no_script() -> None:
    text = """cluster: dev
boot:
  s: {script: http://x/boot.ipxe}
  n: {cmdline: a}
  b: {kernel: http://x/k, script: http://x}
nodes: [{boot: s}, {name: a, boot: s, firmware: uefi-secure}, {name: b, boot: s, arch: aarch64}]
"""
    neither, both, secure, arm = (each.partition(" ")[2] for each in problems(text))
    assert neither == "boot.n: expected one of kernel and script, got neither"
    assert both == "boot.b: expected one of kernel and script, got both"
    assert "node 'a' boots by signed GRUB, which runs no iPXE script" in secure
    assert "node 'b' boots by signed GRUB, which runs no iPXE script" in arm


@pytest.mark.parametrize("word", ["&&", "||", ";", "#"])
def test_a_command_line_holds_no_word_that_ends_a_loaders_command(word: str) -> None:
    (problem,) = problems(
        f"cluster: a\nboot: {{p: {{kernel: k, cmdline: 'a {word} b'}}}}\nnodes: [{{}}]"
    )
    assert f"got the word '{word}'" in problem


def test_a_machine_is_registered_once() -> None:
    """Each lab and name of it was loaned to another recipe set at the same time."""
    ipmi = "address: 192.0.2.1, password: p"
    first, second = (
        f"{{bmc: {{protocol: redfish, address: 192.0.2.2, password: p, system: {each}}}}}"
        for each in "ab"
    )
    machines = f"m1: {{bmc: {{{ipmi}}}}}, m2: {first}, m3: {second}"
    text = f"cluster: x\nnodes: []\nlabs:\n  a: {{dynamic: false, machines: {{{machines}}}}}\n"
    other = f"  b: {{dynamic: false, machines: {{m1: {{bmc: {{{ipmi}, port: 623}}}}}}}}\n"
    with pytest.raises(SpecError) as raised:
        read(text + other)
    (found,) = raised.value.problems
    assert (found.line, found.path) == (5, "labs.b.machines.m1.bmc")
    assert found.message.startswith("it is that of machine m1 of lab a, too")
    read(text)
    with pytest.raises(SpecError, match="only Redfish has Systems"):
        read(text.replace("protocol: redfish, ", ""))


def test_a_number_among_the_attributes_of_a_labs_machine_needs_quotes() -> None:
    machine = "{bmc: {address: 192.0.2.1, password: p}, attributes: {cpu/family: 6}}"
    hook = "{url: 'http://h/', secret: short}"
    lab = f"{{dynamic: false, machines: {{m: {machine}}}, webhooks: [{hook}]}}"
    with pytest.raises(SpecError) as caught:
        load(f"cluster: x\nnodes: []\nlabs: {{a: {lab}}}\n", file="x")
    assert {(each.message, each.hint) for each in caught.value.problems} == {
        ("expected text, got 6", "Put it in quotes"),
        ("expected at least 16 characters, got something else", ""),
    }


def test_urls_that_are_asked_as_they_are_keep_their_slash() -> None:
    """`/hook` is another resource than `/hook/`, which frameworks answer by a redirect."""
    hook = "{url: 'https://scheduler.example.com/hook/', secret: at-least-16-letters}"
    installer = "{tree: 'http://m/', kernel: 'http://m/k', initrd: 'http://m/i'}"
    distros = f"{{d: {{script: 'http://m/boot/'}}, e: {installer}}}"
    lab = f"{{webhooks: [{hook}], distros: {distros}}}"
    profile = "boot: {p: {script: 'http://m/boot/'}}"
    found = read(f"cluster: a\nflavors: {{s: {{}}}}\n{profile}\nlabs: {{l: {lab}}}\nnodes: []\n")
    (known,) = found.labs
    assert known.webhooks[0].url == "https://scheduler.example.com/hook/"
    assert [each.script for each in known.distros if each.script] == ["http://m/boot/"]
    assert [each.tree for each in known.distros if each.tree] == ["http://m"]


def test_the_command_line_of_a_labs_installer_is_read_as_that_of_a_profile() -> None:
    distro = "{kernel: 'http://m/k', initrd: 'http://m/i', cmdline: 'quiet ; reboot'}"
    text = (
        f"cluster: x\nflavors: {{s: {{}}}}\nlabs: {{l: {{distros: {{d: {distro}}}}}}}\nnodes: []\n"
    )
    (problem,) = problems(text)
    assert "got the word ';'" in problem


def test_a_simulated_host_is_told_how_its_machines_behave() -> None:
    how = "{power_on: 200ms, shut_down: 2s, power_failures: 0.1, console: 'login: '}"
    host = read(f"cluster: a\nhosts: {{sim: {{simulated: {how}}}}}\nnodes: [{{}}]").hosts[0]
    assert host.connection == Simulated(
        Simulation(power_on=0.2, shut_down=2.0, power_failures=0.1, console="login: ")
    )
    (problem,) = problems("cluster: a\nhosts: {sim: {simulated: {power_on: 2}}}\nnodes: [{}]")
    assert "expected a time such as 2s, 200ms, 30min or 2h, got 2" in problem


def test_agents_of_a_simulated_host_are_told_how_to_behave_or_with_true_take_all_defaults() -> None:
    def agents(text: str) -> Agents | None:
        hosts = f"hosts: {{sim: {{simulated: {{agents: {text}}}}}}}"
        return read(f"cluster: a\n{hosts}\nnodes: [{{}}]").hosts[0].connection.agents

    assert agents("true") == Agents()
    assert agents("false") is None
    assert agents("{api: 'http://h/', commands: {write_image: 30s}, silent: 0.5}") == Agents(
        api="http://h", commands=(("write_image", 30.0),), silent=0.5
    )
    told = "cluster: a\nhosts: {sim: {simulated: {agents: {api: h, silent: 2}}}}\nnodes: [{}]"
    found = " ".join(str(each) for each in problems(told))
    assert "begins with http://" in found
    assert "silent" in found


def test_commands_that_no_agent_has_or_that_take_no_time_are_refused() -> None:
    told = "{failing: {write_imag: x}, commands: {sync: 1s, prepare_image: 1s}}"
    found = problems(
        f"cluster: a\nhosts: {{sim: {{simulated: {{agents: {told}}}}}}}\nnodes: [{{}}]"
    )
    assert len(found) == 2
    assert (
        "'write_imag' is not a command or step of a deploy agent; did you mean 'write_image'"
        in found[0]
    )
    assert "'sync' takes no time; there are apply_configuration" in found[1]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a" * 70, "nodes[0].name: expected at most 63 characters, got 70"),
        (
            "a" * 62 + "-{n}",
            f"nodes[0].name: makes the name '{'a' * 56}…': expected at most 63 characters, got 64",
        ),
        (
            "A",
            (
                "nodes[0].name: expected a name of lower-case letters, digits and hyphens, "
                "at most 63, got 'A'"
            ),
        ),
        ("A-{n}", "nodes[0].name: makes the name 'A-0': expected a name of lower-case letters, d"),
        ("-a", "nodes[0].name: expected a letter or digit at both ends of a name, got '-a'"),
        ("a-{n}-", "makes the name 'a-0-': expected a letter or digit at both ends of a name"),
    ],
)
def test_a_name_that_no_node_may_have_is_quoted_whole_or_measured(name: str, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        read(f"cluster: dev\nnodes: [{{name: '{name}'}}]\n")
    assert said in str(raised.value)


@pytest.mark.parametrize("group", ['name: "a\\n"', 'name: "a-{n}\\n", count: 2'])
def test_a_name_that_ends_with_a_line_is_refused(group: str) -> None:
    """It went into plans, logs and exports, where it began lines of its own."""
    with pytest.raises(SpecError, match=r"expected a name of lower-case letters"):
        read(f"cluster: dev\nnodes: [{{{group}}}]\n")


def test_a_name_that_begins_or_ends_with_a_hyphen_is_refused_for_that() -> None:
    with pytest.raises(SpecError) as raised:
        read("cluster: -dev\nnetworks: {lan-: {}}\nnodes: [{name: a}]\n")
    for path, name in (("cluster", "-dev"), ("networks.lan-", "lan-")):
        said = f"{path}: expected a letter or digit at both ends of a name, got '{name}'"
        assert said in str(raised.value)


@pytest.mark.parametrize("name", ["A", "a b", "é", "1" * 80])
def test_a_section_name_that_cannot_be_is_told_beside_all_other_mistakes(name: str) -> None:
    with pytest.raises(SpecError) as raised:
        read(f"cluster: dev\nnetworks: {{'{name}': {{}}}}\nnodes: [{{count: 2, cpus: many}}]\n")
    told = "\n".join(str(problem) for problem in raised.value.problems)
    assert ("expected a name of lower-case letters" in told) == (len(name) <= 63)
    assert ("expected at most 63 characters, got 80" in told) == (len(name) > 63)
    assert "nodes[0].cpus" in told


def test_an_unknown_placeholder_is_named() -> None:
    with pytest.raises(SpecError, match=r"'\{m\}' is not a placeholder. A number is written \{n\}"):
        read("cluster: dev\nnodes: [{name: 'x-{m}', count: 2}]\n")


def test_the_mac_of_no_nic_is_refused() -> None:
    with pytest.raises(SpecError, match="00:00:00:00:00:00 is not a valid NIC address"):
        read("cluster: dev\nnodes: [{nics: [{mac: '00:00:00:00:00:00'}]}]\n")


NIC = "{network: a, mac: '02:00:00:00:00:01'}"
TWICE = f"cluster: dev\nnetworks: {{a: {{}}}}\nnodes: [{{nics: [{NIC}, {NIC}]}}]"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"cluster: dev\nnodes: [{{count: {'9' * 5000}}}]\n", r"nodes\[0\].count"),
        ("cluster: dev\nnodes: " + "[" * 3000 + "]" * 3000 + "\n", "nested more than 64 deep"),
        ("cluster: dev\nnodes: " + "[" * 150 + "]" * 150 + "\n", "nested more than 64 deep"),
        (
            TWICE,
            r":3:\d\d: nodes\[0\].nics\[1\].mac: MAC",
        ),
    ],
    ids=["digits", "very deep", "deep", "macs"],
)
def test_odd_files_are_told_where_they_are_odd(text: str, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        read(text)


def test_one_wrong_address_is_one_problem() -> None:
    with pytest.raises(SpecError) as raised:
        read("cluster: dev\nbmc: {address: 300.1.1.1}\nnodes: [{}]\n")
    (problem,) = raised.value.problems
    assert "expected an IPv4 or IPv6 address, got '300.1.1.1'" in str(problem)


@pytest.mark.parametrize("of_node", ["", ", bmc: {k_g: AABB}"])
def test_a_key_of_bmcs_is_the_nodes_or_the_clusters(of_node: str) -> None:
    text = f"cluster: dev\nbmc: {{k_g: '00112233'}}\nnodes: [{{count: 1{of_node}}}]\n"
    (node,) = load(text, file="c").nodes
    assert node.credentials.k_g == ("aabb" if of_node else "00112233").ljust(40, "0")
    assert node.credentials.k_g not in repr(node)


def test_the_secret_of_pdus_is_the_files_and_shown_nowhere() -> None:
    pdu = "bmc: {pdu: {secret: correct-horse}}"
    (node,) = load(f"cluster: dev\n{pdu}\nnodes: [{{count: 1, bmc: [pdu]}}]\n", file="c").nodes
    assert node.credentials.pdu_secret == "correct-horse"
    assert "horse" not in repr(node)
    (told,) = problems("cluster: dev\nbmc: {pdu: {secret: horse}}\nnodes: [{count: 1}]\n")
    assert told.endswith("expected a secret of 8 to 64 bytes, got 5")
    assert "horse" not in told


BOND = "cluster: a\nnodes: [{count: 2, nics: [{network: provision%s}], portgroups: {b0: {%s}}}]"


def test_a_portgroup_has_the_fields_that_ironic_knows() -> None:
    said = "mode: 802.3ad, properties: {miimon: 100}, standalone_ports_supported: false"
    node = read(BOND % (", portgroup: b0", said)).nodes[1]
    assert node.nics[0].portgroup == "b0"
    assert node.portgroups == (
        Portgroup("b0", "802.3ad", properties=(("miimon", "100"),), standalone_ports=False),
    )


@pytest.mark.parametrize(
    ("nic", "bond", "told"),
    [
        (", portgroup: b1", "", "a NIC is in no known portgroup 'b1'"),
        ("", "", "portgroup 'b0' has no NIC"),
        (", portgroup: b0", "mode: lacp", "expected one of balance-rr"),
        (
            ", portgroup: b0}, {network: storage, portgroup: b0",
            "",
            "portgroup 'b0' has NICs on several networks: provision, storage",
        ),
        (", portgroup: b0", "address: '02:00:00:00:00:09'", "is also that of 'node-0 b0'"),
    ],
)
def test_a_portgroup_that_cannot_be_is_told(nic: str, bond: str, told: str) -> None:
    assert told in "\n".join(problems(BOND % (nic, bond)))


@pytest.mark.parametrize("said", ["", "[]", "null"])
def test_a_network_without_a_cidr_has_a_free_one_chosen(said: str) -> None:
    text = f"cluster: c\nnetworks: {{a: {{cidr: {said}, nat: true}}}}\nnodes: [{{}}]"
    (network,) = read(text).networks
    assert network.chosen


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hosts: {a: {simulated: {agents: {silnt: 1}}}}", "Did you mean 'silent'?"),
        ("hosts: {a: {simulated: {bot: 1s}}}", "Did you mean 'boot'?"),
        ("hosts: {a: {simulatd: {}}}", "Did you mean 'simulated'?"),
        ("nodes: [{ironic: {volumes: {target: []}}}]", "Did you mean 'targets'?"),
        ("nodes: [{overrides: {a: {disks: [{sise: 1}]}}}]", "Did you mean 'size'?"),
        ("ironic: {endpont: 'http://i'}", "Did you mean 'endpoint'?"),
        ("nova: {flavors: {f: {vcpu: 1}}}", "Did you mean 'vcpus'?"),
    ],
)
def test_an_unknown_key_is_told_with_those_of_its_own_section(text: str, told: str) -> None:
    assert any(told in problem for problem in problems(f"cluster: a\n{text}\n"))


def test_the_value_of_a_label_has_at_most_255_characters() -> None:
    """Each node of a group has it."""
    text = "cluster: c\nnodes: [{count: 2, labels: {x: '%s'}}]\n"
    (told,) = problems(text % ("y" * 256))
    assert "labels.x: expected at most 255 characters, got 256" in told
    load(text % ("y" * 255), file="f")


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("memory: 1024TiB", "expected at most 64TiB, got 1024TiB"),
        ("disks: [2049TiB]", "expected at most 2048TiB, got 2049TiB"),
    ],
)
def test_what_no_hypervisor_takes_is_an_error_of_the_file(field: str, message: str) -> None:
    with pytest.raises(SpecError) as refused:
        load(f"cluster: c\nnodes: [{{{field}}}]\n", file="f")
    (found,) = refused.value.problems
    assert (found.file, found.line, found.column, found.message) == ("f", 2, 18, message)
    most = field.replace("1024", "64").replace("2049", "2048")
    load(f"cluster: c\nnodes: [{{{most}}}]\n", file="f")


@pytest.mark.parametrize(
    ("node", "hint"),
    [
        ("boot_order: [pxe]", "Write 'network'"),
        ("boot_order: [network, HDD]", "Write 'disk'"),
        ("disks: 20GB", "Write `[20GB]`"),
    ],
)
def test_what_other_tools_would_take_is_answered_with_what_to_write(node: str, hint: str) -> None:
    (said,) = problems(f"cluster: c\nnodes: [{{{node}}}]\n")
    assert said.endswith(hint)


def test_of_a_value_that_is_none_nothing_else_is_said() -> None:
    with pytest.raises(SpecError) as refused:
        load("cluster: c\nhosts: {h: simulated}\nnodes: [{name: a, cpus: !!int '2'}]\n", file="f")
    (problem,) = refused.value.problems
    assert "nodes[0].cpus: unknown tag '!!int'" in str(problem)
