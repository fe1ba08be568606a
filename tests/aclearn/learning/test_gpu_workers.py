"""Workers on a GPU, each in its own stream, learn the same as on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from aclearn.algorithms.actor_critic import ActorCritic
from aclearn.config import OptimiserConfig
from aclearn.types import ObservationSpec, Unroll
from tests.support.unrolls import random_unroll
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

T, B = 5, 3
PLAIN = OptimiserConfig(kind="rmsprop", learning_rate=1e-3, max_grad_norm=0.0)


@pytest.fixture(autouse=True)
def _whole_fp32() -> Iterator[None]:
    """Convolutions in TF32, the default of newer GPUs, would differ from those of a CPU."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


OBSERVED = ObservationSpec.plain((2, 6, 5), "uint8", 2)


def _unroll(seed: int) -> Unroll:
    return random_unroll(seed, T, B, frame=(1, 6, 5), actions=3)


def test_a_batch_through_pinned_memory_has_the_gradient_that_the_cpu_finds(make) -> None:
    gradients = []
    for device in ("cpu", "cuda"):
        learner = make.learner(make.images, device=torch.device(device), optimiser=PLAIN)
        worker = learner.make_worker()
        for seed in (1, 2):  # the second batch uses the memory of the first
            batch = worker.assemble([_unroll(seed)], OBSERVED)
            learner.differentiate(batch, worker)
        gradients.append(torch.cat([g.cpu().reshape(-1) for g in worker.gradients()]))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("frozen", [False, True])
def test_parts_of_a_batch_and_several_uses_learn_what_the_cpu_learns(make, frozen) -> None:
    learned, loss = [], make.Frozen() if frozen else ActorCritic()
    objective = make.replace(make.objective(), algorithm=loss)
    for device in ("cpu", "cuda"):
        learner = make.learner(
            make.images, objective=objective, device=torch.device(device), optimiser=PLAIN
        )
        worker = learner.make_worker()
        batch = worker.assemble([_unroll(1), _unroll(2)], OBSERVED)
        batch = learner.prepare(batch, worker)
        for _ in range(2):
            for part in batch.cut(3):
                make.update(learner, part, worker=worker)
        learned.append(learner.tensors())
    for name, expected in learned[0].items():
        np.testing.assert_allclose(learned[1][name], expected, rtol=1e-2, atol=2e-3, err_msg=name)


def test_several_workers_find_at_the_same_time_what_one_finds_alone(make) -> None:
    # the weights do not change (the learning rate is 0), so each batch has one right gradient
    device = torch.device("cuda")
    still = OptimiserConfig(kind="rmsprop", learning_rate=1e-30, max_grad_norm=0.0)
    learner = make.learner(make.images, device=device, optimiser=still)

    def gradient(worker, seed: int) -> torch.Tensor:
        batch = worker.assemble([_unroll(seed)], OBSERVED)
        sums = learner.differentiate(batch, worker)
        found = torch.cat([g.cpu().reshape(-1) for g in worker.gradients()])
        learner.apply(worker, sums, batch.new_steps, batch.new_steps)
        return found

    alone = learner.make_worker()
    expected = [gradient(alone, seed) for seed in range(6)]

    def work(index: int) -> None:
        worker = learner.make_worker()
        for turn in range(60):
            seed = (index + turn) % 6
            torch.testing.assert_close(gradient(worker, seed), expected[seed], rtol=1e-3, atol=1e-5)

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, index) for index in range(4)]:
            future.result(timeout=DEADLINE_S)


def test_a_worker_that_is_thrown_away_in_the_midst_of_its_work_harms_no_other(make) -> None:
    device = torch.device("cuda")
    learner = make.learner(make.images, device=device, optimiser=PLAIN)
    expected = {name: array.copy() for name, array in learner.tensors().items()}
    for seed in range(20):
        worker = learner.make_worker()
        worker.assemble([_unroll(seed)], OBSERVED)
        worker.refresh(list(learner.network.parameters()))
        del worker
    for name, array in learner.tensors().items():
        np.testing.assert_array_equal(array, expected[name])
