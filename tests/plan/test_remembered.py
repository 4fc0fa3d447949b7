"""What a file says anew of which nothing is made."""

from __future__ import annotations

from nospoon.clusterfile.load import load
from nospoon.model.rest.plans import Remembered
from nospoon.plan.order.remembered import Said, remembered

HEAD = "cluster: dev\nhosts: {h: simulated, i: simulated}\n"


def said(text: str, **uploads: str) -> Said:
    return Said(load(f"{HEAD}{text}", file="x"), uploads)


def lines(before: str, after: str) -> list[str]:
    return [shown(each) for each in remembered(said(before), said(after))]


def shown(each: Remembered) -> str:
    return f"{each.sign} {each.what}: {each.before} -> {each.after} [{each.rule}]"


def test_a_file_that_says_the_same_says_nothing_anew() -> None:
    text = "nodes: [{count: 2, labels: {a: x}, placement: pack}]"
    assert lines(text, f"{text} # a comment") == []


def test_labels_are_told_of_together_where_they_are_the_same() -> None:
    before = "nodes: [{count: 6, labels: {a: x}}, {name: other}]"
    after = "nodes: [{count: 6, labels: {a: y, b: z}}, {name: other, labels: {c: d}}]"
    assert lines(before, after) == [
        (
            "~ labels of nodes node-0, node-1, node-2, node-3 and 2 more: {a: x} -> {a: y, b: z} "
            "[remembered]"
        ),
        "~ labels of node other: none -> {c: d} [remembered]",
    ]


def test_nodes_that_come_and_go_are_not_told_of_here() -> None:
    before = "nodes: [{name: a}, {name: b, labels: {x: y}}]"
    assert lines(before, "nodes: [{name: a}, {name: c, labels: {x: y}}]") == []


def machines(*given: str) -> str:
    each = ", ".join(given)
    return f"labs: {{dev: {{dynamic: false, machines: {{{each}}}}}}}\nnodes: []"


def test_a_changed_machine_of_a_lab_is_shown_with_what_changed_and_no_password() -> None:
    before = "m: {bmc: {address: 192.0.2.1, password: geheim1}, cpus: 4}"
    after = "m: {bmc: {address: 192.0.2.2, password: geheim2}, cpus: 4, memory: 1GiB}"
    assert lines(machines(before), machines(after)) == [
        "~ address of m of machines of lab dev: 192.0.2.1 -> 192.0.2.2 [live]",
        "~ password of m of machines of lab dev: one -> another [live]",
        "~ memory of m of machines of lab dev: 0 B -> 1 GiB [live]",
    ]


def test_machines_of_a_lab_that_come_and_go_are_shown_in_long_lists_too() -> None:
    names = [
        f"m{number}: {{bmc: {{address: 192.0.2.{number}, password: p}}}}" for number in range(7)
    ]
    assert lines(machines(*names[:6]), machines(*names[:5], names[6])) == [
        "~ machines of lab dev: m5 -> m6 [live]"
    ]
    swapped = machines(*names[1::-1])
    assert lines(machines(*names[:2]), swapped) == [
        "~ order of machines of lab dev: m0, m1 -> m1, m0 [live]"
    ]


def test_many_changed_machines_of_a_lab_are_counted() -> None:
    many = [
        "m{0}: {{bmc: {{address: 192.0.{1}.{0}, password: p}}}}".format(n, "{net}")
        for n in range(150)
    ]
    two, three = (machines(*(each.replace("{net}", net) for each in many)) for net in "23")
    found = lines(two, three)
    assert len(found) == 101
    assert found[-1] == "~ 50 more of machines of lab dev:  ->  [live]"


def test_what_else_changes_of_a_lab_is_shown() -> None:
    lab = "labs: {{dev: {{dynamic: false, {0}}}}}\nnodes: []"
    before = lab.format(
        "distros: {d: {kernel: 'http://a/k', initrd: 'http://a/i', kickstart: a}}, "
        "webhooks: [{url: 'http://u:p@h/', secret: sixteen letters 1}]"
    )
    after = lab.format(
        "distros: {d: {kernel: 'http://b/k', initrd: 'http://a/i', kickstart: b}}, lease: 2h, "
        "webhooks: [{url: 'http://u:p@h/', secret: sixteen letters 2}]"
    )
    assert lines(before, after) == [
        "~ lease of lab dev: 86400.0 -> 7200.0 [live]",
        "~ kernel of d of distros of lab dev: http://a/k -> http://b/k [live]",
        "~ kickstart of d of distros of lab dev: one -> another [live]",
        "~ secret of http://…@h/ of webhooks of lab dev: one -> another [live]",
    ]


