"""What members may use of hosts, networks and ports, and what root's list adds."""

from __future__ import annotations

import os
from ipaddress import ip_network
from pathlib import Path

import pytest
from tests.security.asked import OWNER, Asked, a_daemon

from nospoon.clusterfile.grants import load_grants
from nospoon.clusterfile.host_at import host_at
from nospoon.clusterfile.load import load
from nospoon.daemon.grants import GrantsFile
from nospoon.errors import Forbidden, HostUnreachable, SpecError, UsageError
from nospoon.model.cluster import Host
from nospoon.model.connections import Docker, Libvirt, Lxc, Simulated
from nospoon.model.destinations import LibvirtUri, SshDestination
from nospoon.model.grants import DEFAULTS, GrantedHost, Grants
from nospoon.plan.access import violations
from nospoon.providers.libvirt.connection import LibvirtConnection
from nospoon.runtime.runner import LocalRunner, SshRunner
from nospoon.store import clusters as stored
from nospoon.store import nodes as node_rows

ROOT = frozenset({0, os.getuid()})
GOOD_URIS = (
    "qemu:///system", "qemu:///session", "qemu+ssh://rack/system", "qemu+tls://192.0.2.1/system",
    "qemu+ssh://root@rack-2.example:2222/system", "qemu+ssh://root@[2001:db8::1]:22/session",
)  # fmt: skip
BAD_URIS = (
    "qemu+ext:///system?command=/tmp/x", "qemu+ssh://h/system?command=touch%20/tmp/x",
    "qemu+ssh://h/system?keyfile=/root/.ssh/id", "qemu+unix:///system?socket=/tmp/s",
    "qemu:///system?socket=/tmp/s", "qemu:///system#x", "qemu+ssh:///system",
    "qemu+ssh://-oProxyCommand=x/system", "qemu+ssh://-l@h/system", "qemu+ssh://h:0/system",
    "qemu+ssh://h:99999/system", "qemu+ssh://h/../system", "qemu+ssh://h/system/", "qemu://h/system",
    "qemu+libssh2://h/system", "qemu+tcp://h/system", "vbox:///session", "test:///default",
    "qemu+ssh://[::zz]/system", "qemu+ssh://a b/system", "qemu+ssh://h%00/system",
    "qemu:///system\n", "QEMU:///system", "",
)  # fmt: skip
GOOD_SSH = (
    "rack", "root@rack", "root@192.0.2.1", "ssh://root@rack:2222", "ssh://[2001:db8::1]:22",
    "root@2001:db8::1", "stack@my_alias",
)  # fmt: skip
BAD_SSH = (
    "-oProxyCommand=touch /tmp/x", "-F/tmp/x", "root@-oProxyCommand=x", "-l@h", "a b", "h;id",
    "ssh://-oProxyCommand=x", "ssh://h:0", "ssh://h/x", "$(id)@h", "h\n", "@h", "ssh://", "h%n",
)  # fmt: skip


def cluster(host: str) -> str:
    return f"cluster: c\nhosts:\n  a: {host}\nnodes: [{{}}]\n"


@pytest.mark.parametrize("uri", GOOD_URIS)
def test_libvirt_uris_of_the_known_forms_are_taken_and_written_back(uri: str) -> None:
    assert str(LibvirtUri.parse(uri)) == uri
    assert load(cluster(f"{{libvirt: '{uri}'}}"), file="f").hosts[0].where == uri


@pytest.mark.parametrize("uri", BAD_URIS)
def test_any_other_libvirt_uri_is_an_error_of_the_file_with_its_place(uri: str) -> None:
    with pytest.raises(ValueError, match="expected a libvirt URI"):
        LibvirtUri.parse(uri)
    written = uri.replace("\n", "\\n")
    with pytest.raises(SpecError) as refused:
        load(cluster(f'{{libvirt: "{written}"}}'), file="f")
    (problem,) = refused.value.problems
    assert (problem.line, problem.column, problem.path) == (3, 16, "hosts.a.libvirt")
    assert "qemu+ssh://HOST/system" in problem.hint
    with pytest.raises(UsageError):
        host_at("x", uri)


@pytest.mark.parametrize("ssh", GOOD_SSH)
def test_ssh_destinations_of_the_known_forms_are_taken(ssh: str) -> None:
    SshDestination.parse(ssh)
    assert load(cluster(f"{{ssh: '{ssh}'}}"), file="f").hosts[0].ssh == ssh


