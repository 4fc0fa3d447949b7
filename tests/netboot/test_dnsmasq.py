"""dnsmasq's configuration, judged by dnsmasq itself."""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from nospoon.model.resources.netboot import Loader, NetbootService, Reservation
from nospoon.protocols.ipxe import dnsmasq
from nospoon.services.netboot import dnsmasq as process
from nospoon.testing.bench import free_port

UUID_1 = UUID("11111111-2222-3333-4444-555555555555")
SERVICE = NetbootService(
    bridge="br-x",
    address="172.30.0.1/24",
    range=("172.30.0.2", "172.30.0.254"),
    reservations=(),
)


def lines(
    directory: str = "/d", user: str = "nobody", service: NetbootService = SERVICE
) -> list[str]:
    places = dnsmasq.Places(
        hosts=f"{directory}/hosts",
        leases=f"{directory}/leases",
        tftp=f"{directory}/tftp",
        pid=f"{directory}/pid",
        log=f"{directory}/log",
        user=user,
    )
    return dnsmasq.configuration(service, places, http_port=8069).splitlines()


def test_it_serves_one_bridge_and_no_dns() -> None:
    assert {"port=0", "interface=br-x", "except-interface=lo", "bind-dynamic"} <= set(lines())
    assert "enable-tftp=br-x" in lines()


def test_it_gives_the_range_and_no_default_route() -> None:
    assert "dhcp-range=172.30.0.2,172.30.0.254,255.255.255.0,1h" in lines()
    assert "dhcp-option=option:router" in lines()


def test_where_a_way_leads_out_it_tells_the_default_route_and_names() -> None:
    routed = lines(service=replace(SERVICE, routed=True))
    assert set(lines()) - set(routed) == {"port=0", "dhcp-option=option:router"}


def test_it_becomes_nobody_only_when_told() -> None:
    assert "user=nobody" in lines()
    assert not any(line.startswith("user=") for line in lines(user=""))


def test_a_reservation_tells_address_name_and_whether_loaders_are_signed() -> None:
    plain = Reservation("02:00:00:00:00:AB", "172.30.0.9", "node-1", UUID_1)
    assert dnsmasq.reservation(plain) == "02:00:00:00:00:ab,172.30.0.9,node-1\n"
    assert dnsmasq.reservation_file(plain) == "02-00-00-00-00-ab"
    secure = Reservation("02:00:00:00:00:ab", "172.30.0.9", "node-1", UUID_1, loader=Loader.SHIM)
    assert dnsmasq.reservation(secure) == "02:00:00:00:00:ab,set:secure,172.30.0.9,node-1\n"


BOTH = replace(SERVICE, address6="fd00:30::1/64", range6=("fd00:30::10:0", "fd00:30::1f:ffff"))
SIX = replace(BOTH, address="", range=("", ""))


def test_with_ipv6_it_gives_addresses_loaders_and_a_router_of_no_route() -> None:
    added = set(lines(service=BOTH)) - set(lines())
    assert {
        "dhcp-range=fd00:30::10:0,fd00:30::1f:ffff,slaac,64,1h",
        "enable-ra",
        "ra-param=br-x,0,0",
        "dhcp-match=set:x64,option6:61,00:07",
    } <= added
    loader = "tag:x64,tag:!secure,option6:bootfile-url,tftp://[fd00:30::1]/snponly.efi"
    assert f"dhcp-option=tag:!ipxe,{loader}" in added
    assert set(lines()) - set(lines(service=BOTH)) == {"dhcp-lease-max=256"}
    assert "dhcp-lease-max=65792" in added


def test_where_a_way_leads_out_it_is_the_router() -> None:
    assert "ra-param=br-x,0,0" not in lines(service=replace(BOTH, routed=True))


def test_strangers_get_no_address_of_a_network_on_several_hosts() -> None:
    alone = lines(service=replace(BOTH, range6=("", "")))
    assert "dhcp-range=fd00:30::,static,slaac,64,1h" in alone


def test_a_reservation_may_have_addresses_of_both_kinds_or_of_one() -> None:
    both = Reservation("02:00:00:00:00:ab", "172.30.0.9", "n", UUID_1, address6="fd00:30::9")
    six = "[fd00:30::3:0:9],[fd00:30::2:0:9],[fd00:30::1:0:9],[fd00:30::9]"
    assert dnsmasq.reservation(both) == f"02:00:00:00:00:ab,172.30.0.9,{six},n\n"
    assert dnsmasq.reservation(replace(both, address="")) == f"02:00:00:00:00:ab,{six},n\n"


