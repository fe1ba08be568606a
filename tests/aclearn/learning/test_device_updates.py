"""Updates whose decisions are made on the device are those of the learner."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from aclearn.algorithms.actor_critic import ActorCriticConfig
from aclearn.algorithms.ddpg import DDPGConfig
from aclearn.algorithms.impact import IMPACTConfig
from aclearn.algorithms.ppo import PPOConfig
from aclearn.config import LossConfig, OptimiserConfig
from aclearn.config.loss import default_correctors
from aclearn.learning import Batch, DeviceReport, Learner, Minibatches, make_objective
from aclearn.learning.device_minibatches import random_order
from aclearn.policies import build_architecture
from aclearn.policies.cuda_stream import CudaStream
from aclearn.types import OBSERVATION, ActionSpec, ObservationSpec
from aclearn.types.action_spec import ActionPart
from tests.support.warm_ups import WarmUps

_T, _B, _COUNT, _PASSES, _SEED = 3, 9, 4, 2, 1234567890123456789
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
}


def _learner(
    device: str,
    loss: LossConfig,
    *,
    optimiser: OptimiserConfig = _ADAM,
    amp_dtype: torch.dtype | None = None,
) -> Learner:
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
    )
    return Learner(
        architecture,
        objective=make_objective(loss, default_correctors(loss)),
        optimiser=optimiser,
        device=torch.device(device),
        amp_dtype=amp_dtype,
        seed=3,
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
        rewards[0, 4], valid[0, 4] = float("nan"), True
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
        valid_on_host=valid,
        new=new,
    )


def _write(into: Batch, batch: Batch) -> None:
    """Another batch in the same memory."""
    for name in ("actions", "behaviour_log_prob", "rewards", "terminated", "valid"):
        getattr(into, name).copy_(getattr(batch, name))
    into.observations[OBSERVATION].copy_(batch.observations[OBSERVATION])


class _InTheDevicesOrder(Minibatches):
    """Minibatches of single steps in the order that the device has."""

    _pass = 0

    def _in_random_order(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        learned = torch.zeros(_T * _B, dtype=torch.bool)
        learned[torch.from_numpy(steps)] = True
        order = random_order(learned, torch.tensor(_SEED), self._pass)
        self._pass += 1
        return order[: len(steps)].numpy()


def _ordinary(learner: Learner, batch: Batch, learned: int) -> tuple[list, int, bool]:
    """The updates as `Trainer` makes them; reports, learned steps, whether the loss ended them."""
    minibatches = _InTheDevicesOrder(
        learner.prepare(batch, learner.own_worker),
        count=_COUNT,
        passes=_PASSES,
        generator=torch.Generator(),
    )
    reports, observed = [], []
    for index, part in minibatches:
        report = learner.update(part, learned_steps=learned)
        reports.append(DeviceReport(index, part.steps, part.new_steps, report))
        if not report.applied:
            minibatches.refuse(part)
            continue
        if index == 0:
            learned += part.new_steps
            observed.append(learner.observed(part))
        if learner.ends_batch(report):
            minibatches.end()
    learner.note_learned(observed)
    return reports, learned, minibatches.ended


def _compare(device: str, stream: Any, loss: LossConfig, **options: Any) -> list[tuple[int, bool]]:
    """Four batches both ways; the number of updates of each, and whether the loss ended them."""
    ordinary, whole = _learner(device, loss, **options), _learner(device, loss, **options)
    memory = _batch(whole, 0, device)
    worker = whole.make_worker(in_place=True)
    updates = whole.device_updates(memory, worker=worker, count=_COUNT, passes=_PASSES)
    learned, made = 0, []
    for number in range(4):
        batch = _batch(whole, number, device)
        _write(memory, batch)
        before = learned
        expected, learned, ended = _ordinary(ordinary, batch, learned)
        if device == "cuda":
            torch.cuda.synchronize()
        with stream.scope() if device == "cuda" else nullcontext():
            updates.begin(before, seed=_SEED)
            updates.run(stream)
            found = updates.results()
        assert updates.ended == ended
        for theirs, ours in zip(expected, found, strict=True):
            assert ours[:3] == theirs[:3]
            assert ours.report.applied == theirs.report.applied
            assert ours.report.metrics.keys() == theirs.report.metrics.keys()
            if ours.report.applied:
                metrics = dict(theirs.report.metrics)
                assert ours.report.metrics == pytest.approx(metrics, rel=1e-3, abs=1e-5)
        made.append((len(found), ended))
    state = whole.state_tensors()
    expected_state = ordinary.state_tensors()
    assert expected_state.keys() == state.keys()
    for name, values in expected_state.items():
        np.testing.assert_allclose(state[name], values, rtol=1e-4, atol=2e-6, err_msg=name)
    return made


@pytest.mark.parametrize("stream", [None, WarmUps()], ids=("", "after warm-ups"))
@pytest.mark.parametrize("named", _LOSSES)
def test_the_updates_of_a_batch_are_those_of_the_learner(named: str, stream: Any) -> None:
    made = _compare("cpu", stream, _LOSSES[named])
    counts, ended = zip(*made, strict=True)
    if named == "an early end":  # its advantages are all NaN where one is
        assert any(ended) and counts[1] == _COUNT
    elif not any(ended):
        # one minibatch is refused in the first pass, and its steps are not in the second
        assert counts[0] == counts[3] == 2 * _COUNT
    if named in ("normalised advantages", "numbers"):
        assert counts == (8, 7, 6, 8)


def test_they_are_in_half_precision_too() -> None:
    _compare("cpu", None, _LOSSES["numbers"], amp_dtype=torch.bfloat16)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("named", _LOSSES)
def test_they_are_on_a_gpu_as_one_cuda_graph(named: str, caplog: pytest.LogCaptureFixture) -> None:
    _compare("cuda", CudaStream(torch.device("cuda")), _LOSSES[named])
    assert "capture_failed" not in caplog.text


def test_a_broken_batch_changes_nothing() -> None:
    learner = _learner("cpu", _LOSSES["a deterministic policy"])
    updates = learner.device_updates(
        _batch(learner, 0, "cpu"),
        worker=learner.make_worker(in_place=True),
        count=_COUNT,
        passes=_PASSES,
        broken=lambda: torch.tensor(True),
    )
    before = learner.tensors()
    updates.begin(0, seed=1)
    updates.run()
    for name, values in learner.tensors().items():
        np.testing.assert_array_equal(values, before[name])


def test_orders_of_steps_are_random_and_begin_with_those_that_are_learned() -> None:
    learned = torch.arange(1000) % 4 != 1
    seed = torch.tensor(2**62 - 1)
    orders = [
        random_order(learned, seed - number, index) for number, index in ((0, 0), (0, 1), (1, 1))
    ]
    for order in orders:
        assert sorted(order.tolist()) == list(range(1000))
        assert learned[order[:750]].all()
        # the mean of 250 of 1000 numbers deviates by 16
        means = [float(part.double().mean()) for part in order[:750].split(250)]
        assert means == pytest.approx([499.5] * 3, abs=80)
    one, other, third = (order[:750] for order in orders)
    assert (one == other).sum() < 10 and (one == third).sum() < 10
    assert (other == third).sum() < 10


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"optimiser": OptimiserConfig(kind="rmsprop")}, "optimiser.kind: rmsprop"),
        ({"amp_dtype": torch.float16}, "trainer.amp: fp16"),
    ],
    ids=("another optimiser", "scaled losses"),
)
def test_a_setting_that_needs_the_host_after_each_update_is_named(settings, named) -> None:
    assert _learner("cpu", _LOSSES["numbers"], **settings).waits_for_each_update == named
