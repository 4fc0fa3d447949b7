"""The one user data that a server of a cloud has, made of all that cloud-init is given.

Elsewhere the script of a node's services is vendor data, beside the user's own. Nova has vendor
data of its operator alone, so that both are parts of one MIME archive there:
https://docs.cloud-init.io/en/latest/explanation/format.html. cloud-init takes each part as it would
take it alone, and that of services is a script: nothing of the user's has to be merged. It runs
before the user's scripts, as vendor data's do: cloud-init runs them in the order of the names of
their files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from email.mime.text import MIMEText

from nospoon.model.cluster import CloudInit, Cluster, Host, Node
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.key_pairs import THEIRS
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.key_pairs import beside, given
from nospoon.plan.seeds import user_data_of

CLOUD_CONFIG = "#cloud-config"
SCRIPT = "000-nospoon-services"
"""File name of the services' script among scripts of the user, which are `part-001` and so on."""
LONGEST_PORT = 65535
IS_ARCHIVE, WITHIN = b"mime-version:", 4096
"""By which cloud-init knows an archive, within so many of its first bytes (`convert_string` in
its user_data.py).
"""


def joined(user_data: str, vendor_data: str, keys: Sequence[str]) -> str:
    """What a server gets. `keys`: of ssh, which have a place in it where the user's is none."""
    if keys and not user_data:
        user_data = f"{CLOUD_CONFIG}\n{json.dumps({'ssh_authorized_keys': list(keys)})}\n"
    if not vendor_data:
        return user_data
    parts = [_part(vendor_data, "x-shellscript", SCRIPT)]
    if user_data:  # an archive is a part as it is, else its first line says what it is
        is_archive = IS_ARCHIVE in user_data.encode()[:WITHIN].lower()
        parts.append(user_data if is_archive else _part(user_data, "plain"))
    between = f"nospoon-{hashlib.sha256(''.join(parts).encode()).hexdigest()}"
    head = f'Content-Type: multipart/mixed; boundary="{between}"\nMIME-Version: 1.0\n'
    return "\n".join([head, *(f"--{between}\n{each}" for each in parts), f"--{between}--", ""])


def joined_of(init: CloudInit, pair: str, user_data: str) -> str:
    """Of a node with the key pair `pair`, "" for none. `user_data`: as it is filled in."""
    return joined(user_data, init.vendor_data, keys_beside(init.ssh_authorized_keys, pair))


def keys_beside(keys: tuple[str, ...], pair: str) -> tuple[str, ...]:
    """Those that are not of the key pair of a server."""
    return keys if pair.startswith(THEIRS) else beside(keys)


def against_user_data(cluster: Cluster, allocations: Allocations) -> Iterator[str]:
    """User data that is longer than a cloud takes."""
    hosts = {host.name: host for host in cluster.hosts}
    sizes = dict[tuple[CloudInit, str, str], int]()  # nodes share long texts
    for node in cluster.nodes:
        host = hosts.get(allocations.hosts.get(node.name, ""))
        most = host.declares.most_user_data if host is not None else 0
        if host is None or not most or node.kind is NodeKind.BAREMETAL:
            continue
        filled = user_data_of(cluster, node, allocations, LONGEST_PORT)
        key = (node.cloud_init, given(node, host).pair, filled)
        if key not in sizes:
            sizes[key] = len(joined_of(*key).encode())
        if sizes[key] > most:
            yield _too_long(node, host, filled, sizes[key], most)


def _too_long(node: Node, host: Host, user_data: str, size: int, most: int) -> str:
    own, services = len(user_data.encode()), len(node.cloud_init.vendor_data.encode())
    what = f"its user data has {size} bytes"
    if services:
        what = (
            f"its `user_data` of {own} bytes, with roles and `environment` of its services of "
            f"{services}, is an archive of {size}"
        )
    return (
        f"node {node.name} on host {host.name}: {what}, and a cloud takes {most}. Put it into the "
        "image, or fetch it: user data and roles may."
    )


def _part(text: str, subtype: str, name: str = "") -> str:
    """As it is, where it is plain ASCII: Base64 takes a third more."""
    is_plain = text.isascii() and "\r" not in text
    part = MIMEText(text, subtype, "us-ascii" if is_plain else "utf-8")
    if name:
        part.add_header("Content-Disposition", "attachment", filename=name)
    return part.as_string()
