"""A member's file may adopt 20,000 machines by each of 20,000 patterns, and each machine was in the
plan once for each: that would be 4 · 10⁸ lines. 2,000 machines and 300 patterns took 360 MB, and an
answer of 112 MB.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.plan.test_adoption import CLUSTER, cluster, facts, machine
from tests.security.asked import OWNER, a_daemon

from nospoon.api.app import MAX_LOGGED
from nospoon.clusterfile.models import MAX_PATTERNS
from nospoon.errors import MOST_REASONS, PlanRefused, SpecError
from nospoon.model.host_facts import Adoptable
from nospoon.plan.diff.adoption import adopt

COUNT = MOST_REASONS + 50
ALL = "{adopt: {match: '*'}}"


def machines(count: int, *, hindrance: str = "", name: str = "") -> tuple[Adoptable, ...]:
    return tuple(
        Adoptable(machine(n + 1, name or f"m{n}"), hindrance=hindrance) for n in range(count)
    )


def test_of_machines_that_patterns_skip_the_first_are_named() -> None:
    there = {"a": facts(*machines(COUNT, hindrance="it is odd.")), "b": facts()}
    found = adopt(cluster(f"{ALL}, {ALL}"), CLUSTER, there)
    assert len(found.skipped) == MOST_REASONS + 1
    assert found.skipped[-1] == f"and {2 * COUNT - MOST_REASONS} more"


def test_a_file_has_few_patterns() -> None:
    assert len(cluster(", ".join([ALL] * MAX_PATTERNS)).adoptions) == MAX_PATTERNS
    with pytest.raises(SpecError, match=f"expected at most {MAX_PATTERNS} groups with `adopt"):
        cluster(", ".join([ALL] * (MAX_PATTERNS + 1)))


def test_a_file_adopts_no_more_machines_than_a_cluster_has_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nospoon.clusterfile.expand.MAX_CLUSTER", 3)
    assert len(cluster("{adopt: x}, {count: 2}").adoptions) == 1
    with pytest.raises(SpecError, match="expected at most 3 nodes in a cluster, got 4"):
        cluster("{adopt: x}, {adopt: y}, {count: 2}")


def test_a_name_that_many_machines_have_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloud may give all of its servers one name, and a file adopt that as many times."""
    monkeypatch.setattr("nospoon.plan.diff.adoption.MOST_OF_NAME", 10)
    there = {"a": facts(*machines(COUNT, name="same")), "b": facts()}
    named = ", ".join(f"{{adopt: same, name: n{n}}}" for n in range(COUNT))
    found = adopt(cluster(named), CLUSTER, there)
    assert len(found.reasons) == MOST_REASONS + 1
    assert found.reasons[0] == (
        "nodes: adopt same: there are several of that name on host a. Name it by its UUID."
    )
    assert set(found.machines) == {UUID(int=n + 1) for n in range(10)}


def test_a_refusal_has_so_many_reasons_and_is_the_same_at_the_client() -> None:
    refused = PlanRefused([f"reason {n}" for n in range(COUNT)])
    assert len(refused.reasons) == MOST_REASONS + 1
    assert refused.reasons[-1] == f"and {COUNT - MOST_REASONS} more"
    assert str(refused) == "\n".join(refused.reasons)
    assert PlanRefused(refused.reasons).reasons == refused.reasons


async def test_a_refusal_takes_little_of_the_log(tmp_path: Path) -> None:
    name = "n" * 60
    groups = ", ".join(f"{{name: {name}, image: x}}" for _ in range(100))
    body = {"file": "c.yaml", "text": f"cluster: c\nnodes: [{groups}]\n"}
    async with a_daemon(tmp_path) as asked:
        with capture_logs() as lines:
            answer = await asked.ask(OWNER, "POST", "/v1/plan", body)
    assert answer.status == 422
    (line,) = (each for each in lines if each["event"] == "refused")
    assert len(answer.json["error"]["message"]) > MAX_LOGGED
    assert len(line["error"]) == MAX_LOGGED
