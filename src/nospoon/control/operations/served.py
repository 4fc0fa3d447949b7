"""What of a cluster file is served: boot profiles of its nodes, and a certificate of its BMCs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from nospoon.control.content.files import Files
from nospoon.control.fleet.fleet import Member
from nospoon.model.cluster import BootProfile, CertificateFiles, Cluster
from nospoon.services.netboot.ports import ServedFile, ServedProfile
from nospoon.store.clusters import ClusterRow, Outline
from nospoon.store.nodes import NodeRow

Give = Callable[[str, Path, Path], None]
"""Gives those who serve BMCs a certificate, by its digest, and its key."""


def served_profiles(
    cluster: Cluster, uploads: Mapping[str, str], files: Files
) -> dict[str, ServedProfile]:
    """The file's boot profiles with local files found among the uploads."""

    def served(name: str) -> ServedFile | str:
        if name not in uploads:
            return name
        return ServedFile(path=str(files.path(uploads[name])), name=uploads[name][:16])

    def profile(each: BootProfile) -> ServedProfile:
        initrd = tuple(served(name) for name in each.initrd)
        return ServedProfile(each.name, served(each.kernel), initrd, each.cmdline, each.script)

    return {each.name: profile(each) for each in cluster.profiles}


def give_certificate(
    given: CertificateFiles | None, uploads: Mapping[str, str], files: Files, give: Give
) -> None:
    """BMCs know it by its digest. Of one whose copy is gone they tell when they are served."""
    if given is None:
        return
    digest, key = (uploads.get(name, "") for name in (given.certificate, given.key))
    if files.has(digest) and files.has(key):
        give(digest, files.path(digest), files.path(key))


def member_of(row: ClusterRow | Outline, node: NodeRow, profile: ServedProfile | None) -> Member:
    return Member(
        owner=row.owner,
        cluster=row.name,
        cluster_id=row.id,
        node=node.name,
        host=node.host,
        machine=node.machine,
        profile=profile,
    )