@pytest.mark.parametrize("ssh", BAD_SSH)
async def test_any_other_ssh_destination_is_an_error_of_the_file_and_never_run(ssh: str) -> None:
    with pytest.raises(ValueError, match="expected an ssh destination"):
        SshDestination.parse(ssh)
    given = ssh.replace("\n", "\\n")
    with pytest.raises(SpecError) as refused:
        load(cluster(f'{{ssh: "{given}"}}'), file="f")
    (problem,) = refused.value.problems
    assert (problem.line, problem.column, problem.path) == (3, 12, "hosts.a.ssh")
    with pytest.raises(HostUnreachable, match="expected an ssh destination"):
        await SshRunner(ssh).run(["true"])


def test_ssh_takes_nothing_after_its_options_for_another_one() -> None:
    command = SshRunner("rack").command(["-oProxyCommand=x"])
    assert command[-3:-1] == ["--", "rack"]


async def test_a_uri_from_an_earlier_store_is_not_opened(tmp_path: Path) -> None:
    async def no_image(sha256: str) -> str:
        raise AssertionError(sha256)

    ran = tmp_path / "ran"
    host = Host("old", Libvirt(f"qemu+ext:///system?command=/usr/bin/touch&x={ran}"))
    connection = LibvirtConnection(
        host, "d", LocalRunner(), no_image, records="/x", verdicts=tmp_path
    )
    with pytest.raises(HostUnreachable, match="expected a libvirt URI"):
        await connection.check()
    await connection.close()


KVM1 = GrantedHost(LibvirtUri.parse("qemu+ssh://kvm1/system"), SshDestination.parse("root@kvm1"))


MAY_USE = (
    Host("a"),
    Host("a", Simulated()),
    Host("a", Libvirt("qemu+ssh://kvm1/system")),
    Host("a", Libvirt("qemu+ssh://KVM1/system"), ssh="ssh://root@kvm1"),
    Host("a:lxc", Lxc()),
    Host("a:docker", Docker()),
    Host("a:docker", Docker(), ssh="ssh://root@kvm1"),
    Host("a:lxc", Lxc(), ssh="ssh://root@kvm1"),
)
MAY_NOT_USE = (
    Host("a", Simulated(), ssh="kvm1"),
    Host("a", Libvirt("qemu:///session")),
    Host("a", ssh="root@kvm1"),
    Host("a:lxc", Lxc(), ssh="root@kvm2"),
    Host("a:docker", Docker(), ssh="root@kvm2"),
    Host("a:docker", Docker("/home/eve/podman.sock")),
    Host("a:docker", Docker("/home/eve/podman.sock"), ssh="ssh://root@kvm1"),
    Host("a:lxc", Lxc(), ssh="-oProxyCommand=x"),
    Host("a", Libvirt("qemu+ssh://kvm1/system"), ssh="root@kvm2"),
    Host("a", Libvirt("qemu+ssh://kvm1/session"), ssh="root@kvm1"),
    Host("a", Libvirt("qemu+ssh://root@kvm1/system")),
    Host("a", Libvirt("qemu+tls://kvm1/system")),
    Host("a", Libvirt("qemu+ssh://kvm1/system?command=x")),
)


def test_members_use_the_local_system_simulated_hosts_and_those_that_are_listed() -> None:
    listed = Grants(hosts=(KVM1,))
    assert [each for each in MAY_USE if listed.why_not_host(each)] == []
    assert [each for each in MAY_NOT_USE if not listed.why_not_host(each)] == []


PRIVATE = (
    "10.1.0.0/16", "192.168.0.0/24", "127.20.0.0/24", "100.64.0.0/24", "fd00:1::/64",
    "198.51.100.0/25",
)  # fmt: skip
FOREIGN = (
    "8.8.8.0/24", "169.254.169.0/24", "224.0.0.0/24", "0.0.0.0/32", "10.0.0.0/7", "fe80::/64",
    "2001:db8::/64", "198.51.100.0/23", "::/128", "::ffff:8.8.8.8/128",
)  # fmt: skip


def test_members_take_private_networks_and_those_that_are_listed() -> None:
    listed = Grants(networks=(ip_network("198.51.100.0/24"),))
    asked = {each: ip_network(each, strict=False) for each in (*PRIVATE, *FOREIGN)}
    taken = [each for each, network in asked.items() if listed.has_network(network)]
    assert taken == list(PRIVATE)


