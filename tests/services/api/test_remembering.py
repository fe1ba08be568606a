"""`load` of policies with a memory: what `act` remembers, and what `reset` forgets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import aclearn
from aclearn.envs.memory_tasks import Recall
from aclearn.errors import ArgumentError
from aclearn.policies.network import PolicyNetwork, load_tensors
from services.evaluator.play import watch
from services.evaluator.saved_policy import load_policy, load_run
from tests.support import cli
from tests.support.saved_runs import save_run

_OWN = "tests.support.own_networks:Remembers"


@pytest.fixture(params=["lstm", "gru", "own"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    network: dict[str, Any] = {"memory": {"kind": request.param, "size": 5, "layers": 2}}
    if request.param == "own":
        network = {"architecture": _OWN, "hidden": None}
    return save_run(tmp_path, {"id": "CartPole-v1"}, policy=network)


def _by_torch(run: Path, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and values `[T, B, …]` of observations `[T, B, 4]` of one episode each."""
    saved = load_policy(run)
    network = PolicyNetwork(saved.trained)
    load_tensors(network, saved.weights)
    state: tuple = ()
    found = []
    with torch.no_grad():
        for row in observations:
            output = network.step({"observation": torch.from_numpy(row)}, state)
            assert output.value is not None
            state = output.state
            found.append((torch.softmax(output.parameters, 1).numpy(), output.value.numpy()))
    probabilities, values = zip(*found, strict=True)
    return np.stack(probabilities), np.stack(values)


def _observations(T: int, B: int) -> np.ndarray:
    return 5.0 * np.random.default_rng(0).normal(size=(T, B, 4)).astype(np.float32)


def test_a_batch_of_environments_is_remembered_and_each_forgets_alone(run: Path) -> None:
    observations = _observations(6, 3)
    probabilities, values = _by_torch(run, observations)
    policy = aclearn.load(run)
    for row, p, value in zip(observations, probabilities, values, strict=True):
        for _ in range(2):  # they change nothing
            np.testing.assert_allclose(policy.probabilities(row), p, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(policy.value(row), value, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(policy.act(row, greedy=True), p.argmax(1))
    last = policy.probabilities(observations[0])
    policy.reset(rows=[False, True, False])
    found = policy.probabilities(observations[0])
    np.testing.assert_allclose(found[1], probabilities[0, 1], rtol=1e-4)
    np.testing.assert_array_equal(found[[0, 2]], last[[0, 2]])
    assert (np.abs(found - last).max(1) > 1e-6).tolist() == [False, True, False]
    policy.reset()
    np.testing.assert_allclose(policy.probabilities(observations[0]), probabilities[0], rtol=1e-4)


def test_one_environment_is_remembered_until_another_number_of_them_begins(run: Path) -> None:
    observations = _observations(2, 3)
    policy = aclearn.load(run)
    policy.reset(rows=[True])  # nothing is remembered yet
    first = policy.probabilities(observations[0, 0])
    policy.act(observations[0, 0])
    assert np.abs(policy.probabilities(observations[0, 0]) - first).max() > 1e-6
    for call in (policy.act, policy.parameters, policy.value):
        with pytest.raises(ArgumentError, match=r"observation: expected 1 as before, .* got 3; c"):
            call(observations[0])
    with pytest.raises(ArgumentError, match=r"rows: expected 1 as before, .* got 2; call reset"):
        policy.reset(rows=[True, False])
    with pytest.raises(ArgumentError, match=r"rows: expected bool \(B,\), got int64 \(1,\)"):
        policy.reset(rows=[1])
    policy.reset()
    assert policy.act(observations[0]).shape == (3,)


class Shown(Recall):
    """A picture is white after the right answer, and black otherwise."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.render_mode, self._won = render_mode, False

    def step(self, action: Any) -> Any:
        result = super().step(action)
        self._won = result[1] == 1.0
        return result

    def render(self) -> Any:
        return np.full((30, 40, 3), 255 * self._won, np.uint8)


def test_the_state_lasts_an_episode_wherever_a_saved_policy_plays(tmp_path: Path) -> None:
    network = {"architecture": "tests.support.own_networks:Latch", "hidden": None}
    env = {"id": f"{__name__}:Shown", "kwargs": {"cues": 4, "delay": 3}}
    run = save_run(tmp_path, env, policy=network)
    assert aclearn.open_run(run).evaluate(40, greedy=True).returns == [1.0] * 40
    said = cli.aclearn("evaluate", run, "--episodes", "20", "--greedy")
    assert "1.00" in said
    for seed in range(3):  # a guess wins one of four
        pictures, _ = watch(load_run(run), greedy=True, seed=seed)
        assert [int(picture.max()) for picture in pictures] == [0, 0, 0, 255]
    policy = aclearn.load(run)
    made = aclearn.make_env(run)
    for seed in range(6):
        policy.reset()
        observation, _ = made.reset(seed=seed)
        for _ in range(4):
            observation, reward, *_ = made.step(policy.act(observation, greedy=True))
        assert reward == 1.0
    made.close()


def test_a_policy_without_memory_takes_batches_of_any_size(tmp_path: Path) -> None:
    policy = aclearn.load(save_run(tmp_path, {"id": "CartPole-v1"}))
    for count in (3, 1, 2):
        assert policy.act(_observations(1, count)[0]).shape == (count,)
        policy.reset(rows=np.ones(count, np.bool_))
    policy.reset()
