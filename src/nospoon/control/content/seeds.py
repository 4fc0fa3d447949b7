"""What cloud-init is given, while machines are made with it: in memory alone.

It can be made again from the cluster file, which is in the store, encrypted. So nothing of it is
kept anywhere else: it is here as long as its plan is held.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from nospoon.errors import ProviderError
from nospoon.model.seed import Seed
from nospoon.runtime.paced import paced


@dataclass(frozen=True, slots=True)
class Seeds:
    """Seeds by their digests, as long as others hold them."""

    _held: WeakValueDictionary[str, Seed] = field(default_factory=WeakValueDictionary)

    async def offer(self, seeds: Mapping[str, Seed]) -> dict[str, Seed]:
        """Digest -> seed, to be held by who wants them to be found."""
        return {
            digest: self._held.setdefault(digest, each)
            async for digest, each in paced(seeds.items())
        }

    async def open(self, digest: str) -> Seed:
        """Raises `ProviderError` for one that no plan holds."""
        found = self._held.get(digest)
        if found is None:
            raise ProviderError(
                f"no plan holds the cloud-init data {digest[:12]} any more",
                hint="Run `nospoon up` again.",
            )
        return found
