"""A learner that was saved and loaded continues bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.config import OptimiserConfig
from aclearn.errors import CheckpointError
from aclearn.runs import load_newest, save_checkpoint


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("kind", ["adam", "rmsprop", "rmsprop_tf"])
def test_a_loaded_learner_continues_bit_for_bit(make, kind, channels_last, tmp_path) -> None:
    options = {
        "optimiser": OptimiserConfig(kind=kind, learning_rate=0.01),
        "channels_last": channels_last,
    }
    batches = [make.batch(make.images, 4, 3, seed=seed) for seed in range(4)]
    learner = make.learner(make.images, **options)
    for batch in batches[:2]:
        make.update(learner, batch)
    # through a file, like a checkpoint
    save_checkpoint(
        tmp_path,
        tensors=learner.state_tensors(),
        state={"architecture": make.images.digest()},
        label=2,
        keep=1,
    )
    checkpoint = load_newest(tmp_path)
    assert checkpoint is not None
    loaded = make.learner(make.images, seed=99, **options)
    loaded.load_state_tensors(dict(checkpoint.tensors))
    for batch in batches[2:]:
        first, second = (make.update(one, batch) for one in (learner, loaded))
        assert first == second
    expected = learner.state_tensors()
    got = loaded.state_tensors()
    assert got.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array)


def test_state_tensors_have_flat_names_and_the_plain_memory_order(make) -> None:
    learner = make.learner(make.images)
    names = make.images.tensor_shapes()
    make.update(learner, make.batch(make.images, 4, 3, seed=4))
    saved = learner.state_tensors()
    expected = {f"weights/{name}": shape for name, shape in names.items()}
    expected |= {"totals": (4,)}
    for name, shape in names.items():
        expected[f"optimiser/{name}/exp_avg"] = shape
        expected[f"optimiser/{name}/exp_avg_sq"] = shape
        expected[f"optimiser/{name}/step"] = ()
    shapes = {name: array.shape for name, array in saved.items()}
    assert {n: shape for n, shape in shapes.items() if not n.startswith("random/")} == expected
    assert all(array.flags.c_contiguous for array in saved.values())
    # after one step Adam's first moment is (1 − β1) g
    g = make.gradients(learner)["convolutions.0.weight"]
    np.testing.assert_allclose(
        saved["optimiser/convolutions.0.weight/exp_avg"], 0.1 * g.numpy(), rtol=1e-5, atol=1e-9
    )


def test_saved_tensors_are_copies(make) -> None:
    learner = make.learner(make.flat)
    batch = make.batch(make.flat, 4, 3, seed=5)
    make.update(learner, batch)
    saved = learner.state_tensors()
    before = {name: array.copy() for name, array in saved.items()}
    make.update(learner, batch)
    for name, array in saved.items():
        np.testing.assert_array_equal(array, before[name])


def test_equal_weights_have_one_digest_and_every_bit_of_them_changes_it(make) -> None:
    one, other = (make.learner(make.images, channels_last=last).state for last in (False, True))
    digest = int(one.digest())
    assert digest == int(other.digest())  # whatever the order in memory
    # arithmetic of Python's: the place of each tensor times the sum of its 32-bit numbers
    numbers = [weights.detach().numpy().ravel().view(np.int32) for weights in one.parameters]
    assert digest == sum(n * sum(map(int, each)) for n, each in enumerate(numbers, 1))
    for weights in one.parameters:
        weights.detach().view(torch.int32).view(-1)[-1] += 1
        assert int(one.digest()) != digest
        digest = int(one.digest())


def test_weights_of_another_architecture_are_refused_and_change_nothing(make) -> None:
    learner = make.learner(make.flat)
    before = learner.tensors()
    foreign = make.learner(make.images).state_tensors()
    with pytest.raises(CheckpointError, match="of another architecture"):
        learner.load_state_tensors(foreign)
    after = learner.tensors()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_moments_of_another_shape_are_refused_by_name(make) -> None:
    learner = make.learner(make.flat)
    make.update(learner, make.batch(make.flat, 4, 3, seed=6))
    saved = learner.state_tensors()
    saved["optimiser/policy.weight/exp_avg"] = np.zeros((4, 6), np.float32)
    with pytest.raises(CheckpointError, match=r"optimiser/policy\.weight/exp_avg: expected shape"):
        learner.load_state_tensors(saved)


@pytest.mark.parametrize(("saved_by", "loaded_by"), [("adam", "rmsprop"), ("rmsprop", "adam")])
def test_the_state_of_another_optimiser_is_refused(make, saved_by, loaded_by) -> None:
    saved = make.learner(make.flat, optimiser=OptimiserConfig(kind=saved_by))
    make.update(saved, make.batch(make.flat, 4, 3, seed=7))
    loaded = make.learner(make.flat, optimiser=OptimiserConfig(kind=loaded_by))
    with pytest.raises(CheckpointError, match="optimiser"):
        loaded.load_state_tensors(saved.state_tensors())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ["adam", "rmsprop", "rmsprop_tf"])
def test_a_learner_on_a_gpu_continues_from_what_it_saved(make, kind) -> None:
    options = {
        "optimiser": OptimiserConfig(kind=kind, learning_rate=0.01),
        "device": torch.device("cuda"),
    }
    names = ("actions", "behaviour_log_prob", "rewards", "terminated")
    batch = make.batch(make.images, 4, 3, seed=8)
    batch = make.replace(
        batch,
        observations={name: leaf.cuda() for name, leaf in batch.observations.items()},
        **{name: getattr(batch, name).cuda() for name in (*names, "truncated", "valid")},
    )
    learner = make.learner(make.images, **options)
    make.update(learner, batch)
    loaded = make.learner(make.images, seed=99, **options)
    loaded.load_state_tensors(learner.state_tensors())
    for one in (learner, loaded):
        make.update(one, batch)
    expected = learner.state_tensors()
    for name, array in loaded.state_tensors().items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-6)
