"""TFTP answers the machines of its network, and no process of its host.

Files there may have secrets (`tree`), and TFTP has no users. dnsmasq cannot see the difference: to
who asks on the host itself, Linux says that the question came in by the bridge (IP_PKTINFO), though
it came by the loopback interface, as iptables(8) does. So do questions of guests with user-mode
networking, whose QEMU is such a process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import PurePath

TFTP_PORT = 69
OPEN = """
open() {
  for t in iptables ip6tables; do
    $t -w -S INPUT 2>/dev/null | sed -n "s/^-A \\(.* --comment $1 -j .*\\)/-D \\1/p" |
      while read -r rule; do $t -w $rule; done
  done
}
open "$1"
"""
"""Shell: the rules of a service go, which their comment names."""
CLOSE = f"""
{OPEN}
of=$1
shift
failed=0
for each in "$@"; do
  case $each in *:*) t=ip6tables ;; *) t=iptables ;; esac
  $t -w -I INPUT 1 -i lo -d "$each" -p udp --dport {TFTP_PORT} \\
    -m comment --comment "$of" -j REJECT || failed=1
done
exit $failed
"""
"""Shell: these rules, and no others of that service."""


def name_of(directory: PurePath) -> str:
    """What the comment of a service's rules is, by its directory: iptables(8) shows others in
    quotes, and 256 characters at most.
    """
    return f"nospoon-tftp-{hashlib.sha256(str(directory).encode()).hexdigest()[:16]}"


def closing(directory: PurePath, addresses: Iterable[str]) -> list[str]:
    """The command that closes a service at these addresses to processes of its host."""
    return ["sh", "-c", CLOSE, "sh", name_of(directory), *addresses]


def opening(directory: PurePath) -> list[str]:
    """The command that takes that back."""
    return ["sh", "-c", OPEN, "sh", name_of(directory)]
