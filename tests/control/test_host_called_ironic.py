"""A host may be called `ironic`, and is away without Ironic."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.control.wired import wired

from nospoon.errors import HostUnreachable
from nospoon.store.operations import OperationState

TEXT = (
    "cluster: c\nhosts: {{{away}: simulated, s: simulated}}\n"
    "nodes: [{{name: a, host: {away}}}, {{name: b, host: s}}{more}]\n"
)


@pytest.mark.parametrize("away", ["x", "ironic"])
async def test_a_host_that_is_away_is_no_ironic(tmp_path: Path, away: str) -> None:
    text, more = (TEXT.format(away=away, more=each) for each in ("", ", {name: n, host: s}"))
    async with wired(tmp_path) as asking:
        await asking.up(text)
        asking.connection(away).around.reachable = False
        with pytest.raises(HostUnreachable, match=f"host {away} is unreachable: machine: "):
            await asking.plan(more)
        plan = await asking.plan(more, targets=("n",))
        assert {step.key.name for step in plan.steps} == {"n", "n-0"}
        down = await asking.down()
        assert down.state is OperationState.PARTLY
        assert f"host {away}: " in down.message
        assert not {"machine/b", "bmc/b"} & {
            f"{each.key.kind}/{each.key.name}" for each in asking.connection("s").around.world.all()
        }
