"""Frames to the addresses that bridges keep to themselves, 01:80:C2:00:00:00 to -0F (IEEE 802.1Q
table 8-1), as LLDP and LACP have them.

Linux forwards none of these, and passes them to the port by which they came, as if it were in no
bridge (net/bridge/br_input.c, `br_handle_frame`). With a packet of IP in such a frame a guest spoke
to its host by its own tap: no rule about the bridge was asked, nor its filter about who sends; the
host took its router advertisements, noted its neighbors, and the bridge learned any address.

So the bridge forwards them as it does others (`group_fwd_mask`), by which all rules hold. Of the
three that Linux never forwards, one goes nowhere and one everywhere while there is no STP; frames
to -02 are refused by rules of ebtables(8), a chain a bridge. They know ports by their names, not by
their bridge (`--logical-in`), for which not every kernel has the module.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from nospoon.providers.printed import lines_of
from nospoon.runtime.process import said_by
from nospoon.runtime.runner import Runner

log = structlog.get_logger()
FORWARDED = "0xfff8"
"""A bit for each of the addresses; all that Linux takes (`BR_GROUPFWD_RESTRICTED`)."""
CHAIN = """
e=$(command -v ebtables || command -v ebtables-nft) || { echo "ebtables is not there" >&2; exit 1; }
table() {
  "$e" --concurrent -t filter "$@"
}
jump() {
  table "$1" INPUT -i ns+ -d 01:80:c2:00:00:00/ff:ff:ff:ff:ff:f0 -j "$c"
}
b=$1 c=nospoon-$1
while jump -D 2>/dev/null; do :; done
table -X "$c" 2>/dev/null || true
"""
"""Shell: the chain is gone. Ports that nospoon names begin so (`identity.port_name`)."""
MAKE = f"""
ip link set dev "$1" type bridge group_fwd_mask {FORWARDED}
{CHAIN}
table -N "$c" -P DROP
jump -I
"""
LOOK = r"""
iptables -w -S INPUT >/dev/null || exit 0
ip -details -oneline link show type bridge |
  sed -n 's/^[0-9]*: \([^:@]*\)[:@].* group_fwd_mask \([^ ]*\) .*/\2 \1/p'
"""
"""Shell: of each bridge in this network namespace what it forwards, and its name, to who may change
that.
"""


async def open_bridges(runner: Runner, bridges: Iterable[str]) -> frozenset[str]:
    """Which of these pass frames to their ports, as earlier versions had them; none where that
    cannot be seen, or not be changed.
    """
    names = frozenset(bridges)
    done = await runner.run(["sh", "-c", LOOK], check=False) if names else None
    rows = [line.partition(" ") for line in lines_of(done)] if done is not None else []
    return names & {name for mask, _, name in rows if mask != FORWARDED}


async def keep_off_ports(runner: Runner, bridge: str) -> None:
    """Have the ports of a bridge take no frames for their host."""
    done = await runner.run(["sh", "-ec", MAKE, "sh", bridge], check=False)
    if done.status:
        log.warning(
            "guests reach the host by frames that their bridge does not forward",
            bridge=bridge, why=said_by(done),
        )  # fmt: skip


async def forget(runner: Runner, bridge: str) -> None:
    """Remove the rules of a bridge that goes."""
    await runner.run(["sh", "-ec", CHAIN, "sh", bridge], check=False)
