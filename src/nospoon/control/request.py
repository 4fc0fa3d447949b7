"""What a client asks of a cluster file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from nospoon.model.cluster import Cluster
from nospoon.model.principal import Principal


@dataclass(frozen=True, slots=True)
class Request:
    """A cluster file as a client sent it; see `nospoon.api.wire.ClusterRequest`. Or `cluster`, a
    value that is in no file: `text` is "" then, and `file` what messages call it.

    `targets`: nodes to which the plan is limited; empty: all. `parallel`: driver calls at once on
    one host, and nodes that Ironic works on at once; None: the engine's defaults. `fetches`: URLs
    of which there is no copy are fetched; who only looks does without.
    `force`: nodes that are deployed are undeployed where they are not in the file any more.
    """

    caller: Principal
    file: str
    text: str = ""
    cluster: Cluster | None = None
    uploads: Mapping[str, str] = field(default_factory=dict)
    cluster_id: UUID | None = None
    fingerprint: str = ""
    rebalance: bool = False
    targets: tuple[str, ...] = ()
    parallel: int | None = None
    fetches: bool = True
    force: bool = False

    @property
    def needs_all(self) -> bool:
        """Whether every host must answer: who names nodes needs theirs, who only looks none."""
        return self.fetches and not self.targets
