"""The updates of a batch: what decides about them, read at once or masked in a graph."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from aclearn.algorithms.actor_critic import ActorCriticConfig
from aclearn.algorithms.ddpg import DDPGConfig
from aclearn.algorithms.impact import IMPACTConfig
from aclearn.algorithms.ppo import PPOConfig
from aclearn.config import LossConfig, OptimiserConfig
from aclearn.config.loss import default_correctors
from aclearn.learning import Batch, Learner, UpdateReport, make_objective
from aclearn.policies import build_architecture
from aclearn.policies.cuda_stream import CudaStream
from aclearn.types import OBSERVATION, ActionSpec, Memory, ObservationSpec
from aclearn.types.action_spec import ActionPart
from tests.support.warm_ups import WarmUps

_T, _B, _COUNT, _PASSES = 3, 9, 4, 2
_ADAM = OptimiserConfig(
    kind="adam", max_grad_norm=0.5, learning_rate=0.01, schedule="linear", schedule_steps=100
)
_BOX = ActionSpec.of((ActionPart(shape=(2,), dtype="float32", low=(-1, -1), high=(1, 1)),))
_LOSSES: dict[str, LossConfig] = {
    "normalised advantages": ActorCriticConfig(normalise_advantages=True, entropy_cost=0.02),
    "normalised returns": ActorCriticConfig(normalise_returns=True),
    "numbers": ActorCriticConfig(entropy_cost=0.02),
    "frozen targets": PPOConfig(normalise_advantages=False, value_clip=0.2),
    "an early end": PPOConfig(normalise_returns=True, target_kl=2e-4, entropy_cost=0.0),
    "a target network": IMPACTConfig(target_update_every=3, normalise_advantages=False),
    "a deterministic policy": DDPGConfig(target_update_rate=0.1),
    "a memory": ActorCriticConfig(entropy_cost=0.03),
    "a memory of frozen sequences": PPOConfig(normalise_advantages=False, value_clip=0.3),
}


def _memory_of(loss: LossConfig) -> Memory | None:
    if loss is _LOSSES["a memory"]:
        return Memory("lstm", 4, 1)
    return Memory("gru", 4, 2) if loss is _LOSSES["a memory of frozen sequences"] else None


def _learner(device: str, loss: LossConfig, **options: Any) -> Learner:
    deterministic = isinstance(loss, DDPGConfig)
    numbers = deterministic or loss == _LOSSES["numbers"]
    architecture = build_architecture(
        "mlp",
        ObservationSpec.plain((4,), "float32"),
        replace(_BOX, squash=True) if numbers else ActionSpec.discrete(3),
        hidden=(8,),
        critic="action" if deterministic else "v",
        normalise_observations=loss.normalise_returns,
        normalise_returns=loss.normalise_returns,
        memory=_memory_of(loss),
    )
    return Learner(
        architecture,
        objective=make_objective(loss, default_correctors(loss)),
        device=torch.device(device),
        seed=3,
        **{"optimiser": _ADAM, "burn_in_steps": int(_memory_of(loss) is not None), **options},
    )


def _batch(learner: Learner, seed: int, device: str) -> Batch:
    draw = np.random.default_rng(seed)

    def floats(*shape: int) -> torch.Tensor:
        return torch.from_numpy(draw.normal(size=shape).astype(np.float32)).to(device)

    valid = draw.random((_T, _B)) < 0.8
    terminated = draw.random((_T, _B)) < 0.2
    choices = torch.from_numpy(draw.integers(3, size=(_T, _B))).to(device)
    rewards = floats(_T, _B)
    if seed == 1:  # a NaN in one minibatch, or in all that share its advantages' mean
        first = int(bool(learner.architecture.state))  # behind the burn-in
        rewards[first, 4], valid[first, 4] = float("nan"), True
    if seed == 2:  # the last environments, and with them a minibatch, have no valid step
        valid[:, 6:] = False
    new = torch.zeros(_T, _B, dtype=torch.bool, device=device)
    new[1:] = True
    choosing = learner.architecture.action_spec.kind == "discrete"
    return Batch(
        observations={OBSERVATION: floats(_T + 1, _B, 4)},
        actions=choices if choosing else floats(_T, _B, 2),
        behaviour_log_prob=floats(_T, _B) * 0.2 - 1.0,
        rewards=rewards,
        terminated=torch.from_numpy(terminated).to(device),
        truncated=torch.zeros_like(new),
        valid=torch.from_numpy(valid).to(device),
        versions=np.zeros((_T, _B), np.int64),
        new=new,
        state=tuple(floats(_B, units) for units in learner.architecture.state),
    )


def _orders_of_all_steps(batch: Batch, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """The same ones on each device, of which no step is known to be valid."""
    drawn = torch.Generator().manual_seed(5)
    count = batch.width if batch.state else batch.valid.numel()
    while True:
        yield torch.randperm(count, generator=drawn).to(batch.valid.device)


def _learned(learner: Learner, device: str, stream: Any) -> list[list[UpdateReport]]:
    """The reports of four batches."""
    worker = learner.make_worker(captured=stream)
    return [
        learner.learn(_batch(learner, seed, device), worker, minibatches=_COUNT, epochs=_PASSES)
        for seed in range(4)
    ]


def _compare(
    patch: pytest.MonkeyPatch, device: str, stream: Any, loss: LossConfig, **options: Any
) -> list[list[UpdateReport]]:
    """Learn with decisions that are read, and as a graph in which they are not."""
    patch.setattr("aclearn.learning.update.random_orders", _orders_of_all_steps)
    read, masked = _learner("cpu", loss, **options), _learner(device, loss, **options)
    expected = _learned(read, "cpu", None)
    for module in ("decisions", "optimiser", "moments"):
        patch.setattr(f"aclearn.learning.{module}.readable", lambda device: False)
    found = _learned(masked, device, stream)
    for theirs, ours in zip(expected, found, strict=True):
        for its, mine in zip(theirs, ours, strict=True):
            assert mine.metrics.keys() == its.metrics.keys()
            for name in ("applied", "steps", "new_steps", "ends"):
                assert getattr(mine, name) == getattr(its, name)
            if mine.applied:
                assert mine.metrics == pytest.approx(
                    dict(its.metrics), rel=1e-3, abs=1e-5, nan_ok=True
                )
    state, expected_state = masked.state_tensors(), read.state_tensors()
    assert expected_state.keys() == state.keys()
    for name, values in expected_state.items():
        if not name.startswith("random/"):
            np.testing.assert_allclose(state[name], values, rtol=1e-4, atol=2e-6, err_msg=name)
    return found


@pytest.mark.parametrize("named", _LOSSES)
def test_decisions_that_are_not_read_have_the_same_effect(
    monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    found = _compare(monkeypatch, "cpu", WarmUps(), _LOSSES[named])
    counts = [len(each) for each in found]
    ended = [any(report.ends for report in each) for each in found]
    if named == "an early end":  # its advantages are all NaN where one is
        assert any(ended) and counts[1] == _COUNT
    else:
        # one minibatch is refused in the first pass, and its steps are not in the second
        assert counts[0] == counts[3] == 2 * _COUNT and not any(ended)
        assert [report.applied for report in found[1][:_COUNT]].count(False) == 1
    if named in ("normalised advantages", "numbers"):
        assert counts == [8, 7, 6, 8]
    learner = _learner("cpu", _LOSSES[named])
    batches = [_batch(learner, seed, "cpu") for seed in range(4)]
    if learner.architecture.state:  # the first step is the burn-in
        batches = [batch.after(1, batch.state) for batch in batches]
    news = [int(batch.new_steps) for batch in batches]
    assert [sum(report.new_steps for report in each) for each in found] == news


@pytest.mark.parametrize(
    "options",
    [
        {"amp_dtype": torch.bfloat16},
        {"optimiser": OptimiserConfig(kind="rmsprop_tf", learning_rate=0.01)},
        {"max_updates": 19},
    ],
    ids=("half precision", "another optimiser", "a last update"),
)
def test_they_have_it_with_any_setting(monkeypatch, options: dict[str, Any]) -> None:
    found = _compare(monkeypatch, "cpu", WarmUps(), _LOSSES["numbers"], **options)
    counts = [len(each) for each in found]
    assert counts == ([8, 7, 5, 0] if "max_updates" in options else [8, 7, 6, 8])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("named", _LOSSES)
def test_they_have_it_on_a_gpu_as_one_cuda_graph(named: str, monkeypatch, caplog) -> None:
    _compare(monkeypatch, "cuda", CudaStream(torch.device("cuda")), _LOSSES[named])
    assert "capture_failed" not in caplog.text


def test_each_report_and_copy_comes_while_no_other_worker_changes_the_weights(
    make, monkeypatch
) -> None:
    learner, free = make.learner(make.flat), []
    batch = make.batch(make.flat, 4, 3, seed=1)

    def look(*_: Any) -> None:
        with ThreadPoolExecutor(1) as pool:
            free.append(pool.submit(learner.lock.acquire, blocking=False).result())

    learner.learn(batch, note=look, minibatches=3, epochs=2)
    assert free == [False] * 6
    monkeypatch.setattr("aclearn.learning.update.tensors_of", look)
    monkeypatch.setattr(learner.state, "saved", look)
    learner.tensors()
    learner.state_tensors()
    assert free == [False] * 8

    def fail(report: UpdateReport) -> None:
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        learner.learn(batch, note=fail)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(learner.lock.acquire, blocking=False).result()
