"""An environment that sets torch's defaults keeps them, and the network beside it has its own."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from aclearn.config import EnvConfig
from aclearn.envs import make_vector_env


class Doubles(gymnasium.Env[Any, Any]):
    """Computes in float64 and without gradients, as its constructor says for the whole process."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._left = 10
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self._left -= 1
        return self._seen(), 1.0, self._left == 0, False, {}

    def _seen(self) -> Any:
        made = torch.zeros(2)
        assert (made.dtype, made.device.type, torch.is_grad_enabled()) == (
            torch.float64,
            "meta",
            False,
        )
        return np.zeros(2, np.float32)


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    from aclearn.envs.torch_defaults import ENVIRONMENTS

    ENVIRONMENTS.__init__()
    assert (torch.get_default_dtype(), torch.get_default_device().type) == (torch.float32, "cpu")
    assert torch.is_grad_enabled()


def test_they_hold_in_its_calls_and_not_between_them() -> None:
    config = EnvConfig(id=f"{__name__}:Doubles")
    group = make_vector_env(config, num_envs=2, seed=0, step_timeout_s=60.0, max_faults=0)
    try:
        group.reset()
        for _ in range(3):
            assert torch.ones(1, requires_grad=True).sum().requires_grad
            group.send(np.zeros(2, np.int32))
            assert group.recv().observations["observation"].dtype == np.float32
    finally:
        group.close()
