"""Configurations of virtualbmc and of sushy-tools become files that adopt their machines."""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable
from dataclasses import replace

import pytest
import yaml

from nospoon.clusterfile.load import load
from nospoon.errors import SpecError, UsageError
from nospoon.importers import READERS, Imported, Source
from nospoon.importers.virtualbmc import USUAL, settings_of, text_of
from nospoon.model.cluster import BmcProtocol, Cluster
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate


def config(**settings: str) -> str:
    return "[VirtualBMC]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())


NODE_0 = config(
    username="admin", password="password", domain_name="node_0", libvirt_uri="qemu:///system",
    address="::", active="True", port="6230",
)  # fmt: skip


def of_virtualbmc(**files: str) -> Imported:
    named = {f"{name}/config": text for name, text in files.items()}
    return READERS["virtualbmc"](Source(".vbmc", "", "lab", files=named))


def of_sushy(text: str) -> Imported:
    return READERS["sushy-tools"](Source("sushy.conf", text, "lab"))


def test_a_domain_of_virtualbmc_keeps_its_port_and_its_account() -> None:
    made = of_virtualbmc(node_0=NODE_0)
    cluster = load(made.text, file="f")
    (adoption,) = cluster.adoptions
    like = adoption.like
    assert (adoption.machine, like.name, like.ipmi_port) == ("node_0", "node-0", 6230)
    assert (like.credentials.username, like.credentials.password) == ("admin", "password")
    assert like.bmc == (BmcProtocol.IPMI,)
    assert str(cluster.addressing.address) == "::"
    assert made.left_out == ()


def test_what_a_cluster_cannot_say_of_virtualbmcs_is_told() -> None:
    far = config(
        domain_name="far", libvirt_uri="qemu+ssh://root@kvm1/system?keyfile=/k", port="6231",
        address="127.0.0.1", active="True", libvirt_sasl_username="x", password="p" * 21,
    )  # fmt: skip
    made = of_virtualbmc(
        far=far, near=NODE_0, other=NODE_0.replace("node_0", "other").replace("6230", "6232")
    )
    cluster = load(made.text, file="f")
    assert [(host.name, host.where) for host in cluster.hosts] == [
        ("kvm1", "qemu+ssh://root@kvm1/system"), ("here", "qemu:///system"),
    ]  # fmt: skip
    assert [each.like.host for each in cluster.adoptions] == ["kvm1", "here", "here"]
    assert [each.like.bmc_address for each in cluster.adoptions] == ["127.0.0.1", "", ""]
    assert made.left_out == (
        "far/config: libvirt_uri: ?keyfile=/k: see ssh_config(5)",
        "far/config: libvirt_sasl_username",
        "far/config: password: a BMC takes 1 to 20 bytes",
    )


def test_bmcs_with_an_address_each_keep_it_with_the_usual_port() -> None:
    """As TripleO's guides have them: `vbmc add --address 192.168.24.N`, port 623."""
    files = {
        name: NODE_0.replace("node_0", name).replace("::", f"127.0.9.{n}").replace("6230", "623")
        for n, name in enumerate(("a", "b", "c"), 1)
    }
    made = of_virtualbmc(**files)
    wanted, reasons = allocate(adopted(load(made.text, file="f")), Allocations(), Occupied())
    assert reasons == []
    assert {name: (each.address, each.ipmi_port) for name, each in wanted.endpoints.items()} == {
        "a": ("127.0.9.1", 623), "b": ("127.0.9.2", 623), "c": ("127.0.9.3", 623),
    }  # fmt: skip
    assert made.left_out == ()


def adopted(cluster: Cluster) -> Cluster:
    return replace(cluster, nodes=tuple(each.like for each in cluster.adoptions))


def test_a_bmc_that_was_stopped_is_not_served_and_what_would_serve_it_is_told() -> None:
    down = NODE_0.replace("node_0", "down").replace("6230", "6231").replace("True", "False")
    made = of_virtualbmc(node_0=NODE_0, down=down)
    assert [each.machine for each in load(made.text, file="f").adoptions] == ["node_0"]
    (told,) = made.left_out
    line = told.removeprefix("down/config: active = False: to serve it, add to nodes: ")
    assert line.startswith("- {adopt: down, name: down, bmc: {protocols: [ipmi], port: 6231")
    both = of_both(ALL, down=down)
    assert [each.match for each in load(both.text, file="f").adoptions] == ["*"]
    assert both.left_out == ("down/config: active = False: no IPMI for it",)


