"""What cloud-init is given costs little however many nodes get it: a file of half a megabyte had
the daemon make 10 GiB of it, for 15 s of its event loop.
"""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from uuid import UUID

import pytest
from tests.security.asked import OTHER, a_daemon

from nospoon.clusterfile.load import load
from nospoon.clusterfile.models import MAX_CLOUD_INIT
from nospoon.errors import SpecError
from nospoon.model.seed import Seed
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.seeds import seeds_of

KEY = f"ssh-rsa {'A' * 1000} me"
FILE = (
    "cluster: c\nhosts: {sim: simulated}\nnodes:\n"
    "- {kind: vm, count: %d, disks: [{image: i, size: 1MiB}], ssh_keys: '%s', user_data: '%s'}\n"
)


def test_what_is_given_to_all_nodes_of_a_cluster_is_bounded_together() -> None:
    data = "#" * (1 << 16)
    most = MAX_CLOUD_INIT // (len(KEY) + len(data))
    assert len(load(FILE % (most, KEY, data), file="x").nodes) == most
    with pytest.raises(SpecError, match=r"at most 268435456 characters of user data and ssh keys"):
        load(FILE % (most + 1, KEY, data), file="x")


def test_nodes_share_the_texts_that_they_are_given() -> None:
    cluster = load(FILE % (2, KEY, "#cloud-config"), file="x")
    one, other = seeds_of(cluster, UUID(int=7), Allocations(), boot_port=8069).values()
    assert one.keys[0] is other.keys[0]
    assert one.user_data is other.user_data


async def test_digests_are_not_made_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    digest = Seed.digest

    def noted(seed: Seed) -> str:
        threads.append(threading.get_ident())
        return str(digest.__get__(seed))

    monkeypatch.setattr(Seed, "digest", property(noted))
    image = bytes(1 << 20)
    sha256 = hashlib.sha256(image).hexdigest()
    async with a_daemon(tmp_path) as asked:
        assert (await asked.ask(OTHER, "PUT", f"/v1/files/{sha256}", image)).status == 204
        body = {"file": "c.yaml", "text": FILE % (3, KEY, "#!/bin/sh"), "uploads": {"i": sha256}}
        planned = await asked.ask(OTHER, "POST", "/v1/plan", body)
        assert planned.status == 200, planned.body
    assert len(threads) >= 3
    assert threading.get_ident() not in threads
    assert KEY not in json.dumps(planned.json)