def test_all_macs_of_a_nic_are_on_one_line() -> None:
    """dnsmasq refuses a second line for an address."""
    macs = "02:00:00:00:00:ab", ("02:00:00:00:00:CD",)
    both = Reservation(macs[0], "172.30.0.9", "n", UUID_1, also=macs[1])
    assert dnsmasq.reservation(both) == "02:00:00:00:00:ab,02:00:00:00:00:cd,172.30.0.9,n\n"


@pytest.mark.tools
@pytest.mark.parametrize("service", [SERVICE, BOTH, SIX], ids=["IPv4", "both", "IPv6"])
def test_dnsmasq_accepts_it(tmp_path: Path, service: NetbootService) -> None:
    for name in ("hosts", "tftp"):
        (tmp_path / name).mkdir()
    config = tmp_path / "dnsmasq.conf"
    config.write_text("\n".join(lines(str(tmp_path), service=service)) + "\n")
    argv = ["dnsmasq", "--test", f"--conf-file={config}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_leases_go_with_reservations_and_those_of_strangers_stay() -> None:
    stays = Reservation("02:00:00:00:00:0A", "10.9.0.2", "n0", UUID_1, address6="fd00::2")
    leaves = Reservation("02:00:00:00:00:0C", "10.9.0.3", "n1", UUID_1, address6="fd00::3")
    kept = (
        "1764000000 02:00:00:00:00:0a 10.9.0.2 n0 01:02:00:00:00:00:0a\n"
        "1764000000 02:00:00:00:00:0b 10.9.0.99 * *\n"
        "duid 00:01:00:01:aa\n"
        "1764000000 7 fd00::2 n0 00:04:bb\n"
        "1764000000 8 fd00::9 gone 00:04:cc\n"
    )
    left = (
        "1764000000 02:00:00:00:00:0c 10.9.0.3 n1 01:02:00:00:00:00:0c\n"
        "1764000000 9 fd00::3 n1 00:04:dd\n"
    )
    before = [dnsmasq.reservation(stays), dnsmasq.reservation(leaves)]
    assert dnsmasq.without_left(kept + left, before, before[:1]) == kept
    assert dnsmasq.without_left(kept + left, before, before) == kept + left
    assert dnsmasq.without_left(kept, [], before) == kept


def test_leases_of_a_changed_mac_go_when_the_former_is_let_go() -> None:
    """IPv4's tell whose they are, IPv6's do not."""
    was = Reservation("02:00:00:00:00:0A", "10.9.0.2", "n0", UUID_1, address6="fd00::2")
    will = replace(was, mac="02:00:00:00:00:0D")
    both = replace(will, also=(was.mac,))
    old = (
        "1764000000 02:00:00:00:00:0a 10.9.0.2 n0 01:02:00:00:00:00:0a\n"
        "1764000000 7 fd00::2 n0 00:04:bb\n"
    )
    new = "1764000000 02:00:00:00:00:0d 10.9.0.2 n0 01:02:00:00:00:00:0d\n"
    first, between, last = ([dnsmasq.reservation(each)] for each in (was, both, will))
    assert dnsmasq.without_left(old, first, between) == old
    assert dnsmasq.without_left(old + new, between, last) == new
    assert dnsmasq.without_left(old, first, last) == ""


@pytest.mark.parametrize("what", ["dhcp", "tftp"])
def test_a_server_of_all_interfaces_is_in_the_way_before_dnsmasq_meets_it(what: str) -> None:
    free = {each: free_port(socket.SOCK_DGRAM) for each in ("dhcp", "tftp")}
    assert process.obstacle(**free) is None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("0.0.0.0", free[what]))
        found = process.obstacle(**free)
    assert found is not None
    assert f"cannot serve {what.upper()} on UDP port {free[what]}, which another" in str(found)
    assert f"(pid {os.getpid()})" in str(found)
    assert "netboot: none" in str(found)


def test_another_dnsmasq_that_keeps_to_its_interface_is_in_nobodys_way() -> None:
    free = {each: free_port(socket.SOCK_DGRAM) for each in ("dhcp", "tftp")}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            server.setsockopt(socket.SOL_SOCKET, option, 1)
        server.bind(("0.0.0.0", free["dhcp"]))
        assert process.obstacle(**free) is None
