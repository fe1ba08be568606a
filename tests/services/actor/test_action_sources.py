"""Actions from the actor's own policies."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from aclearn.distributions import distribution_of
from aclearn.rollout import ActInput, PolicySnapshot
from aclearn.telemetry import WaitMeter
from aclearn.types import OBSERVATION, ActionSpec, PolicyVersion
from services.actor.action_sources import LocalActions


class Local:
    """Local actions whose weights arrive at the given poll."""

    def __init__(self, tools, *, weights_at_look: int = 0) -> None:
        self.runtime = tools.RecordingRuntime()
        self.weights = SimpleNamespace(acting=None, gauges=lambda: {"a": 1.0}, wait=time.sleep)
        self.looks, self._weights_at_look = 0, weights_at_look
        self.meter = WaitMeter()
        rng = np.random.default_rng(1)
        two = distribution_of(ActionSpec.discrete(2))
        self.actions = LocalActions(self.weights, two, rng, self._poll, self.meter)

    def _poll(self, client) -> None:
        self.looks += 1
        if self.looks >= self._weights_at_look:
            self.become(PolicyVersion(0, self.looks), [1, 1])

    def become(self, at: PolicyVersion, odds: list[int]) -> None:
        executable = self.runtime.load({"logits": np.log(np.array(odds, np.float32))})
        self.weights.acting = PolicySnapshot(executable, at)


def test_local_actions_come_with_their_probability_and_version(tools) -> None:
    local = Local(tools)
    local.become(PolicyVersion(2, 9), [1, 3])
    local.actions.request(0, ActInput({OBSERVATION: np.zeros((400, 3), np.float32)}))
    choice = local.actions.take(0, 0.0)
    assert choice.at == PolicyVersion(2, 9)
    assert choice.actions.dtype == np.int32
    expected = np.where(choice.actions == 1, math.log(0.75), math.log(0.25))
    np.testing.assert_allclose(choice.log_prob, expected, rtol=1e-5)
    assert 250 < int(choice.actions.sum()) < 350  # 300 expected, 8.7 standard deviation
    assert local.actions.predictions == 400
    assert local.actions.gauges() == {"a": 1.0}  # those of the policy's client


def test_the_newest_weights_act_and_not_those_of_the_request(tools) -> None:
    local = Local(tools)
    local.become(PolicyVersion(0, 1), [1, 0.0001])
    local.actions.request(0, ActInput({OBSERVATION: np.zeros((20, 3), np.float32)}))
    local.become(PolicyVersion(0, 2), [0.0001, 1])
    choice = local.actions.take(0, 0.0)
    assert choice.at == PolicyVersion(0, 2)
    assert choice.actions.mean() > 0.9


def snapshot(runtime, at: PolicyVersion, odds: list[float], chain: str) -> PolicySnapshot:
    executable = runtime.load({"logits": np.log(np.array(odds, np.float32))})
    return PolicySnapshot(executable, at, chain)


def test_of_two_policies_each_acts_where_it_is_to_with_its_own_probability(tools) -> None:
    runtime, made, polled = tools.RecordingRuntime(), [], []

    class Client:
        def __init__(self, acting) -> None:
            self.acting, self.closed = acting, False
            made.append(self)

        def gauges(self):
            return {"policy_swaps": 1.0}

        def close(self) -> None:
            self.closed = True

    current = Client(snapshot(runtime, PolicyVersion(1, 9), [1, 3], "int8>onnx"))
    actions = LocalActions(
        current,
        distribution_of(ActionSpec.discrete(2)),
        np.random.default_rng(1),
        polled.append,
        WaitMeter(),
        lambda: Client(None),
    )
    size = 2000
    seen = {OBSERVATION: np.zeros((size, 3), np.float32)}
    wanted = np.random.default_rng(2).random(size) < 0.5

    def chosen():
        actions.request(0, ActInput(seen), wanted)
        return actions.take(0, 0.0)

    assert chosen().chains == ("int8>onnx",)  # only one is held
    actions.hold_original(True)
    actions.hold_original(True)
    [_, original] = made
    assert chosen().chains == ("int8>onnx",)  # the other one has not come yet
    original.acting = snapshot(runtime, PolicyVersion(0, 99), [9, 1], "onnx")
    assert chosen().chains == ("int8>onnx",)  # it is of another generation
    original.acting = snapshot(runtime, PolicyVersion(1, 8), [9, 1], "onnx")
    batch = chosen()
    assert (batch.at, batch.chains) == (PolicyVersion(1, 8), ("int8>onnx", "onnx"))
    np.testing.assert_array_equal(batch.chain_index == 1, wanted)
    odds = np.where(wanted[:, None], [0.9, 0.1], [0.25, 0.75])
    expected = np.log(odds[np.arange(size), batch.actions])
    np.testing.assert_allclose(batch.log_prob, expected, rtol=1e-5)
    assert batch.actions[wanted].mean() == pytest.approx(0.1, abs=0.05)
    assert batch.actions[~wanted].mean() == pytest.approx(0.75, abs=0.07)
    actions.poll()
    assert polled == made and actions.gauges() == {"policy_swaps": 2.0}
    actions.hold_original(False)
    assert original.closed and chosen().chains == ("int8>onnx",)


def test_an_actor_waits_for_its_first_weights(tools) -> None:
    local = Local(tools, weights_at_look=3)
    local.actions.request(0, ActInput({OBSERVATION: np.zeros((1, 3), np.float32)}))
    for _ in range(2):
        local.actions.poll()
        assert local.actions.take(0, 0.001) is None
    local.actions.poll()
    assert local.actions.take(0, 0.0).at == PolicyVersion(0, 3)
    assert local.meter.seconds()["weights"] > 0.002


def test_a_policy_has_a_state_of_its_own_where_it_says_so(tools) -> None:
    local = Local(tools)
    assert not local.actions.has_own_state  # there is no policy yet
    for own_state in (None, ((3,),)):
        local.become(PolicyVersion(0, 1), [1, 1])
        local.weights.acting = replace(local.weights.acting, own_state=own_state)
        assert local.actions.has_own_state == (own_state is not None)
