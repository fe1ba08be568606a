"""The sum tree against cumulative sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.learning.sources.sum_tree import SumTree


@pytest.mark.parametrize("leaves", [1, 2, 64, 65, 5000])
@pytest.mark.parametrize("at_once", [3, 200])
def test_leaves_are_drawn_by_their_weights(leaves: int, at_once: int) -> None:
    rng = np.random.default_rng(leaves)
    tree, weights = SumTree(leaves, torch.device("cpu")), np.zeros(leaves)
    for _ in range(20):
        chosen = rng.integers(0, leaves, at_once)
        weights[chosen] = (rng.random(leaves) * (rng.random(leaves) < 0.7))[chosen]
        tree.set(torch.from_numpy(chosen), torch.from_numpy(weights[chosen]))
    weights[0] = 1e-9
    tree.set(torch.tensor([0]), torch.tensor([1e-9], dtype=torch.float64))
    assert float(tree.total) == pytest.approx(weights.sum())
    uniform = rng.random(500)
    drawn = tree.draw(torch.from_numpy(uniform))
    mass = (np.arange(500) + uniform) / 500 * weights.sum()
    np.testing.assert_array_equal(drawn, np.searchsorted(weights.cumsum(), mass, side="right"))


def test_a_leaf_of_weight_0_is_never_drawn() -> None:
    tree = SumTree(200, torch.device("cpu"))
    tree.set(torch.tensor([3, 70]), torch.tensor([0.1, 0.2]))
    edges = torch.tensor([0.0, np.nextafter(1.0, 0.0)], dtype=torch.float64)
    for _ in range(3):
        assert tree.draw(edges).tolist() == [3, 70]
        assert tree.draw(edges[1:]).tolist() == [70]
