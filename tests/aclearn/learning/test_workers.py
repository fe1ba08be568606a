"""Several workers on one learner: no gradient is lost, applied twice, or torn."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from aclearn.config import OptimiserConfig
from aclearn.learning import Batch, GradientWorker, Learner, Sums
from aclearn.learning.vectors import parts_of
from aclearn.telemetry import WaitMeter, measure_here
from tests.support.clock import Clock
from tests.support.waiting import DEADLINE_S, wait_for

WORKERS, UPDATES_EACH = 4, 40
OPTIMISER = OptimiserConfig(max_grad_norm=0.0, learning_rate=0.003)


Gradients = list[torch.Tensor]


class WatchedLearner(Learner):
    """Records its workers' gradients and its optimiser's, without a lock.

    Attributes:
        made: a copy of each gradient, as its worker left it.
        applied: a copy of each gradient at the optimiser's step, in the order of steps.
    """

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self.made: list[Gradients] = []
        self.applied: list[Gradients] = []
        self.threads: set[str] = set()
        self._step = self.state.optimiser.step
        self.state.optimiser.step = self._keep_and_step

    def differentiate(self, batch: Batch, worker: GradientWorker, steps=None) -> Sums:
        sums = super().differentiate(batch, worker, steps)
        self.made.append([gradient.clone() for gradient in worker.gradients()])
        return sums

    def _keep_and_step(self) -> None:
        [vector] = self.state.optimiser.param_groups[0]["params"]
        parts = parts_of(vector.grad, self.state.parameters)
        self.applied.append([part.clone() for part in parts])
        self.threads.add(threading.current_thread().name)
        self._step()


@pytest.fixture
def hasty():
    """Threads switch within microseconds, so that races occur."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def _bytes_of(gradients: Gradients) -> bytes:
    return b"".join(gradient.numpy().tobytes() for gradient in gradients)


def _adam_by_hand(
    first: dict[str, np.ndarray], applied: list[Gradients]
) -> Iterator[dict[str, np.ndarray]]:
    """The weights before the first gradient and after each one."""
    weights = {name: array.astype(np.float64) for name, array in first.items()}
    mean = {name: np.zeros_like(array) for name, array in weights.items()}
    square = {name: np.zeros_like(array) for name, array in weights.items()}
    yield weights
    for t, gradients in enumerate(applied, start=1):
        weights = dict(weights)
        for name, gradient in zip(weights, gradients, strict=True):
            g = gradient.double().numpy()
            mean[name] = 0.9 * mean[name] + 0.1 * g
            square[name] = 0.999 * square[name] + 0.001 * g**2
            root = np.sqrt(square[name] / (1 - 0.999**t)) + 1e-5
            weights[name] = weights[name] - 0.003 * mean[name] / (1 - 0.9**t) / root
        yield weights


