"""Overlays: two clusters' networks never have the same VXLAN identifier."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.clusterfile.load import load
from nospoon.plan import identity
from nospoon.plan.addresses.tunnels import against_identifiers

MINE, THEIRS = UUID(int=1), UUID(int=2)


def test_a_plan_refuses_the_identifier_of_another_clusters_network() -> None:
    networks = "networks: {lan: {overlay: vxlan}, plain: {}}\n"
    text = f"cluster: c\nhosts: {{a: simulated}}\n{networks}nodes: [{{}}]\n"
    cluster = load(text, file="f")
    theirs = {str(identity.network_identifier(THEIRS, name)) for name in ("lan", "plain")}
    assert list(against_identifiers(cluster, MINE, theirs)) == []
    number = identity.network_identifier(MINE, "lan")
    (reason,) = against_identifiers(cluster, MINE, {str(number)})
    assert reason == (
        f"network lan: another cluster has a network with its VXLAN identifier, {number}. Give the "
        "network another name."
    )


async def test_the_daemon_refuses_the_second_cluster_with_an_identifier(tmp_path: Path) -> None:
    """Names that were looked for until both ids gave them one identifier."""

    def text(cluster: str, id_: int, network: str) -> str:
        return (
            f"cluster: {cluster}\nid: 6f1b2c3d-0000-4000-8000-{id_:012}\nhosts: {{s: simulated}}\n"
            f"networks: {{{network}: {{overlay: vxlan, cidr: 10.91.{id_}.0/24}}}}\n"
            f"nodes: [{{bmc: [], nics: [{network}]}}]\n"
        )

    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, text("mine", 1, "n3542"))).status == 202
        refused = await asked.up(OTHER, text("theirs", 2, "n1212"))
        assert refused.status == 422
        assert "VXLAN identifier, 15884948" in refused.body.decode()
        assert (await asked.up(OTHER, text("theirs", 2, "n1213"))).status == 202
