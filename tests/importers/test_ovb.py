"""OVB's own sample environments become files for a cloud, which load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from nospoon.cli.commands.import_ import command
from nospoon.clusterfile.load import load
from nospoon.errors import UsageError
from nospoon.importers import READERS, Imported, Source
from nospoon.model.cluster import Cluster, Firmware, Node
from nospoon.model.connections import OpenStack

SAMPLES = Path(__file__).with_name("ovb")
CLOUD = "cloud: {name: mine, auth: {auth_url: http://192.0.2.1/v3, username: u, password: p}}"


def sample(name: str) -> Source:
    return Source(f"{name}.yaml", (SAMPLES / f"{name}.yaml").read_text(), "lab", cloud="mine")


def imported(
    first: Source, *, more: Sequence[Source] = (), roles: Sequence[Source] = ()
) -> Imported:
    given = Source(first.file, first.text, first.cluster, cloud=first.cloud, more=more, roles=roles)
    return READERS["ovb"](given)


def of(*names: str, roles: Sequence[str] = ()) -> Imported:
    first, *more = (sample(name) for name in names)
    return imported(first, more=more, roles=[sample(name) for name in roles])


def text(**parameters: object) -> Source:
    lines = "".join(f"  {name}: {value}\n" for name, value in parameters.items())
    return Source("env.yaml", f"parameter_defaults:\n{lines}", "lab", cloud="mine")


def cluster(made: Imported) -> Cluster:
    """The file as the nospoon command sends it, with what clouds.yaml says."""
    assert "cloud: mine\n" in made.text
    return load(made.text.replace("cloud: mine", CLOUD), file="f")


def networks(node: Node) -> list[str]:
    return [nic.network for nic in node.nics]


def test_the_base_environment_becomes_a_host_and_its_nodes() -> None:
    made = of("base")
    lab = cluster(made)
    (host,) = lab.hosts
    assert isinstance(host.connection, OpenStack)
    assert host.connection.flavors == ("baremetal",)
    assert [node.name for node in lab.nodes] == ["baremetal-0", "baremetal-1"]
    node = lab.nodes[0]
    assert networks(node) == ["provision", "private"]
    assert (node.cpus, node.memory, node.firmware) == (2, 8 << 30, Firmware.BIOS)
    assert [each.name for each in lab.networks] == ["provision", "private"]
    assert "physnets: {private: private}" in made.text


LEFT_OUT = """\
hosts.cloud.openstack.boot_address: replace 192.0.2.1 by the address of the daemon's machine as \
nodes reach it
sizes of the flavor baremetal: write those of `openstack flavor show baremetal`
bmc_flavor, bmc_image, bmc_prefix: the daemon answers for all nodes; inside the cloud by \
`relay: {bmcs: true}`
external_net: no floating IPs are made: give NICs that are to have one `floating_ip: NETWORK`
key_name: nodes have no key pair: what deploys them puts keys on them
public_net_cidr, public_net_ip_version: networks have no addresses of Neutron's: those of nodes \
come from what deploys them
undercloud_flavor, undercloud_image, undercloud_name: no undercloud is made: add a node of \
`kind: vm` with an image on the same networks"""


def test_what_the_base_environment_says_of_other_things_is_listed_with_what_to_do() -> None:
    assert "\n".join(of("base").left_out) == LEFT_OUT


def test_an_environment_without_an_undercloud_lacks_none() -> None:
    left_out = of("base", "quintupleo-no-undercloud").left_out
    assert not [each for each in left_out if "undercloud" in each]


OVERCLOUD = [
    "provision", "public", "overcloud-internal", "overcloud-storage", "overcloud-storage-mgmt",
    "overcloud-tenant", "private",
]  # fmt: skip


def test_networks_of_the_overcloud_are_made_and_roles_have_them_too() -> None:
    made = of("base", "all-networks", roles=["base-role", "base-extra-node"])
    lab = cluster(made)
    assert [node.name for node in lab.nodes] == [
        "baremetal-0", "baremetal-1", "baremetal-compute-0", "baremetal-compute-1",
        "baremetal-extra-0",
    ]  # fmt: skip
    assert networks(lab.nodes[0]) == networks(lab.nodes[2]) == OVERCLOUD
    assert networks(lab.nodes[4]) == ["private", "provision", "public"]
    capabilities = [node.enrolment.capabilities for node in lab.nodes]
    said = [[(each.name, each.value) for each in those] for those in capabilities]
    compute, extra = [("profile", '"compute"')], [("profile", '"extra"')]
    assert said == [[], [], compute, compute, extra]
    assert (
        "baremetal_image CentOS-7-x86_64-GenericCloud: the disk is blank here: give it an `image:`,"
        " or deploy the node"
    ) in made.left_out


def test_a_bond_of_the_public_network_is_two_nics() -> None:
    lab = cluster(of("base", "all-networks-public-bond"))
    assert networks(lab.nodes[0]) == ["provision", "public", *OVERCLOUD[1:]]


def test_networks_that_ovb_does_not_make_exist() -> None:
    ports = Source(
        "ports.yaml",
        "resource_registry:\n"
        "  OS::OVB::BaremetalPorts: templates/baremetal-ports-all-port-security.yaml\n"
        "  OS::OVB::UndercloudNetworks: ../templates/undercloud-networks-existing.yaml\n",
        "lab",
    )
    made = imported(sample("base"), more=[ports])
    lab = cluster(made)
    assert all(network.physnet == network.name for network in lab.networks)
    assert "overcloud-internal: overcloud_internal" in made.text


def routers(made: Imported) -> dict[str, tuple[str, str]]:
    """Network -> its router and range, of those that have one and no DHCP."""
    return {
        each.name: (each.router, str(each.cidr))
        for each in cluster(made).networks
        if each.nat and not each.dhcp
    }


def test_routed_networks_keep_their_routers_and_lose_the_relay_of_dhcp() -> None:
    made = of(
        "base", "routed-networks", "routed-networks-configuration", "boot-baremetal-from-volume",
        "disable-bmc", roles=["routed-networks-role"],
    )  # fmt: skip
    lab = cluster(made)
    assert [networks(node)[0] for node in lab.nodes] == ["provision"] * 2 + ["provision2"] * 2
    assert {node.disks[0].size for node in lab.nodes} == {41 << 30}
    assert {node.bmc for node in lab.nodes} == {()}
    assert routers(made) == {
        "provision": ("provision-router", "192.168.24.0/24"),
        "provision2": ("provision-router", "192.168.25.0/24"),
    }
    (host,) = lab.hosts
    assert isinstance(host.connection, OpenStack)
    assert host.connection.external == "external"
    assert made.left_out[-1] == (
        "OS::OVB::DHCPRelay: dhcp-relay: what answers DHCP needs a NIC on each of these networks"
    )
    assert not [each for each in made.left_out if "router" in each or "external_net" in each]


def test_networks_of_the_overcloud_are_routed_in_pairs() -> None:
    own = text(
        provision_net_cidr="10.9.0.0/24", provision_net2="leaf1", provision_router_name="spine",
        provision_net_router_address="10.9.0.254", provision_net3="leaf2", public_net="outside",
    )  # fmt: skip
    role = text(role="leaf1", provision_net="leaf1", overcloud_tenant_net="overcloud_tenant2")
    base = [sample(each) for each in ("all-networks", "routed-networks")]
    made = imported(sample("base"), more=[*base, own], roles=[role])
    found = routers(made)
    assert found["provision"] == ("spine", "10.9.0.0/24")
    assert found["leaf1"] == ("spine", "192.168.25.0/24")
    assert found["outside"] == ("public-router", "10.0.0.0/24")
    assert found["overcloud-tenant2"] == ("tenant-router", "172.16.1.0/24")
    assert found["overcloud-storage-mgmt"] == ("storage-mgmt-router", "172.19.0.0/24")
    left = [each for each in made.left_out if "provision_net" in each]
    assert left == [
        "provision_net3: no node is on a network that this router joins, or that has this name",
        "provision_net_router_address: a router has the first address of its network",
    ]


def test_networks_of_ipv6_have_no_router() -> None:
    """OVB has none there either, and sends advertisements from a server of its own."""
    registry = Source(
        "ipv6.yaml",
        "resource_registry:\n"
        "  OS::OVB::ProvisionNetRouter: OS::Heat::None\n"
        "  OS::OVB::RouterAdvertisementDaemon: ../templates/ipv6-radvd.yaml\n",
        "lab",
    )
    own = text(public_net_cidr="fd00:9::/64", radvd_image="CentOS")
    more = [sample("all-networks"), sample("routed-networks"), registry, own]
    made = imported(sample("base"), more=more)
    assert not {"provision", "public"} & routers(made).keys()
    assert "radvd_image: no router advertisements are sent: a node of `kind: vm` may run radvd" in (
        made.left_out
    )
    assert (
        "OS::OVB::RouterAdvertisementDaemon: ipv6-radvd: no router advertisements are sent: "
        "a node of `kind: vm` may run radvd"
    ) in made.left_out


def test_a_public_network_has_the_router_that_ovb_gives_it() -> None:
    registry = Source(
        "public.yaml",
        "resource_registry:\n"
        "  OS::OVB::UndercloudNetworks: ../templates/undercloud-networks-public-router.yaml\n",
        "lab",
    )
    made = imported(sample("base"), more=[sample("all-networks"), registry])
    assert routers(made) == {"public": ("public-router", "10.0.0.0/24")}


def test_a_private_network_of_its_own_has_to_be_there_first() -> None:
    assert "OS::OVB::PrivateNetwork: private-net-create: create that network first" in (
        of("base", "create-private-network").left_out
    )


def test_what_deploy_py_wrote_is_read_too() -> None:
    """`parameters` of older files, and files of roles whose prefix has the role already."""
    role = text(role="compute", baremetal_prefix="rack-7-compute", node_count=1)
    base = text(baremetal_prefix="rack-7", node_count=1, provision_net="provision-7")
    lab = cluster(imported(base, roles=[role, sample("old-role")][:1]))
    assert [node.name for node in lab.nodes] == ["rack-7-0", "rack-7-compute-0"]
    assert networks(lab.nodes[1]) == ["provision-7", "private"]
    old = cluster(imported(base, roles=[sample("old-role")]))
    assert [node.name for node in old.nodes][1:] == ["rack-7-compute-0", "rack-7-compute-1"]


def test_a_machine_with_uefi_is_known_by_the_name_of_its_image() -> None:
    lab = cluster(imported(text(baremetal_image="ipxe-boot-uefi", node_count=1)))
    assert lab.nodes[0].firmware is Firmware.UEFI


def test_secrets_are_not_copied_and_unknown_parameters_are_listed() -> None:
    made = imported(text(os_password="hunter2", os_user="me", colour="red", node_count=1))
    assert "hunter2" not in made.text
    assert made.left_out[-2:] == (
        "colour",
        "os_password, os_user: the cloud is one of clouds.yaml, which has the credentials",
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Source("e", "a: 1\n", "lab"), "e: expected `parameter_defaults` or `resource_registry`"),
        (Source("e", "parameters: [1]\n", "lab"), "e: parameters: expected a mapping, got [1]"),
        (text(node_count="many"), "env.yaml: node_count: expected a whole number, got 'many'"),
        (
            Source(
                "e",
                "parameters: {provision_net_cidr: many}\nresource_registry:\n"
                "  OS::OVB::UndercloudNetworks: undercloud-networks-routed.yaml\n",
                "lab",
            ),
            "e: provision_net_cidr: expected a network such as 192.168.24.0/24, got 'many'",
        ),
        (text(node_count=0), "env.yaml: node_count: expected at least 1, got 0"),
        (text(provision_net="a_b", private_net="a.b"), "networks: one name in a cluster file"),
    ],
)
def test_what_is_no_environment_is_refused(source: Source, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        imported(source)
    assert message in str(caught.value)


def test_a_role_needs_a_name() -> None:
    with pytest.raises(UsageError, match=r"env\.yaml: expected a role"):
        imported(sample("base"), roles=[text(node_count=1)])


def test_the_command_reads_several_environments_and_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_CLOUD", "mine")
    base, networks_, role = (
        str(SAMPLES / f"{name}.yaml") for name in ("base", "all-networks", "base-role")
    )
    out = str(tmp_path / "cluster.yaml")
    argv = ["--from", "ovb", base, "--env", networks_, "--role", role, "--name", "lab", "-o", out]
    done = CliRunner().invoke(command, argv)
    assert done.exit_code == 0, done.output
    assert "Not carried over: key_name: nodes have no key pair" in done.output
    expected = of("base", "all-networks", roles=["base-role"])
    assert Path(out).read_text() == expected.text


def test_environments_and_roles_are_ovb_s() -> None:
    base = str(SAMPLES / "base.yaml")
    done = CliRunner().invoke(command, ["--from", "instackenv", base, "--role", base])
    assert done.exit_code == 2
    assert "--env and --role go with --from ovb" in done.output