def _flat(weights: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([array.reshape(-1) for array in weights.values()])


def test_four_workers_apply_each_gradient_once_and_whole(make, hasty) -> None:
    learner = WatchedLearner(
        make.images, objective=make.objective(), optimiser=OPTIMISER, device=make.cpu, seed=3
    )
    first = learner.tensors()
    batches = [make.batch(make.images, 4, 3, seed=seed) for seed in range(8)]
    published: list[dict[str, np.ndarray]] = []
    at_once = threading.Barrier(WORKERS, timeout=DEADLINE_S)

    def work(index: int) -> None:
        worker = learner.make_worker()
        at_once.wait()
        for turn in range(UPDATES_EACH):
            learner.learn(batches[(index + turn) % 8], worker)
            published.append(learner.tensors())

    with ThreadPoolExecutor(WORKERS) as pool:
        for future in [pool.submit(work, index) for index in range(WORKERS)]:
            future.result(timeout=DEADLINE_S)

    # none lost, none twice, none torn: the applied gradients are the made ones, bit for bit
    assert len(learner.made) == WORKERS * UPDATES_EACH
    assert Counter(map(_bytes_of, learner.applied)) == Counter(map(_bytes_of, learner.made))
    assert len(learner.threads) == WORKERS
    versions = np.stack([_flat(w) for w in _adam_by_hand(first, learner.applied)])
    np.testing.assert_allclose(_flat(learner.tensors()), versions[-1], rtol=0, atol=2e-5)
    # and no publication lies between two versions
    for weights in published:
        assert np.abs(versions - _flat(weights)).max(axis=1).min() <= 2e-5


def test_two_workers_differentiate_at_the_same_time(make) -> None:
    learner = make.learner(make.images)
    batch = make.batch(make.images, 4, 3, seed=5)
    both = threading.Barrier(2, timeout=DEADLINE_S)

    def meet(*_) -> None:
        both.wait()  # no forward pass continues before the other worker is in the same one

    def differentiate() -> Sums:
        worker = learner.make_worker()
        worker.networks.network.register_forward_pre_hook(meet)
        return learner.differentiate(batch, worker)

    with ThreadPoolExecutor(2) as pool:
        one, other = [pool.submit(differentiate) for _ in range(2)]
        found = [each.result(timeout=DEADLINE_S).values for each in (one, other)]
        assert torch.equal(*found)


def test_a_worker_differentiates_at_whole_versions(make) -> None:
    # an update shifts every weight by the same amount; a mixture of versions would show two
    learner = make.learner(make.flat)
    weights = list(learner.network.parameters())
    done = threading.Event()

    def shift() -> None:
        while not done.is_set():
            with learner.lock, torch.no_grad():
                for weight in weights:
                    weight += 1.0

    with torch.no_grad():
        for weight in weights:
            weight.zero_()
    writer = threading.Thread(target=shift)
    writer.start()
    try:
        worker = learner.make_worker()
        batch = make.batch(make.flat, 3, 2, seed=1)
        seen = set()
        for _ in range(60):
            learner.differentiate(batch, worker)
            values = torch.cat(
                [p.detach().reshape(-1) for p in worker.networks.network.parameters()]
            )
            assert float(values.min()) == float(values.max())
            seen.add(float(values[0]))
        assert len(seen) > 1
    finally:
        done.set()
        writer.join(DEADLINE_S)


def test_two_workers_that_start_together_use_the_same_weights(make) -> None:
    # asynchrony: the second gradient is of the weights before the first was applied
    learner = make.learner(make.images)
    batch = make.batch(make.images, 4, 3, seed=5)
    first, second = learner.make_worker(), learner.make_worker()
    sums = [learner.differentiate(batch, worker) for worker in (first, second)]
    assert torch.equal(sums[0].values, sums[1].values)
    learner.apply(first, sums[0], batch.new_steps, batch.new_steps)
    learner.apply(second, sums[1], batch.new_steps, batch.new_steps)
    again = learner.differentiate(batch, first)
    assert not torch.equal(again.values, sums[0].values)
    for mine, shared in zip(
        first.networks.network.parameters(), learner.network.parameters(), strict=True
    ):
        torch.testing.assert_close(mine, shared, rtol=0, atol=0)


def test_waiting_for_another_worker_s_update_is_no_work(make) -> None:
    learner = Learner(
        make.images, objective=make.objective(), optimiser=OPTIMISER, device=make.cpu, seed=3
    )
    clock = Clock(0.0)
    meter, batch = WaitMeter(clock), make.batch(make.images, 4, 3, seed=1)

    def update() -> None:
        measure_here(meter)
        make.update(learner, batch)

    with ThreadPoolExecutor(1) as pool:
        with learner.lock:  # another worker's
            updated = pool.submit(update)
            # entered, not only made
            waits = lambda: meter._open[-1] is meter._waits.get("the other workers")  # noqa: E731
            wait_for(waits, "the worker waits", pause_s=0.0)
            clock.now += 5.0
        updated.result(timeout=DEADLINE_S)
    assert meter.seconds() == {"the other workers": 5.0, "total": 5.0}
    assert meter.parts()["refresh"] == 0.0
