"""Workloads of `tuner.py`, in each of which some count matters.

* `predictors`: eight actors of one environment, whose emulator sleeps 2 ms a step, and one
  observation a reply. Inference of one costs four times as much as learning one in a batch.
* `accelerator`: a prediction waits 5 ms without the CPU, as for a device with several requests in
  flight, so that each worker adds throughput (GA3C's case). Four actors.
* `trainers`: learning dominates, with a wide network and each step learned eight times.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np

_STEP_S = 0.002
_PREDICTION_S = 0.005
COMMON: dict[str, dict[str, Any]] = {
    "env": {"id": "tuner_workloads:slow_cartpole"},
    "policy": {"architecture": "mlp"},
    "actors": {
        "processes": 4,
        "groups": 2,
        "envs_per_group": 4,
        "unroll_length": 10,
        "inference": "predictor",
    },
    "trainer": {"device": "cpu", "unrolls_per_batch": 4, "queue_batches": 2},
    "loss": {"normalise_advantages": True},
    "monitor": {"heartbeat_every_s": 0.25},
}
WORKLOADS: dict[str, dict[str, Any]] = {
    "predictors": {
        "env": {"id": "tuner_workloads:slow_screens", "frame_stack": 4},
        "policy": {"architecture": "accerl-original"},
        "actors": {"processes": 8, "groups": 1, "envs_per_group": 1},
        "predictor": {"runtime": "torch", "max_batch": 1},
        "trainer": {"unrolls_per_batch": 16},
    },
    "accelerator": {
        "actors": {"processes": 4, "groups": 1, "envs_per_group": 1},
        "predictor": {"max_batch": 1},
    },
    "trainers": {
        "policy": {"hidden": [1024, 1024]},
        "trainer": {"epochs": 8},
    },
}


class SlowCartPole(gymnasium.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc]
    """CartPole whose step sleeps."""

    def step(self, action: Any) -> Any:
        """As CartPole, later."""
        time.sleep(_STEP_S / 4)
        return super().step(action)


class SlowScreens(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """Noise images, each step after a sleep; episodes of 200 steps, a reward every tenth."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self) -> None:
        self._screens = np.random.default_rng(0).integers(0, 256, (16, 84, 84), np.uint8)
        self._t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """The first screen."""
        self._t = 0
        return self._screens[0], {}

    def step(self, action: Any) -> Any:
        """The next screen, later."""
        time.sleep(_STEP_S)
        self._t += 1
        return self._screens[self._t % 16], float(self._t % 10 == 0), False, self._t >= 200, {}


def slow_cartpole() -> gymnasium.Env[Any, Any]:
    """The `env.id` of `COMMON`."""
    return SlowCartPole(gymnasium.make("CartPole-v1"))


def slow_screens() -> gymnasium.Env[Any, Any]:
    """The `env.id` of `predictors`: images."""
    return SlowScreens()


def predictor() -> None:
    """A predictor's process whose calls sleep first."""
    from compress.runtimes.onnx_runtime import OnnxExecutable
    from services.cli import main as cli

    compute = OnnxExecutable.step

    def step(self: Any, observations: Any, state: Any = ()) -> Any:
        time.sleep(_PREDICTION_S)
        return compute(self, observations, state)

    OnnxExecutable.step = step  # type: ignore[method-assign]
    cli()
