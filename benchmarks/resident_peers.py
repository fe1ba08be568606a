"""Rates of other programs beside `resident.py`, which runs this with their Python.

    PYTHON benchmarks/resident_peers.py envpool|stable_baselines3 [--envs N] [--seconds S]

Prints one JSON line, as `resident.py`; needs only the named package. `envpool` takes given actions
of CartPole in one thread; `stable_baselines3` learns CartPole by its A2C, 16 environments in one
process (its default kind), a 32×32 network, batches of 5 steps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WITHIN_S = 300.0


def rate(work: Callable[[], int], seconds: float) -> dict[str, float]:
    """Steps per second of `work`, which returns its steps: the best third of `seconds` counts."""
    work()
    best = {"steps_per_s": 0.0, "steps_per_cpu_s": 0.0}
    for _ in range(3):
        steps, began, cpu = 0, time.perf_counter(), time.process_time()
        while (took := time.perf_counter() - began) < seconds / 3:
            steps += work()
        used = time.process_time() - cpu
        best["steps_per_s"] = max(best["steps_per_s"], steps / took)
        best["steps_per_cpu_s"] = max(best["steps_per_cpu_s"], steps / used)
    return {name: round(value) for name, value in best.items()}


def peer_row(python: str, peer: str, *, envs: int, seconds: float) -> dict[str, Any]:
    """The line of one peer, run by `python`.

    Raises:
        RuntimeError: it failed; with the end of its output.
    """
    command = [python, str(Path(__file__).resolve()), peer, f"--envs={envs}"]
    asked = subprocess.run(
        [*command, f"--seconds={seconds}"], capture_output=True, text=True, timeout=_WITHIN_S
    )
    if asked.returncode:
        raise RuntimeError(f"{peer} by {python}: {asked.stderr[-500:]}")
    row: dict[str, Any] = json.loads(asked.stdout.splitlines()[-1])
    return row


def envpool(envs: int, seconds: float) -> dict[str, Any]:
    """Given actions, as gymnasium's environments take them in `resident.py`."""
    import envpool as package
    import numpy as np

    pool = package.make_gymnasium("CartPole-v1", num_envs=envs, num_threads=1)
    pool.reset()
    actions = np.random.default_rng(1).integers(2, size=envs)

    def stepped() -> int:
        pool.step(actions)
        return envs

    by = f"envpool {package.__version__}"
    return {"what": "random", "env": "CartPole", "envs": envs, "by": by, **rate(stepped, seconds)}


def stable_baselines3(envs: int, seconds: float) -> dict[str, Any]:
    """Rollout and update of A2C."""
    import stable_baselines3 as package
    import torch
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)  # more are slower on networks this small
    made: Any = make_vec_env("CartPole-v1", n_envs=envs)
    model = package.A2C("MlpPolicy", made, policy_kwargs={"net_arch": [32, 32]}, device="cpu")

    def learned() -> int:
        before = model.num_timesteps
        model.learn(total_timesteps=20 * 5 * envs, reset_num_timesteps=False)
        return int(model.num_timesteps - before)

    by = f"Stable-Baselines3 {package.__version__} A2C"
    return {"what": "learning", "env": "CartPole", "envs": envs, "by": by, **rate(learned, seconds)}


def main() -> None:
    """Measure the named one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=("envpool", "stable_baselines3"))
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    sys.stdout.write(json.dumps(globals()[options.peer](options.envs, options.seconds)) + "\n")


if __name__ == "__main__":
    main()
