"""What guests of a network reach on their host: rules of iptables(8), a chain of ours a bridge.

They only take away: what is not refused here goes on to the host's other rules (RETURN, not
ACCEPT). A daemon that may not change the host's rules makes none, and says so in its log.

What engines of containers publish at the host's addresses is forwarded, and they let it pass before
libvirt's rules refuse what leaves an isolated network: it is refused in a table that comes first.

Whatever else guests reach, the host takes nothing from them whose source it would answer elsewhere
(RFC 3704): they would have it answer other networks for them, and could forge the router of its own
network, which redirects it (RFC 1122 §3.2.2.2). sysctl's `rp_filter` is systemd's, which sets it
when a bridge comes.

Of isolated networks the host follows no connections but its own (conntrack). Linux shows it those
of guests with each other, too (br_netfilter, as Docker sets it): a guest that says both sides of
made-up ones, each of which is kept for five days, would leave no place for the host's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_interface

import structlog

from nospoon.model.resources.networks import Link
from nospoon.providers.printed import lines_of
from nospoon.runtime.process import Finished, said_by
from nospoon.runtime.runner import Runner

log = structlog.get_logger()
Address = IPv4Address | IPv6Address
FAMILIES = {4: "iptables", 6: "ip6tables"}
CONTROL = {4: "icmp --icmp-type echo-request", 6: "ipv6-icmp"}
"""The host's own errors of ICMP belong to what was sent (conntrack); it believes no others."""
SERVED = {4: (67, 69), 6: (547, 69)}
"""DHCP and TFTP; what TFTP goes on with from other ports belongs to what was sent (conntrack)."""
TO_ALL = {4: ("255.255.255.255", 67), 6: ("ff02::1:2", 547)}
"""Where clients of DHCP ask that know no server yet (RFC 2131 §4.1, RFC 8415 §7.1)."""
REPLIES = "-m conntrack --ctstate ESTABLISHED,RELATED -j RETURN"

FORGED = """
forged() {
  $1 -w -t mangle $2 PREROUTING $3 -i "$b" -m addrtype --dst-type LOCAL -m rpfilter --invert \\
    -m comment --comment "$owner" -j DROP
}
"""
"""Shell: the rule about forged sources of one of `FAMILIES`. Frames from guest to guest, which
Linux may show to the table, too (br_netfilter), are not for the host.
"""
UNFOLLOWED = """
unfollowed() {
  $1 -w -t raw $2 PREROUTING $3 -i "$b" -m addrtype ! --dst-type LOCAL \\
    -m comment --comment "$owner" -j CT --notrack
}
"""
"""Shell: the rule of one of `FAMILIES` about connections that are not the host's."""
MAKE_FORGED = f"""
b=$1 owner=$2 nat=$3
{FORGED}
{UNFOLLOWED}
failed=0
for t in iptables ip6tables; do
  forged $t -C 2>/dev/null || forged $t -I 1 || failed=1
  if [ "$nat" ]; then
    while unfollowed $t -D 2>/dev/null; do :; done
  else
    unfollowed $t -C 2>/dev/null || unfollowed $t -I 1 || failed=1
  fi
done
exit $failed
"""
MAKE = """
failed=0
b=$1 c=$2 owner=$3 four=$4 six=$5
for t in iptables ip6tables; do
  [ $t = iptables ] && rules=$four || rules=$six
  printf '%s' "$rules" | $t-restore -w --noflush || failed=1
  for at in "filter INPUT" "mangle FORWARD ! -o $b"; do
    set -- $at
    table=$1 hook=$2; shift 2
    set -- -i "$b" "$@" -m comment --comment "$owner" -j "$c"
    $t -w -t $table -C $hook "$@" 2>/dev/null || $t -w -t $table -I $hook 1 "$@" || failed=1
  done
done
exit $failed
"""
REMOVE = f"""
b=$1 c=$2 owner=$3
{FORGED}
{UNFOLLOWED}
for t in iptables ip6tables; do
  while unfollowed $t -D 2>/dev/null; do :; done
  while forged $t -D 2>/dev/null; do :; done
  while $t -w -D INPUT -i "$b" -m comment --comment "$owner" -j "$c" 2>/dev/null; do :; done
  set -- -i "$b" ! -o "$b" -m comment --comment "$owner" -j "$c"
  while $t -w -t mangle -D FORWARD "$@" 2>/dev/null; do :; done
  for table in filter mangle; do
    $t -w -t $table -F "$c" 2>/dev/null && $t -w -t $table -X "$c" 2>/dev/null
  done
done
true
"""
LOOK = " && ".join(
    f"{each} -w -S INPUT && {each} -w -t mangle -S FORWARD" for each in FAMILIES.values()
)


