"""n-step returns against their definition, with ends at every place."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from correctors import CorrectionInput, CorrectorChain, NStep


def slow(trace: dict[str, np.ndarray], steps: int) -> np.ndarray:
    """r_t + γ r_t+1 + … + γ^n V, one step after another."""
    T, B = trace["rewards"].shape
    targets = np.zeros((T, B))
    for t, b in itertools.product(range(T), range(B)):
        scale = 1.0
        for u in range(t, min(t + steps, T)):
            targets[t, b] += scale * trace["rewards"][u, b]
            scale *= trace["discounts"][u, b]
            if trace["done"][u, b] or u == min(t + steps, T) - 1:
                if scale > 0.0:
                    targets[t, b] += scale * trace["next_values"][u, b]
                break
    return targets


def n_step(trace: dict[str, torch.Tensor], steps: int):
    return CorrectorChain().add(NStep(steps)).correct(CorrectionInput(**trace))


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 9])
def test_returns_with_ends_at_every_place(steps: int) -> None:
    """Every column is another combination of steps that go on, terminate, or are truncated."""
    ends = np.array(list(itertools.product(range(3), repeat=4))).T
    terminated, done = ends == 1, ends > 0
    rng = np.random.default_rng(3)
    values = rng.normal(size=(5, 81)).astype(np.float32)
    reached = rng.normal(size=(4, 81)).astype(np.float32)
    arrays = {
        "values": values[:-1],
        # nothing of a terminated step's successor may be read
        "next_values": np.where(terminated, np.nan, np.where(done, reached, values[1:])),
        "rewards": rng.normal(size=(4, 81)).astype(np.float32),
        "discounts": np.where(terminated, 0.0, 0.9).astype(np.float32),
        "done": done,
    }
    arrays["next_values"] = arrays["next_values"].astype(np.float32)
    trace = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}

    made = n_step(trace, steps)

    expected = slow(arrays, steps)
    np.testing.assert_allclose(made.targets, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(made.advantages, expected - arrays["values"], rtol=1e-5, atol=1e-5)
    assert torch.equal(made.weights, torch.ones(4, 81))


def test_no_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="steps: expected at least 1, got 0"):
        NStep(0)