@pytest.mark.parametrize(
    ("uri", "host", "query"),
    [
        ("qemu+unix:///system", "qemu:///system", ""),
        ("qemu:///system?&no_verify=1&no_tty=1", "qemu:///system", ""),
        ("qemu:///session?socket=/run/x", "qemu:///session", "socket=/run/x"),
        ("qemu+ssh://me@[::1]/session?socket=/x", "qemu+ssh://me@[::1]/session", "socket=/x"),
        ("qemu+ssh://zuul@192.0.2.1/system?no_tty=1", "qemu+ssh://zuul@192.0.2.1/system",
         "no_tty=1"),
    ],
)  # fmt: skip
def test_both_tools_name_a_libvirtd_alike(uri: str, host: str, query: str) -> None:
    """As ci-framework, metal3-dev-env (whose session is another user's) and others write it."""
    conf = f"{ALL}SUSHY_EMULATOR_LIBVIRT_URI = {uri!r}\n"
    made = of_sushy(conf)
    assert [each.where for each in load(made.text, file="f").hosts] == [host]
    told = f"?{query}: see ssh_config(5)"
    assert made.left_out == ((f"SUSHY_EMULATOR_LIBVIRT_URI: {told}",) if query else ())
    node = NODE_0.replace("qemu:///system", uri)
    both = of_both(conf, node_0=node)
    assert load(both.text, file="f").adoptions[0].like.bmc == BOTH
    made = of_virtualbmc(node_0=node)
    assert [each.where for each in load(made.text, file="f").hosts] == [host]
    assert made.left_out == ((f"node_0/config: libvirt_uri: {told}",) if query else ())


