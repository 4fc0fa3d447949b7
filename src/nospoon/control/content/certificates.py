"""The certificate that a cluster file gives for Redfish: uploaded, and fit to be served with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from nospoon.clusterfile.document import Document
from nospoon.control.content.files import Files
from nospoon.control.request import Request
from nospoon.errors import SpecError
from nospoon.model.cluster import Cluster
from nospoon.runtime import clock
from nospoon.runtime.tls import why_unusable
from nospoon.runtime.workers import Workers


def certificate_files(cluster: Cluster) -> set[str]:
    """Names of the certificate and its key in the file."""
    given = cluster.addressing.certificate
    return {given.certificate, given.key} if given is not None else set()


def certificate_digest(cluster: Cluster, uploads: Mapping[str, str]) -> str:
    """SHA-256 of the certificate, "" when the file gives none."""
    given = cluster.addressing.certificate
    return uploads[given.certificate] if given is not None else ""


async def refuse_unusable(
    cluster: Cluster,
    uploads: Mapping[str, str],
    files: Files,
    request: Request,
    workers: Workers,
) -> None:
    """Raises `SpecError` for a certificate or a key with which nothing can be served."""
    given = cluster.addressing.certificate
    if given is None:
        return
    certificate, key = (files.path(uploads[name]) for name in (given.certificate, given.key))
    found = await asyncio.to_thread(why_unusable, certificate, key, now=clock.unix())
    if found is not None:
        which, why = found
        path = ("bmc", "tls", which)
        name = given.certificate if which == "certificate" else given.key
        document = await workers.run(request.caller.uid, Document, request.text, request.file)
        raise SpecError([document.problem(path, f"cannot serve with {name!r}: {why}")])
