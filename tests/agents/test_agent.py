"""Conversations with an agent: the API on one side, a conductor on the other, time in between."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.model.agent import Agents
from nospoon.protocols.agent.agent import (
    Agent,
    Ask,
    Birth,
    Effect,
    Ended,
    Leave,
    Reply,
    Say,
    Wrote,
)
from nospoon.protocols.agent.commands import COMMANDS, STEPS, Ending
from nospoon.protocols.agent.inventory import Disk, Hardware
from nospoon.protocols.agent.parameters import Parameters

NODE = UUID("11111111-2222-5333-8444-555555555555")
API = "http://ironic:6385"
DISKS = (Disk(10 << 30, "s", rotational=True),)
HARDWARE = Hardware(2, 4 << 30, "x86_64", uefi=True, macs=("02:00:00:00:00:01",), disks=DISKS)
TOKEN = "t" * 32
IMAGE = {"image_info": {"id": "i", "urls": ["http://files/i"], "image_type": "whole-disk"}}


def born(behaviour: Agents | None = None, **told: str) -> Agent:
    birth = Birth(
        NODE, HARDWARE, Parameters(API, **told), "https://here/n", behaviour or Agents(),
        certificate="PEM",
    )  # fmt: skip
    return Agent(birth)


def asks(effects: Sequence[Effect]) -> Ask:
    (found,) = (each for each in effects if isinstance(each, Ask))
    return found


def found(token: str = TOKEN, **notes: Any) -> bytes:
    node = {"uuid": str(NODE), "driver_internal_info": notes}
    return json.dumps(
        {"node": node, "config": {"agent_token": token, "heartbeat_timeout": 100}}
    ).encode()


def serving(behaviour: Agents | None = None) -> Agent:
    agent = born(behaviour)
    agent.begin(0.0)
    agent.answered(200, found(), 0.0)
    agent.answered(202, b"", 0.0)
    agent.listed()
    return agent


def run(
    agent: Agent, name: str, params: Any = None, now: float = 1.0, chance: float = 1.0
) -> tuple[Reply, list[Effect]]:
    return agent.run(name, {} if params is None else params, now, chance=chance)


def step(kind: str, name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    told = {"step": {"step": name, "interface": "deploy", "args": arguments}}
    return f"{kind}.execute_{kind}_step", {**told, "node": {}, "ports": []}


def test_it_looks_itself_up_and_beats_with_the_token_that_it_got() -> None:
    agent = born()
    lookup = asks(agent.begin(0.0))
    assert lookup.url == f"{API}/v1/lookup?addresses=02%3A00%3A00%3A00%3A00%3A01"
    beat = asks(agent.answered(200, found(), 1.0))
    assert (beat.method, beat.url) == ("POST", f"{API}/v1/heartbeat/{NODE}")
    assert json.loads(beat.body) == {
        "callback_url": "https://here/n",
        "agent_token": TOKEN,
        "agent_version": "12.0.0",
        "agent_verify_ca": "PEM",
    }
    assert agent.trusts(TOKEN)
    assert not agent.trusts("")


def test_a_node_that_is_not_expected_yet_is_looked_up_again_and_given_up_in_the_end() -> None:
    agent = born()
    agent.begin(0.0)
    times, said = [], list[Effect]()
    now = 0.0
    while True:
        said = list(agent.answered(404, b"", now))
        if agent.deadline is None:
            break
        times.append(agent.deadline - now)
        now = agent.deadline
        assert "/lookup" in asks(agent.expire(now)).url
    assert times[:5] == [2, 4, 8, 16, 30]
    assert now >= 300
    assert Leave(Ending.LOCK) in said
    assert any(isinstance(each, Say) and "404" in each.text for each in said)


def test_a_token_that_somebody_else_fetched_ends_it() -> None:
    agent = born()
    agent.begin(0.0)
    assert Leave(Ending.LOCK) in agent.answered(200, found("******"), 0.0)
    assert agent.deadline is None


def test_a_token_of_the_medium_is_kept_when_the_api_hides_it() -> None:
    agent = born(token="m" * 32)
    agent.begin(0.0)
    beat = asks(agent.answered(200, found("******"), 0.0))
    assert json.loads(beat.body)["agent_token"] == "m" * 32


def test_an_inspection_that_is_asked_for_comes_first_and_its_answer_is_a_lookup() -> None:
    agent = born(inspection=f"{API}/v1/continue_inspection")
    ask = asks(agent.begin(0.0))
    told = json.loads(ask.body)
    assert ask.url.endswith("/v1/continue_inspection")
    assert told["inventory"]["memory"]["physical_mb"] == 4096
    assert told["root_disk"]["size"] == 10 << 30
    assert told["root_disk"]["rotational"] is True
    assert "/heartbeat/" in asks(agent.answered(202, found(), 0.0)).url


def test_an_inspection_that_is_not_awaited_yet_is_tried_again_then_followed_by_a_lookup() -> None:
    agent, now = born(inspection=f"{API}/v1/continue_inspection"), 0.0
    agent.begin(now)
    while not (effects := agent.answered(404, b"", now)):
        assert agent.deadline is not None
        now = agent.deadline
        assert asks(agent.expire(now)).url.endswith("/v1/continue_inspection")
    assert now >= 30.0
    assert "/lookup" in asks(effects).url


def test_a_node_that_ironic_inspects_is_inspected_without_being_told() -> None:
    agent = born()
    agent.begin(0.0)
    ask = asks(agent.answered(200, found(lookup_bmc_addresses=["127.0.0.1"]), 0.0))
    assert ask.url == f"{API}/v1/continue_inspection"
    again = asks(agent.answered(202, found("******", lookup_bmc_addresses=[]), 0.0))
    assert json.loads(again.body)["agent_token"] == TOKEN


def test_news_are_told_again_until_somebody_looks_then_it_beats_as_asked() -> None:
    agent = born()
    agent.begin(0.0)
    agent.answered(200, found(), 0.0)
    agent.answered(202, b"", 0.0)
    assert agent.deadline == 5.0
    agent.expire(5.0)
    agent.answered(202, b"", 5.0)
    assert agent.deadline == 15.0
    agent.listed()
    agent.expire(15.0)
    agent.answered(202, b"", 15.0)
    assert agent.deadline == pytest.approx(15.0 + 45.0)  # of 100 s from 30 to 60, in the middle


def test_a_conductor_that_is_away_is_beaten_again_soon() -> None:
    agent = serving()
    agent.expire(5.0)
    agent.answered(0, b"", 5.0)
    assert agent.deadline == 5.0 + 10.0


def test_a_step_takes_its_time_and_its_end_is_told_at_once() -> None:
    agent = serving(Agents(command=5.0, commands=(("write_image", 30.0),)))
    reply, effects = run(agent, *step("deploy", "write_image", **IMAGE))
    assert reply.body["command_status"] == "RUNNING"
    assert any(isinstance(each, Say) for each in effects)
    refused, _ = run(agent, "standby.sync", now=2.0)
    assert refused.status == 409
    assert agent.deadline == 5.0
    agent.expire(5.0)
    agent.answered(202, b"", 5.0)
    effects = list(agent.expire(31.0))
    assert Ended(reply.body["id"]) in effects
    assert Wrote("http://files/i") in effects
    assert "/heartbeat/" in asks(effects).url
    (listed,) = agent.listed().body["commands"]
    assert listed["command_result"]["deploy_step"]["step"] == "write_image"
    assert listed["command_name"] == "execute_deploy_step"


def test_a_deploy_goes_as_the_conductor_asks() -> None:
    agent = serving()
    for name, params in (
        ("deploy.get_deploy_steps", {}),
        step("deploy", "write_image", **IMAGE),
        ("standby.get_partition_uuids", {}),
        ("image.install_bootloader", {"root_uuid": None}),
        ("log.collect_system_logs", {}),
        ("standby.sync", {}),
    ):
        reply, _ = run(agent, name, params)
        agent.expire(1.0)
        assert (reply.status, reply.body["command_status"]) == (200, "SUCCEEDED"), name
    run(agent, "standby.power_off")
    assert Leave(Ending.POWER_OFF) in agent.expire(1.0)
    assert agent.deadline is None


@pytest.mark.parametrize("kind", STEPS)
def test_every_step_that_it_lists_it_can_do(kind: str) -> None:
    agent = serving()
    reply, _ = run(agent, f"{kind}.get_{kind}_steps")
    (steps,) = reply.body["command_result"][f"{kind}_steps"].values()
    for each in steps:
        given = dict.fromkeys(each["argsinfo"], IMAGE["image_info"])
        done, _ = run(agent, *step(kind, each["step"], **given))
        agent.expire(1.0)
        assert done.body["command_result"][f"{kind}_step"]["step"] == each["step"]


def test_what_it_does_not_know_is_refused_as_ironic_reads_it() -> None:
    agent = serving()
    unknown, _ = run(agent, "nothing.at_all")
    assert (unknown.status, "Unknown command" in unknown.body["faultstring"]) == (400, True)
    unfit, _ = run(agent, "deploy.execute_deploy_step", {})
    assert unfit.status == 400
    failed, _ = run(agent, *step("clean", "dance"))
    agent.expire(1.0)
    assert failed.body["command_status"] == "FAILED"
    assert "dance" in failed.body["command_error"]["details"]


@pytest.mark.parametrize(
    "told",
    [
        step("deploy", "write_image", image_info={"id": "i", "urls": 5}),
        step("deploy", "write_image", image_info={"id": ["i"], "urls": {"0": "u"}}),
        ("deploy.execute_deploy_step", {"step": {"step": "write_image", "args": ["x"]}}),
        ("clean.execute_clean_step", {"step": {"step": "erase_devices", "args": "x"}}),
        ("standby.prepare_image", {"image_info": [1]}),
    ],
)
def test_a_command_with_odd_parameters_ends(told: tuple[str, Any]) -> None:
    agent = serving()
    reply, _ = run(agent, *told)
    agent.expire(1.0)
    assert reply.body["command_status"] in {"SUCCEEDED", "FAILED"}


def test_failures_are_arranged_by_name_or_come_by_chance() -> None:
    agent = serving(Agents(failing=(("write_image", "no space left"),), failures=0.5))
    arranged, _ = run(agent, *step("deploy", "write_image", **IMAGE))
    agent.expire(1.0)
    assert "no space left" in arranged.body["command_error"]["details"]
    for chance, status in ((0.4, "FAILED"), (0.6, "SUCCEEDED")):
        reply, _ = run(agent, *step("clean", "erase_devices"), chance=chance)
        agent.expire(1.0)
        assert reply.body["command_status"] == status


def test_cleaning_empties_the_disk() -> None:
    agent = serving()
    run(agent, *step("deploy", "write_image", **IMAGE))
    agent.expire(1.0)
    run(agent, *step("clean", "erase_devices_metadata"))
    assert Wrote("") in agent.expire(1.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.sampled_from([*COMMANDS]), JSON, st.dictionaries(st.just("step"), JSON))
def test_any_parameters_are_carried_out_or_refused(name: str, params: Any, told: Any) -> None:
    for given_params in (params, told):
        agent = serving()
        reply, _ = run(agent, name, given_params)
        agent.expire(1.0)
        assert reply.status in (200, 400)
        json.dumps(reply.body)


@given(st.lists(st.tuples(st.integers(0, 599), st.binary(max_size=40) | st.just(found()))))
def test_any_answers_leave_an_agent_that_goes_on_or_has_ended(
    answers: list[tuple[int, bytes]],
) -> None:
    agent, now = born(), 0.0
    agent.begin(now)
    for status, body in answers:
        agent.answered(status, body, now)
        if agent.deadline is None:
            break
        now = max(now, agent.deadline)
        agent.expire(now)
