"""Processes that differ from the run in what must be equal: refused by name, before they act."""

from __future__ import annotations

import pytest

from aclearn.config import Config
from aclearn.types import ActionSpec, EnvSpec, ObservationSpec
from aclearn.wire import MembershipReply, Peers
from services.role.agreement import config_digests, space_digests
from tests.support.monitor import Monitor

RUN = {"env": {"id": "CartPole-v1", "kwargs": {"a": 1, "b": [2, None]}}}
SPEC = EnvSpec(ObservationSpec.plain((4,), "float32"), ActionSpec.discrete(2))
OTHER_SPEC = EnvSpec(ObservationSpec.plain((4,), "float32"), ActionSpec.discrete(2, start=1))


def _digests(spec: EnvSpec | None = SPEC, **groups) -> dict[str, str]:
    config = Config(**{**RUN, **groups})
    return config_digests(config) | space_digests(spec)


def _reply(messages):
    [message] = messages
    return message.message


@pytest.fixture
def run(tools) -> Monitor:
    return Monitor(tools, digests=_digests(None))


@pytest.mark.parametrize(
    ("ours", "theirs", "differs"),
    [("auto", "mlp", False), ("mlp", "auto", False), ("mlp", "nature", True)],
)
def test_an_automatic_setting_differs_where_both_have_settled_it(
    tools, ours: str, theirs: str, differs: bool
) -> None:
    run = Monitor(tools, digests=_digests(None, policy={"architecture": ours}))
    reply = _reply(run.hello("trainer-0", "x", digests=_digests(policy={"architecture": theirs})))
    assert isinstance(reply, Peers) is not differs
    assert not differs or "differs from the run in policy.architecture; " in reply.reason


@pytest.mark.parametrize(
    ("groups", "keys"),
    [
        ({"env": {"id": "Acrobot-v1", "kwargs": {"a": 1, "b": [2, None]}}}, "env.id"),
        ({"env": RUN["env"] | {"clip_rewards": True}}, "env.clip_rewards"),
        ({"env": RUN["env"] | {"kwargs": {"a": 1}}}, "env.kwargs"),
        ({"policy": {"activation": "tanh"}}, "policy.activation"),
        (
            {"actors": {"unroll_length": 7, "envs_per_group": 3}},
            "actors.envs_per_group, actors.unroll_length",
        ),
        ({"compressor": {"chain": ["onnx"]}}, "compressor.chain"),
    ],
)
@pytest.mark.parametrize("role", ["actor", "predictor", "compressor", "trainer"])
def test_a_process_with_another_configuration_is_refused_by_key(run, role, groups, keys) -> None:
    reply = _reply(run.hello(f"{role}-0", "x", digests=_digests(**groups)))
    assert isinstance(reply, MembershipReply) and reply.action == "leave"
    assert f"differs from the run in {keys}; " in reply.reason
    assert run.registry.members == ()
    # only a refusal that the user overrules lets it in, and the run's events say so
    assert isinstance(
        _reply(run.hello(f"{role}-0", "y", digests=_digests(**groups), forced=True)), Peers
    )
    told = f"{role}-0 takes part by --force, although it differs in {keys}"
    assert told in run.state.report.events


def test_what_may_differ_between_machines_is_not_compared(run) -> None:
    same = _digests(
        env={"kwargs": {"b": [2, None], "a": 1}, "id": "CartPole-v1"},
        run={"seed": 7, "dir": "/elsewhere", "name": "z"},
        actors={"processes": 9, "inference": "predictor", "nice": 0},
        network={"bind_host": "0.0.0.0", "keys_dir": "k"},
        trainer={"max_lag_versions": 3},
    )
    assert isinstance(_reply(run.hello("actor-0", "a", digests=same)), Peers)


def test_other_spaces_are_refused_and_those_of_the_trainer_count(run) -> None:
    assert isinstance(_reply(run.hello("actor-0", "a", digests=_digests(OTHER_SPEC))), Peers)
    reply = _reply(run.hello("actor-1", "b", digests=_digests(SPEC)))
    assert "differs from the run in the environment's actions; " in reply.reason
    # the trainer joins in any case; who differs from it leaves at the next heartbeat
    assert isinstance(_reply(run.hello("trainer-0", "t", digests=_digests(SPEC))), Peers)
    assert [member.name for member in run.registry.members] == ["trainer-0"]
    assert _reply(run.heartbeat("a")).action == "hello"
    assert _reply(run.hello("actor-0", "a", digests=_digests(OTHER_SPEC))).action == "leave"
    assert isinstance(_reply(run.hello("actor-1", "b", digests=_digests(SPEC))), Peers)


def test_a_forced_process_sets_no_standard(run) -> None:
    run.hello("actor-0", "a", digests=_digests(OTHER_SPEC), forced=True)
    assert isinstance(_reply(run.hello("actor-1", "b", digests=_digests(SPEC))), Peers)
    run.hello("trainer-0", "t", digests=_digests(SPEC))
    assert [m.name for m in run.registry.members] == ["actor-0", "actor-1", "trainer-0"]


def test_the_monitors_own_spaces_come_first(tools) -> None:
    run = Monitor(tools, digests=_digests(SPEC))
    reply = _reply(run.hello("trainer-0", "t", digests=_digests(OTHER_SPEC)))
    assert reply.action == "leave" and "the environment's actions" in reply.reason
