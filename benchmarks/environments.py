"""Speed of the environments' room: one JSON line a result, least of several repetitions.

`python benchmarks/environments.py` measures CartPole per core, against a bare loop without checks,
and what our wrapper adds to ale-py's vector environment, against an emulator that does nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from aclearn.config import EnvConfig
from aclearn.envs import make_vector_env


def least_s(work: Callable[[], Any], *, repetitions: int = 9) -> float:
    """CPU seconds of the fastest repetition: on a shared machine the others measure neighbours."""
    times_s = []
    for _ in range(repetitions):
        start_s = time.process_time()
        work()
        times_s.append(time.process_time() - start_s)
    return min(times_s)


def cartpole(num_envs: int, steps: int = 300) -> dict[str, Any]:
    """Environment steps per CPU second of a group, and of a loop over bare environments."""
    group = make_vector_env(
        EnvConfig(id="CartPole-v1"), num_envs=num_envs, seed=1, step_timeout_s=30.0, max_faults=0
    )
    group.reset()
    bare = [gymnasium.make("CartPole-v1").unwrapped for _ in range(num_envs)]
    for b, env in enumerate(bare):
        env.reset(seed=1 + b)
    actions = np.random.default_rng(0).integers(0, 2, (steps, num_envs))

    def run_group() -> None:
        for row in actions:
            group.send(row)
            group.recv()

    def run_bare() -> None:
        for row in actions.tolist():
            for env, action in zip(bare, row, strict=True):
                if env.step(action)[2]:
                    env.reset()

    result = {
        "benchmark": "cartpole_group",
        "num_envs": num_envs,
        "env_steps_per_cpu_s": round(steps * num_envs / least_s(run_group)),
        "bare_loop_env_steps_per_cpu_s": round(steps * num_envs / least_s(run_bare)),
    }
    group.close()
    return result


class _StillEmulator:
    """Answers like AtariVectorEnv, at no cost."""

    def __init__(self, num_envs: int) -> None:
        flags = np.zeros(num_envs, np.bool_)
        rewards = np.zeros(num_envs, np.int32)
        info = {"lives": np.ones(num_envs, np.int32)}
        self._answer = (np.zeros((num_envs, 4, 84, 84), np.uint8), rewards, flags, flags, info)

    def send(self, actions: Any) -> None:
        """Nothing."""

    def recv(self) -> Any:
        """Always the same."""
        return self._answer


def atari_overhead(num_envs: int, steps: int = 3000) -> dict[str, Any]:
    """Microseconds that our send and recv add to those of the emulator."""
    env = EnvConfig(id="ALE/Pong-v5")
    group: Any = make_vector_env(env, num_envs=num_envs, seed=1, step_timeout_s=30.0, max_faults=0)
    still = group._envs = _StillEmulator(num_envs)
    actions = np.zeros(num_envs, np.int64)

    def run(target: Any) -> Callable[[], None]:
        def work() -> None:
            for _ in range(steps):
                target.send(actions)
                target.recv()

        return work

    added_s = (least_s(run(group)) - least_s(run(still))) / steps
    return {
        "benchmark": "atari_overhead",
        "num_envs": num_envs,
        "added_us_per_step": round(added_s * 1e6, 2),
    }


if __name__ == "__main__":
    for result in (cartpole(16), cartpole(32), atari_overhead(16)):
        print(json.dumps(result))
