"""Accounts of BMCs: from the file where it gives them, else kept, else random."""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from nospoon.model.cluster import Cluster, Credentials
from nospoon.model.resources.bmcs import Outlet, Secrets
from nospoon.plan import identity
from nospoon.store.crypt import Cipher
from nospoon.store.nodes import NodeRow, Source

PASSWORD_LENGTH = 16
"""IPMI 2.0 allows 20 bytes (§22.30), 1.5 clients 16: what every client can type."""
_ALPHABET = string.ascii_letters + string.digits


@dataclass(frozen=True, slots=True)
class Account:
    """Who may log in to one BMC. `key` changes when any of it does; the rest as in the file."""

    username: str
    password: str = field(repr=False)
    key: str = ""
    k_g: str = field(default="", repr=False)
    pdu_secret: str = field(default="", repr=False)


def random_password() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(PASSWORD_LENGTH))


def accounts_for(
    cluster: Cluster, cluster_id: UUID, rows: Sequence[NodeRow], cipher: Cipher
) -> dict[str, Account]:
    """Node name -> account; what the file leaves open is kept, or made. What an earlier file gave
    is not kept. A node that is another machine now, by its UUID, keeps its account.
    """
    result = {}
    known, named = {row.uuid: row for row in rows}, {row.name: row for row in rows}
    of_file: dict[Credentials, Account] = {}  # which those of a group share
    for node in cluster.nodes:
        given = node.credentials
        if given.password:
            if given not in of_file:
                of_file[given] = account(given, cipher)
            result[node.name] = of_file[given]
            continue
        row = known.get(identity.uuid_of(cluster_id, node), named.get(node.name))
        kept = ""
        if row is not None and row.source is not Source.FILE:
            kept = cipher.decrypt(row.password)
        password = kept or random_password()
        result[node.name] = account(replace(given, password=password), cipher)
    return result


def pdu_secret(outlet: Outlet | None, sealed: bytes, cipher: Cipher) -> str:
    """Community and pass phrases of a PDU: the file's, else derived from the daemon's key.

    "" without a PDU.
    """
    if outlet is None:
        return ""
    return cipher.decrypt(sealed) if sealed else cipher.digest(f"pdu\0{outlet.pdu}")


def secrets_of(row: NodeRow, outlet: Outlet | None, cipher: Cipher) -> Secrets:
    """What a client needs to log in to a node's BMC, and to the PDU that feeds it."""
    return Secrets(
        cipher.decrypt(row.password),
        cipher.decrypt(row.k_g) if row.k_g else "",
        pdu_secret(outlet, row.pdu_secret, cipher),
    )


def account(given: Credentials, cipher: Cipher) -> Account:
    parts = [given.username, given.password]
    if given.k_g or given.pdu_secret:
        parts += [given.k_g, given.pdu_secret]
    return Account(
        given.username,
        given.password,
        cipher.digest("\0".join(parts)),
        given.k_g,
        given.pdu_secret,
    )