def test_profiles_come_and_go_and_nodes_get_another() -> None:
    one, two = "{kernel: 'http://k/1'}", "{kernel: 'http://k/2', cmdline: quiet}"
    before = f"boot: {{p: {one}, q: {one}}}\nnodes: [{{boot: p}}, {{boot: q}}]"
    after = f"boot: {{p: {two}, r: {one}}}\nnodes: [{{boot: p}}, {{boot: r}}]"
    assert lines(before, after) == [
        "~ kernel of boot profile p: http://k/1 -> http://k/2 [live]",
        "~ cmdline of boot profile p: none -> quiet [live]",
        "- boot profile q:  ->  [live]",
        "+ boot profile r:  ->  [live]",
        "~ boot profile of node node-1: q -> r [live]",
    ]


def test_a_kernel_of_the_same_name_with_another_content_is_told_by_its_digest() -> None:
    text = "boot: {p: {kernel: vmlinuz}}\nnodes: [{boot: p}]"
    before, after = said(text, vmlinuz="a" * 64), said(text, vmlinuz="b" * 64)
    (change,) = remembered(before, after)
    assert shown(change) == f"~ vmlinuz of boot profile p: {'a' * 12} -> {'b' * 12} [live]"


def test_rules_for_new_nodes_are_told_of_nodes_and_hosts() -> None:
    before = "nodes: [{name: a}]"
    after = "nodes: [{name: a, placement: {strategy: pack, affinity: flavor}}]"
    assert lines(before, after) == [
        "~ placement.strategy of node a: spread -> pack [new nodes]",
        "~ placement.affinity of node a: none -> [flavor] [new nodes]",
    ]
    other = load(
        "cluster: dev\nhosts: {h: {simulated: {boot: 3s}, drained: true}, i: simulated}\n"
        f"{before}",
        file="x",
    )
    changes = remembered(said(before), Said(other, {}))
    assert [shown(each) for each in changes] == [
        "~ drained of host h: no -> yes [new nodes]",
        "~ simulated.boot of host h: 0.0 -> 3.0 [live]",
    ]


def test_traits_are_told_of_where_no_ironic_has_them() -> None:
    before, after = "nodes: [{name: a}]", "nodes: [{name: a, traits: [CUSTOM_GOLD]}]"
    assert lines(before, after) == ["~ traits of node a: none -> [CUSTOM_GOLD] [live]"]
    ironic = "ironic: {endpoint: 'http://i'}\n"
    assert lines(ironic + before, ironic + after) == []


def test_portgroups_are_told_of_where_no_ironic_has_them() -> None:
    nics = "networks: {l: {}}\nnodes: [{name: a, nics: [{network: l, portgroup: b}], portgroups:"
    before = f"{nics} {{b: {{mode: 802.3ad}}}}}}]"
    alone = "mode: balance-xor, properties: {miimon: '100'}, standalone_ports_supported: false"
    after = f"{nics} {{b: {{{alone}}}}}}}]"
    assert lines(before, after) == [
        (
            "~ portgroups of node a: {b: 802.3ad NICs [0]} -> "
            "{b: balance-xor miimon=100 no standalone ports NICs [0]} [live]"
        )
    ]
    ironic = "ironic: {endpoint: 'http://i'}\n"
    assert lines(ironic + before, ironic + after) == []


def test_what_joins_hosts_and_where_nics_boot_is_told_of_where_nothing_comes_of_it() -> None:
    text = (
        "cluster: dev\nhosts: {a: {libvirt: 'qemu:///system'%s}}\nnetworks: {l: {%s}}\n"
        "nodes: [{name: a, nics: [{network: l%s}]}]"
    )
    said_then = (
        text % ("", "", ""),
        text % (", address: 192.0.2.1", "overlay: vxlan", ", pxe: true"),
    )
    then, now = (Said(load(each, file="x"), {}) for each in said_then)
    assert [shown(each) for each in remembered(then, now)] == [
        "~ address of host a: none -> 192.0.2.1 [live]",
        "~ overlay of network l: none -> vxlan [live]",
        "~ pxe of node a: none -> {NIC 0: yes} [live]",
    ]


def test_accounts_in_urls_are_nobodys_business() -> None:
    before = "boot: {p: {kernel: 'http://me:secret@k/1'}}\nnodes: [{boot: p}]"
    after = "boot: {p: {kernel: 'http://me:hidden@k/1'}}\nnodes: [{boot: p}]"
    assert lines(before, after) == [
        "~ kernel of boot profile p: http://…@k/1 -> http://…@k/1 [live]"
    ]
    anew = remembered(
        said(before, **{"http://me:secret@k/1": "a" * 64}),
        said(before, **{"http://me:secret@k/1": "b" * 64}),
    )
    assert [each.what for each in anew] == ["http://…@k/1 of boot profile p"]
