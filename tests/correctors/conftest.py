"""Random traces for the correctors' tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
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


def _random_steps(
    time: int, batch: int, *, actions: int = 4, seed: int = 0, log_rho_scale: float = 1.0
) -> Trace:
    """Keyword arguments for the returns of actions, of episodes as in `random_trace`."""
    trace = _random_trace(time, batch, seed=seed, log_rho_scale=log_rho_scale)
    rng = np.random.default_rng(seed + 1)
    shape = (time, batch, actions)
    return {
        "q_next": torch.from_numpy(rng.normal(size=shape).astype(np.float32)),
        "next_actions": torch.from_numpy(rng.integers(actions, size=shape[:2])),
        "next_target_probs": torch.from_numpy(rng.normal(size=shape).astype(np.float32)).softmax(2),
        "next_log_rhos": trace["log_rhos"],
        **{name: trace[name] for name in ("rewards", "discounts", "done")},
    }


@pytest.fixture(scope="session")
def random_steps() -> Callable[..., Trace]:
    return _random_steps


@pytest.fixture(scope="session")
def golden() -> dict[str, NDArray[Any]]:
    """rlax's results and inputs, with the next step's actions and probabilities."""
    with np.load(Path(__file__).parent / "golden" / "correctors.npz") as stored:
        g = dict(stored)
    logits = {
        policy: np.concatenate([g[f"{policy}_logits"], g[f"{policy}_logits_next"][None]])
        for policy in ("target", "behaviour")
    }
    probs = {name: np.exp(x) / np.exp(x).sum(-1, keepdims=True) for name, x in logits.items()}
    actions = np.concatenate([g["actions"], g["action_next"][None]])
    taken = {
        name: np.take_along_axis(p, actions[..., None], -1)[..., 0] for name, p in probs.items()
    }
    log_rhos = np.log(taken["target"]) - np.log(taken["behaviour"])
    next_values = np.concatenate([g["values"][1:], g["bootstrap_value"][None]])
    return g | {
        "done": g["discounts"] == 0,
        "next_values": next_values,
        "log_rhos": log_rhos[:-1],
        "next_log_rhos": log_rhos[1:],
        "next_actions": actions[1:],
        "next_target_probs": probs["target"][1:],
        "q_next": g["q"][1:],
    }
