"""What cloud-init reads at its first boot: the data of the NoCloud source.

https://docs.cloud-init.io/en/latest/reference/datasources/nocloud.html. Users write passwords into
it, so that it is in no shape, plan or log: those have its digest.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Seed:
    """What its files are made of. `user_data`: whatever its first line says, "" for none;
    `network_config`: YAML; `vendor_data`: as user data, "" for no such file. Texts are those of the
    cluster, which thousands of nodes may share.
    """

    instance: str
    hostname: str
    keys: tuple[str, ...] = field(repr=False)
    user_data: str = field(repr=False)
    network_config: str = field(repr=False)
    vendor_data: str = field(default="", repr=False)

    @property
    def meta_data(self) -> str:
        """JSON, which is YAML, too."""
        said = {"local-hostname": self.hostname, "public-keys": self.keys}
        return json.dumps({"instance-id": self.instance, **said})

    @property
    def digest(self) -> str:
        """SHA-256 in hexadecimal digits: two seeds of one digest are the same. Of many, compute it
        in a thread: each may have half a megabyte.
        """
        names = ("meta_data", "network_config", "user_data", "vendor_data")
        content = {name: getattr(self, name) for name in names}
        if not self.vendor_data:  # seeds without it are as they were before there was any
            del content["vendor_data"]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def files(self) -> dict[str, str]:
        """Name, as cloud-init looks for it -> content."""
        return {
            "meta-data": self.meta_data,
            "user-data": self.user_data,
            "network-config": self.network_config,
            **({"vendor-data": self.vendor_data} if self.vendor_data else {}),
        }