class HostGuard:
    """The rules of one host. `owner` is the comment of ours; others' are left alone."""

    def __init__(self, runner: Runner, owner: str) -> None:
        self._runner, self._owner = runner, owner

    async def make(self, link: Link) -> None:
        """Have these rules and no others; where guests reach all of the host, those about forged
        sources and connections alone.
        """
        if link.host_ports is None:
            await self.remove(link.name)
        done = await self._sh(MAKE_FORGED, link.name, self._owner, "nat" if link.nat else "")
        if done.status:
            log.warning(
                "guests may send to the host from other networks' addresses, or fill its table of "
                "connections",
                bridge=link.name, why=said_by(done),
            )  # fmt: skip
        if link.host_ports is None:
            return
        texts = (rules(link, 4), rules(link, 6))
        done = await self._sh(MAKE, *self._words(link.name), *texts)
        if done.status:
            log.warning(
                "guests reach whatever listens on the host", bridge=link.name, why=said_by(done)
            )

    async def remove(self, bridge: str) -> None:
        await self._sh(REMOVE, *self._words(bridge))

    async def lacking(self, links: Iterable[Link]) -> frozenset[str]:
        """Bridges whose rules should be there and are not; none where that cannot be seen."""
        wanted = {each.name for each in links if each.host_ports is not None}
        done = await self._sh(LOOK) if wanted else None
        if done is None or done.status:
            return frozenset()
        lines = lines_of(done)
        return frozenset(
            bridge
            for bridge in wanted
            if sum(line.endswith(f"-j {chain(bridge)}") for line in lines) < 2 * len(FAMILIES)
        )

    def _words(self, bridge: str) -> tuple[str, str, str]:
        return bridge, chain(bridge), self._owner

    async def _sh(self, script: str, *words: str) -> Finished:
        return await self._runner.run(["sh", "-c", script, "sh", *words], check=False)


def chain(bridge: str) -> str:
    """Its name: at most 28 characters (iptables(8))."""
    return f"nospoon-{bridge}"


def rules(link: Link, version: int) -> str:
    """For iptables-restore(8): the chain is made, or emptied, and filled in one step."""
    head = f":{chain(link.name)} - [0:0]"
    received = ("*filter", head, *_rules(link, version), "COMMIT")
    return "\n".join((*received, "*mangle", head, *_forwarded(link, version), "COMMIT", ""))


def _rules(link: Link, version: int) -> Iterator[str]:
    """IPv6 guests reach the host's link-local address also where the network has no IPv6."""
    add = f"-A {chain(link.name)}"
    yield f"{add} {REPLIES}"
    yield f"{add} -p {CONTROL[version]} -j RETURN"
    for there, port in _served(link, version):
        yield f"{add} -d {there} -p udp --dport {port} -j RETURN"
    for here, protocol, port in _opened(link, version):
        yield f"{add} -d {here} -p {protocol} --dport {port} -j RETURN"
    yield f"{add} -j REJECT"


def _forwarded(link: Link, version: int) -> Iterator[str]:
    """Opened ports, too, may be those of a container, which has another address. By NAT guests
    reach what the host does, but not by an address of the host.
    """
    add = f"-A {chain(link.name)}"
    yield f"{add} {REPLIES}"
    for here, protocol, port in _opened(link, version):
        sent_to = f"--ctorigdst {here} --ctorigdstport {port}"
        yield f"{add} -p {protocol} -m conntrack {sent_to} -j RETURN"
    yield f"{add} -m conntrack --ctstate DNAT -j DROP" if link.nat else f"{add} -j DROP"


def _served(link: Link, version: int) -> Iterator[tuple[Address | str, int]]:
    """At the address on this network: at others of the host, another's servers may listen."""
    here = _address(link, version)
    if here is not None:
        yield TO_ALL[version]
        yield from ((here, port) for port in SERVED[version])


def _opened(link: Link, version: int) -> Iterator[tuple[Address, str, int]]:
    here = _address(link, version)
    if here is None:
        return
    for port in link.host_ports or ():
        for protocol in ("tcp", "udp"):
            yield here, protocol, port


def _address(link: Link, version: int) -> Address | None:
    text = link.address if version == 4 else link.address6
    return ip_interface(text).ip if text else None
