"""dnsmasq's configuration, judged by dnsmasq itself."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from nospoon.model.resources import Loader, NetbootService, Reservation
from nospoon.protocols.ipxe import dnsmasq

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


@pytest.mark.tools
def test_dnsmasq_accepts_it(tmp_path: Path) -> None:
    for name in ("hosts", "tftp"):
        (tmp_path / name).mkdir()
    config = tmp_path / "dnsmasq.conf"
    config.write_text("\n".join(lines(str(tmp_path))) + "\n")
    argv = ["dnsmasq", "--test", f"--conf-file={config}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
