"""The router advertisement, judged by a second reading of RFC 4861."""

from __future__ import annotations

from ipaddress import IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from nospoon.protocols.ipxe.advertisement import is_solicitation, link_local, nothing_here

MAC = bytes.fromhex("020000000001")
SOLICITATION = bytes.fromhex(
    # Ethernet, IPv6 with hop limit 255, ICMPv6 type 133
    "333300000002 020000000001 86dd"
    "60000000 0010 3a ff"
    "fe80000000000000000000fffe000001"
    "ff020000000000000000000000000002"
    "85 00 0000 00000000 0101 020000000001"
)


def ones_complement_sum(data: bytes) -> int:
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@given(st.binary(min_size=6, max_size=6))
def test_the_checksum_is_right_for_every_mac(mac: bytes) -> None:
    frame = nothing_here(mac)
    packet = frame[14:]
    body = packet[40:]
    pseudo = packet[8:40] + len(body).to_bytes(4, "big") + (58).to_bytes(4, "big")
    assert ones_complement_sum(pseudo + body) == 0xFFFF


def test_it_offers_no_router_no_prefix_and_no_dhcpv6() -> None:
    body = nothing_here(MAC)[54:]
    assert body[0] == 134
    assert body[5] == 0  # neither managed nor other configuration
    assert body[6:8] == b"\0\0"  # router lifetime
    assert body[16:] == b"\x01\x01" + MAC  # the only option: our link-layer address


def test_it_comes_from_our_link_local_address_to_all_nodes() -> None:
    frame = nothing_here(MAC)
    assert frame[:14] == bytes.fromhex("333300000001") + MAC + b"\x86\xdd"
    assert frame[21] == 255
    assert IPv6Address(frame[22:38]) == link_local(MAC) == IPv6Address("fe80::ff:fe00:1")
    assert IPv6Address(frame[38:54]) == IPv6Address("ff02::1")


def test_a_solicitation_is_known_and_our_own_frame_is_none() -> None:
    assert is_solicitation(SOLICITATION)
    assert not is_solicitation(nothing_here(MAC))


def test_a_solicitation_that_crossed_a_router_is_none() -> None:
    assert not is_solicitation(SOLICITATION[:21] + b"\x40" + SOLICITATION[22:])


@given(st.binary(max_size=120))
def test_garbage_is_no_solicitation(frame: bytes) -> None:
    assert is_solicitation(frame) is (
        len(frame) >= 62
        and frame[12:14] == b"\x86\xdd"
        and frame[20:22] == b"\x3a\xff"
        and frame[54] == 133
    )
