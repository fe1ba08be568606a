"""Updates whose decisions are made on the device are those of the learner."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch

from aclearn.config import (
    ActorCriticConfig,
    Config,
    EnvConfig,
    LossConfig,
    OptimiserConfig,
    PPOConfig,
)
from aclearn.learning import Batch, Learner, Minibatches, make_objective
from aclearn.policies import build_architecture
from aclearn.policies.cuda_stream import CudaStream
from aclearn.types import OBSERVATION, ActionSpec, ObservationSpec
from tests.support.warm_ups import WarmUps

_T, _B, _COUNT, _PASSES = 3, 9, 3, 2
_LOSS = ActorCriticConfig(normalise_advantages=True, entropy_cost=0.02)
_ADAM = OptimiserConfig(
    kind="adam", max_grad_norm=0.5, learning_rate=0.01, schedule="linear", schedule_steps=100
)
_CORRECTORS = Config(env=EnvConfig(id="CartPole-v1")).correctors


def _learner(
    device: str,
    *,
    loss: LossConfig = _LOSS,
    optimiser: OptimiserConfig = _ADAM,
    amp_dtype: torch.dtype | None = None,
) -> Learner:
    architecture = build_architecture(
        "mlp",
        ObservationSpec.plain((4,), "float32"),
        ActionSpec.discrete(3),
        hidden=(8,),
        normalise_returns=loss.normalise_returns,
    )
    return Learner(
        architecture,
        objective=make_objective(loss, _CORRECTORS),
        optimiser=optimiser,
        device=torch.device(device),
        amp_dtype=amp_dtype,
        seed=3,
    )


def _batch(seed: int, device: str = "cpu") -> Batch:
    draw = np.random.default_rng(seed)

    def floats(*shape: int) -> torch.Tensor:
        return torch.from_numpy(draw.normal(size=shape).astype(np.float32)).to(device)

    valid = draw.random((_T, _B)) < 0.8
    terminated = draw.random((_T, _B)) < 0.2
    none = torch.zeros(_T, _B, dtype=torch.bool, device=device)
    return Batch(
        observations={OBSERVATION: floats(_T + 1, _B, 4)},
        actions=torch.from_numpy(draw.integers(3, size=(_T, _B))).to(device),
        behaviour_log_prob=floats(_T, _B) * 0.2 - 1.0,
        rewards=floats(_T, _B),
        terminated=torch.from_numpy(terminated).to(device),
        truncated=none,
        valid=torch.from_numpy(valid).to(device),
        versions=np.zeros((_T, _B), np.int64),
        valid_on_host=valid,
    )


def _write(into: Batch, batch: Batch) -> None:
    """Another batch in the same memory."""
    for name in ("actions", "behaviour_log_prob", "rewards", "terminated", "valid"):
        getattr(into, name).copy_(getattr(batch, name))
    into.observations[OBSERVATION].copy_(batch.observations[OBSERVATION])


def _ordinary(learner: Learner, batch: Batch, learned: int) -> tuple[list, int]:
    minibatches = Minibatches(
        batch, count=_COUNT, passes=_PASSES, generator=torch.Generator().manual_seed(0)
    )
    reports = []
    for index, part in minibatches:
        report = learner.update(part, learned_steps=learned)
        reports.append((index, part.steps, report))
        if not report.applied:
            minibatches.refuse(part)
        elif index == 0:
            learned += part.steps
    return reports, learned


def _spoil(batch: Batch, number: int) -> Batch:
    """A batch whose second minibatch has a NaN, or whose last one has no valid step."""
    if number == 1:
        batch.rewards[1, 4], batch.valid[1, 4], batch.valid_on_host[1, 4] = float("nan"), True, True
    if number == 2:
        batch.valid[:, 6:] = False
        batch.valid_on_host[:, 6:] = False
    return batch


def _compare(device: str, stream: Any) -> None:
    ordinary, whole = _learner(device), _learner(device)
    memory = _batch(0, device)
    updates = whole.device_updates(memory, count=_COUNT, passes=_PASSES)
    assert updates is not None and updates.most == _COUNT * _PASSES
    learned = 0
    for number in range(4):
        batch = _spoil(_batch(number, device), number)
        _write(memory, batch)
        before = learned
        expected, learned = _ordinary(ordinary, batch, learned)
        whole.begin_updates(updates, learned_steps=before)
        if device == "cuda":
            torch.cuda.synchronize()
        with stream.scope() if device == "cuda" else nullcontext():
            updates.run(stream)
            found = whole.end_updates(updates)
        assert len(found) == (6, 5, 4, 6)[number]
        for (index, steps, report), each in zip(expected, found, strict=True):
            assert (each.pass_number, each.steps) == (index, steps)
            assert each.report.applied == report.applied
            assert each.report.metrics.keys() == report.metrics.keys()
            if report.applied:
                assert each.report.metrics == pytest.approx(
                    dict(report.metrics), rel=1e-3, abs=1e-5
                )
    expected_state, state = ordinary.state_tensors(), whole.state_tensors()
    assert expected_state.keys() == state.keys()
    for name, values in expected_state.items():
        np.testing.assert_allclose(state[name], values, rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("stream", [None, WarmUps()], ids=("", "after warm-ups"))
def test_the_updates_of_a_batch_are_those_of_the_learner(stream: Any) -> None:
    _compare("cpu", stream)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_they_are_on_a_gpu_as_one_cuda_graph() -> None:
    _compare("cuda", CudaStream(torch.device("cuda")))


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": PPOConfig()},
        {"loss": ActorCriticConfig(normalise_returns=True)},
        {"optimiser": OptimiserConfig(kind="rmsprop")},
        {"amp_dtype": torch.bfloat16},
    ],
    ids=("frozen targets", "normalised returns", "another optimiser", "half precision"),
)
def test_what_the_host_decides_between_updates_is_not_captured(settings: dict) -> None:
    learner = _learner("cpu", **settings)
    assert learner.device_updates(_batch(0), count=_COUNT, passes=_PASSES) is None