def test_members_listen_on_ports_from_1024_and_those_that_are_listed() -> None:
    assert DEFAULTS.has_ports(1024, 65535)
    assert DEFAULTS.has_ports(0, 0)
    assert not DEFAULTS.has_ports(1023, 1024)
    listed = Grants(ports=((623, 623), (80, 90)))
    assert listed.has_ports(623, 623)
    assert listed.has_ports(85, 90)
    assert not listed.has_ports(85, 91)


def test_the_list_is_read_with_its_errors_placed() -> None:
    text = (
        "hosts:\n- {libvirt: qemu+ssh://kvm1/system, ssh: root@kvm1}\n"
        "networks: [198.51.100.0/24, '2001:db8::/32']\nports: [623, 80-90]\n"
    )
    grants = load_grants(text, file="g")
    assert grants.hosts == (KVM1,)
    assert grants.ports == ((623, 623), (80, 90))
    assert load_grants("", file="g") == DEFAULTS
    with pytest.raises(SpecError) as refused:
        load_grants("hosts:\n- libvirt: vbox:///x\nports: [0]\nhost: []\n", file="g")
    assert sorted((each.line, each.path) for each in refused.value.problems) == [
        (2, "hosts[0].libvirt"), (3, "ports[0]"), (4, "host"),
    ]  # fmt: skip


def test_a_list_that_others_may_have_written_is_refused_and_none_adds_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "grants.yaml"
    assert GrantsFile(file, ROOT).read() == DEFAULTS
    file.write_text("ports: [623]\n")
    file.chmod(0o644)
    assert GrantsFile(file, ROOT).read().ports == ((623, 623),)
    for mode in (0o664, 0o646):
        file.chmod(mode)
        with pytest.raises(Forbidden, match="group or others"):
            GrantsFile(file, ROOT).read()
    file.chmod(0o644)
    with pytest.raises(Forbidden, match="belongs to user"):
        GrantsFile(file, frozenset({12345})).read()
    file.write_text("ports: [x]\n")
    with pytest.raises(Forbidden, match=r"grants.yaml:1:9"):
        GrantsFile(file, ROOT).read()


TAKES_ALL = """cluster: greedy
hosts:
  far: {libvirt: 'qemu+ssh://kvm1/system', ssh: root@kvm1}
  mine: {libvirt: 'qemu:///session'}
  sim: {simulated: {agents: {api: 'http://x', address: 8.8.8.8, port: 22}}}
networks:
  lan: {cidr: 169.254.169.0/24}
  six: {cidr: '2001:db8::/64'}
bmc: {pool: 8.8.8.0/24, redfish_port: 443}
nodes: [{host: sim, nics: [lan], bmc: [ipmi, redfish, pdu]}]
"""
PORTS = "bmc: {address: 0.0.0.0, ports: 623-700, redfish_port: 80, pdu: {ports: 161-170}}\n"


async def plan(asked: Asked, text: str, uid: int = OWNER) -> tuple[int, list[str]]:
    answer = await asked.ask(uid, "POST", "/v1/plan", {"file": "c.yaml", "text": text})
    return answer.status, answer.json.get("error", {}).get("reasons", [])


