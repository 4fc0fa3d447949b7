"""What cloud-init is given, while machines are made with it: in memory alone.

It can be made again from the cluster file, which is in the store, encrypted. So nothing of it is
kept anywhere else: it is here as long as its plan is held.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from nospoon.errors import ProviderError
from nospoon.model.seed import Seed


@dataclass(frozen=True, slots=True)
class Seeds:
    """Seeds by their digests, as long as others hold them."""

    _held: WeakValueDictionary[str, Seed] = field(default_factory=WeakValueDictionary)

    def offer(self, seeds: Iterable[Seed]) -> dict[str, Seed]:
        """Digest -> seed, to be held by who wants them to be found."""
        return {(digest := each.digest): self._held.setdefault(digest, each) for each in seeds}

    async def open(self, digest: str) -> Seed:
        """Raises `ProviderError` for one that no plan holds."""
        found = self._held.get(digest)
        if found is None:
            raise ProviderError(
                f"no plan holds the cloud-init data {digest[:12]} any more",
                hint="Run `nospoon up` again.",
            )
        return found
