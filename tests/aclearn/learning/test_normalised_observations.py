"""Observations that a network normalises by the statistics of all learned steps."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from aclearn.policies.network import load_tensors
from aclearn.types import OBSERVATION
from tests.support.architectures import altered

SCALES = np.array([1e3, 1e-30, 0.0], np.float32)
OFFSETS = np.array([-4e3, 0.0, 0.1], np.float32)


def batch_of(make, architecture, seed):
    """Numbers of different sizes, the last a constant; huge where steps are not valid."""
    batch = make.batch(architecture, 5, 4, seed=seed)
    leaf = batch.observations[OBSERVATION] * torch.from_numpy(SCALES) + torch.from_numpy(OFFSETS)
    leaf[:-1][~batch.valid] = 1e9
    return make.replace(batch, observations={OBSERVATION: leaf})


def valid_observations(batches):
    leaves = [b.observations[OBSERVATION][:-1][b.valid].numpy() for b in batches]
    return np.concatenate(leaves).astype(np.float64)


def by_hand(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation; that of the constant is its resolution."""
    std = seen.std(0)
    std[2] = 2.0**-20 * abs(seen[0, 2])
    return seen.mean(0).astype(np.float32), std.astype(np.float32)


def test_the_statistics_are_those_of_all_valid_steps_whatever_worker_learned_them(make) -> None:
    architecture = altered(make.flat, normalise_observations=True)
    learner = make.learner(architecture)
    batches = [batch_of(make, architecture, seed) for seed in range(12)]

    def work(mine) -> None:
        worker = learner.make_worker()
        for batch in mine:
            assert all(report.applied for report in learner.learn(batch, worker, minibatches=2))

    threads = [threading.Thread(target=work, args=(batches[i::3],)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    tensors, seen = learner.tensors(), valid_observations(batches)
    np.testing.assert_allclose(tensors["input.mean"], seen.mean(0), rtol=1e-6)
    np.testing.assert_allclose(tensors["input.std"], by_hand(seen)[1], rtol=1e-6)
    saved = learner.state_tensors()
    assert saved["normaliser/input/count"] == len(seen)
    np.testing.assert_allclose(saved["normaliser/input/variance"], seen.var(0), rtol=1e-9, atol=0)
    assert saved["normaliser/input/variance"][2] == 0.0


def test_the_update_is_that_of_observations_that_are_normalised_by_hand(make) -> None:
    architecture = altered(make.flat, normalise_observations=True)
    learner = make.learner(architecture)
    first, second = (batch_of(make, architecture, seed) for seed in (1, 2))
    learner.learn(first)
    # far from the mean, so that the bound matters
    far = second.observations[OBSERVATION].clone()
    far[0, -1, 0], far[:-1][~second.valid] = 1e6, 0.0
    second = make.replace(second, observations={OBSERVATION: far})
    tensors = learner.tensors()
    seen = valid_observations([first])
    mean, std = by_hand(seen)
    normalised = np.clip((far.numpy() - mean) / std, -10, 10).astype(np.float32)
    plain = make.learner(make.flat)
    load_tensors(plain.network, {n: t for n, t in tensors.items() if not n.startswith("input.")})
    twin = make.replace(second, observations={OBSERVATION: torch.from_numpy(normalised)})
    report, expected = (
        make.update(one, batch) for one, batch in ((learner, second), (plain, twin))
    )
    assert report.metrics == pytest.approx(expected.metrics, rel=1e-4)
    torch.testing.assert_close(make.gradient(learner), make.gradient(plain))
    for name in ("input.mean", "input.std"):
        # neither the gradient nor the optimiser moves them
        np.testing.assert_array_equal(learner.tensors()[name], tensors[name])


def test_a_loaded_learner_has_the_same_statistics_and_goes_on_with_them(make) -> None:
    architecture = altered(make.flat, normalise_observations=True, normalise_returns=True)
    objective = make.objective(make.loss.model_copy(update={"normalise_returns": True}))
    learner, loaded = (
        make.learner(architecture, objective=objective, seed=seed) for seed in (1, 2)
    )
    learner.learn(batch_of(make, architecture, 1))
    loaded.load_state_tensors(learner.state_tensors())
    for one in (learner, loaded):
        one.learn(batch_of(make, architecture, 2))
    expected = learner.state_tensors()
    assert expected.keys() > {"normaliser/input/mean", "normaliser/value/mean", "weights/value.std"}
    for name, array in loaded.state_tensors().items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