async def test_a_members_plan_names_everything_that_he_may_not_have(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        status, reasons = await plan(asked, TAKES_ALL)
        assert status == 422
        assert [each.partition(" ")[0] for each in reasons] == [
            "c.yaml:3:18:", "c.yaml:4:19:", "c.yaml:5:56:", "c.yaml:5:71:", "c.yaml:7:15:",
            "c.yaml:8:15:", "c.yaml:9:13:", "c.yaml:9:13:", "c.yaml:9:13:", "c.yaml:9:39:",
        ]  # fmt: skip
        fix = f"Ask an administrator to list it in {tmp_path}/grants.yaml"
        assert all(fix in each for each in reasons)
        checked = await asked.ask(
            OWNER, "POST", "/v1/hosts/check", {"file": "c.yaml", "text": TAKES_ALL}
        )
        assert checked.status == 422
        simulated = "cluster: d\nhosts: {s: simulated}\nnodes: [{bmc: [ipmi, redfish, pdu]}]\n"
        assert len((await plan(asked, PORTS + simulated))[1]) == 4
        assert (await plan(asked, simulated))[0] == 200
        assert (await plan(asked, PORTS + simulated, uid=os.getuid()))[0] == 200
        pool = "bmc: {pool: 127.77.0.0/24}\n"
        assert len((await plan(asked, pool + simulated))[1]) == 2
        listed = tmp_path / "grants.yaml"
        listed.write_text("ports: [623, 161]\n")
        listed.chmod(0o644)
        assert (await plan(asked, pool + simulated))[0] == 200
        listed.chmod(0o666)
        assert (await plan(asked, simulated))[0] == 403


async def test_administrators_are_cautioned_about_public_addresses(tmp_path: Path) -> None:
    text = "cluster: d\nhosts: {s: simulated}\nbmc: {pool: 8.8.8.0/24}\nnodes: [{}]\n"
    async with a_daemon(tmp_path) as asked:
        body = {"file": "c.yaml", "text": text}
        answer = await asked.ask(os.getuid(), "POST", "/v1/plan", body)
    assert "bmc.pool: 8.8.8.0/24 is public" in answer.json["text"]


async def test_a_members_stored_cluster_on_an_unlisted_host_is_shown_and_not_connected_to(
    tmp_path: Path,
) -> None:
    text = "cluster: old\nhosts: {s: simulated}\nnodes: [{name: n}]\n"
    far = Host("s", Libvirt("qemu+ssh://kvm1/system"), ssh="root@kvm1")
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, text)).status == 202
        (row,) = await asked.daemon.parts.database.call(node_rows.all_nodes)
        await asked.daemon.parts.database.call(node_rows.settle, row.uuid, far)
        await asked.daemon.parts.database.call(stored.put_hosts, row.cluster_id, [far])
    async with a_daemon(tmp_path) as asked:
        assert asked.daemon.parts.hosts.logged_at(far.ssh) == set()
        shown = (await asked.ask(OWNER, "GET", "/v1/clusters/old")).json
        assert [each["node"] for each in shown["nodes"]] == ["n"]
        assert "members may not use host s (qemu+ssh://kvm1/system" in shown["drift"][0]
        (listed,) = (await asked.ask(OWNER, "GET", "/v1/hosts")).json
        assert "members may not use" in listed["away"]
        for path in ("/v1/clusters/old/removal", "/v1/clusters/old/export/ironic"):
            await asked.ask(OWNER, "GET", path)
        assert (await plan(asked, text))[0] == 422
        found = (await asked.ask(os.getuid(), "POST", "/v1/orphans", {})).json
        assert "s" not in found["away"]
        grants = tmp_path / "grants.yaml"
        grants.write_text("hosts:\n- {libvirt: qemu+ssh://kvm1/system, ssh: root@kvm1}\n")
        grants.chmod(0o644)
        await asked.daemon.control.work.use_grants()
        assert asked.daemon.parts.hosts.logged_at(far.ssh) == {row.uuid}
        grants.unlink()
        await asked.daemon.control.work.use_grants()
        assert asked.daemon.parts.hosts.logged_at(far.ssh) == set()


OVERLAY = """cluster: c
hosts:
  a: {libvirt: 'qemu+ssh://root@kvm1/system', ssh: root@kvm1, address: 192.0.2.11}
  b: {address: 192.0.2.12}
networks: {lan: {overlay: vxlan}}
nodes: [{}]
"""


def test_tunnels_of_members_lead_to_the_addresses_that_are_listed_for_a_host() -> None:
    """Who chose the address would send into any network of that number there."""
    host = "{libvirt: 'qemu+ssh://root@kvm1/system', ssh: root@kvm1, address: %s}"
    here = "{libvirt: 'qemu:///system', address: 192.0.2.12}"

    def refused(*hosts: str) -> list[str]:
        grants = load_grants(f"hosts: [{', '.join(hosts)}]\n", file="g")
        found = violations(load(OVERLAY, file="f"), grants)
        return [".".join(map(str, each.path)) for each in found]

    assert refused(host % "192.0.2.11", here) == []
    assert refused(host % "192.0.2.99", here) == ["hosts.a.address"]
    assert refused(host % "192.0.2.11") == ["hosts.b.address"]
    plain = OVERLAY.replace("{overlay: vxlan}", "{}")
    grants = load_grants(f"hosts: [{host % '192.0.2.99'}]\n", file="g")
    assert list(violations(load(plain, file="f"), grants)) == []
