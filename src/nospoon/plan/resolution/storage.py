"""What machines' disks are made in and of, and what machines boot that ask the daemon."""

from __future__ import annotations

from collections.abc import Iterator

from nospoon.model.cluster import Host
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Pool
from nospoon.plan import identity
from nospoon.plan.resolution.boot_images import boot_images, has_image
from nospoon.plan.resolution.context import Context
from nospoon.plan.resolution.images import images, roots
from nospoon.plan.resolution.relay import Relays


def storage(context: Context, host: Host, relays: Relays) -> Iterator[Resource]:
    """Of a host, with its relay, which machines boot by."""
    if host.declares.has_pools:
        end = identity.pool_end(host.connection.socket)
        path = f"{context.around.pool_roots[host.name]}/{context.pool}{end}"
        yield Resource(context.pool_key(host.name), Pool(path=path))
        yield from images(context, host.name)
    elif host.declares.has_boot_image:
        yield from roots(context, host)
    if host.declares.has_boot_image:
        asking = [node for node in context.nodes_on(host.name) if has_image(node, host)]
        relay = host.connection.relay
        if relay is not None and (asking or relays.serves(host)):
            yield from relays.of(host, relay)
        if asking:
            yield from boot_images(host, asking, relays.boot_url(host))
