"""Hosts of a cluster that do not answer: who must have them, and who does without.

An `up` of everything needs every host. One of some nodes (`--target`) needs theirs, and `status`
none: nodes of hosts that are away are left as they are, and no new ones come there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from nospoon.control.request import Request
from nospoon.errors import HostUnreachable
from nospoon.model.capabilities import Capabilities
from nospoon.model.cluster import Host
from nospoon.model.host_facts import HostFacts
from nospoon.plan.words import unreachable
from nospoon.runtime.few import all_begun

Ask = Callable[[Host], Awaitable[tuple[Capabilities, HostFacts]]]
ELSEWHERE = "`--target NODE` brings up nodes of other hosts meanwhile."


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What hosts said, by name. `away`: why those that said nothing are silent."""

    capabilities: Mapping[str, Capabilities]
    facts: Mapping[str, HostFacts]
    away: Mapping[str, str]

    @property
    def all_facts(self) -> Mapping[str, HostFacts]:
        """Those of hosts that are away too: that nothing may come there."""
        return {
            **self.facts,
            **{name: HostFacts.of_one_away(why) for name, why in self.away.items()},
        }


async def survey(hosts: Sequence[Host], ask: Ask) -> Surveyed:
    """Ask all hosts at once. Raises what they raise, but that one does not answer."""
    answers = await all_begun(hosts, ask)
    capabilities, facts, away = dict[str, Capabilities](), dict[str, HostFacts](), dict[str, str]()
    for host, answer in zip(hosts, answers, strict=True):
        match answer:
            case HostUnreachable():
                away[host.name] = str(answer)
            case Exception():
                raise answer
            case (can, seen):
                capabilities[host.name], facts[host.name] = can, seen
    return Surveyed(capabilities, facts, away)


def require(request: Request, away: Mapping[str, str], stranded: Collection[str]) -> None:
    """Refuse what cannot be done without hosts that are away. `stranded`: the nodes that are there,
    or are to be. Raises `HostUnreachable`.
    """
    targets = sorted(set(request.targets).intersection(stranded))
    if away and (request.needs_all or targets):
        told = [unreachable(name, why) for name, why in sorted(away.items())]
        hint = f"{', '.join(targets)} cannot be reached." if targets else ELSEWHERE
        raise HostUnreachable("; ".join(told), hint=hint)
