"""Ornstein–Uhlenbeck noise on actions, against its formula one number after another."""

from __future__ import annotations

from math import atanh, tanh

import numpy as np
import pytest

from aclearn.rollout import OrnsteinUhlenbeckNoise
from aclearn.types import ActionBatch, PolicyVersion

STD, DAMPING = 0.3, 0.2


@pytest.mark.parametrize("damping", [DAMPING, 1.0])
def test_noise_is_added_between_the_bounds_and_forgets_slowly(damping: float) -> None:
    noise = OrnsteinUhlenbeckNoise(3, 2, std=STD, damping=damping, rng=np.random.default_rng(7))
    same, x = np.random.default_rng(7), np.zeros((3, 2))
    policy = np.array([[0.0, 0.4], [-1.0, 9.0], [0.2, -9.0]], np.float32)
    for t in range(6):
        given = ActionBatch(policy, np.full(3, 2.5, np.float32), PolicyVersion(1, t))
        found = noise.explore(given)
        changes = same.standard_normal((3, 2), dtype=np.float32)
        for b in range(3):
            for n in range(2):
                x[b, n] = (1.0 - damping) * x[b, n] + STD * float(changes[b, n])
                action = min(max(tanh(policy[b, n]) + x[b, n], -1 + 1e-6), 1 - 1e-6)
                # near a bound float32 has few numbers, whose atanh are far apart
                assert tanh(found.actions[b, n]) == pytest.approx(action, abs=1e-6)
                if abs(action) < 0.99:
                    assert found.actions[b, n] == pytest.approx(atanh(action), abs=1e-4)
        assert found.actions.dtype == found.log_prob.dtype == np.float32
        assert not found.log_prob.any() and found.at == given.at
        started = np.array([t == 2, False, t == 4])
        noise.begin(started)
        x[started] = 0.0
    assert np.isfinite(found.actions).all()
