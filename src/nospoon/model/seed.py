"""What cloud-init reads at its first boot: the data of the NoCloud source.

https://docs.cloud-init.io/en/latest/reference/datasources/nocloud.html. Users write passwords into
it, so that it is in no shape, plan or log: those have its digest.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Seed:
    """The three files of it. YAML; `user_data` whatever its first line says, "" for none."""

    meta_data: str = field(repr=False)
    user_data: str = field(repr=False)
    network_config: str = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 in hexadecimal digits: two seeds of one digest are the same."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def files(self) -> dict[str, str]:
        """Name, as cloud-init looks for it -> content."""
        return {
            "meta-data": self.meta_data,
            "user-data": self.user_data,
            "network-config": self.network_config,
        }
