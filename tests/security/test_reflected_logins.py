"""BMC clients have the daemon connect to no BMC of its own: wrong logins would count there as those
of this machine. Subscriptions of one BMC's client, with an Authorization header, kept the clients
of another user's BMC out (503), as long as these were on this machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.security.asked import OWNER, a_daemon

from nospoon.errors import Unfetchable
from nospoon.runtime.reach import places_of

ONE = "cluster: one\nhosts: {s: simulated}\nnodes: [{name: n, bmc: [redfish]}]\n"
ALL = ONE.replace("one", "all") + "bmc: {address: 0.0.0.0, redfish_port: 8999}\n"
SIX = ONE.replace("one", "six") + 'bmc: {address: "::", redfish_port: 8998}\n'
ELSEWHERE = "192.0.2.9"


async def test_redfish_of_bmcs_is_never_connected_to(tmp_path: Path) -> None:
    async with a_daemon(tmp_path, NOSPOON_MEDIA_NETWORKS="127.0.0.0/8") as asked:
        assert (await asked.up(OWNER, ONE)).status == 202
        assert (await asked.up(0, ALL)).status == 202
        assert (await asked.up(0, SIX)).status == 202
        (row,) = (await asked.ask(OWNER, "GET", "/v1/bmcs")).json
        port = int(row["redfish"].partition("://")[2].partition("/")[0].rpartition(":")[2])
        for host, closed in (
            ("127.0.0.1", port), ("::ffff:127.0.0.1", port), ("127.0.0.1", 8999),
            ("127.0.0.1", 8998),
        ):  # fmt: skip
            for reach in (asked.daemon.parts.reach, asked.daemon.parts.files.reach):
                await places_of(host, port + 1, reach)
                with pytest.raises(Unfetchable, match="may not reach"):
                    await places_of(host, closed, reach)
        assert await places_of(ELSEWHERE, 8999, asked.daemon.parts.reach) == [ELSEWHERE]
