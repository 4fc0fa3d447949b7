"""APIs of simulated agents, which BMC clients may choose: what they send fills no memory, and makes
no agent busy.
"""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from nospoon.protocols.agent.agent import (
    KEPT,
    LARGE,
    LOGGED,
    LONGEST_ANSWER,
    LONGEST_LABEL,
    LONGEST_NAME,
    Agent,
    Birth,
    Say,
    Wrote,
)
from nospoon.protocols.agent.commands import LONGEST_IMAGE
from nospoon.protocols.agent.inventory import Hardware
from nospoon.protocols.agent.parameters import Parameters

NODE = UUID("11111111-2222-5333-8444-555555555555")
TOKEN = "t" * 32
HARDWARE = Hardware(2, 4 << 30, "x86_64", uefi=True, macs=("02:00:00:00:00:01",), disks=())


def born() -> Agent:
    agent = Agent(Birth(NODE, HARDWARE, Parameters("http://ironic:6385"), "https://here/n"))
    agent.begin(0.0)
    return agent


def found(heartbeat: float = 100, uuid: str = str(NODE), token: str = TOKEN) -> bytes:
    config = {"agent_token": token, "heartbeat_timeout": heartbeat}
    return json.dumps({"node": {"uuid": uuid}, "config": config}).encode()


def serving() -> Agent:
    agent = born()
    agent.answered(200, found(), 1.0)
    agent.answered(202, b"", 2.0)
    return agent


def results(agent: Agent) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = agent.listed().body["commands"]
    return told


def test_of_many_commands_the_last_ones_are_kept() -> None:
    agent, ids = serving(), []
    for _ in range(3 * KEPT):
        reply, _ = agent.run("standby.sync", {}, 3.0, chance=1.0)
        ids.append(reply.body["id"])
    assert [each["id"] for each in results(agent)] == ids[-KEPT:]
    assert len(set(ids)) == len(ids)


def test_of_large_commands_the_last_one_is_kept_whole() -> None:
    agent = serving()
    step = {"step": "erase_devices", "args": {"x": "x" * LARGE}}
    for number in range(3):
        agent.run("clean.execute_clean_step", {"step": step}, 3.0, chance=1.0, size=LARGE + 1)
        agent.expire(1000.0 + number)
    *before, last = results(agent)
    assert last["command_params"] == {"step": step}
    assert last["command_result"]["clean_step"] == step
    assert len(json.dumps(before)) < 2048
    agent.run("standby.sync", {"small": 1}, 2000.0, chance=1.0, size=12)
    agent.run("standby.sync", {}, 2000.0, chance=1.0, size=2)
    assert len(json.dumps(results(agent))) < 4096
    assert results(agent)[-2]["command_params"] == {"small": 1}


def test_names_of_steps_and_images_are_not_kept_at_any_length() -> None:
    agent = serving()
    step = {"step": {"step": "s" * LARGE}}
    for number in range(100):
        _, effects = agent.run("clean.execute_clean_step", step, 3.0, chance=1.0, size=LARGE + 1)
        effects += agent.expire(1000.0 + number)
        said = [each.text for each in effects if isinstance(each, Say)]
        assert said
        assert all(len(each) < 2 * LONGEST_LABEL for each in said)
    for number in range(2 * LOGGED // LONGEST_LABEL):
        agent.run("clean.execute_clean_step", step, 3.0, chance=1.0, size=LARGE + 1)
        agent.expire(2000.0 + number)
    assert len(agent.node.log) <= LOGGED
    assert all(len(json.dumps(each)) < 2048 for each in results(agent)[:-1])
    image = {"image_info": {"id": "i", "urls": ["http://files/" + "i" * LARGE]}}
    agent.run("standby.cache_image", image, 5000.0, chance=1.0)
    (wrote,) = (each for each in agent.expire(9000.0) if isinstance(each, Wrote))
    assert len(wrote.image) == LONGEST_IMAGE


@pytest.mark.parametrize("heartbeat", [1e-300, 0.5])
def test_no_api_makes_an_agent_beat_all_the_time(heartbeat: float) -> None:
    agent = born()
    agent.answered(200, found(heartbeat), 1.0)
    agent.answered(202, b"", 2.0)
    assert agent.deadline is not None
    assert agent.deadline >= 3.0
    agent.listed()
    agent.expire(agent.deadline)
    agent.answered(202, b"", 10.0)
    assert agent.deadline >= 11.0


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b'{"node": {"uuid": "%s"}}' % (b"x" * LONGEST_ANSWER)]
)
def test_answers_that_are_too_deep_or_long_are_none(body: bytes) -> None:
    agent = born()
    agent.answered(200, body, 1.0)
    assert agent.deadline is not None
    assert agent.deadline > 1.0


def test_numbers_names_and_tokens_of_an_api_may_be_any() -> None:
    agent = born()
    body = found(uuid="n" * 1000, token="t" * 1000).replace(b"100}", b"1" + b"0" * 400 + b"}")
    agent.answered(200, body, 1.0)
    agent.answered(202, b"", 2.0)
    assert agent.trusts("t" * LONGEST_NAME)
    assert agent.deadline is not None
