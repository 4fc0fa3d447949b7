"""The senders of which a tunnel takes frames: its peers. Rules of iptables(8), a chain a bridge.

VXLAN has no proof of who sends (RFC 7348 §7), and Linux takes frames for a device from any address,
and then sends to that address what is for whoever it learned behind it. Guests of networks with
NAT, which reach their host, and whoever else reaches it, would be on the network of a tunnel as
soon as they had found its identifier by trying all. What a host forwards is held to the same, for
other hosts take what has its address by NAT for its own. Other tunnels of the same port, such as
those of a cluster of containers, have other identifiers and pass.
"""

from __future__ import annotations

from ipaddress import ip_address

from nospoon.model.resources.networks import Tunnel

PORT = 4789
"""UDP port (RFC 7348 §5)."""
IDENTIFIER = {4: "0>>22&0x3C@12>>8", 6: "52>>8"}
"""Of a packet's header of VXLAN, as iptables-extensions(8) finds it (`u32`): behind a header of IP
of any length, and behind one of IPv6 without extensions.
"""
EXTENSIONS = ("hop", "dst", "route", "frag", "auth")
"""Of IPv6 (RFC 8200 §4): no tunnel sends any, and behind one no identifier would be found."""
EXTENDED = "-m conntrack --ctstate INVALID,NEW,RELATED,ESTABLISHED,UNTRACKED -m ipv6header --soft"
"""Fragments are put together where a rule looks at connections (nf_defrag), in whatever state."""
MAKE = """
c=$1 t=$2 rules=$3
printf '%s' "$rules" | $t-restore -w --noflush || exit
set -- -p udp --dport PORT -j "$c"
failed=0
for hook in INPUT FORWARD; do
  $t -w -C $hook "$@" 2>/dev/null || $t -w -I $hook 1 "$@" || failed=1
done
exit $failed
""".replace("PORT", str(PORT))
REMOVE = """
c=$1
for t in iptables ip6tables; do
  for hook in INPUT FORWARD; do
    while $t -w -D $hook -p udp --dport PORT -j "$c" 2>/dev/null; do :; done
  done
  $t -w -F "$c" 2>/dev/null && $t -w -X "$c" 2>/dev/null
done
true
""".replace("PORT", str(PORT))


def chain(bridge: str) -> str:
    """Its name: at most 28 characters (iptables(8))."""
    return f"nospoon-vx-{bridge}"


def rules(bridge: str, tunnel: Tunnel) -> str:
    """For iptables-restore(8): the chain is made, or emptied, and filled in one step."""
    version = ip_address(tunnel.local).version
    add, is_its = f"-A {chain(bridge)}", IDENTIFIER[version]
    return "\n".join((
        "*filter",
        f":{chain(bridge)} - [0:0]",
        *(f"{add} {EXTENDED} --header {each} -j DROP" for each in EXTENSIONS if version == 6),
        f'{add} -m u32 ! --u32 "{is_its}={tunnel.vni:#x}" -j RETURN',
        *(f"{add} -s {peer} -j RETURN" for peer in sorted(tunnel.peers)),
        f"{add} -j DROP",
        "COMMIT",
        "",
    ))  # fmt: skip


def making(bridge: str, tunnel: Tunnel) -> list[str]:
    """The command that makes them."""
    tool = "iptables" if ip_address(tunnel.local).version == 4 else "ip6tables"
    return ["sh", "-c", MAKE, "sh", chain(bridge), tool, rules(bridge, tunnel)]


def removing(bridge: str) -> list[str]:
    """The command that removes them; where none are, it does nothing."""
    return ["sh", "-c", REMOVE, "sh", chain(bridge)]
