"""Random traces for the correctors' tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

Trace = dict[str, Tensor]


def _random_trace(
    time: int, batch: int, *, seed: int = 0, discount: float = 0.95, log_rho_scale: float = 1.0
) -> Trace:
    """Keyword arguments for `vtrace`: several episodes, some terminated, some truncated."""
    rng = np.random.default_rng(seed)
    terminated = rng.random((time, batch)) < 0.15
    truncated = ~terminated & (rng.random((time, batch)) < 0.15)
    done = terminated | truncated
    values = rng.normal(size=(time + 1, batch)).astype(np.float32)
    reached_elsewhere = rng.normal(size=(time, batch)).astype(np.float32)
    arrays = {
        "values": values[:-1],
        "next_values": np.where(done, reached_elsewhere, values[1:]),
        "rewards": rng.normal(size=(time, batch)).astype(np.float32),
        "discounts": (discount * ~terminated).astype(np.float32),
        "done": done,
        "log_rhos": (log_rho_scale * rng.normal(size=(time, batch))).astype(np.float32),
    }
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


@pytest.fixture
def random_trace() -> Callable[..., Trace]:
    return _random_trace
