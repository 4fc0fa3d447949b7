"""What a cluster file names of others: volumes, and who may have them as disks, and images.

Whoever has a volume as a disk reads and writes all of it, as libvirtd can. So only those may who
can do that without us: the daemon's administrators.
"""

from __future__ import annotations

from nospoon.errors import Forbidden
from nospoon.model.cloud_images import cloud_name
from nospoon.model.cluster import Cluster
from nospoon.model.principal import Principal


def existing_volumes(cluster: Cluster) -> frozenset[str]:
    """POOL/VOLUME of each that the file names."""
    return frozenset(disk.volume for node in cluster.nodes for disk in node.disks if disk.volume)


def cloud_images(cluster: Cluster) -> frozenset[str]:
    """glance:NAME or glance:ID of each image in a cloud that the file names. Whoever sees it there
    may use it.
    """
    named = (disk.image for node in cluster.nodes for disk in node.disks)
    return frozenset(each for each in named if cloud_name(each))


def refuse_borrowers(wanted: frozenset[str], caller: Principal) -> None:
    """Raises `Forbidden` for a user who may not have the volumes that the file names."""
    if wanted and not caller.admin:
        raise Forbidden(
            f"user {caller.uid} may not attach existing volumes ({', '.join(sorted(wanted))}) "
            "through this daemon: they are not nospoon's",
            hint="Ask its administrator, or use a daemon of your own (NOSPOON_RUNTIME_DIR).",
        )