@pytest.mark.parametrize("host", ["root@127.0.0.1", "localhost", "root@[::1]:22"])
def test_ssh_to_this_machine_is_not_needed(host: str) -> None:
    """metal3-dev-env runs vbmcd in a container, from which libvirt is reached by ssh."""
    uri = f"qemu+ssh://{host}/system?&keyfile=/root/ssh/id_rsa_virt_power&no_verify=1&no_tty=1"
    made = of_virtualbmc(a=config(domain_name="a", libvirt_uri=uri, active="True"), b=NODE_0)
    assert [each.where for each in load(made.text, file="f").hosts] == ["qemu:///system"]
    assert made.left_out == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = 1\n", "a/config:1: expected a configuration of virtualbmc (INI)"),
        ("[other]\n", "a/config: expected a section [VirtualBMC], got none"),
        (config(port="x"), "a/config: port: expected a whole number, got 'x'"),
    ],
)
def test_other_files_are_refused_with_their_place(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        of_virtualbmc(a=text)
    assert message in str(caught.value)


def test_an_empty_directory_is_refused() -> None:
    with pytest.raises(UsageError, match="expected DOMAIN/config files, got none"):
        of_virtualbmc()


@pytest.mark.parametrize(
    ("said", "served"),
    [("True", True), ("true", True), ("False", False), ("yes", False), ("1", False), (None, False)],
)
def test_only_what_vbmcd_would_start_is_active(said: str | None, *, served: bool) -> None:
    """Its `str2bool` takes true and false; another value, or none, counts as false."""
    text = config(domain_name="a", port="6231", **({"active": said} if said else {}))
    made = of_virtualbmc(a=text, b=NODE_0)
    names = [each.machine for each in load(made.text, file="f").adoptions]
    assert ("a" in names) is served
    assert any(each.startswith("a/config: active = ") for each in made.left_out) is not served


def test_a_percent_sign_is_doubled_in_files_of_virtualbmc() -> None:
    """Python's BasicInterpolation, with which virtualbmc reads and writes."""
    made = of_virtualbmc(node_0=NODE_0.replace("= password", "= 50%%off"))
    assert load(made.text, file="f").adoptions[0].like.credentials.password == "50%off"
    settings = {"password": "50%off", "username": "%(port)s"}
    theirs = configparser.ConfigParser()
    theirs.read_string(text_of(settings))
    assert dict(theirs["VirtualBMC"]) == settings
    assert settings_of(text_of(settings), place="x") == {**USUAL, **settings}


UUIDS = ("9833f7b7-48fa-4936-9890-2ed15ba875f8", "437XR1138R2".lower())
SUSHY = f"""
import os
SUSHY_EMULATOR_LISTEN_IP = u'192.168.24.1'
SUSHY_EMULATOR_LISTEN_PORT = 8443
SUSHY_EMULATOR_SSL_CERT = u'/etc/sushy/cert.pem'
SUSHY_EMULATOR_SSL_KEY = u'/etc/sushy/key.pem'
SUSHY_EMULATOR_AUTH_FILE = '/etc/sushy/htpasswd'
SUSHY_EMULATOR_OS_CLOUD = None
SUSHY_EMULATOR_LIBVIRT_URI = u'qemu:///system'
SUSHY_EMULATOR_IGNORE_BOOT_DEVICE = True
SUSHY_EMULATOR_BOOT_LOADER_MAP = {{'UEFI': {{'x86_64': '/usr/share/OVMF/OVMF_CODE.fd'}}}}
SUSHY_EMULATOR_STATE_DIR = os.getcwd()
SUSHY_EMULATOR_ALLOWED_INSTANCES = {list(UUIDS)}
"""


def test_systems_of_sushy_tools_keep_their_ids_and_their_service() -> None:
    made = of_sushy(SUSHY)
    cluster = load(made.text, file="f")
    assert [each.machine for each in cluster.adoptions] == list(UUIDS)
    assert {each.like.bmc for each in cluster.adoptions} == {(BmcProtocol.REDFISH,)}
    given = cluster.addressing
    assert (str(given.address), given.redfish_port, given.tls) == ("192.168.24.1", 8443, True)
    assert given.redfish_login
    assert given.certificate is not None
    assert given.certificate.key == "/etc/sushy/key.pem"
    names = [each.partition(":")[0].partition(" ")[0] for each in made.left_out]
    assert [name.removeprefix("SUSHY_EMULATOR_") for name in names] == [
        "STATE_DIR", "BOOT_LOADER_MAP", "IGNORE_BOOT_DEVICE", "AUTH_FILE",
    ]  # fmt: skip


HASH = "$2y$05$" + "a" * 53


def read_from(files: dict[str, str]) -> Callable[[str], str]:
    def read(path: str) -> str:
        if path not in files:
            raise UsageError(f"cannot read {path}: no such file")
        return files[path]

    return read


def with_users(text: str) -> Imported:
    conf = "SUSHY_EMULATOR_AUTH_FILE = '/root/sushy/htpasswd'\n"
    files = read_from({"/root/sushy/htpasswd": text})
    return READERS["sushy-tools"](Source("conf.py", conf, "lab", read=files))


def test_the_first_user_of_an_htpasswd_file_stays_by_the_hash_of_the_password() -> None:
    made = with_users(f"# users\nold:$apr1$x$y\nadmin:{HASH}\nother:{HASH}\n")
    (adoption,) = load(made.text, file="f").adoptions
    assert adoption.like.credentials.username == "admin"
    assert adoption.like.credentials.password == HASH
    assert made.left_out == (
        "SUSHY_EMULATOR_AUTH_FILE: user old: add it with Redfish's AccountService",
        "SUSHY_EMULATOR_AUTH_FILE: user other: add it with Redfish's AccountService",
    )


def test_a_file_of_users_without_a_usable_hash_is_reported() -> None:
    (told,) = with_users("admin:{SHA}x\n").left_out
    assert "/root/sushy/htpasswd has no bcrypt hash" in told
    gone = Source("f", "SUSHY_EMULATOR_AUTH_FILE = 'gone'\n", "lab", read=read_from({}))
    (told,) = READERS["sushy-tools"](gone).left_out
    assert "cannot read gone: no such file: write `username` and `password`" in told


@pytest.mark.parametrize(
    ("bmc", "more", "message"),
    [
        ("password_hash: x", "", "expected a bcrypt hash as `htpasswd -nB USER` prints it"),
        (f"password_hash: {HASH.replace('05', '14')}", "", "cost 4 to 12, got 14"),
        (f"password_hash: {HASH.replace('05', '03')}", "", "cost 4 to 12, got 03"),
        (f"password: word, password_hash: {HASH}", "", "expected one of password and"),
        (f"password_hash: {HASH}", "", "nodes speak ipmi, too"),
        (f"password_hash: {HASH}", "ironic: {endpoint: 'http://i'}", "Ironic needs the password"),
    ],
)
def test_where_a_hash_is_not_enough_it_is_refused(bmc: str, more: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(f"cluster: c\nbmc: {{{bmc}}}\n{more}\nnodes: [{{name: n}}]\n", file="f")
    assert message in str(caught.value)


def test_all_machines_are_meant_where_no_list_of_them_is_given() -> None:
    made = of_sushy("SUSHY_EMULATOR_LISTEN_PORT = 8000\n")
    cluster = load(made.text, file="f")
    assert [each.match for each in cluster.adoptions] == ["*"]
    assert not cluster.addressing.redfish_login  # nor does it ask for one without an AUTH_FILE
    assert made.left_out == ()


def test_without_an_address_it_is_shown_that_the_command_line_may_have_had_one() -> None:
    address = 'address: "0.0.0.0"  # LISTEN_IP is not set: write what `sushy-emulator -i` had'
    for text in (ALL, f"{ALL}SUSHY_EMULATOR_LISTEN_IP = u''\n"):
        assert address in of_sushy(text).text
    assert "LISTEN_IP is not set" not in of_sushy(SUSHY.replace("AUTH_FILE", "DEBUG")).text
    assert "LISTEN_IP is not set" not in of_both(ALL, node_0=NODE_0).text


def in_its_place(text: str) -> Imported:
    source = Source("sushy.conf", text, "lab", read=read_from({}), in_its_place=True)
    return READERS["sushy-tools"](source)


def test_in_its_place_it_listens_where_flask_does_and_not_on_all_addresses() -> None:
    for text in (ALL, f"{ALL}SUSHY_EMULATOR_LISTEN_IP = u''\n"):
        cluster = load(in_its_place(text).text, file="f")
        assert str(cluster.addressing.address) == "127.0.0.1"
    everywhere = in_its_place(f"{ALL}SUSHY_EMULATOR_LISTEN_IP = '::'\n")
    assert str(load(everywhere.text, file="f").addressing.address) == "::"


def test_in_its_place_users_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        in_its_place("SUSHY_EMULATOR_AUTH_FILE = 'gone'\n")
    assert str(caught.value) == (
        "sushy.conf: SUSHY_EMULATOR_AUTH_FILE: cannot read gone: no such file"
    )


def test_names_and_uris_are_refused_with_their_place() -> None:
    def unknown(name: str) -> str:
        raise UsageError(f"{name} is not known")

    files = {"vm/config": config(address="nowhere")}
    with pytest.raises(UsageError) as caught:
        READERS["virtualbmc"](Source(".vbmc", "", "lab", files=files, resolve=unknown))
    assert str(caught.value) == ".vbmc: vm/config: address: nowhere is not known"
    with pytest.raises(UsageError) as caught:
        of_virtualbmc(vm=config(libvirt_uri="qemu+ssh://[::1/system"))
    assert str(caught.value).startswith(".vbmc: vm/config: libvirt_uri: expected a libvirt URI")
    text = f"{ALL}SUSHY_EMULATOR_LISTEN_IP = 'nowhere'\n"
    with pytest.raises(UsageError, match=r"sushy\.conf: SUSHY_EMULATOR_LISTEN_IP: nowhere is not"):
        READERS["sushy-tools"](Source("sushy.conf", text, "lab", resolve=unknown))


def test_a_byte_order_mark_is_skipped_as_python_does() -> None:
    assert of_sushy(f"\ufeff{ALL}").text == of_sushy(ALL).text


def test_servers_of_a_cloud_are_adopted_there() -> None:
    id_ = "8F0C6D1E-7F0B-4C57-9A5B-0A3B7F1F2A11"
    made = of_sushy(
        "SUSHY_EMULATOR_OS_CLOUD = 'mycloud'\n"
        "SUSHY_EMULATOR_LIBVIRT_URI = 'qemu:///system'\n"
        f"SUSHY_EMULATOR_ALLOWED_INSTANCES = ['{id_}']\n"
    )
    written = yaml.safe_load(made.text)
    assert written["hosts"] == {"cloud": {"openstack": {"cloud": "mycloud"}}}
    assert [each["adopt"] for each in written["nodes"]] == [id_.lower()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SUSHY_EMULATOR_LISTEN_PORT = \n", "sushy.conf:1: expected assignments in Python"),
        ("SUSHY_EMULATOR_LISTEN_PORT = " + "-" * 200_000 + "1\n", "sushy.conf"),
        (f"SUSHY_EMULATOR_X = {'+'.join('1' * 100_000)}\n", "sushy.conf"),
        ("x = 1\n", "expected settings SUSHY_EMULATOR_…, got none"),
        ("SUSHY_EMULATOR_IRONIC_CLOUD = 'c'\n", "nodes of an Ironic are not adopted"),
        ("SUSHY_EMULATOR_FAKE_DRIVER = True\n", "machines of the fake driver are not adopted"),
        ("SUSHY_EMULATOR_ALLOWED_INSTANCES = []\n", "there is nothing to serve"),
        ("SUSHY_EMULATOR_ALLOWED_INSTANCES = None\n", "there is nothing to serve"),
        ("SUSHY_EMULATOR_ALLOWED_INSTANCES = 'x'\n", "expected a list, got 'x'"),
        (
            "SUSHY_EMULATOR_AUTH_FILE = X\nif X:\n  SUSHY_EMULATOR_ALLOWED_INSTANCES = ['a']\n",
            "SUSHY_EMULATOR_AUTH_FILE (line 1), SUSHY_EMULATOR_ALLOWED_INSTANCES (line 3)",
        ),
        (
            "SUSHY_EMULATOR_OS_CLOUD = 1\nSUSHY_EMULATOR_OS_CLOUD += X\n",
            "under no condition: SUSHY_EMULATOR_OS_CLOUD (line 2)",
        ),
        ("SUSHY_EMULATOR_LISTEN_IP, x = X\n", "LISTEN_IP (line 1)"),
    ],
)
def test_other_python_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        of_sushy(text)
    assert message in str(caught.value)


def test_nothing_of_the_file_is_run(tmp_path: object) -> None:
    run = f"SUSHY_EMULATOR_LISTEN_IP = open('{tmp_path}/x', 'w').name\n"
    made = of_sushy(run + SUSHY[1:] + "def f():\n  SUSHY_EMULATOR_LISTEN_PORT = 1\n")
    assert made.left_out == of_sushy(SUSHY).left_out, "what is assigned later holds"
    assert not os.path.exists(f"{tmp_path}/x")  # noqa: PTH110  (a path of pytest's)


def test_what_is_not_carried_over_is_told_as_it_is() -> None:
    (told,) = of_sushy(f"{ALL}SUSHY_EMULATOR_VMEDIA_VERIFY_SSL = True\n").left_out
    assert "are verified where a client sets VerifyCertificate" in told
    assert of_sushy(f"{ALL}SUSHY_EMULATOR_VMEDIA_VERIFY_SSL = False\n").left_out == ()


def test_instances_are_listed_in_any_collection_and_by_uuids_in_any_case() -> None:
    made = of_sushy(
        "SUSHY_EMULATOR_LISTEN_PORT: int = 8443\n"
        f"SUSHY_EMULATOR_ALLOWED_INSTANCES = ('VM_1', {UUIDS[0].upper()!r})\n"
    )
    cluster = load(made.text, file="f")
    assert cluster.addressing.redfish_port == 8443
    named = [(each.machine, each.like.name) for each in cluster.adoptions]
    assert named == [("VM_1", "vm-1"), (UUIDS[0], "")], "one by its UUID has its machine's name"


def of_both(conf: str, files: dict[str, str] | None = None, **served: str) -> Imported:
    named = {f"{name}/config": text for name, text in served.items()}
    beside = Source(".vbmc", "", "lab", files=named)
    read = read_from(files or {})
    return READERS["sushy-tools"](Source("sushy.conf", conf, "lab", read=read, beside=beside))


ALL = "SUSHY_EMULATOR_LISTEN_PORT = 8000\n"
BOTH = (BmcProtocol.IPMI, BmcProtocol.REDFISH)


def test_a_machine_that_both_tools_served_speaks_both_at_its_ports() -> None:
    """As metal3-dev-env runs them: sushy-tools has no list, virtualbmc a domain each."""
    made = of_both(ALL, node_0=NODE_0)
    cluster = load(made.text, file="f")
    one, rest = cluster.adoptions
    assert (one.machine, one.like.bmc, one.like.ipmi_port) == ("node_0", BOTH, 6230)
    assert (one.like.credentials.username, one.like.credentials.password) == ("admin", "password")
    assert (rest.match, rest.like.bmc) == ("*", (BmcProtocol.REDFISH,))
    assert (str(cluster.addressing.address), cluster.addressing.redfish_port) == ("::", 8000)
    assert not cluster.addressing.redfish_login
    assert made.left_out == ()


def test_lists_and_accounts_of_both_tools_are_put_together() -> None:
    unit = "8b1b5a0e-0000-4000-8000-000000000001"
    conf = (
        f"{ALL}SUSHY_EMULATOR_ALLOWED_INSTANCES = ['node_0', 'other', '{unit}']\n"
        "SUSHY_EMULATOR_AUTH_FILE = 'users'\nSUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\n"
    )
    alone = NODE_0.replace("node_0", "alone").replace("6230", "6231")
    far = alone.replace("qemu:///system", "qemu+tls://kvm1/system").replace("6231", "6232")
    far = far.replace("alone", "far").replace("::", "192.0.2.1")
    made = of_both(conf, {"users": f"op:{HASH}\n"}, alone=alone, node_0=NODE_0, far=far)
    cluster = load(made.text, file="f")
    found = {each.machine: each.like for each in cluster.adoptions}
    assert {name: like.bmc for name, like in found.items()} == {
        "alone": (BmcProtocol.IPMI,),
        "far": (BmcProtocol.IPMI,),
        "node_0": BOTH,
        "other": (BmcProtocol.REDFISH,),
        unit: (BmcProtocol.REDFISH,),
    }
    assert [found[name].host for name in ("far", "node_0", "other")] == ["kvm1", "here", "here"]
    assert found["node_0"].credentials.password == "password"
    assert (found["other"].credentials.username, found["other"].credentials.password) == (
        "op", HASH,
    )  # fmt: skip
    assert [each.partition(": ")[0] for each in made.left_out] == [
        "SUSHY_EMULATOR_AUTH_FILE",
        "node_0/config",
        "SUSHY_EMULATOR_ALLOWED_INSTANCES",
    ]
    assert [found[name].bmc_address for name in ("alone", "node_0")] == ["::", ""]
    told = "node_0/config: address ::: IPMI answers where Redfish does, at 127.0.0.1"
    assert told in made.left_out
    assert unit in made.left_out[-1]


@pytest.mark.parametrize(
    "text",
    [
        "[VirtualBMC]\nport = 6230\nactive = no\n  hosts: {evil: simulated}\n",
        "[VirtualBMC]\nactive = True\nlibvirt_uri = qemu+ssh://h/system?x\n  hosts: {evil: 1}\n",
    ],
)
def test_text_of_others_stays_in_its_comment(text: str) -> None:
    for name in ("vm", "x\nhosts: {evil: simulated}"):
        made = READERS["virtualbmc"](Source("vbmc", "", "imported", files={f"{name}/config": text}))
        assert not [each for each in made.text.splitlines() if each.startswith("hosts: {")]


@pytest.mark.parametrize("value", ["'full'", "'vmedia'", "'minimum'"])
def test_a_set_of_features_is_reported_as_not_needed(value: str) -> None:
    (said,) = of_sushy(f"SUSHY_EMULATOR_FEATURE_SET = {value}\n").left_out
    assert said == "SUSHY_EMULATOR_FEATURE_SET: all features are on"


@pytest.mark.parametrize("value", ["'minimal'", "None", "''", "['full']"])
def test_a_set_of_features_that_sushy_emulator_does_not_know_is_refused(value: str) -> None:
    """As it refuses to start with one (`Application.configure`)."""
    with pytest.raises(UsageError, match="FEATURE_SET: expected full, vmedia or minimum, got"):
        of_sushy(f"SUSHY_EMULATOR_FEATURE_SET = {value}\n")


@pytest.mark.parametrize(
    "value", ["b'x'", "{1, 2}", "...", "1j", "{(1, b'2'): 3}", "1e999", "True"]
)
def test_a_port_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(UsageError, match="LISTEN_PORT: expected a whole number"):
        of_sushy(f"SUSHY_EMULATOR_LISTEN_PORT = {value}\n")


def test_odd_values_are_refused_and_not_a_fault_of_nospoons() -> None:
    with pytest.raises(UsageError, match="expected a literal"):
        of_sushy(f"SUSHY_EMULATOR_LISTEN_PORT = 0x{'f' * 50_000}\n")
    with pytest.raises(UsageError, match="expected a libvirt URI"):
        of_sushy("SUSHY_EMULATOR_LIBVIRT_URI = 'qemu+ssh://[::1/system'\n")
    with pytest.raises(UsageError, match="port: expected a whole number"):
        of_virtualbmc(vm=f"[VirtualBMC]\nport = {'9' * 5000}\n")
    assert "adopt: a" in of_sushy("SUSHY_EMULATOR_ALLOWED_INSTANCES = {1, 'a'}\n").text
