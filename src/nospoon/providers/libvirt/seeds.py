"""What cloud-init reads in a machine: an ISO in the machine's pool, for its eyes alone.

Its label and names are those that NoCloud looks for. A file is named by node and content, so that
the definition of a domain says which data it has.
"""

from __future__ import annotations

from nospoon.model.seed import Seed
from nospoon.protocols import iso9660
from nospoon.providers.libvirt.bindings import Connect, VirPool
from nospoon.providers.libvirt.images import send_bytes
from nospoon.providers.libvirt.storage_xml import SEED, seed_file

LABEL = "cidata"
PRIVATE = "0600"


def put_seed(connect: Connect, pool: VirPool, node: str, seed: Seed) -> None:
    """Write it into the pool, in place of one that is there: a daemon may have ended half-way."""
    files = {name: text.encode() for name, text in seed.files.items()}
    content = iso9660.image(LABEL, files)
    send_bytes(connect, pool, content, seed_file(node, seed.digest), mode=PRIVATE)


def remove_seeds(pool: VirPool, node: str, *, besides: str = "") -> None:
    """Delete what a node had, but for the one of this digest. A guest that runs with it keeps the
    open file (unlink(2)) until it is powered off.
    """
    for file in pool.listAllVolumes(0):
        match = SEED.match(file.name())
        if match is not None and match["node"] == node and match["digest"] != besides:
            file.delete(0)
